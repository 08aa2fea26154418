//! The state of an issuer on disk: its account's key, certificates with their keys, and what is known of attempts.
//!
//! A directory (0700) with `account.key`, `account.url`, and for each certificate `ID.crt` and `ID.key` (0600). Invariants: a
//! file is replaced whole; links are not followed in writing; a certificate without its key is not taken.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tls::x509::certificate::Certificate;
use zeroize::Zeroizing;

use crate::Error;
use crate::account::base64url;
use crate::issuer::Issuer;

/// Maximum size of a file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Age from which on an unfinished file is nobody's: its process has ended amid writing it.
const UNFINISHED_AGE: Duration = Duration::from_secs(3600);
/// Maximum number of files of the directory that are looked at for that.
const LOOKED_AT_MAX: usize = 100_000;
const ACCOUNT_KEY: &str = "account.key";
const ACCOUNT_URL: &str = "account.url";

/// A certificate with its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate and those between it and an authority, as PEM.
    pub chain: Vec<u8>,
    /// Its key, as PEM.
    pub key: Zeroizing<String>,
    /// Begin of its validity, in seconds since 1970.
    pub not_before: i64,
    /// End of its validity, in seconds since 1970.
    pub not_after: i64,
    /// Its name for the authority (RFC 9773, 4.1), where it has what that is made of.
    pub renewal_id: Option<String>,
}

impl std::fmt::Debug for Issued {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Issued({}..{})", self.not_before, self.not_after)
    }
}

impl Issued {
    /// Of a chain and a key.
    ///
    /// # Errors
    /// One of them cannot be read, or they do not belong together.
    pub fn new(chain: Vec<u8>, key: Zeroizing<String>) -> Result<Self, String> {
        let read = |name: &str| match name {
            "key" => Ok(key.as_bytes().to_vec()),
            _ => Ok(chain.clone()),
        };
        let pair = tls::keys::pair("certificate", "key", &[], &read);
        let pair = pair.map_err(|error| error.to_string())?;
        let first = pair.cert.first().and_then(|der| Certificate::read(der));
        let first = first.ok_or("it cannot be read")?;
        let (not_before, not_after) = (first.not_before, first.not_after);
        let renewal_id = first
            .authority_key()
            .map(|key| format!("{}.{}", base64url(key), base64url(first.serial)));
        Ok(Self {
            not_before,
            not_after,
            renewal_id,
            chain,
            key,
        })
    }
}

/// What is known of the attempts to get a certificate: over restarts, so that they cause no storm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Attempts {
    /// When the last one began, in seconds since 1970.
    pub(crate) last: i64,
    /// How many have failed since one succeeded.
    pub(crate) failures: u32,
    /// How many certificates in a row were due as soon as they came.
    pub(crate) early: u32,
    /// Before this the authority wants none, in seconds since 1970.
    pub(crate) until: i64,
    /// The digest of the directory's URL of the authority that has issued the certificate; 0: unknown.
    pub(crate) authority: u64,
}

impl Attempts {
    /// Whether the certificate is of another authority than the issuer's.
    pub(crate) fn is_foreign(&self, issuer: &Issuer) -> bool {
        self.authority != 0 && self.authority != issuer.uri.digest()
    }
}

/// A certificate that no other process orders meanwhile.
pub(crate) struct Lock {
    _file: Option<File>,
}

/// The state of an issuer.
#[derive(Debug, Default)]
pub struct Store {
    path: Option<PathBuf>,
    /// The account's key, where there is no directory.
    memory: Mutex<Option<Zeroizing<Vec<u8>>>>,
    has_account: AtomicBool,
    is_swept: AtomicBool,
}

