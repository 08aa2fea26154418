//! Opening and stat: from the kernel's memory, else in a pool.
//!
//! Invariant: a loop only calls `openat2` with RESOLVE_CACHED and RESOLVE_NO_XDEV, relative to a directory of a mount
//! that answers inline, then `fstat` on the descriptor. It never passes a path alone.

use crate::access::{Access, AioMode};
use crate::files::access_time;
use crate::files::error::{Error, WouldBlock};
use crate::files::mount::Mount;
use crate::files::open_file::{self, FileKind, Handle, Meta, OpenFile, OpenedFile, Way, path_of};
use crate::keeping::open_files::Insertion;
use crate::keeping::path_guards::parent_of;
use crate::keeping::walk::Symlinks;
use crate::local::Local;
use crate::metrics::counters::Operation;
use crate::opening::open_waiting::open_waiting;
use crate::pool::Lane;
use rustix::fs::{Mode as FileMode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Bytes up to which a file's contents are read with the open and may be kept: 64 KiB, plus what an entry of a cache
/// has around its body.
pub const BODY_MAX: usize = 68 << 10;

/// For `bench/spikes` alone: open and stat wait on the loop, and only reads go to a pool, as with `aio
/// threads`.
pub(super) const OPENS_ON_LOOPS: bool = cfg!(feature = "open_inline");

/// What a path is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenPurpose {
    /// To read the file.
    Read,
    /// To look at its metadata only (O_PATH).
    Stat,
}

impl OpenPurpose {
    pub(super) fn flags(self, noatime: bool) -> OFlags {
        let flags = match self {
            OpenPurpose::Read => OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            OpenPurpose::Stat => OFlags::PATH | OFlags::CLOEXEC,
        };
        if noatime && self == OpenPurpose::Read {
            flags | OFlags::NOATIME
        } else {
            flags
        }
    }

    pub(super) fn call(self) -> &'static str {
        match self {
            OpenPurpose::Read => "open()",
            OpenPurpose::Stat => "stat()",
        }
    }
}

