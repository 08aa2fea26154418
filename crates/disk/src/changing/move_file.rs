//! PutOptions, moving and copying single files, and looking at what is in the way.
//!
//! Whatever comes to a name comes there in one step, by rename(2): nobody finds a part of a file, and nothing of it is left where it
//! fails. Not here: directories with what is in them (`tree`).

use crate::call_times;
use crate::changing::replace::{adorn, beside, make_directories, set_mtime};
use crate::changing::temporary::{Retention, Temporary, TemporaryPlace, make_temporary};
use crate::changing::write::{Output, renamed, unlinked};
use crate::error::Error;
use crate::file::{Kind, Meta};
use crate::local::Local;
use crate::metrics::counters::Operation;
use crate::pool::Pool;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// Bytes of one copy_file_range(2).
const PIECE: usize = 1 << 20;
/// How long a thread of a pool copies before others get their turn.
const STEP: Duration = Duration::from_millis(20);

/// What a file is to be when it has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutOptions {
    /// Permissions; None: as they are.
    pub mode: Option<u32>,
    /// When it was changed last, in seconds of Unix; None: as it is.
    pub mtime: Option<i64>,
    /// Permissions of directories that are not there and are made; None: none is made.
    pub directory_mode: Option<u32>,
}

/// What was at a file's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// Nothing.
    Created,
    /// A file, which is gone.
    Replaced,
    /// A directory, which is still there: nothing was done.
    IsDirectory,
}

impl Local {
    /// What a path names, itself if it is a symlink.
    ///
    /// # Errors
    /// [`Error::System`] with `lstat()`, [`Error::Overflow`].
    pub async fn stat_link(&self, path: &[u8], pool: &Pool) -> Result<Meta, Error> {
        let path: Box<[u8]> = path.into();
        self.write_job(Operation::Stat, pool, move || {
            let look = || rustix::fs::lstat(OsStr::from_bytes(&path));
            let stat = call_times::timed(Operation::Stat, look)
                .map_err(|errno| Error::system("lstat()", errno))?;
            Ok(Meta::from_stat(&stat))
        })
        .await
    }

    /// Makes a directory where there is nothing.
    ///
    /// # Errors
    /// [`Error::System`] with `mkdir()` (EEXIST, ENOENT, …), [`Error::Overflow`].
    pub async fn make_new_directory(
        &self,
        path: &[u8],
        mode: u32,
        pool: &Pool,
    ) -> Result<(), Error> {
        let path: Box<[u8]> = path.into();
        self.write_job(Operation::Other, pool, move || {
            let make = || rustix::fs::mkdir(OsStr::from_bytes(&path), Mode::from_raw_mode(mode));
            call_times::timed(Operation::Other, make)
                .map_err(|errno| Error::system("mkdir()", errno))
        })
        .await
    }

    /// Makes a file to be written that is to go to `path`: in `place`, or where that is another file system near `path`, so that it is
    /// renamed and not copied in the end. It has its name as long as it is a [`Temporary`].
    ///
    /// # Errors
    /// [`Error::System`] with `open()` or `mkdir()`, [`Error::Overflow`].
    pub async fn begin_for(
        &self,
        path: &[u8],
        place: &TemporaryPlace,
        pool: &Pool,
    ) -> Result<Temporary, Error> {
        let (path, place): (Box<[u8]>, _) = (path.into(), place.clone());
        let owner = pool.clone();
        // Made where it is one, so that it goes too where nobody waits for it any more.
        let work = move || {
            let near = nearest(&path);
            let is_elsewhere = match (device(&place.directory), device(near)) {
                (Some(here), Some(there)) => here != there,
                _ => false,
            };
            let made = match is_elsewhere {
                true => beside(next_segment(&path, near)),
                false => Err(Error::system("open()", Errno::XDEV)),
            };
            let (fd, name) = match made {
                Ok(made) => made,
                // Then it is copied in the end, if it can.
                Err(_) => make_temporary(&place, Retention::Removed, 0o600)?,
            };
            Ok(Temporary::removed(Output::new(fd, &owner), name, &owner))
        };
        self.write_job(Operation::Create, pool, work).await
    }

