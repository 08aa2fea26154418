//! A block device, or a file of a fixed length in its place, that is read and written past the kernel's page cache
//! (O_DIRECT): by jobs of a pool only, since each call waits for the disk.
//!
//! The kernel wants offsets, lengths and addresses of memory that are multiples of the device's sector.
//! [`DIRECT_ALIGNMENT`] is a multiple of every sector that this program takes.
//!
//! Not here: what lies there. Invariants: a write begins and ends at a multiple of [`DIRECT_ALIGNMENT`], so that
//! nothing is read for it; nothing is ever in the page cache, so no `sendfile` can have given it to a socket.

use crate::changing::segment_file::SegmentFile;
use crate::files::error::Error;
use crate::files::open_file::{DIRECT_ALIGNMENT, FileKind, Meta, SharedFd, ViewLock};
use crate::pool::Pool;
use crate::reading::read::read_direct;
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Bytes of one write at most; more are several writes.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// What a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceUse {
    /// To be written by the caller alone: no file system on it is mounted, and no other program has it so.
    Alone,
    /// To be read, whoever has it.
    Reading,
}

/// Opens a block device, or a file of a fixed length that is there, with O_DIRECT. Not on a loop: **waits.**
///
/// # Errors
/// Those of open(2); EBUSY: it is mounted, or another program has it alone; ENOTBLK: it is neither; EINVAL: its file
/// system has no direct I/O.
#[expect(clippy::disallowed_methods, reason = "for callers without a loop")]
pub fn open_device(path: &Path, purpose: DeviceUse) -> Result<OwnedFd, Errno> {
    let stat = rustix::fs::stat(path)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !matches!(kind, FileType::BlockDevice | FileType::RegularFile) {
        return Err(Errno::NOTBLK);
    }
    let flags = OFlags::CLOEXEC | OFlags::DIRECT | OFlags::NOCTTY;
    let flags = match purpose {
        DeviceUse::Reading => flags | OFlags::RDONLY,
        // Of a block device it means: not while it is mounted, or opened so by another program (open(2)).
        DeviceUse::Alone if kind == FileType::BlockDevice => flags | OFlags::RDWR | OFlags::EXCL,
        DeviceUse::Alone => flags | OFlags::RDWR,
    };
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    if purpose == DeviceUse::Alone {
        // It stays as long as a duplicate of the descriptor is open, in whatever process.
        let locked = rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive);
        // Without locks of the file system, two programs are kept apart for a device only.
        if locked == Err(Errno::WOULDBLOCK) {
            return Err(Errno::BUSY);
        }
    }
    Ok(fd)
}

/// A device that another value holds open, with O_DIRECT. All methods **wait**.
#[derive(Clone, Copy, Debug)]
pub struct DirectFile<'a>(BorrowedFd<'a>);

impl<'a> DirectFile<'a> {
    /// That of a descriptor that was opened with O_DIRECT.
    #[must_use]
    pub fn new(fd: BorrowedFd<'a>) -> Self {
        Self(fd)
    }

    /// Its length in bytes.
    ///
    /// # Errors
    /// [`Error::System`] with `lseek()`.
    pub fn size(&self) -> Result<u64, Error> {
        let end = rustix::fs::seek(self.0, SeekFrom::End(0));
        end.map_err(|errno| Error::system("lseek()", errno))
    }

    /// Reads `len` bytes at `offset`, fewer only at the end.
    ///
    /// # Errors
    /// [`Error::System`] with `read()`.
    pub fn read(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        let read = read_direct(self.0, offset, len, DIRECT_ALIGNMENT);
        read.map_err(|error| Error::io("read()", &error))
    }

    /// Writes all parts, one behind the other, from `offset` on. It and the sum of the lengths are multiples of
    /// [`DIRECT_ALIGNMENT`].
    ///
    /// # Errors
    /// [`Error::System`] with `pwrite()`; a part may have been written.
    pub fn write(&self, offset: u64, parts: &[Bytes]) -> Result<(), Error> {
        self.write_by(&mut AlignedBuffer::default(), offset, parts)
    }

