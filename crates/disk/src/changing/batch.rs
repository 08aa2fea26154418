//! Several changes of a disk as one job: writing a file, recording it and giving it its name cost one hop to the pool.
//!
//! Also here: the lock on a file, and the free space of a file system. Invariant: steps run in order, and none after
//! one that failed.

use crate::changing::reuse_inode::reuse_inode;
use crate::changing::write::{
    Create, Output, create, make_directory, renamed, synced, unlinked, write_all,
};
use crate::files::error::{Error, STEPS_MAX};
use crate::files::pread::read_fully;
use crate::local::Local;
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use crate::pool::Pool;
use bytes::Bytes;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Bytes of the suffix that a file's name has until the file is complete.
pub const ENDING_BYTES: usize = 9;

/// One step of [`Local::change`].
#[derive(Clone, Debug)]
pub enum BatchStep {
    /// Makes a directory with these permissions; one that exists is fine.
    Directory(Box<[u8]>, u32),
    /// Makes a file with its contents.
    Create(NewFile),
    /// Appends to an output.
    Append(Output, Vec<Bytes>),
    /// Overwrites the beginning of a file, if it begins with the expected bytes; otherwise nothing is changed, and the
    /// step fails with ESTALE. Bytes within one page are written at once, or not at all if the process is killed.
    Patch {
        /// The file's path.
        path: Box<[u8]>,
        /// The expected first bytes.
        now: Bytes,
        /// The new first bytes.
        then: Bytes,
    },
    /// Overwrites the bytes at this offset. (Not for a file of [`Create::Append`], where Linux appends all the same:
    /// pwrite(2).)
    Overwrite(Output, u64, Bytes),
    /// Waits until the contents are on the disk (fdatasync).
    Sync(Output),
    /// Renames a file over another.
    Rename(Box<[u8]>, Box<[u8]>),
    /// Removes a file; one that does not exist is fine.
    Unlink(Box<[u8]>),
}

/// A file that is made with all its contents. If that fails, the incomplete file is deleted.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// Its path.
    pub path: Box<[u8]>,
    /// The suffix of the path under which it is made if its name is taken or watched; it is renamed when it is
    /// complete.
    pub ending: [u8; ENDING_BYTES],
    /// May the name be looked up before the file is complete?
    pub is_watched: bool,
    /// A file whose inode it reuses, and that is gone afterwards: cheaper than deleting one file and making another. It
    /// need not exist. (A process that has it open keeps its contents.)
    pub from: Option<Box<[u8]>>,
    /// Permissions, if no inode is reused.
    pub mode: u32,
    /// All of its contents.
    pub contents: Vec<Bytes>,
}

/// An exclusive lock on a file (flock(2)), held until this is dropped or the process ends.
#[derive(Debug)]
#[must_use = "the lock is open again when this is dropped"]
pub struct Lock {
    fd: Option<OwnedFd>,
    pool: Pool,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.pool.release(fd);
        }
    }
}

/// The free space of a file system, from statvfs(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks that are free for unprivileged users.
    pub free_blocks: u64,
}

impl Local {
    /// Takes all steps, one after the other, in one job.
    ///
    /// # Errors
    /// [`Error::System`] with the call of the first step that failed; the ones before it are done. [`Error::Overflow`],
    /// [`Error::TooManySteps`]: no step was taken.
    pub async fn change(&self, steps: Vec<BatchStep>, pool: &Pool) -> Result<(), Error> {
        self.change_holding(steps, pool, ()).await
    }

