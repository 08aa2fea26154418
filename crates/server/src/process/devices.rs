//! The block devices that caches lie on: opened by the master, which has the right to; workers get the descriptors.
//!
//! Not here: what is on them ([`cache::device`]). Invariants: a device stays open, and no other program has it, as long
//! as a configuration names it, whatever happens to workers; one that holds something else than a cache is refused.
#![expect(
    clippy::disallowed_methods,
    reason = "the master waits for a device, and runs no loop"
)]

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cache::device::look;
use config::{Directive, Tree};
use disk::{DeviceUse, DirectFile, Errno, open_device};
use logs::process_log::{Level, error_log};
use proxy::settings::cache_path::places;
use rustix::fs::{FileType, Stat};

/// How often a device in use is tried, as an address is.
const TRIES: u32 = 5;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// The devices of a configuration, by the paths that name them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Devices(pub Vec<(PathBuf, Arc<OwnedFd>)>);

/// The paths of all devices that a configuration names; relative ones are below the prefix.
#[must_use]
pub(crate) fn named(tree: &Tree, prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&tree.directives, prefix, &mut found);
    found
}

fn collect(directives: &[Directive], prefix: &Path, found: &mut Vec<PathBuf>) {
    for directive in directives {
        if directive.name.bytes().ends_with(b"_cache_path") {
            let (_, devices) = places(&directive.args);
            let devices = devices.into_iter();
            found.extend(devices.map(|path| prefix.join(OsStr::from_bytes(path))));
        }
        collect(directive.children(), prefix, found);
    }
}

impl Devices {
    /// Devices that the program before this one had open.
    #[must_use]
    pub(crate) fn adopt(inherited: Vec<OwnedFd>) -> Self {
        let unnamed = |fd| (PathBuf::new(), Arc::new(fd));
        Self(inherited.into_iter().map(unnamed).collect())
    }

    /// The devices of these paths: those that are open stay so, others are opened.
    ///
    /// # Errors
    /// A sentence: one cannot be opened, is in use, or holds something else than a cache.
    pub(crate) fn next(&self, paths: &[PathBuf]) -> Result<Self, String> {
        let mut next = Self::default();
        for path in paths {
            let wanted = identity_at(path)?;
            if let Some((other, _)) = next.find(wanted) {
                let (path, other) = (path.display(), other.display());
                return Err(format!("\"{other}\" and \"{path}\" are the same device"));
            }
            let device = match self.find(wanted) {
                Some((_, device)) => Arc::clone(device),
                None => Arc::new(open_alone(path)?),
            };
            check(path, &device)?;
            next.0.push((path.clone(), device));
        }
        Ok(next)
    }

    fn find(&self, wanted: Identity) -> Option<&(PathBuf, Arc<OwnedFd>)> {
        let is_it =
            |fd: &OwnedFd| rustix::fs::fstat(fd).is_ok_and(|stat| identity(&stat) == wanted);
        self.0.iter().find(|(_, device)| is_it(device))
    }
}

/// Tests that devices could be used (`-t`): a server that runs may have them.
///
/// # Errors
/// As [`Devices::next`].
pub(crate) fn test(paths: &[PathBuf]) -> Result<(), String> {
    for path in paths {
        let device = match open_device(path, DeviceUse::Alone) {
            Err(Errno::BUSY) => open(path, DeviceUse::Reading)?,
            Err(error) => return Err(refused(path, error)),
            Ok(device) => device,
        };
        check(path, &device)?;
    }
    Ok(())
}

/// What tells two devices apart: whether it is one, and its number; or the file in its place.
type Identity = (bool, u64, u64);

fn identity(stat: &Stat) -> Identity {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => (true, stat.st_rdev, 0),
        _ => (false, stat.st_dev, stat.st_ino),
    }
}

fn identity_at(path: &Path) -> Result<Identity, String> {
    let stat = rustix::fs::stat(path).map_err(|error| refused(path, error))?;
    Ok(identity(&stat))
}

