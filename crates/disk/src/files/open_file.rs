//! [`OpenFile`]: an open file or directory with its metadata and what a loop keeps of its contents.

use crate::files::error::Error;
use crate::files::memfd_copies::MemfdCopy;
use crate::files::mount::{Filesystem, Mount};
use crate::files::residency_memo::ResidencyMemo;
use crate::health::disk_health::DiskHealth;
use crate::memory::{Charge, Holder, charge};
use crate::pool::Pool;
use bytes::Bytes;
use rustix::fs::{FileType, Stat};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// Bytes of a file that a loop may close itself. Larger and deleted files are closed in the pool: their last `close`
/// may free blocks, so wait for a disk. (That holds for O_PATH descriptors, too: they are no open files, but hold the
/// dentry and so the inode, which is freed with its last reference of any kind. A large file with a name may lose it
/// just before the `close`.)
pub(crate) const INLINE_CLOSE_MAX: u64 = 1 << 20;

/// What offsets and lengths of direct reads and writes of a device are multiples of, in bytes.
pub const DIRECT_ALIGNMENT: u64 = 4096;

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A device, pipe, socket or (with O_PATH) symlink.
    Other,
}

/// A file's metadata, from fstat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its type.
    pub kind: FileKind,
    /// Its size in bytes.
    pub len: u64,
    /// Last modification, seconds since 1970.
    pub mtime: i64,
    /// Nanoseconds of `mtime`.
    pub mtime_nsec: u32,
    /// Last change of the inode (link, mode, owner, contents), seconds since 1970.
    pub ctime: i64,
    /// Nanoseconds of `ctime`.
    pub ctime_nsec: u32,
    /// Inode.
    pub ino: u64,
    /// Device.
    pub dev: u64,
    /// Owner.
    pub uid: u32,
    /// Type and permissions, `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
}

impl Meta {
    #[expect(
        clippy::unnecessary_cast,
        reason = "the fields' types differ between architectures"
    )]
    pub(crate) fn from_stat(stat: &Stat) -> Meta {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            _ => FileKind::Other,
        };
        Meta {
            kind,
            len: stat.st_size as u64,
            mtime: stat.st_mtime as i64,
            mtime_nsec: stat.st_mtime_nsec as u32,
            ctime: stat.st_ctime as i64,
            ctime_nsec: stat.st_ctime_nsec as u32,
            ino: stat.st_ino as u64,
            dev: stat.st_dev as u64,
            uid: stat.st_uid,
            mode: stat.st_mode,
            links: stat.st_nlink as u32,
        }
    }
}

/// Concurrent sends of one file on one loop from which it counts as sent to many: its fills come before those that only
/// one request waits for, and its pages in memory are used too often to be evicted. (Two sends of a file meet by chance
/// where many files are requested.)
const MANY: u32 = 4;

/// A descriptor, shared by the loop and the jobs that work on it.
///
/// Invariant: the last `close` happens in place only where it cannot wait: on a pool thread, or for a small file that
/// still has a name on a mount that answers inline.
#[derive(Debug)]
pub(crate) struct Handle {
    /// None only while it is dropped.
    fd: Option<HandleFd>,
    pub mount: Option<Arc<Mount>>,
    pool: Pool,
    /// Counts the handle as one that its file's bytes are read by.
    _viewer: Option<Arc<Viewers>>,
}

/// Shared by the handles that a file's bytes are read by.
#[derive(Debug, Default)]
pub(crate) struct Viewers {
    /// A lock on what they read, held as long as one of them lives.
    pub lock: OnceLock<Box<dyn ViewLock>>,
}

/// What keeps a lock while it lives.
pub(crate) trait ViewLock: std::fmt::Debug + Send + Sync {}

impl ViewLock for SharedFd {}

#[derive(Debug)]
enum HandleFd {
    Own(OwnedFd),
    /// Of a file that others have open, too.
    Shared(Arc<SharedFd>),
}

/// A descriptor that many handles share. Its last `close` happens in the pool.
#[derive(Debug)]
pub(crate) struct SharedFd {
    /// None only while it is dropped.
    fd: Option<OwnedFd>,
    pool: Pool,
}

impl SharedFd {
    pub(crate) fn new(fd: OwnedFd, pool: &Pool) -> SharedFd {
        SharedFd {
            fd: Some(fd),
            pool: pool.clone(),
        }
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        self.fd.as_ref().expect("it is None only inside drop")
    }
}