    /// Puts a file in its place. One that cannot go there is removed.
    ///
    /// # Errors
    /// [`Error::System`] with `chmod()`, `utimes()`, `mkdir()`, `rename()` or what fails of copying; [`Error::Overflow`].
    pub async fn put(
        &self,
        file: Temporary,
        path: &[u8],
        options: PutOptions,
        pool: &Pool,
    ) -> Result<PutOutcome, Error> {
        let path: Box<[u8]> = path.into();
        self.write_job(Operation::Rename, pool, move || {
            let before = match look(&path) {
                None => PutOutcome::Created,
                Some(meta) if meta.kind == Kind::Directory => return Ok(PutOutcome::IsDirectory),
                Some(_) => PutOutcome::Replaced,
            };
            adorn(file.output.fd(), options.mode, options.mtime)?;
            match rename_into(file.path(), &path, options.directory_mode) {
                Ok(()) => file.spare(),
                Err(Errno::XDEV) => copy_beside(file.path(), &path, options)?,
                Err(errno) => return Err(Error::system("rename()", errno)),
            }
            Ok(before)
        })
        .await
    }

    /// Moves a file over what is at `to`; the directories that are not there are made.
    ///
    /// # Errors
    /// As [`Local::put`], and `unlink()` where it was copied and the original cannot be removed.
    pub async fn move_file(
        &self,
        from: &[u8],
        to: &[u8],
        directory_mode: u32,
        pool: &Pool,
    ) -> Result<(), Error> {
        let (path, target): (Box<[u8]>, Box<[u8]>) = (from.into(), to.into());
        let renamed = self.write_job(Operation::Rename, pool, move || {
            rename_into(&path, &target, Some(directory_mode))
                .map_err(|errno| Error::system("rename()", errno))
        });
        match renamed.await {
            Err(error) if error.errno() == Some(Errno::XDEV) => {
                self.copy_file(from, to, pool).await?;
                self.unlink(from, pool).await
            }
            outcome => outcome,
        }
    }

    /// Copies a file over what is at `to`, with its permissions and its time.
    ///
    /// # Errors
    /// [`Error::System`] with what failed, [`Error::Overflow`].
    pub async fn copy_file(&self, from: &[u8], to: &[u8], pool: &Pool) -> Result<(), Error> {
        let (from, path, owner): (Box<[u8]>, Box<[u8]>, _) = (from.into(), to.into(), pool.clone());
        let begin = move || {
            let from =
                CString::new(&from[..]).map_err(|_| Error::system("open()", Errno::INVAL))?;
            let original = open_to_copy(CWD, &from, OFlags::empty());
            let (original, stat) = original.map_err(|(call, errno)| Error::system(call, errno))?;
            let (fd, name) = beside(&path)?;
            let output = Output::new(fd, &owner);
            let copy = rustix::io::fcntl_dupfd_cloexec(output.fd(), 0);
            let copy = copy.map_err(|errno| Error::system("fcntl()", errno))?;
            let copying = Copying::new(original, copy, &stat);
            Ok((Temporary::removed(output, name, &owner), copying))
        };
        let begun = self.write_job(Operation::Create, pool, begin);
        let (file, mut copying) = begun.await?;
        loop {
            let step = self.write_job(Operation::Write, pool, move || {
                let is_done = copying.go_on();
                let is_done = is_done.map_err(|(call, errno)| Error::system(call, errno))?;
                Ok((copying, is_done))
            });
            let (moved, is_done) = step.await?;
            if is_done {
                // Its descriptors are closed where closing may wait.
                pool.release(moved);
                break;
            }
            copying = moved;
        }
        let path: Box<[u8]> = to.into();
        self.write_job(Operation::Rename, pool, move || {
            renamed(file.path(), &path).map_err(|errno| Error::system("rename()", errno))?;
            file.spare();
            Ok(())
        })
        .await
    }
}