    /// As [`Local::change`]; the job drops `held` when it has ended, even if the caller has left.
    ///
    /// # Errors
    /// As [`Local::change`].
    pub async fn change_holding<T: Send + 'static>(
        &self,
        steps: Vec<BatchStep>,
        pool: &Pool,
        held: T,
    ) -> Result<(), Error> {
        within_bound(&steps)?;
        let work = move || {
            let done = steps.iter().try_for_each(take);
            drop(held);
            done
        };
        self.write_job(Operation::Other, pool, work).await
    }

    /// Locks a file, which is made if it does not exist. None: it is locked already.
    ///
    /// # Errors
    /// [`Error::System`] with `open()` or `flock()`, [`Error::Overflow`].
    pub async fn lock(&self, path: &[u8], pool: &Pool) -> Result<Option<Lock>, Error> {
        let path: Box<[u8]> = path.into();
        let work = move || {
            let fd = create(&path, Create::Append, 0o600)?;
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(Some(fd)),
                Err(Errno::WOULDBLOCK) => Ok(None),
                Err(errno) => Err(Error::system("flock()", errno)),
            }
        };
        let fd = self.write_job(Operation::Other, pool, work).await?;
        let pool = pool.clone();
        Ok(fd.map(|fd| Lock { fd: Some(fd), pool }))
    }

    /// The free space of the file system that a path lies on.
    ///
    /// # Errors
    /// [`Error::System`] with `statvfs()`, [`Error::Overflow`].
    pub async fn room(&self, path: &[u8], pool: &Pool) -> Result<FreeSpace, Error> {
        let path: Box<[u8]> = path.into();
        let work = move || {
            let stat = rustix::fs::statvfs(OsStr::from_bytes(&path));
            let stat = stat.map_err(|errno| Error::system("statvfs()", errno))?;
            Ok(FreeSpace {
                block_bytes: stat.f_frsize.max(512),
                free_blocks: stat.f_bavail,
            })
        };
        self.write_job(Operation::Other, pool, work).await
    }
}

pub(crate) fn within_bound(steps: &[BatchStep]) -> Result<(), Error> {
    match steps.len() > STEPS_MAX {
        true => Err(Error::TooManySteps),
        false => Ok(()),
    }
}

/// Takes all steps, one after the other, on the caller's thread: for work that runs in a pool already. **Waits.**
///
/// # Errors
/// As [`Local::change`], without [`Error::Overflow`].
pub fn take_steps(steps: &[BatchStep]) -> Result<(), Error> {
    within_bound(steps)?;
    steps.iter().try_for_each(take)
}

/// **Waits.**
pub(crate) fn take(step: &BatchStep) -> Result<(), Error> {
    match step {
        BatchStep::Directory(directory, mode) => make_directory(directory, *mode),
        BatchStep::Create(file) => place(file),
        BatchStep::Append(output, parts) => write_all(output.fd(), parts),
        BatchStep::Patch { path, now, then } => patch(path, now, then),
        BatchStep::Overwrite(output, offset, bytes) => overwrite(output.fd(), *offset, bytes),
        BatchStep::Sync(output) => synced(output.fd()),
        BatchStep::Rename(from, to) => {
            renamed(from, to).map_err(|errno| Error::system("rename()", errno))
        }
        BatchStep::Unlink(file) => match unlinked(file) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(errno) => Err(Error::system("unlink()", errno)),
        },
    }
}

/// Makes a file under its own name where that is possible: a rename costs a file system half as much as a create.
fn place(file: &NewFile) -> Result<(), Error> {
    if !file.is_watched {
        match make(file, &file.path) {
            Err(error) if error.errno() == Some(Errno::EXIST) => {}
            done => return done,
        }
    }
    let beside = [&file.path[..], &file.ending].concat();
    make(file, &beside)?;
    renamed(&beside, &file.path).map_err(|errno| Error::system("rename()", errno))
}

fn make(file: &NewFile, path: &[u8]) -> Result<(), Error> {
    let fd = match &file.from {
        Some(from) => reuse_inode(from, path, file.mode)?,
        None => create(path, Create::New, file.mode)?,
    };
    write_all(&fd, &file.contents).inspect_err(|_| {
        // The error reported is the first one, not that of the clean-up.
        let _ = rustix::fs::unlink(OsStr::from_bytes(path));
    })
}

/// Overwrites the beginning of a file. While the file is open here, its inode cannot be reused.
fn patch(path: &[u8], now: &[u8], then: &[u8]) -> Result<(), Error> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOATIME;
    #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
    let open = |flags| rustix::fs::open(OsStr::from_bytes(path), flags, Mode::empty());
    let fd = match open(flags) {
        // O_NOATIME is for the owner only.
        Err(Errno::PERM) => open(flags - OFlags::NOATIME),
        result => result,
    };
    let fd = fd.map_err(|errno| Error::system("open()", errno))?;
    if read_fully(fd.as_fd(), 0, now.len())? != now {
        return Err(Error::system("pwrite()", Errno::STALE));
    }
    overwrite(&fd, 0, then)
}

fn overwrite(fd: &OwnedFd, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    let len = |(): &()| bytes.len() as u64;
    call_times::timed_on(Operation::Write, fd.as_fd(), len, || {
        overwrite_parts(fd, offset, bytes)
    })
}