    fn write_by(
        &self,
        buffer: &mut AlignedBuffer,
        mut offset: u64,
        parts: &[Bytes],
    ) -> Result<(), Error> {
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if !offset.is_multiple_of(DIRECT_ALIGNMENT) || !len.is_multiple_of(DIRECT_ALIGNMENT) {
            return Err(Error::system("pwrite()", Errno::INVAL));
        }
        for part in parts {
            let mut left = &part[..];
            while !left.is_empty() {
                let taken = buffer.take(left);
                left = &left[taken..];
                if buffer.is_full() {
                    offset += self.write_out(buffer, offset)?;
                }
            }
        }
        self.write_out(buffer, offset).map(drop)
    }

    /// Writes what the buffer holds, and empties it.
    fn write_out(&self, buffer: &mut AlignedBuffer, offset: u64) -> Result<u64, Error> {
        let all = buffer.held().len() as u64;
        let mut done = 0;
        while done < all {
            match rustix::io::pwrite(self.0, &buffer.held()[done as usize..], offset + done) {
                // A length that is no multiple could not be gone on with.
                Ok(count) if count > 0 && (count as u64).is_multiple_of(DIRECT_ALIGNMENT) => {
                    done += count as u64;
                }
                Ok(_) => {
                    buffer.clear();
                    return Err(Error::system("pwrite()", Errno::IO));
                }
                Err(Errno::INTR) => {}
                Err(errno) => {
                    buffer.clear();
                    return Err(Error::system("pwrite()", errno));
                }
            }
        }
        buffer.clear();
        Ok(all)
    }

    /// Waits until the device has what was written in a memory that keeps it (fdatasync).
    ///
    /// # Errors
    /// [`Error::System`] with `fdatasync()`.
    pub fn sync(&self) -> Result<(), Error> {
        let synced = rustix::fs::fdatasync(self.0);
        synced.map_err(|errno| Error::system("fdatasync()", errno))
    }
}

/// Memory at an address that direct writes may have: [`WRITE_BYTES_MAX`] bytes, once it is used.
#[derive(Debug, Default)]
struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// Takes as many bytes as it has room for. Returns their number.
    fn take(&mut self, bytes: &[u8]) -> usize {
        if self.memory.is_empty() {
            let alignment = DIRECT_ALIGNMENT as usize;
            self.memory = vec![0; WRITE_BYTES_MAX + alignment];
            self.start = self.memory.as_ptr().align_offset(alignment).min(alignment);
        }
        let count = bytes.len().min(WRITE_BYTES_MAX - self.len);
        let at = self.start + self.len;
        self.memory[at..at + count].copy_from_slice(&bytes[..count]);
        self.len += count;
        count
    }

    fn is_full(&self) -> bool {
        self.len == WRITE_BYTES_MAX
    }

    fn held(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    fn clear(&mut self) {
        self.len = 0;
    }
}

/// A device that stays open, and whose parts are [`SegmentFile`]s.
#[derive(Debug)]
pub struct Device {
    pub(super) fd: Arc<SharedFd>,
    pub(super) meta: Meta,
    /// One write at a time: its buffer is kept.
    buffer: Mutex<AlignedBuffer>,
    pub(super) pool: Pool,
}

impl Device {
    /// The device of a descriptor that was opened for reading and writing, with O_DIRECT; it is for jobs of this pool.
    /// **Waits.**
    ///
    /// # Errors
    /// [`Error::System`] with `lseek()` or `fstat()`.
    pub fn new(fd: OwnedFd, pool: &Pool) -> Result<Arc<Self>, Error> {
        let len = DirectFile::new(fd.as_fd()).size()?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| Error::system("fstat()", errno))?;
        let meta = Meta {
            kind: FileKind::File,
            len,
            ..Meta::from_stat(&stat)
        };
        Ok(Arc::new(Self {
            fd: Arc::new(SharedFd::new(fd, pool)),
            meta,
            buffer: Mutex::default(),
            pool: pool.clone(),
        }))
    }

    /// For calls on any part of it.
    #[must_use]
    pub fn direct(&self) -> DirectFile<'_> {
        DirectFile(self.fd.as_fd())
    }

    /// A part of `len` bytes, as a file: its first [`DIRECT_ALIGNMENT`] bytes lie at `head`, and its byte at any offset
    /// behind that at `base` plus the offset.
    #[must_use]
    pub fn part(self: &Arc<Self>, head: u64, base: u64, len: u64) -> SegmentFile {
        let device = Arc::clone(self);
        SegmentFile::of_part(DevicePart {
            device,
            head,
            base,
            len,
        })
    }
}