impl AsFd for SharedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd().as_fd()
    }
}

impl Drop for SharedFd {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take()
            && !crate::pool::on_pool_thread()
        {
            self.pool.release(fd);
        }
    }
}

impl Handle {
    pub(crate) fn filesystem(&self) -> Filesystem {
        let mount = self.mount.as_ref();
        mount
            .and_then(|mount| mount.filesystem())
            .unwrap_or(Filesystem::Foreign)
    }

    pub(crate) fn new(fd: OwnedFd, mount: Option<Arc<Mount>>, pool: &Pool) -> Handle {
        Handle {
            fd: Some(HandleFd::Own(fd)),
            mount,
            pool: pool.clone(),
            _viewer: None,
        }
    }

    /// One of the handles of a shared file; it counts as a `viewer`.
    pub(crate) fn shared(
        fd: &Arc<SharedFd>,
        mount: Option<Arc<Mount>>,
        viewer: Option<Arc<Viewers>>,
    ) -> Handle {
        Handle {
            fd: Some(HandleFd::Shared(Arc::clone(fd))),
            mount,
            pool: fd.pool.clone(),
            _viewer: viewer,
        }
    }

    /// The pool that it was opened by.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The same, if that is for a disk.
    pub(crate) fn disk_pool(&self) -> Option<&Pool> {
        self.pool.is_for_disk().then_some(&self.pool)
    }

    fn may_close_here(&self, fd: &OwnedFd) -> bool {
        let inline = self
            .mount
            .as_ref()
            .is_some_and(|mount| mount.answers_inline());
        // fstat: 0.3 µs; never waits on a mount that answers inline.
        inline && rustix::fs::fstat(fd).is_ok_and(|stat| closes_at_once(&Meta::from_stat(&stat)))
    }
}

/// Closes a descriptor that a loop has opened for a look, on a mount that answers inline.
pub(crate) fn close(fd: OwnedFd, meta: &Meta, pool: &Pool) {
    if !closes_at_once(meta) {
        pool.release(fd);
    }
}

fn closes_at_once(meta: &Meta) -> bool {
    meta.links > 0 && meta.len <= INLINE_CLOSE_MAX
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.fd.as_ref().expect("it is None only inside drop") {
            HandleFd::Own(fd) => fd.as_fd(),
            HandleFd::Shared(fd) => fd.as_fd(),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(HandleFd::Own(fd)) = self.fd.take() else {
            return;
        };
        if !crate::pool::on_pool_thread() && !self.may_close_here(&fd) {
            self.pool.release(fd);
        }
    }
}

/// An open file with the metadata of the moment when it was opened. It does not change under a response: a file that
/// has changed is opened again.
#[derive(Debug)]
pub struct OpenFile {
    pub(crate) handle: Arc<Handle>,
    meta: Meta,
    /// Was it opened with O_DIRECT?
    pub(crate) direct: bool,
    /// Is it a part of a device, all of whose reads are direct ones of a pool?
    pub(crate) is_on_device: bool,
    /// Has FADV_RANDOM been set?
    pub(crate) random: Cell<bool>,
    /// Sends of it that are under way.
    pub(crate) sendings: Cell<u32>,
    /// Does cachestat(2) refuse it (EPERM)?
    pub(crate) no_cachestat: Cell<bool>,
    /// Its slot in the loop's table of open files, while it is there.
    pub(crate) place: Cell<Option<u32>>,
    /// Bytes at its end that are never sent.
    pub(crate) unsent: Cell<usize>,
    /// Is its owner to have its body copied once it has been used enough?
    wants_copy: Cell<bool>,
    /// Bytes of its body in the accounts of the table of open files.
    pub(crate) counted: Cell<usize>,
    body: RefCell<Option<Body>>,
    copy: RefCell<Option<Rc<MemfdCopy>>>,
    /// Was its copy found to be written?
    is_copied: Cell<bool>,
    proofs: OnceCell<Box<ResidencyMemo>>,
    slot: OnceCell<Rc<dyn Any>>,
}

/// The whole contents of a file, in the heap.
#[derive(Debug)]
struct Body {
    bytes: Bytes,
    /// Its memory, where that is not counted by another.
    _charge: Option<Charge>,
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self {
            bytes,
            _charge: None,
        }
    }
}

