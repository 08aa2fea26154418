//! A file of a fixed length that stays open: jobs of a pool write it at any place, loops read and send parts of it. It
//! may be a part of a device instead (`device`), which is read and written past the page cache.
//!
//! Bytes that `sendfile` has put into a socket are the file's own pages: writing over them changes what is on its way
//! to a client. So a part is cleared before it is written again ([`SegmentFile::clear`]): that takes the pages out of
//! the file, and the sockets keep them. (What shares a folio of the page cache with bytes that stay is not taken out,
//! but zeroed where it is.) A part of a device has no pages: what was read from it lies in buffers that are
//! the reader's own, so there is nothing to clear.
//!
//! Not here: what lies in the file. Invariant: nothing is cleared by this module while a view of the file lives; the
//! caller asks ([`SegmentFile::is_viewed`]).

use crate::changing::device::{DevicePart, PartLock};
use crate::changing::steps::{self, in_steps};
use crate::disk::Disk;
use crate::files::error::Error;
use crate::files::mount::Mount;
use crate::files::open_file::{
    DIRECT_ALIGNMENT, FileKind, Handle, Meta, OpenFile, SharedFd, Viewers,
};
use crate::files::pread::read_fully;
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use crate::pool::Pool;
use bytes::Bytes;
use rustix::fs::{Advice, Dir, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Buffers of one pwritev(2); more are several calls.
const PARTS_MAX: usize = 512;
/// Bytes that a proof writes and reads at once.
const PROOF_BYTES: u64 = 1 << 20;
/// Bytes of the largest folio of the page cache (xfs, ext4 since Linux 6.16), with pages of 4 KiB.
const FOLIO_MAX: u64 = 2 << 20;
/// Names that [`names_in`] returns at most.
const NAMES_MAX: usize = 1 << 17;

/// A file that stays open, see the module. All methods that say so **wait**: they are for jobs of a pool.
#[derive(Debug)]
pub struct SegmentFile {
    fd: Arc<SharedFd>,
    mount: Option<Arc<Mount>>,
    meta: Meta,
    /// Shared by the handles of all views.
    viewers: Arc<Viewers>,
    pool: Pool,
    /// Where it lies on a device; None: it is a file.
    part: Option<Arc<DevicePart>>,
}

impl SegmentFile {
    /// Opens the file at a path, which is made with these permissions if it does not exist. **Waits.**
    ///
    /// # Errors
    /// [`Error::System`] with `open()` or `fstat()`; EINVAL if it is no regular file.
    pub fn open(disk: &Disk, path: &[u8], mode: u32, pool: &Pool) -> Result<Self, Error> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode);
        #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
        let open = |flags| rustix::fs::open(OsStr::from_bytes(path), flags, mode);
        let open = || match open(flags | OFlags::NOATIME) {
            // O_NOATIME is for the owner only.
            Err(Errno::PERM) => open(flags),
            result => result,
        };
        let fd = call_times::timed(Operation::Create, open);
        let fd = fd.map_err(|errno| Error::system("open()", errno))?;
        // Explicit ranges only: the kernel's readahead would start I/O on a loop.
        let _ = rustix::fs::fadvise(&fd, 0, None, Advice::Random);
        let meta = meta_of(&fd)?;
        if meta.kind != FileKind::File {
            return Err(Error::system("open()", Errno::INVAL));
        }
        let mount = disk.mounts.learn(fd.as_fd());
        Ok(Self {
            fd: Arc::new(SharedFd::new(fd, pool)),
            mount,
            meta,
            viewers: Arc::default(),
            pool: pool.clone(),
            part: None,
        })
    }

    /// A part of a device.
    pub(super) fn of_part(part: DevicePart) -> Self {
        let device = &part.device;
        let meta = Meta {
            len: part.len,
            ..device.meta
        };
        Self {
            fd: Arc::clone(&device.fd),
            mount: None,
            meta,
            viewers: Arc::default(),
            pool: device.pool.clone(),
            part: Some(Arc::new(part)),
        }
    }

    /// Where its bytes begin in the file that [`SegmentFile::view`] returns: all but those of a device's part's first
    /// [`DIRECT_ALIGNMENT`] bytes, which no view has.
    #[must_use]
    pub fn view_base(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.base)
    }

    /// Its length in bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "it is a file, not a collection"
    )]
    pub fn len(&self) -> u64 {
        self.meta.len
    }

    /// Gives the file this length, with all its blocks, where the file system can do that. (A part of a device has its
    /// length.) **Waits.**
    ///
    /// # Errors
    /// [`Error::System`] with `fallocate()` (ENOSPC) or `ftruncate()`.
    pub fn allocate(&mut self, len: u64) -> Result<(), Error> {
        if self.part.is_some() {
            return Ok(());
        }
        if self.meta.len > len {
            self.truncate(len)?;
        }
        match self.fallocate(FallocateFlags::empty(), 0, len) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.truncate(len)?,
            Err(errno) => return Err(Error::system("fallocate()", errno)),
        }
        self.meta.len = len;
        Ok(())
    }

    /// Writes all parts, one behind the other, from `offset` on; on a device, whole multiples of [`DIRECT_ALIGNMENT`] at
    /// one. **Waits.**
    ///
    /// # Errors
    /// [`Error::System`] with `pwrite()`; a part may have been written.
    pub fn write(&self, offset: u64, parts: &[Bytes]) -> Result<(), Error> {
        let bytes = |(): &()| parts.iter().map(|part| part.len() as u64).sum();
        call_times::timed_on(Operation::Write, self.fd.as_fd(), bytes, || {
            match &self.part {
                Some(part) => part.write(offset, parts),
                None => self.write_parts(offset, parts),
            }
        })
    }

    fn write_parts(&self, mut offset: u64, parts: &[Bytes]) -> Result<(), Error> {
        for parts in parts.chunks(PARTS_MAX) {
            let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let mut left = &mut slices[..];
            // Empty ones are no reason for a call.
            IoSlice::advance_slices(&mut left, 0);
            while !left.is_empty() {
                match rustix::io::pwritev(self.fd.as_fd(), left, offset) {
                    Ok(0) => return Err(Error::system("pwrite()", Errno::IO)),
                    Ok(written) => {
                        offset += written as u64;
                        IoSlice::advance_slices(&mut left, written);
                    }
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(Error::system("pwrite()", errno)),
                }
            }
        }
        Ok(())
    }

    /// Reads `len` bytes at `offset`, fewer only at the end of the file. **Waits.**
    ///
    /// # Errors
    /// [`Error::System`] with `read()`.
    pub fn read(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        let bytes = |bytes: &Bytes| bytes.len() as u64;
        call_times::timed_on(Operation::Read, self.fd.as_fd(), bytes, || {
            match &self.part {
                Some(part) => part.read(offset, len),
                None => read_fully(self.fd.as_fd(), offset, len),
            }
        })
    }

    /// Takes the pages of a part out of the file, which reads as zeros from then on; its blocks stay the file's. It is to
    /// be of whole folios: what a socket holds of these stays as it was. On a device nothing is done, and the bytes stay
    /// what they are: no socket holds any of its pages. **Waits.**
    ///
    /// # Errors
    /// [`Error::System`] with `fallocate()` or `ftruncate()`.
    pub fn clear(&self, offset: u64, len: u64) -> Result<(), Error> {
        if self.part.is_some() {
            return Ok(());
        }
        let cleared = call_times::timed(Operation::Other, || self.clear_part(offset, len));
        cleared.map_err(|errno| Error::system("fallocate()", errno))
    }

    fn clear_part(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let keep = FallocateFlags::KEEP_SIZE;
        let free = |how| {
            in_steps(offset, len, |offset, len| {
                self.fallocate(how | keep, offset, len)
            })
        };
        match free(FallocateFlags::ZERO_RANGE) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            done => return done,
        }
        match free(FallocateFlags::PUNCH_HOLE) {
            // The blocks are wanted back; without them the next writes may find the disk full, which they report.
            Ok(()) => {
                let _ = self.fallocate(keep, offset, len);
                Ok(())
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) if offset + len >= self.len() => {
                rustix::fs::ftruncate(&*self.fd, offset)?;
                rustix::fs::ftruncate(&*self.fd, self.meta.len)
            }
            done => done,
        }
    }

    /// Clears the file from `offset` on, but for what shares its folio with the bytes before: a socket may hold that.
    /// Returns from where on it may be written: `offset`, if there are only zeros; otherwise the next folio, or the end
    /// of the file. (A part of a device may be written anywhere.) **Waits.**
    ///
    /// # Errors
    /// As [`SegmentFile::read`] and [`SegmentFile::clear`].
    pub fn clear_from(&self, offset: u64) -> Result<u64, Error> {
        if self.part.is_some() {
            return Ok(offset);
        }
        let next = offset.next_multiple_of(FOLIO_MAX).min(self.len());
        let shared = self.read(offset, next.saturating_sub(offset) as usize)?;
        self.clear(next, self.len() - next)?;
        let is_clear = shared.iter().all(|byte| *byte == 0);
        Ok(if is_clear { offset } else { next })
    }

    /// Begins to write what is dirty to the disk, so that it does not pile up. **Waits** if the disk's queue is full.
    pub fn begin_writeback(&self) {
        if self.part.is_some() {
            // Nothing is dirty.
            return;
        }
        // Without it the kernel writes when it finds it right.
        steps::begin_writeback(self.fd.as_fd(), self.meta.len);
    }

    /// Waits until the contents are on the disk (fdatasync). **Waits.**
    ///
    /// # Errors
    /// [`Error::System`] with `fdatasync()`.
    pub fn sync(&self) -> Result<(), Error> {
        // Of a device nothing is dirty; what it keeps itself is written.
        let len = self.part.as_ref().map_or(self.meta.len, |_| 0);
        let sync = || steps::sync(self.fd.as_fd(), len);
        let sync = || sync().map_err(|errno| Error::system("fdatasync()", errno));
        call_times::timed_on(Operation::Fsync, self.fd.as_fd(), |()| 0, sync)
    }

    /// Proves that all of it can be written and read: clears it, writes zeros, waits until they are on the disk, and
    /// reads them from there. For a file that holds nothing that is wanted. **Waits.**
    ///
    /// # Errors
    /// [`Error::System`] with the call that failed; ECANCELED once it is not `wanted` any more, which is asked between
    /// parts.
    pub fn prove(&self, wanted: impl Fn() -> bool) -> Result<(), Error> {
        let (len, zeros) = (self.len(), Bytes::from(vec![0; PROOF_BYTES as usize]));
        // The first ones of a device's part lie elsewhere.
        let first = DIRECT_ALIGNMENT.min(len);
        let parts = || std::iter::once(0).chain((first..len).step_by(PROOF_BYTES as usize));
        let part = |at: u64| match at {
            0 => zeros.slice(..first as usize),
            _ => zeros.slice(..PROOF_BYTES.min(len - at) as usize),
        };
        let goes_on = |call| match wanted() {
            true => Ok(()),
            false => Err(Error::system(call, Errno::CANCELED)),
        };
        self.clear(0, len)?;
        for at in parts() {
            goes_on("write()")?;
            self.write(at, &[part(at)])?;
        }
        self.sync()?;
        let _ = rustix::fs::fadvise(&*self.fd, 0, None, Advice::DontNeed);
        for at in parts() {
            goes_on("read()")?;
            if self.read(at, part(at).len())? != part(at) {
                return Err(Error::system("read()", Errno::IO));
            }
        }
        Ok(())
    }

    /// Does a view of it live, or a job that works on one?
    #[must_use]
    pub fn is_viewed(&self) -> bool {
        Arc::strong_count(&self.viewers) > 1
    }

    /// The file for readers. While the view lives, and jobs that were begun on it, [`SegmentFile::is_viewed`] is true.
    #[must_use]
    pub fn view(&self) -> OpenFile {
        let viewer = Some(Arc::clone(&self.viewers));
        let handle = Handle::shared(&self.fd, self.mount.clone(), viewer);
        if let Some(part) = &self.part {
            return OpenFile::of_device(handle, part.device.meta);
        }
        OpenFile::of_shared(handle, self.meta, None)
    }

    /// A part of it that was read, as a file of its own, which is no view: its bytes are in memory.
    #[must_use]
    pub fn piece(&self, bytes: Bytes) -> OpenFile {
        let handle = Handle::shared(&self.fd, self.mount.clone(), None);
        let meta = Meta {
            len: bytes.len() as u64,
            ..self.meta
        };
        OpenFile::of_shared(handle, meta, Some(bytes))
    }

    /// Tells other processes that this one reads the file, until this value and its last view are gone. **Waits.**
    pub fn lock_for_reading(&self) {
        if let Some(part) = &self.part {
            let lock = PartLock::shared(part);
            lock.map(|lock| self.viewers.lock.set(Box::new(lock)));
            return;
        }
        let path = format!("/proc/self/fd/{}", self.fd.as_fd().as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
        let opened = rustix::fs::open(path, flags, Mode::empty());
        self.keep_lock(opened);
    }

    /// Keeps a lock by a descriptor of the views' own, since pieces keep that of the file open, too. Where there is
    /// none (no descriptor is left, or there is no /proc), the lock lasts as long as the pieces.
    fn keep_lock(&self, opened: Result<OwnedFd, Errno>) {
        let how = FlockOperation::NonBlockingLockShared;
        // On a file system without locks, two processes are not kept apart.
        let _ = match opened {
            Ok(fd) => rustix::fs::flock(&fd, how).map(|()| {
                let lock = Box::new(SharedFd::new(fd, &self.pool));
                let _ = self.viewers.lock.set(lock);
            }),
            Err(_) => rustix::fs::flock(&*self.fd, how),
        };
    }

    /// Runs work unless another process reads the file ([`SegmentFile::lock_for_reading`]). **Waits.**
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        if let Some(part) = &self.part {
            if part.lock(sys::RangeLock::Exclusive) == Err(Errno::WOULDBLOCK) {
                return None;
            }
            let done = work();
            let _ = part.lock(sys::RangeLock::Free);
            return Some(done);
        }
        let locked = rustix::fs::flock(&*self.fd, FlockOperation::NonBlockingLockExclusive);
        if locked == Err(Errno::WOULDBLOCK) {
            return None;
        }
        let done = work();
        let _ = rustix::fs::flock(&*self.fd, FlockOperation::Unlock);
        Some(done)
    }

    fn fallocate(&self, flags: FallocateFlags, offset: u64, len: u64) -> Result<(), Errno> {
        loop {
            match rustix::fs::fallocate(&*self.fd, flags, offset, len) {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }

    fn truncate(&self, len: u64) -> Result<(), Error> {
        let done = rustix::fs::ftruncate(&*self.fd, len);
        done.map_err(|errno| Error::system("ftruncate()", errno))
    }
}

fn meta_of(fd: &OwnedFd) -> Result<Meta, Error> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| Error::system("fstat()", errno))?;
    Ok(Meta::from_stat(&stat))
}