/// Opens a device, of which the workers of a master that was killed may let go only now.
fn open_alone(path: &Path) -> Result<OwnedFd, String> {
    for _ in 1..TRIES {
        match open_device(path, DeviceUse::Alone) {
            Err(Errno::BUSY) => {}
            opened => return opened.map_err(|error| refused(path, error)),
        }
        let name = path.display();
        error_log(
            Level::Notice,
            format_args!("\"{name}\" is in use, try again to open() after 500ms"),
        );
        std::thread::sleep(PAUSE);
    }
    open(path, DeviceUse::Alone)
}

fn open(path: &Path, purpose: DeviceUse) -> Result<OwnedFd, String> {
    open_device(path, purpose).map_err(|error| refused(path, error))
}

fn refused(path: &Path, error: Errno) -> String {
    let name = path.display();
    match error {
        Errno::BUSY => format!(
            "\"{name}\" is in use: a file system on it is mounted, or another program has it"
        ),
        Errno::NOTBLK => {
            format!("\"{name}\" is neither a block device nor a file of a fixed length")
        }
        Errno::INVAL => {
            format!("\"{name}\" cannot be read past the kernel's page cache (O_DIRECT)")
        }
        error => {
            let error = wire::errno(&error.into());
            format!("open() \"{name}\" failed ({error})")
        }
    }
}

fn check(path: &Path, device: &OwnedFd) -> Result<(), String> {
    let name = path.display();
    let contents = look(&DirectFile::new(device.as_fd()));
    let contents = contents.map_err(|error| format!("\"{name}\": {error}"))?;
    match contents.refusal() {
        None => Ok(()),
        Some(refusal) => Err(format!("\"{name}\" is not used as a cache: {refusal}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_opened_once_and_refused_if_it_holds_something_else() {
        // Not in /tmp, which may be in memory.
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("devices-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let made = |name: &str, len: u64| {
            let path = root.join(name);
            std::fs::File::create(&path).unwrap().set_len(len).unwrap();
            path
        };
        let (one, small, other) = (
            made("one", 16 << 20),
            made("small", 4096),
            made("other", 16 << 20),
        );
        std::os::unix::fs::symlink(&one, root.join("link")).unwrap();
        std::fs::write(&other, [&[1; 4096][..], &vec![0; 20 << 20][..]].concat()).unwrap();
        let paths = std::slice::from_ref(&one);
        let first = match Devices::default().next(paths) {
            Err(sentence) if sentence.contains("O_DIRECT") => {
                println!("skipped: {sentence}");
                return std::fs::remove_dir_all(root).unwrap();
            }
            first => first.unwrap(),
        };
        let second = first.next(&[root.join("link")]).unwrap();
        assert!(
            Arc::ptr_eq(&first.0[0].1, &second.0[0].1),
            "it is the same one"
        );
        test(paths).unwrap();
        let refused = |paths: &[PathBuf]| Devices::default().next(paths).unwrap_err();
        assert!(refused(paths).contains("is in use"));
        assert!(refused(&[small]).contains("at least 16 MiB"));
        assert!(refused(&[root.join("none")]).contains("No such file"));
        assert!(refused(std::slice::from_ref(&root)).contains("neither a block device"));
        let sentence = refused(std::slice::from_ref(&other));
        assert!(sentence.contains("which is not overwritten"), "{sentence}");
        assert!(test(&[other]).is_err());
        let twice = first.next(&[one, root.join("link")]).unwrap_err();
        assert!(twice.contains("the same device"), "{twice}");
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn only_lines_with_files_name_devices() {
        let tree = config::parse_bytes(
            b"http { proxy_cache_path /dev/a,/dev/b keys_zone=a:1m files=/d/a,/d/b; proxy_cache_path c keys_zone=c:1m; }",
        );
        let found = named(&tree.unwrap(), Path::new("/p"));
        assert_eq!(found, ["/dev/a", "/dev/b"].map(PathBuf::from));
    }
}