/// What failed of a copy, and why.
type FailedCall = (&'static str, Errno);

/// A file that is being copied.
pub(crate) struct Copying {
    from: OwnedFd,
    to: OwnedFd,
    mode: u32,
    mtime: i64,
}

impl Copying {
    fn new(from: OwnedFd, to: OwnedFd, stat: &Stat) -> Copying {
        Copying {
            from,
            to,
            mode: mode_of(stat),
            mtime: Meta::from_stat(stat).mtime,
        }
    }

    /// Makes the copy, which must not be there yet.
    pub(crate) fn begin(
        from: (OwnedFd, Stat),
        dir: impl AsFd,
        name: &CStr,
    ) -> Result<Copying, FailedCall> {
        let (from, stat) = from;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
        let create = || rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600));
        let to = call_times::timed(Operation::Create, create).map_err(|errno| ("open()", errno))?;
        Ok(Copying::new(from, to, &stat))
    }

    /// Goes on for a while; true: it is done. **Waits.**
    pub(crate) fn go_on(&mut self) -> Result<bool, FailedCall> {
        let end = Instant::now() + STEP;
        while self.piece()? > 0 {
            if Instant::now() >= end {
                return Ok(false);
            }
        }
        let mode = Mode::from_raw_mode(self.mode);
        rustix::fs::fchmod(&self.to, mode).map_err(|errno| ("chmod()", errno))?;
        set_mtime(&self.to, self.mtime).map_err(|errno| ("utimes()", errno))?;
        Ok(true)
    }

    fn piece(&mut self) -> Result<usize, FailedCall> {
        let copied = call_times::timed_on(
            Operation::Write,
            self.to.as_fd(),
            |moved| *moved as u64,
            || rustix::fs::copy_file_range(&self.from, None, &self.to, None, PIECE),
        );
        match copied {
            Ok(bytes) => Ok(bytes),
            Err(Errno::INTR) => Ok(1),
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.by_hand(),
            Err(errno) => Err(("write()", errno)),
        }
    }

    /// Where the kernel does not copy between these two.
    fn by_hand(&mut self) -> Result<usize, FailedCall> {
        let mut buffer = vec![0; PIECE];
        let read = call_times::timed_on(
            Operation::Read,
            self.from.as_fd(),
            |read| *read as u64,
            || rustix::io::read(&self.from, &mut buffer[..]),
        );
        let read = read.map_err(|errno| ("read()", errno))?;
        let written = crate::changing::write::write_all(&self.to, &[&buffer[..read]]);
        written.map_err(|error| ("write()", error.errno().unwrap_or(Errno::IO)))?;
        Ok(read)
    }
}

/// **Waits.** Opens a file to copy it. Nothing but files: a pipe would make its reader wait for a writer.
pub(crate) fn open_to_copy(
    dir: impl AsFd,
    name: &CStr,
    more: OFlags,
) -> Result<(OwnedFd, Stat), FailedCall> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
    let open = || rustix::fs::openat(dir, name, flags, Mode::empty());
    let fd = call_times::timed(Operation::Open, open).map_err(|errno| ("open()", errno))?;
    let stat = rustix::fs::fstat(&fd).map_err(|errno| ("fstat()", errno))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((fd, stat)),
        FileType::Directory => Err(("read()", Errno::ISDIR)),
        _ => Err(("open()", Errno::OPNOTSUPP)),
    }
}

pub(crate) fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode & 0o777
}

/// Renames, once more when the directories above the target had to be made.
fn rename_into(from: &[u8], to: &[u8], directory_mode: Option<u32>) -> Result<(), Errno> {
    match (renamed(from, to), directory_mode) {
        (Err(Errno::NOENT), Some(mode)) => {
            make_directories(to, mode).map_err(|error| error.errno().unwrap_or(Errno::IO))?;
            renamed(from, to)
        }
        (outcome, _) => outcome,
    }
}

/// The same device seen through two mounts: rename(2) goes no further, though stat(2) says it is one.
fn copy_beside(from: &[u8], to: &[u8], options: PutOptions) -> Result<(), Error> {
    let path = CString::new(from).map_err(|_| Error::system("open()", Errno::INVAL))?;
    let failed = |(call, errno)| Error::system(call, errno);
    let (original, stat) = open_to_copy(CWD, &path, OFlags::NOFOLLOW).map_err(failed)?;
    let (fd, name) = beside(to)?;
    let mut copying = Copying::new(original, fd, &stat);
    let copied = loop {
        match copying.go_on() {
            Ok(true) => break Ok(()),
            Ok(false) => {}
            Err(error) => break Err(failed(error)),
        }
    };
    let placed = copied
        .and_then(|()| adorn(&copying.to, options.mode, options.mtime))
        .and_then(|()| renamed(&name, to).map_err(|errno| Error::system("rename()", errno)));
    placed.inspect_err(|_| {
        // What failed is told, not that its remains cannot be removed either.
        let _ = unlinked(&name);
    })
}