impl Store {
    /// In this directory; `None`: in memory only.
    #[must_use]
    pub fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            memory: Mutex::default(),
            has_account: AtomicBool::new(false),
            is_swept: AtomicBool::new(false),
        }
    }

    /// Makes the directory where there is none. Its parents have to be there, as in nginx.
    ///
    /// # Errors
    /// nginx's sentence.
    pub fn open(&self) -> Result<(), Error> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(failed("mkdir", path, &error));
            }
            Err(_) => {}
            Ok(()) => allow_owner(path).map_err(|error| failed("chmod", path, &error))?,
        }
        if !self.is_swept.swap(true, Ordering::Relaxed) {
            sweep(path);
        }
        Ok(())
    }

    /// The certificate that is kept under this name.
    #[must_use]
    pub fn load(&self, id: &str) -> Option<Issued> {
        let pair = |chain: &str, key: &str| {
            let chain = self.read(chain).ok().flatten()?;
            let key = self.read(key).ok().flatten()?;
            let key = Zeroizing::new(String::from_utf8(key.to_vec()).ok()?);
            Issued::new(chain.to_vec(), key).ok()
        };
        let (chain, key) = (format!("{id}.crt"), format!("{id}.key"));
        // Both are renamed one behind the other: a process may have ended between.
        pair(&chain, &key).or_else(|| pair(&temporary(&chain), &key))
    }

    /// Writes a certificate beside the one that is kept; done under its lock.
    pub(crate) fn prepare(&self, id: &str, issued: &Issued) -> Result<(), Error> {
        let (chain, key) = (format!("{id}.crt"), format!("{id}.key"));
        self.write_to(&temporary(&key), issued.key.as_bytes())?;
        self.write_to(&temporary(&chain), &issued.chain)
    }

    /// Puts what was prepared into its place.
    pub(crate) fn commit(&self, id: &str) -> Result<(), Error> {
        for name in [format!("{id}.key"), format!("{id}.crt")] {
            self.rename(&temporary(&name), &name)?;
        }
        Ok(())
    }

    pub(crate) fn account_key(&self) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        match self.path {
            None => Ok(self.memory().clone()),
            Some(_) => self.read(ACCOUNT_KEY),
        }
    }

    pub(crate) fn write_account_key(&self, pem: &str) -> Result<(), Error> {
        *self.memory() = Some(Zeroizing::new(pem.as_bytes().to_vec()));
        self.write(ACCOUNT_KEY, pem.as_bytes())
    }

    /// Puts another key into the place of one whose account is given up.
    pub(crate) fn replace_account_key(&self, pem: &str) -> Result<(), Error> {
        if let Some(old) = self.read(ACCOUNT_KEY)? {
            self.write("account.key.old", &old)?;
        }
        self.has_account.store(false, Ordering::Relaxed);
        if let Some(path) = self.path_of(ACCOUNT_URL) {
            let _ = fs::remove_file(path);
        }
        self.write_account_key(pem)
    }

    /// Whether the authority has known the account.
    pub(crate) fn has_account(&self) -> bool {
        self.has_account.load(Ordering::Relaxed)
            || self.read(ACCOUNT_URL).is_ok_and(|url| url.is_some())
    }

    pub(crate) fn write_account_url(&self, url: &str) -> Result<(), Error> {
        self.has_account.store(true, Ordering::Relaxed);
        let known = self.read(ACCOUNT_URL)?;
        if known.is_some_and(|known| known[..] == *url.as_bytes()) {
            return Ok(());
        }
        self.write(ACCOUNT_URL, url.as_bytes())
    }

    pub(crate) fn attempts(&self, id: &str) -> Attempts {
        let read = self.read(&attempts_file(id)).ok().flatten();
        let read = read.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        read.unwrap_or_default()
    }

    pub(crate) fn write_attempts(&self, id: &str, attempts: &Attempts) -> Result<(), Error> {
        let text = serde_json::to_vec(attempts).unwrap_or_default();
        self.write(&attempts_file(id), &text)
    }

    /// Takes a certificate's lock; `None`: another process orders it.
    pub(crate) fn lock(&self, id: &str) -> Result<Option<Lock>, Error> {
        let Some(path) = self.path_of(&format!(".{id}.lock")) else {
            return Ok(Some(Lock { _file: None }));
        };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)
            .map_err(|error| failed("open", &path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: Some(file) })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(failed("flock", &path, &error)),
        }
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Option<Zeroizing<Vec<u8>>>> {
        self.memory
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn path_of(&self, name: &str) -> Option<PathBuf> {
        self.path.as_ref().map(|path| path.join(name))
    }

    fn read(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let Some(path) = self.path_of(name) else {
            return Ok(None);
        };
        let mut bytes = Zeroizing::new(Vec::new());
        let read =
            File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("open", &path, &error)),
        }
    }

    /// Replaces a file. Other issuers and processes with the same directory may do so at the same time.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let own = temporary(&format!("{name}.{}-{count}", std::process::id()));
        let written = self.write_to(&own, bytes);
        let written = written.and_then(|()| self.rename(&own, name));
        if let (Err(_), Some(path)) = (&written, self.path_of(&own)) {
            // Each try has a name of its own.
            let _ = fs::remove_file(path);
        }
        written
    }

    fn write_to(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let Some(path) = self.path_of(name) else {
            return Ok(());
        };
        let _ = fs::remove_file(&path);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| {
                file.write_all(bytes)?;
                file.sync_all()
            });
        written.map_err(|error| failed("write", &path, &error))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        let (Some(from), Some(to)) = (self.path_of(from), self.path_of(to)) else {
            return Ok(());
        };
        fs::rename(&from, &to).map_err(|error| failed("rename", &to, &error))?;
        // Else a power cut may take a name back: the account's key, say, behind its registration. Some file systems refuse.
        if let Some(directory) = &self.path {
            let _ = File::open(directory).and_then(|directory| directory.sync_all());
        }
        Ok(())
    }
}

/// Gives a directory that was just made its permissions, whatever the umask was meanwhile: that is the process's, and the
/// master changes it while it binds a unix socket.
fn allow_owner(path: &Path) -> io::Result<()> {
    let flags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW);
    let directory = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    directory.set_permissions(Permissions::from_mode(0o700))
}