impl OpenFile {
    /// Does its loop keep it open for others that ask for its path?
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.place.get().is_some()
    }

    pub(crate) fn new(found: OpenedFile, pool: &Pool) -> OpenFile {
        let handle = Handle::new(found.fd, found.mount, pool);
        OpenFile {
            direct: found.direct,
            body: RefCell::new(found.body.map(Body::from)),
            ..Self::of(handle, found.meta)
        }
    }

    /// A file of which nothing else is known.
    pub(crate) fn of(handle: Handle, meta: Meta) -> OpenFile {
        OpenFile {
            handle: Arc::new(handle),
            meta,
            direct: false,
            is_on_device: false,
            random: Cell::new(false),
            sendings: Cell::new(0),
            no_cachestat: Cell::new(false),
            place: Cell::new(None),
            unsent: Cell::new(0),
            wants_copy: Cell::new(false),
            counted: Cell::new(0),
            body: RefCell::default(),
            copy: RefCell::default(),
            is_copied: Cell::new(false),
            proofs: OnceCell::new(),
            slot: OnceCell::new(),
        }
    }

    /// A shared file, whose descriptor is advised to be read at random. With a `body` it is that part of the file, which
    /// is in memory; nothing is read.
    pub(crate) fn of_shared(handle: Handle, meta: Meta, body: Option<Bytes>) -> OpenFile {
        OpenFile {
            random: Cell::new(true),
            body: RefCell::new(body.map(Body::from)),
            ..Self::of(handle, meta)
        }
    }

    /// A device that many parts share, from which all reads are direct ones.
    pub(crate) fn of_device(handle: Handle, meta: Meta) -> OpenFile {
        let file = Self::of_shared(handle, meta, None);
        OpenFile {
            direct: true,
            is_on_device: true,
            ..file
        }
    }

    /// What a direct read's offset, length and address are multiples of, in bytes; `wished` is what the caller wants.
    pub(crate) fn alignment(&self, wished: u64) -> u64 {
        match self.is_on_device {
            true => wished.max(DIRECT_ALIGNMENT),
            false => wished,
        }
    }

    /// The same file with a new, greater length: for a file that only grows and does not change before its end.
    #[must_use]
    pub fn grown(&self, len: u64) -> OpenFile {
        OpenFile {
            handle: Arc::clone(&self.handle),
            meta: Meta { len, ..self.meta },
            direct: self.direct,
            is_on_device: self.is_on_device,
            random: self.random.clone(),
            sendings: Cell::new(0),
            no_cachestat: self.no_cachestat.clone(),
            place: Cell::new(None),
            unsent: Cell::new(0),
            wants_copy: Cell::new(false),
            counted: Cell::new(0),
            body: RefCell::new(None),
            copy: RefCell::new(None),
            is_copied: Cell::new(false),
            proofs: OnceCell::new(),
            slot: OnceCell::new(),
        }
    }

    /// The disk that it lies on, if it was opened by a pool [for one](Pool::for_disk).
    #[must_use]
    pub fn disk_health(&self) -> Option<&Arc<DiskHealth>> {
        self.handle.disk_pool()?.disk_health()
    }

    /// Its metadata when it was opened.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The whole contents, if they are small and are kept.
    #[must_use]
    pub fn body(&self) -> Option<Bytes> {
        let body = self.body.borrow();
        body.as_ref().map(|body| body.bytes.clone())
    }

    /// Is there a copy of its contents in a memfd, so that [`Local::send`](crate::Local::send) is cheaper than reading
    /// them?
    #[must_use]
    #[inline]
    pub fn has_copy(&self) -> bool {
        self.is_copied.get() || self.is_copy_written()
    }

    /// Looks whether its copy has been written meanwhile, which then takes the place of the bytes in the heap.
    fn is_copy_written(&self) -> bool {
        let copy = self.copy.borrow();
        let is_written = copy.as_ref().is_some_and(|copy| copy.is_written());
        if is_written {
            self.body.take();
            self.is_copied.set(true);
        }
        is_written
    }

    /// Notes whether its owner will have its body copied ([`Local::copy_body`](crate::Local::copy_body)) if it is used on.
    pub fn want_copy(&self, wants: bool) {
        self.wants_copy.set(wants);
    }

    /// Will its owner have its body copied if it is used on?
    #[must_use]
    pub fn wants_copy(&self) -> bool {
        self.wants_copy.get()
    }

    /// Is there such a copy, or is one being made?
    #[must_use]
    pub fn gets_copy(&self) -> bool {
        self.copy.borrow().is_some()
    }

    /// Sends bytes of the copy, as many as a non-blocking socket takes now. The rest is for
    /// [`Local::send`](crate::Local::send).
    ///
    /// # Errors
    /// Those of sendfile(2), and EINVAL without a copy.
    pub fn send_copy(
        &self,
        socket: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> std::io::Result<usize> {
        let copy = self.copy.borrow();
        let copy = copy.as_ref().filter(|_| self.is_copied.get());
        let copy = copy.ok_or(std::io::ErrorKind::InvalidInput)?;
        Ok(copy.send(socket, offset, len)?)
    }

    /// Is it being sent to many now, so that none of its pages stays unused for long?
    pub(crate) fn is_sent_to_many(&self) -> bool {
        self.sendings.get() >= MANY
    }

    pub(crate) fn proofs(&self) -> &ResidencyMemo {
        self.proofs.get_or_init(Box::default)
    }

    /// Its copy, which lives for as long as the caller holds it.
    pub(crate) fn copy(&self) -> Option<Rc<MemfdCopy>> {
        self.has_copy().then(|| self.copy.borrow().clone())?
    }

    pub(crate) fn set_copy(&self, copy: Option<MemfdCopy>) {
        self.is_copied.set(false);
        *self.copy.borrow_mut() = copy.map(Rc::new);
    }

    /// Gives it a body, whose memory is counted for as long as it is in the heap.
    pub(crate) fn set_body(&self, bytes: &Bytes) {
        self.body.replace(Some(Body {
            bytes: bytes.clone(),
            _charge: Some(charge(Holder::Bodies, bytes.len())),
        }));
    }

    /// Takes its body and its copy away.
    pub(crate) fn drop_body(&self) {
        self.body.take();
        self.set_copy(None);
    }

    /// A slot for data that belongs to this state of the file (say, its finished header block); dropped with the first
    /// change of the file.
    #[must_use]
    pub fn slot(&self) -> &OnceCell<Rc<dyn Any>> {
        &self.slot
    }

    /// Its path as the kernel knows it now, for messages; that of a device for what lies on one. Does not wait. Empty if
    /// there is no /proc.
    #[must_use]
    pub fn kernel_path(&self) -> Vec<u8> {
        path_of(self.as_fd()).unwrap_or_default()
    }

    pub(crate) fn read_ahead(&self) -> u64 {
        self.handle
            .mount
            .as_ref()
            .map_or(0, |mount| mount.read_ahead())
    }

    pub(crate) fn is_inline(&self) -> bool {
        self.filesystem() != Filesystem::Foreign
    }

    pub(crate) fn filesystem(&self) -> Filesystem {
        self.handle.filesystem()
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// The path of an open file as the kernel knows it. (The kernel builds it from dentries in memory; procfs waits for no
/// disk.)
pub(crate) fn path_of(fd: impl AsFd) -> Result<Vec<u8>, Error> {
    rustix::fs::readlink(
        format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()),
        Vec::new(),
    )
    .map(std::ffi::CString::into_bytes)
    .map_err(|errno| Error::system("realpath()", errno))
}

/// The result of an open, on its way from the pool (or the kernel's memory) to an [`OpenFile`].
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub fd: OwnedFd,
    pub meta: Meta,
    pub mount: Option<Arc<Mount>>,
    pub body: Option<Bytes>,
    pub direct: bool,
    /// Does the next read record when it happens ([`access_time`](crate::files::access_time))?
    pub records_access: bool,
    pub way: Way,
}

/// How a path leads to a file that the pool has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Its last component is the file.
    Direct,
    /// Its last component is a symlink.
    ByLink,
    /// It was not asked (a loop can look by itself), or changed meanwhile.
    Unknown,
}

/// Counts a file as being sent while it lives.
pub(crate) struct SendingCount<'a>(&'a OpenFile);

impl<'a> SendingCount<'a> {
    pub(crate) fn new(file: &'a OpenFile) -> Self {
        file.sendings.update(|sendings| sendings + 1);
        Self(file)
    }
}

impl Drop for SendingCount<'_> {
    fn drop(&mut self) {
        self.0.sendings.update(|sendings| sendings - 1);
    }
}