/// The names in a directory, at most `NAMES_MAX`; none if it does not exist. **Waits.**
///
/// # Errors
/// [`Error::System`] with `open()` or `readdir()`.
pub fn names_in(path: &[u8]) -> Result<Vec<Box<[u8]>>, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
    let fd = match rustix::fs::open(OsStr::from_bytes(path), flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        opened => opened.map_err(|errno| Error::system("open()", errno))?,
    };
    let failed = |errno| Error::system("readdir()", errno);
    let mut names = Vec::new();
    for entry in Dir::read_from(fd).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." && names.len() < NAMES_MAX {
            names.push(name.into());
        }
    }
    Ok(names)
}

/// Removes a file, on the caller's thread; one that does not exist is fine. **Waits.**
///
/// # Errors
/// [`Error::System`] with `unlink()`.
pub fn remove_waiting(path: &[u8]) -> Result<(), Error> {
    crate::changing::batch::take_steps(&[crate::changing::batch::BatchStep::Unlink(path.into())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{block_on, local};
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;

    const LEN: u64 = 1 << 20;

    fn made(disk: &Disk, pool: &Pool, dir: &tempfile::TempDir) -> SegmentFile {
        let path = dir.path().join("0");
        let mut file = SegmentFile::open(disk, path.as_os_str().as_bytes(), 0o600, pool).unwrap();
        file.allocate(LEN).unwrap();
        file
    }

    #[test]
    fn parts_are_written_read_and_cleared() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let file = made(local.disk(), &pool, &dir);
            assert_eq!(file.len(), LEN);
            let parts = ["", "one", "", "two"].map(|part| Bytes::from_static(part.as_bytes()));
            file.write(4096, &parts).unwrap();
            assert_eq!(file.read(4096, 6).unwrap(), "onetwo");
            file.sync().unwrap();
            file.begin_writeback();
            file.clear(0, LEN).unwrap();
            assert_eq!(file.read(4096, 6).unwrap(), [0; 6][..]);
            assert_eq!(file.read(LEN - 2, 6).unwrap().len(), 2);
            file.write(4096, &parts).unwrap();
            file.prove(|| true).unwrap();
            assert!(file.prove(|| false).is_err());
            assert_eq!(file.read(4096, 6).unwrap(), [0; 6][..]);
        });
    }

    #[test]
    fn it_is_viewed_as_long_as_a_view_lives() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let file = made(local.disk(), &pool, &dir);
            file.write(8192, &[Bytes::from_static(b"here")]).unwrap();
            assert!(!file.is_viewed());
            let access = crate::Access::new(&pool);
            let view = Rc::new(file.view());
            let bytes = local.read(&view, 8192, 4, &access).await.unwrap();
            assert_eq!(bytes, "here");
            assert!(file.is_viewed());
            drop(view);
            assert!(!file.is_viewed());
            let piece = Rc::new(file.piece(bytes));
            assert_eq!(local.read(&piece, 1, 9, &access).await.unwrap(), "ere");
        });
    }

    #[test]
    fn another_process_that_reads_is_seen() {
        let disk = Disk::new(Disk::prepare());
        let pool = disk.define_pool("it", 1, 10);
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (made(&disk, &pool, &dir), made(&disk, &pool, &dir));
        assert_eq!(one.alone(|| 1), Some(1));
        other.lock_for_reading();
        assert_eq!(one.alone(|| 1), None);
        let view = other.view();
        drop(other);
        assert_eq!(one.alone(|| 1), None);
        drop(view);
        // The close is a job of its own.
        while one.alone(|| 1).is_none() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_reader_is_seen_where_no_descriptor_is_left_for_its_lock() {
        let disk = Disk::new(Disk::prepare());
        let pool = disk.define_pool("it", 1, 10);
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (made(&disk, &pool, &dir), made(&disk, &pool, &dir));
        let view = other.view();
        other.keep_lock(Err(Errno::MFILE));
        drop(other);
        assert_eq!(one.alone(|| 1), None);
        drop(view);
        // The close is a job of its own.
        while one.alone(|| 1).is_none() {
            std::thread::yield_now();
        }
    }

    /// The trap: what `sendfile` has put into a socket are the file's own pages.
    fn sent_before(clear: impl FnOnce(&SegmentFile)) -> Vec<u8> {
        let disk = Disk::new(Disk::prepare());
        let pool = disk.define_pool("it", 1, 10);
        // On a disk: tmpfs would show the same, but it is not what is used.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file = made(&disk, &pool, &dir);
        let then = Bytes::from(vec![b'1'; LEN as usize]);
        file.write(0, &[then]).unwrap();
        let (sender, mut reader) = UnixStream::pair().unwrap();
        sender.set_nonblocking(true).unwrap();
        let mut at = 0;
        while let Ok(sent) = rustix::fs::sendfile(&sender, &*file.fd, Some(&mut at), 1 << 20) {
            if sent == 0 {
                break;
            }
        }
        assert!(at > 16384, "the socket takes something");
        clear(&file);
        drop(sender);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(got.len() as u64, at);
        got
    }

    #[test]
    fn what_a_socket_holds_stays_when_the_file_is_cleared_and_written_again() {
        let got = sent_before(|file| {
            file.clear(0, LEN).unwrap();
            let now = Bytes::from(vec![b'2'; LEN as usize]);
            file.write(0, &[now]).unwrap();
        });
        assert!(got.iter().all(|byte| *byte == b'1'));
    }

    #[test]
    fn what_a_socket_holds_stays_when_the_rest_of_the_file_is_cleared() {
        let got = sent_before(|file| {
            // All of it is of one folio, where the file system has large ones.
            assert_eq!(file.clear_from(8192).unwrap(), LEN);
            file.clear(0, LEN).unwrap();
            assert_eq!(file.clear_from(8192).unwrap(), 8192);
        });
        assert!(got.iter().all(|byte| *byte == b'1'));
    }
}