/// The innermost directory above a path that there is.
fn nearest(path: &[u8]) -> &[u8] {
    let slashes = path.iter().enumerate().rev();
    slashes
        .filter(|(_, byte)| **byte == b'/')
        .map(|(at, _)| &path[..at.max(1)])
        .find(|directory| device(directory).is_some())
        .unwrap_or(b"/")
}

/// What lies in `directory` on the way to `path`.
fn next_segment<'a>(path: &'a [u8], directory: &[u8]) -> &'a [u8] {
    let from = directory.len() + 1;
    let end = path
        .get(from..)
        .and_then(|rest| rest.iter().position(|byte| *byte == b'/'));
    end.map_or(path, |end| &path[..from + end])
}

fn device(path: &[u8]) -> Option<u64> {
    look(path).map(|meta| meta.dev)
}

/// What a path leads to, if it does.
fn look(path: &[u8]) -> Option<Meta> {
    let stat = rustix::fs::statat(CWD, OsStr::from_bytes(path), AtFlags::empty());
    stat.ok().map(|stat| Meta::from_stat(&stat))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;
    use crate::tests::{block_on, local};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_lies_on_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().as_os_str().as_bytes();
        let path = [here, b"/a/b/file"].concat();
        assert_eq!(nearest(&path), here);
        assert_eq!(next_segment(&path, here), [here, b"/a"].concat());
        assert_eq!(next_segment(b"/file", b"/"), b"/file");
    }

    #[test]
    fn a_file_is_put_moved_and_copied() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let path = |name: &str| dir.path().join(name);
            let text = |name: &str| path(name).as_os_str().as_bytes().to_vec();
            let place = TemporaryPlace {
                directory: dir.path().as_os_str().as_bytes().into(),
                levels: [0; crate::LEVELS_MAX],
            };
            let options = PutOptions {
                mode: Some(0o640),
                mtime: Some(1_000_000),
                directory_mode: Some(0o700),
            };
            for (name, before) in [
                ("a/file", PutOutcome::Created),
                ("a/file", PutOutcome::Replaced),
                ("a", PutOutcome::IsDirectory),
            ] {
                let file = local.begin_for(&text(name), &place, &pool).await.unwrap();
                let bytes = vec![bytes::Bytes::from_static(b"contents")];
                local.append(&file.output, bytes, &pool).await.unwrap();
                let put = local.put(file, &text(name), options, &pool).await;
                assert_eq!(put.unwrap(), before, "{name}");
            }
            local
                .copy_file(&text("a/file"), &text("copy"), &pool)
                .await
                .unwrap();
            local
                .move_file(&text("copy"), &text("b/c/moved"), 0o700, &pool)
                .await
                .unwrap();
            for name in ["a/file", "b/c/moved"] {
                let meta = std::fs::metadata(path(name)).unwrap();
                assert_eq!(
                    (meta.mode() & 0o777, meta.mtime()),
                    (0o640, 1_000_000),
                    "{name}"
                );
                assert_eq!(std::fs::read(path(name)).unwrap(), b"contents");
            }
            let error = local.copy_file(&text("a"), &text("copy"), &pool).await;
            assert_eq!(error.unwrap_err().errno(), Some(Errno::ISDIR));
            while std::fs::read_dir(dir.path()).unwrap().count() > 2 {
                tokio::task::yield_now().await;
            }
        });
    }

    /// A mount of the same device, or another: rename(2) does not go there.
    #[test]
    fn what_cannot_be_renamed_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        std::fs::write(&from, "contents").unwrap();
        let to = dir.path().join("to");
        let options = PutOptions {
            mode: Some(0o600),
            mtime: None,
            directory_mode: None,
        };
        let (from, to) = (from.as_os_str().as_bytes(), to.as_os_str().as_bytes());
        copy_beside(from, to, options).unwrap();
        assert_eq!(std::fs::read(OsStr::from_bytes(to)).unwrap(), b"contents");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
