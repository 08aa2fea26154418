//! Reusing the inode of one file for another: renamed, emptied and written, instead of deleted and created.
//!
//! ext4 passes over the inodes of files that were deleted in the last half minute, one by one: where as many files are
//! made as are deleted, that is most of the cost of a create. Invariant: no reader sees the bytes of one file in the
//! other. A process that has the old file open keeps its contents, and its pages in a socket's queue do not change.

use crate::changing::write::{Create, create, unlinked};
use crate::files::error::Error;
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Opens `path` as an empty file with the inode of `from`. If that is not possible, deletes `from` and creates `path`.
/// If `path` exists, does nothing and fails with EEXIST. **Waits.**
pub(crate) fn reuse_inode(from: &[u8], path: &[u8], mode: u32) -> Result<OwnedFd, Error> {
    let (old, new) = (OsStr::from_bytes(from), OsStr::from_bytes(path));
    let rename = || rustix::fs::renameat_with(CWD, old, CWD, new, RenameFlags::NOREPLACE);
    match call_times::timed(Operation::Rename, rename) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Err(Error::system("rename()", Errno::EXIST)),
        // `from` does not exist, or cannot be renamed: the new file is created all the same.
        Err(_) => {
            let _ = unlinked(from);
            return create(path, Create::New, mode);
        }
    }
    if empty(path).is_ok()
        && let Ok(fd) = open(path)
    {
        return Ok(fd);
    }
    unlinked(path).map_err(|errno| Error::system("unlink()", errno))?;
    create(path, Create::New, mode)
}

/// Empties a file that no process has open. The lease keeps others from opening it before it is empty (by another
/// name).
///
/// Emptied, not overwritten: the kernel sends from the very pages that an overwrite would change. Done on a descriptor
/// of its own: ext4 and xfs flush a file that was truncated when the next descriptor of it is closed, to protect
/// programs that save files this way.
fn empty(path: &[u8]) -> std::io::Result<()> {
    let fd = open(path)?;
    sys::lease(fd.as_fd())?;
    Ok(call_times::timed(Operation::Other, || {
        rustix::fs::ftruncate(&fd, 0)
    })?)
}

fn open(path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
    rustix::fs::open(OsStr::from_bytes(path), flags, Mode::empty())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_inode_is_reused_unless_it_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let bytes = |name: &str| path(name).into_os_string().into_encoded_bytes();
        std::fs::write(path("old"), b"the old one's").unwrap();
        let ino = std::fs::metadata(path("old")).unwrap().ino();
        let fd = reuse_inode(&bytes("old"), &bytes("new"), 0o600).unwrap();
        std::fs::File::from(fd).write_all(b"new").unwrap();
        assert_eq!(std::fs::read(path("new")).unwrap(), b"new");
        assert_eq!(std::fs::metadata(path("new")).unwrap().ino(), ino);
        assert!(!path("old").exists());

        let mut reader = std::fs::File::open(path("new")).unwrap();
        let fd = reuse_inode(&bytes("new"), &bytes("third"), 0o600).unwrap();
        std::fs::File::from(fd).write_all(b"3").unwrap();
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "new");
        assert_eq!(std::fs::read(path("third")).unwrap(), b"3");

        // Without a file to reuse, one is created.
        drop(reuse_inode(&bytes("none"), &bytes("fourth"), 0o600).unwrap());
        assert!(path("fourth").exists() && !path("new").exists());
    }
}