fn overwrite_parts(fd: &OwnedFd, mut offset: u64, bytes: &[u8]) -> Result<(), Error> {
    let mut left = bytes;
    while !left.is_empty() {
        match rustix::io::pwrite(fd.as_fd(), left, offset) {
            Ok(written) => {
                left = &left[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::system("pwrite()", errno)),
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;
    use crate::tests::{block_on, local};

    fn path(dir: &tempfile::TempDir, name: &str) -> Box<[u8]> {
        dir.path().join(name).as_os_str().as_bytes().into()
    }

    fn whole(path: &[u8], from: Option<&[u8]>) -> NewFile {
        NewFile {
            path: path.into(),
            ending: *b".12345678",
            is_watched: false,
            from: from.map(Into::into),
            mode: 0o600,
            contents: vec![Bytes::from_static(b"he"), Bytes::from_static(b"llo")],
        }
    }

    #[test]
    fn a_complete_file_replaces_another() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let (file, old) = (path(&dir, "file"), path(&dir, "old"));
        let read = || std::fs::read(dir.path().join("file")).unwrap();
        let ino = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().ino();
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        place(&whole(&file, None)).unwrap();
        assert_eq!((&read()[..], names()), (&b"hello"[..], 1));
        for is_watched in [false, true] {
            let mut again = whole(&file, None);
            (again.is_watched, again.contents) = (is_watched, vec![Bytes::from_static(b"again")]);
            place(&again).unwrap();
            assert_eq!((&read()[..], names()), (&b"again"[..], 1));
        }
        // Out of another one, under a name that is taken and under one that is not.
        for _ in 0..2 {
            std::fs::write(dir.path().join("old"), b"something longer").unwrap();
            let inode = ino("old");
            place(&whole(&file, Some(&old))).unwrap();
            assert_eq!((&read()[..], names()), (&b"hello"[..], 1));
            assert_eq!(ino("file"), inode);
            std::fs::remove_file(dir.path().join("file")).unwrap();
        }
    }

    #[test]
    fn steps_are_taken_in_order_until_one_fails() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let (log, temp, file) = (path(&dir, "log"), path(&dir, "temp"), path(&dir, "file"));
            let output = local.create(&log, Create::New, 0o600, &pool).await.unwrap();
            let make = || BatchStep::Create(whole(&temp, None));
            let steps = vec![
                make(),
                BatchStep::Append(output.clone(), vec![Bytes::from_static(b"ab")]),
                BatchStep::Append(output.clone(), vec![Bytes::from_static(b"cd")]),
                BatchStep::Overwrite(output.clone(), 1, Bytes::from_static(b"X")),
                BatchStep::Sync(output.clone()),
                BatchStep::Rename(temp.clone(), file.clone()),
                BatchStep::Unlink(temp.clone()),
            ];
            local.change(steps, &pool).await.unwrap();
            assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"hello");
            assert_eq!(std::fs::read(dir.path().join("log")).unwrap(), b"aXcd");
            let steps = vec![
                BatchStep::Rename(temp.clone(), file.clone()),
                BatchStep::Unlink(file.clone()),
            ];
            let error = local.change(steps, &pool).await.unwrap_err();
            assert_eq!(
                error.to_string(),
                "rename() failed (2: No such file or directory)"
            );
            assert!(dir.path().join("file").exists());
            let many = vec![BatchStep::Unlink(file.clone()); STEPS_MAX + 1];
            let error = local.change(many.clone(), &pool).await.unwrap_err();
            assert_eq!(error.to_string(), "more than 64 steps");
            let group = crate::GroupCommit::new(&pool);
            let (done, back) = local.change_in(&group, output, Bytes::new(), many).await;
            assert!(done.is_err() && back.len() == STEPS_MAX + 1);
            assert!(dir.path().join("file").exists(), "none is taken");
        });
    }

    #[test]
    fn a_lock_is_exclusive() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let file = path(&dir, "lock");
            let lock = local.lock(&file, &pool).await.unwrap();
            assert!(lock.is_some());
            assert!(local.lock(&file, &pool).await.unwrap().is_none());
            drop(lock);
            // The close is a job of its own.
            while local.lock(&file, &pool).await.unwrap().is_none() {
                tokio::task::yield_now().await;
            }
        });
    }

    #[test]
    fn a_file_system_has_blocks() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let room = local.room(&path(&dir, ""), &pool).await.unwrap();
            assert!(room.block_bytes >= 512);
        });
    }
}
