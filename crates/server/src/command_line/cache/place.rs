//! The directory that a command is about: by its path or by the name of its zone; its journal; the process that owns it.
#![expect(
    clippy::disallowed_methods,
    reason = "a command: no loop runs in this process"
)]

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cache::device::{DEVICE_FILE, DeviceContents, DeviceHeader, look};
use cache::inspect::{JournalView, entry_len, place_in_segment, place_on_device};
use cache::{JOURNAL_FOLDER, Key, Levels, SEGMENTS_FOLDER};
use disk::{DeviceUse, DirectFile, Disk, Local, Pool, open_device};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use proxy::caching::caches::control::{Answer, Order};
use proxy::settings::cache_path::{Zone, Zones};

use super::files::{self, Located};
use super::text;
use crate::cache_orders;
use crate::command_line::flags::Flags;
use crate::command_line::{question, start_options};
use crate::process::load::Loaded;
use httpcore::handler::Modules;

/// Maximum time that the server gets for an order, or for a word about its progress; a check reads a whole entry.
const PATIENCE: Duration = Duration::from_secs(600);
/// Bytes of a page of a segment.
const PAGE_BYTES: usize = 4096;

/// The exit code where something was found that should not be so: a damaged entry, an answer that is not stored.
pub(super) const FOUND: u8 = 1;

/// The configuration that a command reads.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Configuration {
    /// The configuration in which the cache is declared
    #[arg(short = 'c', value_name = "FILE")]
    file: Option<PathBuf>,
    /// The prefix of its paths, as nginx's -p
    #[arg(short = 'p', value_name = "PREFIX")]
    base: Option<PathBuf>,
}

/// The cache that a command is about.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Which {
    /// The directory of a proxy_cache_path (one of several, or that of files=); with -c also the name of its zone
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    pub configuration: Configuration,
}

/// A cache's directory.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Its absolute path, without a slash at its end.
    pub directory: PathBuf,
    /// Its levels, if a configuration says them.
    pub levels: Option<Levels>,
}

impl Configuration {
    /// Whether one was named.
    pub(super) fn is_named(&self) -> bool {
        self.file.is_some() || self.base.is_some()
    }

    /// Reads it, without a word to any log. The errors have been printed.
    pub(super) fn load(&self, modules: Modules) -> Result<Loaded, String> {
        let bytes = |path: &PathBuf| path.clone().into_os_string().into_vec();
        let flags = Flags {
            configuration: self.file.as_ref().map(bytes),
            prefix: self.base.as_ref().map(bytes),
            ..Flags::default()
        };
        question::load(&start_options::of(&flags, modules)).ok_or_else(String::new)
    }
}

impl Which {
    /// Finds the directory; those of all its disks, where a cache that is named has several.
    ///
    /// # Errors
    /// A sentence: there is none, it is not a cache's, or it may not be entered.
    pub(super) fn find(&self, modules: Modules) -> Result<Vec<Place>, String> {
        if self.configuration.is_named() {
            let loaded = self.configuration.load(modules)?;
            let zones = loaded.settings.made::<Zones>();
            let disks = zones.disks_of(self.directory.as_os_str().as_bytes());
            if !disks.is_empty() {
                let place = |zone: &Zone| {
                    let directory = std::ffi::OsStr::from_bytes(&zone.directory);
                    Place::new(Path::new(directory), Some(zone.levels))
                };
                return disks.iter().map(place).collect();
            }
        }
        Ok(vec![Place::new(&self.directory, None)?])
    }

    /// Does work for each directory, with a line before each where there are several. The exit code is [`FOUND`] if
    /// that is the result for one of them.
    pub(super) fn for_each(
        &self,
        modules: Modules,
        mut work: impl FnMut(&Place) -> Result<bool, String>,
    ) -> Result<ExitCode, String> {
        let places = self.find(modules)?;
        let mut is_fine = true;
        for place in &places {
            if places.len() > 1 {
                text::say(format_args!("{}:\n", place.directory.display()));
            }
            is_fine &= work(place)?;
        }
        Ok(match is_fine {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(FOUND),
        })
    }
}

