//! Opening: by what the kernel has in memory, else in a pool.
//!
//! Invariant: on a loop only `openat2` with RESOLVE_CACHED and RESOLVE_NO_XDEV, relative to a directory of a mount that
//! answers inline, then `fstat` on the descriptor; never a path by itself.

use crate::access::{Access, Mode, Symlinks};
use crate::count::Operation;
use crate::disk::Disk;
use crate::error::{Error, WouldBlock};
use crate::file::{Found, Kind, Meta, OpenFile};
use crate::local::Local;
use crate::mount::{Filesystem, Mount};
use crate::pool::Lane;
use bytes::Bytes;
use rustix::fs::{CWD, Mode as FileMode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Contents up to this size are read with the open and may be kept.
pub const BODY_MAX: usize = 64 << 10;

/// What is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To read it.
    Read,
    /// Only to look at it (O_PATH).
    Stat,
}

impl Purpose {
    fn flags(self, noatime: bool) -> OFlags {
        let flags = match self {
            Purpose::Read => OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Purpose::Stat => OFlags::PATH | OFlags::CLOEXEC,
        };
        if noatime && self == Purpose::Read {
            flags | OFlags::NOATIME
        } else {
            flags
        }
    }

    fn call(self) -> &'static str {
        match self {
            Purpose::Read => "open()",
            Purpose::Stat => "stat()",
        }
    }
}

/// What of [`Access`] an open needs, owned, for a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenOptions {
    pub symlinks: Symlinks,
    pub directio: Option<u64>,
    pub noatime: bool,
}

impl From<&Access<'_>> for OpenOptions {
    fn from(access: &Access<'_>) -> OpenOptions {
        OpenOptions {
            symlinks: access.symlinks,
            directio: access.directio,
            noatime: access.noatime,
        }
    }
}

impl Local {
    /// Opens the file or directory at an absolute path, if all that takes is in memory. An error of the kernel
    /// (ENOENT, EACCES, …) is an answer.
    ///
    /// # Errors
    /// [`WouldBlock`]: ask [`Local::open`].
    pub fn try_open(
        &self,
        path: &[u8],
        access: &Access<'_>,
    ) -> Result<Result<Rc<OpenFile>, Error>, WouldBlock> {
        let found = self.try_find(path, Purpose::Read, &access.into())?;
        self.0.counters.memory(Operation::Open);
        Ok(found.map(|found| Rc::new(OpenFile::new(found, access.pool))))
    }

    /// Opens the file or directory at an absolute path.
    ///
    /// # Errors
    /// [`Error::System`] with nginx's word for the call, [`Error::Overflow`].
    pub async fn open(&self, path: &[u8], access: &Access<'_>) -> Result<Rc<OpenFile>, Error> {
        if access.mode == Mode::Pool
            && let Ok(answer) = self.try_open(path, access)
        {
            return answer;
        }
        let found = self
            .find(path, Purpose::Read, access, Operation::Open)
            .await?;
        Ok(Rc::new(OpenFile::new(found, access.pool)))
    }

    /// Looks at the file or directory at an absolute path (index and try_files candidates), if that is in memory.
    ///
    /// # Errors
    /// [`WouldBlock`]: ask [`Local::stat`].
    pub fn try_stat(
        &self,
        path: &[u8],
        access: &Access<'_>,
    ) -> Result<Result<Meta, Error>, WouldBlock> {
        let found = self.try_find(path, Purpose::Stat, &access.into())?;
        self.0.counters.memory(Operation::Stat);
        Ok(found.map(|found| found.meta))
    }

    /// Looks at the file or directory at an absolute path; no permission on the file itself is needed.
    ///
    /// # Errors
    /// As [`Local::open`].
    pub async fn stat(&self, path: &[u8], access: &Access<'_>) -> Result<Meta, Error> {
        if access.mode == Mode::Pool
            && let Ok(answer) = self.try_stat(path, access)
        {
            return answer;
        }
        Ok(self
            .find(path, Purpose::Stat, access, Operation::Stat)
            .await?
            .meta)
    }