/// A part of a device.
#[derive(Debug)]
pub(super) struct DevicePart {
    pub device: Arc<Device>,
    head: u64,
    pub base: u64,
    pub len: u64,
}

impl DevicePart {
    /// The place of `len` bytes at an offset. None: they are not in a row.
    fn place(&self, offset: u64, len: u64) -> Option<u64> {
        match offset >= DIRECT_ALIGNMENT {
            true => Some(self.base + offset),
            false if offset + len <= DIRECT_ALIGNMENT => Some(self.head + offset),
            false => None,
        }
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        let len = (len as u64).min(self.len.saturating_sub(offset));
        let place = self.place(offset, len);
        let place = place.ok_or(Error::system("read()", Errno::INVAL))?;
        self.device.direct().read(place, len as usize)
    }

    pub(super) fn write(&self, offset: u64, parts: &[Bytes]) -> Result<(), Error> {
        let len = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let place = self.place(offset, len);
        let place = place.filter(|_| offset + len <= self.len);
        let place = place.ok_or(Error::system("pwrite()", Errno::INVAL))?;
        let mut buffer = self.device.buffer.lock();
        self.device.direct().write_by(&mut buffer, place, parts)
    }

    /// Locks it against other processes that share the device, or lets it go. (Such a lock is the process's: the
    /// descriptor is that of the master, which all workers have.)
    ///
    /// # Errors
    /// WOULDBLOCK: another process has a lock that excludes this one.
    pub(super) fn lock(&self, lock: sys::RangeLock) -> Result<(), Errno> {
        let locked = sys::lock_range(self.device.fd.as_fd(), lock, self.base, self.len);
        locked.map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::PermissionDenied => {
                Errno::WOULDBLOCK
            }
            _ => Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })
    }
}

/// A lock on a part of a device, as long as it lives.
#[derive(Debug)]
pub(crate) struct PartLock(Arc<DevicePart>);

impl ViewLock for PartLock {}

impl PartLock {
    /// Tells other processes that this one reads the part. None: it cannot be told.
    pub(super) fn shared(part: &Arc<DevicePart>) -> Option<Self> {
        part.lock(sys::RangeLock::Shared).ok()?;
        Some(Self(Arc::clone(part)))
    }
}