/// The part of [`Access`] that an open needs, owned, for a job.
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
    /// Opens the file or directory at an absolute path, if the kernel has everything for it in memory. An error of the
    /// kernel (ENOENT, EACCES, …) is an answer.
    ///
    /// # Errors
    /// [`WouldBlock`]: ask [`Local::open`].
    pub fn try_open(
        &self,
        path: &[u8],
        access: &Access<'_>,
    ) -> Result<Result<Rc<OpenFile>, Error>, WouldBlock> {
        let Some(stale) = access.stale else {
            return self.try_open_exact(path, access);
        };
        if let Some(believed) = stale.look_up(path) {
            self.0.counters.cached(Operation::Open);
            return Ok(believed);
        }
        let found = self.try_open_exact(path, access)?;
        stale.keep(path, &found);
        Ok(found)
    }

    fn try_open_exact(
        &self,
        path: &[u8],
        access: &Access<'_>,
    ) -> Result<Result<Rc<OpenFile>, Error>, WouldBlock> {
        if keeps(access)
            && let Some(file) = self.0.look_up(path, access.moment)
            && file.direct == is_direct(file.meta(), access.directio)
        {
            self.0.counters.cached(Operation::Open);
            return Ok(Ok(file));
        }
        let found = match self.try_find(path, OpenPurpose::Read, access)? {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        if found.records_access {
            // The pool opens it, and reads its first bytes.
            open_file::close(found.fd, &found.meta, access.pool);
            return Err(WouldBlock);
        }
        self.0.counters.memory(Operation::Open);
        let (file, is_again) = self.keep(path, found, access);
        if is_again {
            self.guard(path, access.pool);
        }
        Ok(Ok(file))
    }

    /// Opens the file or directory at an absolute path.
    ///
    /// # Errors
    /// [`Error::System`] with the call's name, [`Error::Overflow`].
    pub async fn open(&self, path: &[u8], access: &Access<'_>) -> Result<Rc<OpenFile>, Error> {
        if access.mode != AioMode::Inline
            && let Ok(answer) = self.try_open(path, access)
        {
            return answer;
        }
        if access.mode == AioMode::Inline
            && let Some(believed) = access.stale.and_then(|stale| stale.look_up(path))
        {
            return believed;
        }
        // Boxed, as every wait for a pool: the future of the fast path stays small.
        let found = Box::pin(self.open_in_pool(path, access)).await;
        if let Some(stale) = access.stale {
            stale.keep(path, &found);
        }
        found
    }

    async fn open_in_pool(&self, path: &[u8], access: &Access<'_>) -> Result<Rc<OpenFile>, Error> {
        let guards = self.guards_of(path);
        let whole = std::convert::identity;
        let found = self.find(path, OpenPurpose::Read, access, Operation::Open, whole);
        let found = found.await?;
        self.guard_detour(path, found.mount.as_deref(), access);
        let way = found.way;
        let (file, is_again) = self.keep(path, found, access);
        match guards {
            _ if !is_again => {}
            None => self.guard(path, access.pool),
            Some(before) => self.guard_as_opened(path, way, before, access.pool),
        }
        Ok(file)
    }

    /// The metadata of the file or directory at an absolute path (index and try_files candidates), if it is in memory.
    ///
    /// # Errors
    /// [`WouldBlock`]: ask [`Local::stat`].
    pub fn try_stat(
        &self,
        path: &[u8],
        access: &Access<'_>,
    ) -> Result<Result<Meta, Error>, WouldBlock> {
        if keeps(access)
            && let Some(file) = self.0.look_up(path, access.moment)
        {
            self.0.counters.cached(Operation::Stat);
            return Ok(Ok(*file.meta()));
        }
        let found = self.try_find(path, OpenPurpose::Stat, access)?;
        self.0.counters.memory(Operation::Stat);
        Ok(found.map(|found| {
            open_file::close(found.fd, &found.meta, access.pool);
            found.meta
        }))
    }

    /// The metadata of the file or directory at an absolute path; no permission on the file itself is needed.
    ///
    /// # Errors
    /// As [`Local::open`].
    pub async fn stat(&self, path: &[u8], access: &Access<'_>) -> Result<Meta, Error> {
        if access.mode != AioMode::Inline
            && let Ok(answer) = self.try_stat(path, access)
        {
            return answer;
        }
        // The descriptor is closed where it was opened.
        let look = |found: OpenedFile| (found.meta, found.mount);
        let found = self.find(path, OpenPurpose::Stat, access, Operation::Stat, look);
        let (meta, mount) = Box::pin(found).await?;
        self.guard_detour(path, mount.as_deref(), access);
        Ok(meta)
    }

    /// The path of the file or directory at an absolute path, without symlinks, `.` and `..` (realpath(3)).
    ///
    /// # Errors
    /// As [`Local::open`]; the call is `realpath()`.
    pub async fn real_path(&self, path: &[u8], access: &Access<'_>) -> Result<Vec<u8>, Error> {
        let answer = match self.try_find(path, OpenPurpose::Stat, access) {
            Ok(answer) if access.mode != AioMode::Inline => answer.and_then(|found| {
                let text = path_of(&found.fd);
                open_file::close(found.fd, &found.meta, access.pool);
                text
            }),
            _ => {
                let look = |found: OpenedFile| path_of(&found.fd);
                let found = self.find(path, OpenPurpose::Stat, access, Operation::Stat, look);
                found.await.flatten()
            }
        };
        answer.map_err(|error| match error {
            Error::System { errno, .. } => Error::system("realpath()", errno),
            other => other,
        })
    }

    /// Puts an opened file into the loop's table of open files, if the table can keep it exactly. True: it was there
    /// already (a second use), and wants its guard.
    fn keep(&self, path: &[u8], found: OpenedFile, access: &Access<'_>) -> (Rc<OpenFile>, bool) {
        self.heed_scarcity();
        let inline = found
            .mount
            .as_ref()
            .is_some_and(|mount| mount.answers_inline());
        let file = Rc::new(OpenFile::new(found, access.pool));
        file.unsent.set(access.unsent);
        if !inline || !keeps(access) || file.meta().kind != FileKind::File {
            return (file, false);
        }
        let kept = self.0.files.borrow_mut().keep(path, file, access.is_own);
        match kept {
            Insertion::Known(file) => (file, !access.is_own),
            Insertion::New(file) => (file, false),
        }
    }

    /// Begins a guard for the directory of a path that a loop cannot open from its mount (EXDEV): a symlink leads to
    /// another mount, or is absolute (Linux up to 6.18 at least). The next open starts at the guarded directory.
    pub(crate) fn guard_detour(&self, path: &[u8], found_on: Option<&Mount>, access: &Access<'_>) {
        let is_of_use = self.0.disk.has_openat2 && keeps(access);
        if !is_of_use || !found_on.is_some_and(Mount::answers_inline) {
            return;
        }
        let Some((mount, rest)) = self.0.disk.mounts.find(path) else {
            return;
        };
        let Some(dir) = mount.dir() else { return };
        let resolve = ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
        match openat2(dir, rest, OFlags::PATH | OFlags::CLOEXEC, resolve) {
            Ok(fd) => drop(Handle::new(fd, Some(mount.clone()), access.pool)),
            Err(Errno::XDEV) => self.walk(parent_of(path), access.pool),
            Err(_) => {}
        }
    }

    pub(crate) fn try_find(
        &self,
        path: &[u8],
        purpose: OpenPurpose,
        access: &Access<'_>,
    ) -> Result<Result<OpenedFile, Error>, WouldBlock> {
        let (disk, options) = (&self.0.disk, &OpenOptions::from(access));
        if !disk.has_openat2 {
            return Err(WouldBlock);
        }
        if options.symlinks == Symlinks::Follow
            && let Some(answer) = self.try_find_guarded(path, purpose, options, access.moment)
        {
            return answer;
        }
        let (mount, rest) = disk.mounts.find(path).ok_or(WouldBlock)?;
        let dir = mount.dir().ok_or(WouldBlock)?;
        let skipped = path.len() - rest.len();
        match open_cached(dir, rest, skipped, purpose, options)? {
            Ok(fd) => found_inline(fd, mount.clone(), purpose, options),
            Err(errno) => Ok(Err(Error::system(purpose.call(), errno))),
        }
    }

    /// Opens a name below its guarded directory: fewer steps for the kernel, and no EXDEV where a symlink above leads
    /// to another mount. None: there is no valid guard, or the kernel would have to wait.
    fn try_find_guarded(
        &self,
        path: &[u8],
        purpose: OpenPurpose,
        options: &OpenOptions,
        moment: u64,
    ) -> Option<Result<Result<OpenedFile, Error>, WouldBlock>> {
        let parent = parent_of(path);
        let name = &path[parent.len()..];
        if name.is_empty() || name == b".." {
            return None;
        }
        self.0.take_events(moment);
        let guard = self.0.guards.borrow().get(parent)?;
        let way = guard.way();
        match open_cached(way.dir.as_fd(), name, 0, purpose, options).ok()? {
            Ok(fd) => Some(found_inline(fd, way.mount.clone(), purpose, options)),
            Err(errno) => Some(Ok(Err(Error::system(purpose.call(), errno)))),
        }
    }

    /// Opens in the pool and returns what `take` makes of the result there. If descriptors have run out, closes kept
    /// files and tries again.
    pub(crate) async fn find<T: Send + 'static>(
        &self,
        path: &[u8],
        purpose: OpenPurpose,
        access: &Access<'_>,
        operation: Operation,
        take: fn(OpenedFile) -> T,
    ) -> Result<T, Error> {
        let ask = || self.find_once(path, purpose, access, operation, take);
        match ask().await {
            Err(error)
                if matches!(error.errno(), Some(Errno::MFILE | Errno::NFILE))
                    && self.give_descriptors() =>
            {
                ask().await
            }
            result => result,
        }
    }

    async fn find_once<T: Send + 'static>(
        &self,
        path: &[u8],
        purpose: OpenPurpose,
        access: &Access<'_>,
        operation: Operation,
        take: fn(OpenedFile) -> T,
    ) -> Result<T, Error> {
        let options = OpenOptions::from(access);
        if OPENS_ON_LOOPS || access.mode == AioMode::Inline {
            return open_waiting(&self.0.disk, path, purpose, &options).map(take);
        }
        let disk = self.0.disk.clone();
        let path: Box<[u8]> = path.into();
        let begun = Instant::now();
        let job = access.waiting_pool()?.run(Lane::Read, move || {
            open_waiting(&disk, &path, purpose, &options).map(take)
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
    purpose: OpenPurpose,
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
        // O_NOATIME is for the owner only.
        Err(Errno::PERM) if options.noatime => open_cached(
            dir,
            rest,
            skipped,
            purpose,
            &OpenOptions {
                noatime: false,
                ..*options
            },
        ),
        // EAGAIN: not in memory. EXDEV: another mount, which the pool gets to know. EMFILE, ENFILE: `find` closes kept
        // files. The others: no such call, or not permitted.
        Err(
            Errno::AGAIN
            | Errno::XDEV
            | Errno::MFILE
            | Errno::NFILE
            | Errno::INTR
            | Errno::NOSYS
            | Errno::INVAL
            | Errno::PERM,
        ) => Err(WouldBlock),
        Err(Errno::LOOP) if matches!(options.symlinks, Symlinks::RefuseOthers { .. }) => {
            Err(WouldBlock)
        }
        Err(errno) => Ok(Err(errno)),
    }
}

/// Opens for `disable_symlinks`: symlinks are followed in the first `from` bytes and refused after them.
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

/// Completes an open on a loop: fstat, and O_DIRECT where it applies.
fn found_inline(
    fd: OwnedFd,
    mount: Arc<Mount>,
    purpose: OpenPurpose,
    options: &OpenOptions,
) -> Result<Result<OpenedFile, Error>, WouldBlock> {
    let stat = match rustix::fs::fstat(&fd) {
        Ok(stat) => stat,
        Err(errno) => return Ok(Err(Error::system("fstat()", errno))),
    };
    let (meta, is_read) = (Meta::from_stat(&stat), purpose == OpenPurpose::Read);
    let may_record = is_read && !options.noatime && meta.kind == FileKind::File;
    let records_access =
        may_record && meta.len > 0 && mount.records_access() && access_time::is_due(&stat);
    let direct = is_read && switch_direct(fd.as_fd(), &meta, options);
    Ok(Ok(OpenedFile {
        fd,
        meta,
        mount: Some(mount),
        body: None,
        direct,
        records_access,
        way: Way::Unknown,
    }))
}

/// May files be kept open for this caller? (With checks of symbolic links, or [`AioMode::Inline`], every request opens the file again.)
fn keeps(access: &Access<'_>) -> bool {
    access.symlinks == Symlinks::Follow && access.mode != AioMode::Inline
}

fn is_direct(meta: &Meta, directio: Option<u64>) -> bool {
    meta.kind == FileKind::File && directio.is_some_and(|size| meta.len >= size)
}

/// Sets O_DIRECT for `directio SIZE`, on files from that size on, where the file system supports it.
pub(super) fn switch_direct(fd: BorrowedFd<'_>, meta: &Meta, options: &OpenOptions) -> bool {
    is_direct(meta, options.directio)
        && rustix::fs::fcntl_setfl(fd, OFlags::DIRECT | OFlags::NONBLOCK).is_ok()
}