    fn try_find(
        &self,
        path: &[u8],
        purpose: Purpose,
        options: &OpenOptions,
    ) -> Result<Result<Found, Error>, WouldBlock> {
        let disk = &self.0.disk;
        if !disk.abilities.openat2 {
            return Err(WouldBlock);
        }
        let (mount, rest) = disk.mounts.find(path).ok_or(WouldBlock)?;
        let dir = mount.dir().ok_or(WouldBlock)?;
        let skipped = path.len() - rest.len();
        match open_cached(dir, rest, skipped, purpose, options)? {
            Ok(fd) => found_inline(fd, mount.clone(), purpose, options),
            Err(errno) => Ok(Err(Error::system(purpose.call(), errno))),
        }
    }

    async fn find(
        &self,
        path: &[u8],
        purpose: Purpose,
        access: &Access<'_>,
        operation: Operation,
    ) -> Result<Found, Error> {
        let options = OpenOptions::from(access);
        if access.mode == Mode::Inline {
            return open_waiting(&self.0.disk, path, purpose, &options);
        }
        let disk = self.0.disk.clone();
        let path: Box<[u8]> = path.into();
        let begun = Instant::now();
        let job = access.pool.run(Lane::Read, move || {
            open_waiting(&disk, &path, purpose, &options)
        });
        match job.await {
            Ok(found) => {
                self.0.counters.offloaded(operation, begun.elapsed());
                found
            }
            Err(overflow) => {
                self.0.counters.overflowed(operation);
                Err(overflow.into())
            }
        }
    }
}

/// Opens `rest` below a mount's directory, from memory only.
fn open_cached(
    dir: BorrowedFd<'_>,
    rest: &[u8],
    skipped: usize,
    purpose: Purpose,
    options: &OpenOptions,
) -> Result<Result<OwnedFd, Errno>, WouldBlock> {
    let cached = ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
    let from = match options.symlinks {
        Symlinks::Follow => None,
        Symlinks::Refuse { from } | Symlinks::RefuseOthers { from } => {
            Some(from.saturating_sub(skipped))
        }
    };
    let result = match from {
        None => openat2(dir, rest, purpose.flags(options.noatime), cached),
        Some(from) => open_behind(dir, rest, from, purpose.flags(options.noatime), cached),
    };
    match result {
        Ok(fd) => Ok(Ok(fd)),
        // EAGAIN: not in memory. EXDEV: another mount, which the pool learns. EPERM: O_NOATIME is not ours to use.
        Err(
            Errno::AGAIN | Errno::XDEV | Errno::INTR | Errno::NOSYS | Errno::INVAL | Errno::PERM,
        ) => Err(WouldBlock),
        Err(Errno::LOOP) if matches!(options.symlinks, Symlinks::RefuseOthers { .. }) => {
            Err(WouldBlock)
        }
        Err(errno) => Ok(Err(errno)),
    }
}

/// `disable_symlinks`: symlinks are followed in the first `from` bytes and refused behind them.
fn open_behind(
    dir: BorrowedFd<'_>,
    rest: &[u8],
    from: usize,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let (head, tail) = rest.split_at(from.min(rest.len()));
    let start = tail
        .iter()
        .position(|byte| *byte != b'/')
        .unwrap_or(tail.len());
    let tail = &tail[start..];
    if tail.is_empty() {
        return openat2(dir, rest, flags, resolve);
    }
    let no_links = resolve | ResolveFlags::NO_SYMLINKS;
    if head.is_empty() {
        return openat2(dir, tail, flags, no_links);
    }
    let head = openat2(
        dir,
        head,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        resolve,
    )?;
    openat2(head.as_fd(), tail, flags, no_links)
}