impl Drop for PartLock {
    fn drop(&mut self) {
        let _ = self.0.lock(sys::RangeLock::Free);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;
    use crate::AioMode;
    use crate::tests::{block_on, local};
    use std::rc::Rc;

    const LEN: u64 = 4 << 20;

    /// A file in the place of a device. None: its file system has no O_DIRECT.
    fn made(dir: &tempfile::TempDir, pool: &Pool) -> Option<Arc<Device>> {
        let path = dir.path().join("device");
        std::fs::File::create(&path).unwrap().set_len(LEN).unwrap();
        match open_device(&path, DeviceUse::Alone) {
            Ok(fd) => Some(Device::new(fd, pool).unwrap()),
            Err(Errno::INVAL) => {
                println!("skipped: no O_DIRECT in {}", path.display());
                None
            }
            Err(errno) => panic!("{errno}"),
        }
    }

    fn in_target() -> tempfile::TempDir {
        // Not in /tmp, which may be in memory.
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    #[test]
    fn a_part_is_written_and_read_where_it_lies_and_nowhere_else() {
        let disk = crate::Disk::new(crate::Disk::prepare());
        let pool = disk.define_pool("it", 1, 10);
        let dir = in_target();
        let Some(device) = made(&dir, &pool) else {
            return;
        };
        assert_eq!(device.direct().size().unwrap(), LEN);
        let path = dir.path().join("device");
        let again = open_device(&path, DeviceUse::Alone);
        assert_eq!(again.unwrap_err(), Errno::BUSY);
        open_device(&path, DeviceUse::Reading).unwrap();
        let directory = open_device(dir.path(), DeviceUse::Reading);
        assert_eq!(directory.unwrap_err(), Errno::NOTBLK);
        let part = device.part(8192, 1 << 20, 2 << 20);
        assert_eq!(part.len(), 2 << 20);
        let page = |byte: u8| Bytes::from(vec![byte; 4096]);
        part.write(0, &[page(1)]).unwrap();
        let halves = [page(2).slice(..1000), page(2).slice(1000..), page(3)];
        part.write(4096, &halves).unwrap();
        // More than one buffer, in odd parts.
        let long = Bytes::from((0..3 << 19).map(|at| (at % 251) as u8).collect::<Vec<_>>());
        let parts: Vec<_> = (0..long.len())
            .step_by(99_991)
            .map(|at| long.slice(at..(at + 99_991).min(long.len())))
            .collect();
        part.write(16384, &parts).unwrap();
        assert_eq!(part.read(0, 4096).unwrap(), page(1));
        assert_eq!(part.read(5000, 5).unwrap(), [2; 5][..]);
        assert_eq!(part.read(16384, long.len()).unwrap(), long);
        assert_eq!(device.direct().read(8192, 4096).unwrap(), page(1));
        assert_eq!(
            device.direct().read((1 << 20) + 8192, 9).unwrap(),
            [3; 9][..]
        );
        assert_eq!(device.direct().read(1 << 20, 9).unwrap(), [0; 9][..]);
        for (offset, len) in [(1, 4096), (4096, 4095), (0, 8192), ((2 << 20) - 4096, 8192)] {
            let refused = part.write(offset, &[Bytes::from(vec![0; len])]);
            assert_eq!(refused.unwrap_err().errno(), Some(Errno::INVAL), "{offset}");
        }
        assert_eq!(part.read((2 << 20) - 3, 9).unwrap().len(), 3, "its end");
        part.clear(0, 2 << 20).unwrap();
        assert_eq!(
            part.read(0, 4096).unwrap(),
            page(1),
            "there is nothing to clear"
        );
        part.prove(|| true).unwrap();
        assert_eq!(part.read(16384, 100).unwrap(), [0; 100][..]);
        device.direct().sync().unwrap();
    }

    #[test]
    fn a_view_is_read_by_the_pool_and_never_by_the_loop() {
        block_on(async {
            let (local, pool) = local();
            let dir = in_target();
            let Some(device) = made(&dir, &pool) else {
                return;
            };
            let part = device.part(4096, 1 << 20, 2 << 20);
            let bytes = Bytes::from((0..8192).map(|at| (at % 250) as u8).collect::<Vec<_>>());
            part.write(4096, std::slice::from_ref(&bytes)).unwrap();
            let access = crate::Access {
                mode: AioMode::Inline,
                ..crate::Access::new(&pool)
            };
            assert!(!part.is_viewed());
            let view = Rc::new(part.view());
            assert!(part.is_viewed());
            let base = part.view_base() + 4096;
            assert!(local.try_read(&view, base, 10).is_err());
            let held = pool.hold();
            let mut read = Box::pin(local.read(&view, base + 700, 1000, &access));
            let is_waiting = std::future::poll_fn(|cx| {
                std::task::Poll::Ready(read.as_mut().poll(cx).is_pending())
            });
            assert!(is_waiting.await, "no loop reads");
            drop(held);
            assert_eq!(read.await.unwrap(), bytes.slice(700..1700));
            let job = local.examine(&view, &access, move |file| file.read(base + 1, 5));
            assert_eq!(job.await.unwrap().unwrap(), bytes.slice(1..6));
            drop(view);
            assert!(!part.is_viewed());
            assert_eq!(part.alone(|| 1), Some(1));
        });
    }
}