/// Removes the unfinished files of [`Store::write`]. Those of certificates stay: one of them may be the only whole one.
fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten().take(LOOKED_AT_MAX) {
        let is_old = || {
            let changed = entry.metadata().and_then(|meta| meta.modified()).ok();
            changed
                .and_then(|changed| changed.elapsed().ok())
                .is_some_and(|age| age >= UNFINISHED_AGE)
        };
        if is_unfinished(&entry.file_name().to_string_lossy()) && is_old() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a file's name ends as [`Store::write`] makes it: with a process and a count.
fn is_unfinished(name: &str) -> bool {
    let name = name
        .strip_prefix('.')
        .and_then(|name| name.strip_suffix(".new"));
    let numbers = name.and_then(|name| name.rsplit_once('.')?.1.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(process, count)| is_number(process) && is_number(count))
}

fn temporary(name: &str) -> String {
    format!(".{name}.new")
}

fn attempts_file(id: &str) -> String {
    format!(".{id}.attempts")
}

fn failed(call: &str, path: &Path, error: &io::Error) -> Error {
    let (path, error) = (path.display(), wire::numbered(error));
    Error::Local(format!("{call}() \"{path}\" failed {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyKind;

    pub(crate) fn issued(name: &str) -> Issued {
        let key = KeyKind::default().generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let chain = params.self_signed(&key).unwrap().pem().into_bytes();
        Issued::new(chain, Zeroizing::new(key.serialize_pem())).unwrap()
    }

    #[test]
    fn certificates_survive_and_are_for_the_owner_alone() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("state");
        let store = Store::new(Some(path.clone()));
        store.open().unwrap();
        store.open().unwrap();
        assert_eq!(store.load("a"), None);
        let (one, two) = (issued("one.test"), issued("two.test"));
        store.prepare("a", &one).unwrap();
        store.commit("a").unwrap();
        assert_eq!(store.load("a"), Some(one.clone()));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("a.key"))), (0o700, 0o600));
        // The process ends between the two renames.
        store.prepare("a", &two).unwrap();
        assert_eq!(store.load("a"), Some(one));
        store.rename(".a.key.new", "a.key").unwrap();
        assert_eq!(store.load("a"), Some(two));
        fs::write(path.join("a.crt"), "broken").unwrap();
        fs::write(path.join(".a.crt.new"), "broken").unwrap();
        assert_eq!(store.load("a"), None);
    }

    #[test]
    fn an_order_is_locked_once_and_attempts_are_remembered() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(Some(root.path().to_owned()));
        let lock = store.lock("a").unwrap();
        assert!(lock.is_some() && store.lock("a").unwrap().is_none());
        assert!(store.lock("b").unwrap().is_some());
        drop(lock);
        assert!(store.lock("a").unwrap().is_some());
        let attempts = Attempts {
            last: 7,
            failures: 2,
            early: 1,
            until: 9,
            authority: u64::MAX,
        };
        store.write_attempts("a", &attempts).unwrap();
        assert_eq!(store.attempts("a"), attempts);
        fs::write(root.path().join(".a.attempts"), "no JSON").unwrap();
        assert_eq!(store.attempts("a"), Attempts::default());
    }

    #[test]
    fn unfinished_files_do_not_pile_up() {
        let root = tempfile::tempdir().unwrap();
        let store = || Store::new(Some(root.path().to_owned()));
        // A directory in the place of the file: it cannot be renamed.
        fs::create_dir(root.path().join(".a.attempts")).unwrap();
        assert!(store().write_attempts("a", &Attempts::default()).is_err());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        let names = [
            "..a-1.attempts.7-0.new",
            ".account.key.71-12.new",
            ".a-1.crt.new",
            ".b-71.12-3.crt.new",
            "a.7-0.new",
            ".young.7-0.new",
        ];
        for name in names {
            let file = File::create(root.path().join(name)).unwrap();
            let age = match name.starts_with(".young") {
                true => Duration::ZERO,
                false => 2 * UNFINISHED_AGE,
            };
            file.set_modified(std::time::SystemTime::now() - age)
                .unwrap();
        }
        store().open().unwrap();
        let is_there = names.map(|name| root.path().join(name).exists());
        assert_eq!(is_there, [false, false, true, true, true, true]);
    }

    #[test]
    fn a_link_is_not_written_through() {
        let root = tempfile::tempdir().unwrap();
        let victim = root.path().join("victim");
        fs::write(&victim, "kept").unwrap();
        let state = root.path().join("state");
        fs::create_dir(&state).unwrap();
        for name in [".a.key.new", "account.key", ".a.lock"] {
            std::os::unix::fs::symlink(&victim, state.join(name)).unwrap();
        }
        let store = Store::new(Some(state));
        store.write_account_key("secret").unwrap();
        store.prepare("a", &issued("a.test")).unwrap();
        assert!(store.lock("a").is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    }

    #[test]
    fn without_a_directory_the_key_is_in_memory() {
        let store = Store::new(None);
        store.write_account_key("secret").unwrap();
        assert_eq!(store.account_key().unwrap().unwrap()[..], *b"secret");
        store.prepare("a", &issued("a.test")).unwrap();
        store.commit("a").unwrap();
        assert_eq!(store.load("a"), None);
    }
}
