//! Putting, moving and copying single files.
//!
//! A file always gets its name by rename(2), in one step: the name never shows an incomplete file, and nothing is left
//! after a failure. Not here: directories with their contents (`tree`).

use crate::changing::replace::{adorn, beside, make_directories, set_mtime};
use crate::changing::temporary::{Retention, Temporary, TemporaryPlace, make_temporary};
use crate::changing::write::{Output, renamed, unlinked};
use crate::files::error::Error;
use crate::files::open_file::{FileKind, Meta};
use crate::local::Local;
use crate::metrics::call_times;
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
/// How long a pool thread copies before other jobs get their turn.
const STEP: Duration = Duration::from_millis(20);

/// The attributes of a file that is put in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutOptions {
    /// Permissions; None: unchanged.
    pub mode: Option<u32>,
    /// Modification time, in Unix seconds; None: unchanged.
    pub mtime: Option<i64>,
    /// Permissions of missing directories, which are made; None: none is made.
    pub directory_mode: Option<u32>,
}

/// What [`Local::put`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The path did not exist.
    Created,
    /// A file was there, which is gone.
    Replaced,
    /// A directory is there: nothing was done, and the new file was removed.
    IsDirectory,
}

impl Local {
    /// The metadata of what a path names; a symlink is not followed (lstat(2)).
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

    /// Makes a directory; the path must not exist.
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

    /// Makes a temporary file that will be put at `path`: in `place`, or if that is on another file system next to
    /// `path`, so that it can be renamed and need not be copied. It is removed with its [`Temporary`].
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
        // A `Temporary` from the start, so that the file is removed if the caller stops waiting.
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
                // It will be copied in the end, if possible.
                Err(_) => make_temporary(&place, Retention::Removed, 0o600)?,
            };
            Ok(Temporary::removed(Output::new(fd, &owner), name, &owner))
        };
        self.write_job(Operation::Create, pool, work).await
    }

    /// Puts a temporary file at `path`. If that fails, the file is removed.
    ///
    /// # Errors
    /// [`Error::System`] with `chmod()`, `utimes()`, `mkdir()`, `rename()` or what fails of copying;
    /// [`Error::Overflow`].
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
                Some(meta) if meta.kind == FileKind::Directory => {
                    return Ok(PutOutcome::IsDirectory);
                }
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

    /// Moves a file to `to`, replacing a file there; missing directories are made.
    ///
    /// # Errors
    /// As [`Local::put`], and `unlink()` if the file was copied and the original cannot be removed.
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
                self.copy_as(from, to, CopiedMode::Original, pool).await?;
                self.unlink(from, pool).await
            }
            outcome => outcome,
        }
    }

    /// Copies a file to `to` with its modification time. Where a file is replaced, the copy has that one's permissions, else
    /// the original's.
    ///
    /// # Errors
    /// [`Error::System`] with what failed, [`Error::Overflow`].
    pub async fn copy_file(&self, from: &[u8], to: &[u8], pool: &Pool) -> Result<(), Error> {
        self.copy_as(from, to, CopiedMode::Replaced, pool).await
    }

    async fn copy_as(
        &self,
        from: &[u8],
        to: &[u8],
        mode: CopiedMode,
        pool: &Pool,
    ) -> Result<(), Error> {
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
            let mut copying = FileCopy::new(original, copy, &stat);
            if mode == CopiedMode::Replaced
                && let Some(mode) = mode_at(&path)
            {
                copying.mode = mode;
            }
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
                // Its descriptors are closed in the pool, where that may wait.
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

/// The permissions of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopiedMode {
    /// Those of the original.
    Original,
    /// Those of the file that it replaces; where there is none, those of the original.
    Replaced,
}