impl Place {
    /// A cache's directory.
    ///
    /// # Errors
    /// As [`Which::find`].
    pub(super) fn new(directory: &Path, levels: Option<Levels>) -> Result<Self, String> {
        let name = directory.display();
        let found = std::fs::canonicalize(directory).map_err(|error| match error.kind() {
            ErrorKind::NotFound => format!("{name}: there is no such directory"),
            _ => format!("{name}: {}", told(&error)),
        })?;
        let folder = found.join(JOURNAL_FOLDER);
        match std::fs::metadata(&folder) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => {
                return Err(format!(
                    "{name} is not a cache directory: {JOURNAL_FOLDER} in it is no directory"
                ));
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(format!("{name}: {}", told(&error)));
            }
            Err(_) => {
                return Err(format!(
                    "{name} is not a cache directory of this program: there is no {JOURNAL_FOLDER} in it"
                ));
            }
        }
        let place = Self {
            directory: found,
            levels,
        };
        match std::fs::read_dir(&folder) {
            Ok(_) => Ok(place),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let owner = place.owner().map_or_else(
                    |_| "another user".to_owned(),
                    |(uid, _)| format!("user {uid}"),
                );
                Err(format!(
                    "{name}: permission denied: it belongs to {owner}; run this as that user, or as root"
                ))
            }
            Err(error) => Err(format!("{name}: {}", told(&error))),
        }
    }

    /// Its path.
    pub(super) fn bytes(&self) -> &[u8] {
        self.directory.as_os_str().as_bytes()
    }

    /// Where the entry of a key lies, if there is one.
    pub(super) fn entry_of(&self, key: &Key) -> Option<Located> {
        let in_segment = || self.in_segment(key);
        self.file_of(key).map(Located::whole).or_else(in_segment)
    }

    /// The device beside the directory, if it has one: the file to be opened, and its header.
    ///
    /// # Errors
    /// A sentence: it cannot be read, or is no cache's.
    pub(super) fn device(&self) -> Result<Option<(PathBuf, DeviceHeader)>, String> {
        let named = self.directory.join(JOURNAL_FOLDER).join(DEVICE_FILE);
        let text = match std::fs::read(&named) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| format!("{}: {}", named.display(), told(&error)))?,
        };
        let mut lines = text.split(|byte| *byte == b'\n');
        let (identity, path) = (lines.next().unwrap_or_default(), lines.next());
        let path = Path::new(OsStr::from_bytes(path.unwrap_or_default()));
        let fail = |why: &str| format!("the cache's device {}: {why}", path.display());
        let found = std::fs::canonicalize(path).map_err(|error| fail(&told(&error)))?;
        let opened = open_device(&found, DeviceUse::Reading);
        let opened = opened.map_err(|errno| fail(&told(&errno.into())))?;
        match look(&DirectFile::new(opened.as_fd())) {
            Err(error) => Err(fail(&error.to_string())),
            Ok(DeviceContents::Segments(header)) if header.name().as_bytes() == identity => {
                Ok(Some((found, header)))
            }
            Ok(_) => Err(fail("it is another device now")),
        }
    }

    /// The entry of a key that the journal knows on the device.
    fn on_device(&self, key: &Key, path: PathBuf, header: &DeviceHeader) -> Option<Located> {
        let known = self.journal(Some(&[*key])).ok()?.known(key)?;
        files::on_device(&path, &place_on_device(header, &known)?).ok()?
    }

    /// The entry of a key that the journal knows in a segment.
    fn in_segment(&self, key: &Key) -> Option<Located> {
        if let Ok(Some((path, header))) = self.device() {
            return self.on_device(key, path, &header);
        }
        let folder = self.directory.join(SEGMENTS_FOLDER);
        let known = self.journal(Some(&[*key])).ok()?.known(key)?;
        let read = |path: &Path, at, len| {
            let bytes = files::open(path, 0).and_then(|file| files::read_at(&file, at, len));
            bytes.ok()
        };
        let mut names = std::fs::read_dir(&folder).ok()?.flatten();
        // All segments have the same length, which the first page says.
        let (number, at) =
            names.find_map(|name| place_in_segment(&read(&name.path(), 0, PAGE_BYTES)?, &known))?;
        let path = folder.join(number.to_string());
        let len = entry_len(&read(&path, at, PAGE_BYTES)?)?;
        Some(Located {
            path,
            span: Some((at, len)),
        })
    }

    /// The file of a key, if it has one of its own.
    fn file_of(&self, key: &Key) -> Option<PathBuf> {
        let levels: Vec<Levels> = self
            .levels
            .map_or_else(|| Levels::all().collect(), |one| vec![one]);
        let mut paths = levels
            .into_iter()
            .map(|levels| self.directory.join(key.path(levels)));
        paths.find(|path| path.is_file())
    }

    /// Does work with the disk layer, on a runtime of its own.
    pub(super) fn with_disk<T>(
        &self,
        work: impl AsyncFnOnce(&Local, &Pool) -> T,
    ) -> Result<T, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .map_err(|error| error.to_string())?;
        Ok(runtime.block_on(async {
            let disk = Disk::new(Disk::prepare());
            let local = Local::new(&disk);
            work(&local, &disk.default_pool()).await
        }))
    }

    /// What its journal says of some keys, or of all.
    pub(super) fn journal(&self, only: Option<&[Key]>) -> Result<JournalView, String> {
        let read = self.with_disk(async |local, pool| {
            JournalView::read(local, self.bytes(), pool, only).await
        })?;
        read.map_err(|error| format!("{}: {error}", self.directory.display()))
    }

    /// The user and group that own the journal, and so everything here.
    pub(super) fn owner(&self) -> Result<(u32, u32), String> {
        let meta = std::fs::symlink_metadata(self.directory.join(JOURNAL_FOLDER));
        let meta = meta.map_err(|error| error.to_string())?;
        Ok((meta.uid(), meta.gid()))
    }

    /// Becomes the owner, for good, where this is root: what root writes, the server could not read.
    pub(super) fn become_owner(&self) -> Result<(), String> {
        let (uid, gid) = self.owner()?;
        if !Uid::effective().is_root() || uid == 0 {
            return Ok(());
        }
        let gid = Gid::from_raw(gid);
        setgroups(&[gid])
            .and_then(|()| setgid(gid))
            .and_then(|()| setuid(Uid::from_raw(uid)))
            .map_err(|errno| format!("cannot become user {uid}, who owns the cache: {errno}"))
    }

    /// The server that owns it, if it takes orders: a connection to its control socket.
    pub(super) fn server(&self) -> Result<Option<UnixStream>, String> {
        cache_orders::connect(&self.directory)
            .map_err(|error| format!("the server's control socket: {}", told(&error)))
    }

    /// Has the server that owns it carry out an order. None: no server takes orders.
    pub(super) fn order(&self, order: &Order) -> Result<Option<Answer>, String> {
        let Some(stream) = self.server()? else {
            return Ok(None);
        };
        let answer = cache_orders::ask(stream, order, PATIENCE);
        let answer =
            answer.map_err(|error| format!("the server did not answer: {}", told(&error)))?;
        match answer {
            Some(Answer::Failed(why)) => Err(format!("the server refuses: {why}")),
            Some(answer) => Ok(Some(answer)),
            None => Err("the server did not answer: it is leaving, perhaps; try again".to_owned()),
        }
    }
}

/// An error for a reader.
pub(super) fn told(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "permission denied: run this as the user of the worker, or as root".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