fn openat2(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(
        dir,
        OsStr::from_bytes(path),
        flags,
        FileMode::empty(),
        resolve,
    )
}

/// Completes what was opened on a loop.
fn found_inline(
    fd: OwnedFd,
    mount: Arc<Mount>,
    purpose: Purpose,
    options: &OpenOptions,
) -> Result<Result<Found, Error>, WouldBlock> {
    let meta = match rustix::fs::fstat(&fd) {
        Ok(stat) => Meta::from_stat(&stat),
        Err(errno) => return Ok(Err(Error::system("fstat()", errno))),
    };
    let direct = purpose == Purpose::Read && switch_direct(fd.as_fd(), &meta, options);
    Ok(Ok(Found {
        fd,
        meta,
        mount: Some(mount),
        body: None,
        direct,
    }))
}

/// `directio SIZE`: O_DIRECT for files from that size on, where the file system has it.
fn switch_direct(fd: BorrowedFd<'_>, meta: &Meta, options: &OpenOptions) -> bool {
    let wished = meta.kind == Kind::File && options.directio.is_some_and(|size| meta.len >= size);
    wished && rustix::fs::fcntl_setfl(fd, OFlags::DIRECT | OFlags::NONBLOCK).is_ok()
}

/// Opens in a pool (or inline, `aio off`): `openat2`, `fstat`, and the first bytes. **Waits.**
pub(crate) fn open_waiting(
    disk: &Disk,
    path: &[u8],
    purpose: Purpose,
    options: &OpenOptions,
) -> Result<Found, Error> {
    let fd =
        open_path(path, purpose, options).map_err(|errno| Error::system(purpose.call(), errno))?;
    let stat = rustix::fs::fstat(&fd).map_err(|errno| Error::system("fstat()", errno))?;
    let meta = Meta::from_stat(&stat);
    let mount = disk.mounts.learn(fd.as_fd());
    let direct = purpose == Purpose::Read && switch_direct(fd.as_fd(), &meta, options);
    let mut body = None;
    if purpose == Purpose::Read && meta.kind == Kind::File && !direct {
        let first = read_first(fd.as_fd(), meta.len)?;
        if first.len() as u64 == meta.len {
            body = Some(first);
        }
    }
    Ok(Found {
        fd,
        meta,
        mount,
        body,
        direct,
    })
}

fn open_path(path: &[u8], purpose: Purpose, options: &OpenOptions) -> Result<OwnedFd, Errno> {
    let flags = purpose.flags(options.noatime);
    let open = |flags| match options.symlinks {
        Symlinks::Follow =>
        {
            #[expect(
                clippy::disallowed_methods,
                reason = "runs in a pool, or inline for `aio off`"
            )]
            rustix::fs::open(OsStr::from_bytes(path), flags, FileMode::empty())
        }
        Symlinks::Refuse { from } | Symlinks::RefuseOthers { from } => {
            open_behind(CWD, path, from.max(1), flags, ResolveFlags::empty())
        }
    };
    match open(flags) {
        Err(Errno::PERM) if options.noatime => open(flags - OFlags::NOATIME),
        result => result,
    }
}

/// Up to [`BODY_MAX`] bytes from the start, so that a file opened cold does not come back cold.
fn read_first(fd: BorrowedFd<'_>, len: u64) -> Result<Bytes, Error> {
    let want = usize::try_from(len).unwrap_or(BODY_MAX).min(BODY_MAX);
    let mut buffer = Vec::with_capacity(want);
    while buffer.len() < want {
        let (left, offset) = (want - buffer.len(), buffer.len() as u64);
        match sys::pread_into(fd, &mut buffer, left, offset) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("read()", &error)),
        }
    }
    Ok(Bytes::from(buffer))
}

/// Does this file system answer `preadv2(RWF_NOWAIT)`?
pub(crate) fn reads_without_waiting(filesystem: Filesystem) -> bool {
    matches!(filesystem, Filesystem::Native | Filesystem::Memory)
}