/// The call of a copy that failed, and why.
type FailedCall = (&'static str, Errno);

/// A file that is being copied.
pub(crate) struct FileCopy {
    from: OwnedFd,
    to: OwnedFd,
    mode: u32,
    mtime: i64,
}

impl FileCopy {
    fn new(from: OwnedFd, to: OwnedFd, stat: &Stat) -> FileCopy {
        FileCopy {
            from,
            to,
            mode: mode_of(stat),
            mtime: Meta::from_stat(stat).mtime,
        }
    }

    /// Creates the copy, which must not exist yet.
    pub(crate) fn begin(
        from: (OwnedFd, Stat),
        dir: impl AsFd,
        name: &CStr,
    ) -> Result<FileCopy, FailedCall> {
        let (from, stat) = from;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
        let create = || rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600));
        let to = call_times::timed(Operation::Create, create).map_err(|errno| ("open()", errno))?;
        Ok(FileCopy::new(from, to, &stat))
    }

    /// Copies for up to [`STEP`]; true: the copy is complete. **Waits.**
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

    /// Copies by read and write, where the kernel does not copy between these two files.
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

/// **Waits.** Opens a file to copy it. Regular files only: reading a pipe would wait for a writer.
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

/// **Waits.** The permissions of the file at a path, if there is one.
fn mode_at(path: &[u8]) -> Option<u32> {
    let stat = rustix::fs::statat(CWD, OsStr::from_bytes(path), AtFlags::empty()).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_file.then(|| mode_of(&stat))
}

pub(crate) fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode & 0o777
}

/// Renames; if directories above the target are missing, makes them and tries again.
fn rename_into(from: &[u8], to: &[u8], directory_mode: Option<u32>) -> Result<(), Errno> {
    match (renamed(from, to), directory_mode) {
        (Err(Errno::NOENT), Some(mode)) => {
            make_directories(to, mode).map_err(|error| error.errno().unwrap_or(Errno::IO))?;
            renamed(from, to)
        }
        (outcome, _) => outcome,
    }
}

/// Copies next to the target, then renames. Needed for two mounts of one device: rename(2) fails there, though stat(2)
/// shows the same device.
fn copy_beside(from: &[u8], to: &[u8], options: PutOptions) -> Result<(), Error> {
    let path = CString::new(from).map_err(|_| Error::system("open()", Errno::INVAL))?;
    let failed = |(call, errno)| Error::system(call, errno);
    let (original, stat) = open_to_copy(CWD, &path, OFlags::NOFOLLOW).map_err(failed)?;
    let (fd, name) = beside(to)?;
    let mut copying = FileCopy::new(original, fd, &stat);
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
        // The error reported is the first one, not that of the clean-up.
        let _ = unlinked(&name);
    })
}

/// The innermost existing directory above a path.
fn nearest(path: &[u8]) -> &[u8] {
    let slashes = path.iter().enumerate().rev();
    slashes
        .filter(|(_, byte)| **byte == b'/')
        .map(|(at, _)| &path[..at.max(1)])
        .find(|directory| device(directory).is_some())
        .unwrap_or(b"/")
}

/// The path up to the first component below `directory`.
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

/// The metadata of a path, symlinks followed; None: it cannot be had.
fn look(path: &[u8]) -> Option<Meta> {
    let stat = rustix::fs::statat(CWD, OsStr::from_bytes(path), AtFlags::empty());
    stat.ok().map(|stat| Meta::from_stat(&stat))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;
    use crate::tests::{block_on, local};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn the_innermost_existing_directory_and_the_segment_after_it() {
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
            // Whoever may not read the file that is replaced may not read what is there now.
            std::fs::write(path("private"), "before").unwrap();
            let private = PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(path("private"), private).unwrap();
            local
                .copy_file(&text("a/file"), &text("private"), &pool)
                .await
                .unwrap();
            let mode = std::fs::metadata(path("private")).unwrap().mode();
            assert_eq!(mode & 0o777, 0o600);
            assert_eq!(std::fs::read(path("private")).unwrap(), b"contents");
            std::fs::remove_file(path("private")).unwrap();
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
    fn a_file_that_cannot_be_renamed_is_copied() {
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
