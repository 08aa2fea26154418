//! Reading a small range into memory: from the page cache, else in a pool.

use crate::access::Access;
use crate::files::error::{Error, WouldBlock};
use crate::files::mount::Filesystem;
use crate::files::open_file::{Handle, OpenFile};
use crate::files::pread::read_fully;
use crate::local::Local;
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use crate::opening::open::BODY_MAX;
use crate::pool::Lane;
use crate::residency::cached::all_cached;
use crate::residency::window::Residency;
use bytes::Bytes;
use rustix::fs::{Advice, fadvise};
use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// A call that appends up to so many bytes of a file at an offset to a buffer, and returns their number.
type Reader = fn(BorrowedFd<'_>, &mut Vec<u8>, usize, u64) -> std::io::Result<usize>;

/// Size in bytes of the largest pages that kernels are built with.
const PAGE_MAX: u64 = 64 << 10;
/// Bytes of one read at most; longer ranges are for [`Local::send`] or several reads.
pub const READ_MAX: usize = 128 << 10;

impl Local {
    /// Reads up to `len` (at most [`READ_MAX`]) bytes at `offset`, if they are in memory. Returns fewer only at the end
    /// of the file.
    ///
    /// # Errors
    /// [`WouldBlock`]: ask [`Local::read`].
    pub fn try_read(
        &self,
        file: &OpenFile,
        offset: u64,
        len: usize,
    ) -> Result<Result<Bytes, Error>, WouldBlock> {
        let len = len.min(READ_MAX);
        let answer = match file.body() {
            Some(body) => Ok(part_of(&body, offset, len)),
            None => {
                let mut buffer = Vec::with_capacity(len);
                let read = self.read_present(file, offset, len, &mut buffer)?;
                read.map(|()| Bytes::from(buffer))
            }
        };
        self.0.counters.memory(Operation::Read);
        Ok(answer)
    }

    /// Reads up to `len` (at most [`READ_MAX`]) bytes at `offset`. Returns fewer only at the end of the file. A small
    /// file that is read whole is kept as its [`OpenFile::body`].
    ///
    /// # Errors
    /// [`Error::System`] with `read()`, [`Error::Overflow`].
    pub async fn read(
        &self,
        file: &Rc<OpenFile>,
        offset: u64,
        len: usize,
        access: &Access<'_>,
    ) -> Result<Bytes, Error> {
        let len = len.min(READ_MAX);
        let bytes = match self.try_read(file, offset, len) {
            Ok(answer) => answer?,
            Err(WouldBlock) if access.reads_inline(file) => read_waiting(
                &file.handle,
                offset,
                len,
                file.direct,
                access.directio_alignment,
            )?,
            Err(WouldBlock) => {
                Box::pin(self.read_in_pool(file, offset, len, access, false)).await?
            }
        };
        if offset == 0 && bytes.len() as u64 == file.meta().len && bytes.len() <= BODY_MAX {
            self.0.files.borrow_mut().keep_body(file, &bytes);
        }
        Ok(bytes)
    }

    /// Reads up to `len` (at most [`READ_MAX`]) bytes at `offset` from the disk, as far as memory has nothing that is still to
    /// be written there: what could not be written may be in the kernel's memory, as if it were on the disk. Not for a
    /// [piece](crate::SegmentFile::piece), whose offsets are not those of its descriptor.
    ///
    /// # Errors
    /// As [`Local::read`].
    pub async fn read_anew(
        &self,
        file: &Rc<OpenFile>,
        offset: u64,
        len: usize,
        access: &Access<'_>,
    ) -> Result<Bytes, Error> {
        let len = len.min(READ_MAX);
        Box::pin(self.read_in_pool(file, offset, len, access, true)).await
    }

    /// Keeps a small file as its [`OpenFile::body`] if it is used again and is in memory, for callers that read parts of
    /// it.
    pub fn keep_whole(&self, file: &OpenFile) {
        let len = file.meta().len;
        if len > BODY_MAX as u64 || !self.0.files.borrow_mut().takes_body(file, len as usize) {
            return;
        }
        if let Ok(Ok(bytes)) = self.try_read(file, 0, len as usize)
            && bytes.len() as u64 == len
        {
            self.0.files.borrow_mut().keep_body(file, &bytes);
        }
    }

    /// Whether the range is in memory, as far as that can be told without waiting.
    #[must_use]
    pub fn is_present(&self, file: &OpenFile, offset: u64, len: u64) -> bool {
        if file.copy().is_some() || file.body().is_some() {
            return true;
        }
        let known = self.disk().windows.residency(file, offset, len);
        matches!(known, Residency::Present | Residency::Fleeting)
    }

    /// Has the file's pool prepare that [`Local::is_present`] can tell of a file around `offset` without a read: of one that is
    /// used again, or of the server's own. A little at a time.
    pub fn prepare(&self, file: &OpenFile, offset: u64) {
        let is_used_again = self.0.files.borrow().is_used_again(file);
        self.disk().windows.prepare(file, offset, is_used_again);
    }

    /// Passes up to `len` bytes at `offset` to `then`, if they are in memory, in a buffer that the loop keeps: where
    /// memory is short, the kernel may be slow to provide another one.
    ///
    /// # Errors
    /// [`WouldBlock`], and those of [`Local::try_read`]; `then` has not been called.
    pub(crate) fn pass_on<R>(
        &self,
        file: &OpenFile,
        offset: u64,
        len: usize,
        then: impl FnOnce(&[u8]) -> R,
    ) -> Result<Result<R, Error>, WouldBlock> {
        let mut buffer = self.0.passing.take();
        buffer.clear();
        let outcome = self.read_present(file, offset, len, &mut buffer);
        let outcome = outcome.map(|read| read.map(|()| then(&buffer)));
        if outcome.is_ok() {
            self.0.counters.memory(Operation::Read);
        }
        self.0.passing.replace(buffer);
        outcome
    }

    async fn read_in_pool(
        &self,
        file: &Rc<OpenFile>,
        offset: u64,
        len: usize,
        access: &Access<'_>,
        is_anew: bool,
    ) -> Result<Bytes, Error> {
        let (handle, direct) = (file.handle.clone(), file.direct);
        let alignment = file.alignment(access.directio_alignment);
        let begun = Instant::now();
        let pool = access.waiting_pool()?;
        // Its disk may be out: then nothing is queued behind threads that hang.
        let own = (file.handle.disk_pool()).map(|opener| pool.for_disk_of(opener));
        let (windows, meta) = (&self.disk().windows, *file.meta());
        // Without a page map other loops would take for present what is on its way.
        let windows = windows.pagemap.is_none().then(|| windows.clone());
        let job = own.as_ref().unwrap_or(pool).run(Lane::Read, move || {
            if is_anew {
                forget(&handle, offset, len);
            }
            let _reads = windows.map(|windows| windows.begin_reads(&meta, offset, len));
            read_waiting(&handle, offset, len, direct, alignment)
        });
        match job.await {
            Ok(bytes) => {
                self.0.counters.offloaded(Operation::Read, begun.elapsed());
                bytes
            }
            Err(overflow) => {
                self.0.counters.overflowed(Operation::Read);
                Err(overflow.into())
            }
        }
    }

    /// Appends `len` bytes, if all are in memory; fewer only at the end of the file. What is kept of its contents comes
    /// first: the descriptor of a [piece](crate::SegmentFile::piece) is that of the whole segment.
    fn read_present(
        &self,
        file: &OpenFile,
        offset: u64,
        len: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<Result<(), Error>, WouldBlock> {
        if let Some(body) = file.body() {
            buffer.extend_from_slice(&part_of(&body, offset, len));
            return Ok(Ok(()));
        }
        let Some(copy) = file.copy() else {
            return self.read_cached(file, offset, len, buffer).map(Ok);
        };
        let left = file.meta().len.saturating_sub(offset);
        let len = len.min(usize::try_from(left).unwrap_or(usize::MAX));
        Ok(copy.append(buffer, offset, len))
    }

    /// The same, from the page cache.
    fn read_cached(
        &self,
        file: &OpenFile,
        offset: u64,
        len: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<(), WouldBlock> {
        let (read, len) = self.reader(file, offset, len).ok_or(WouldBlock)?;
        let before = buffer.len();
        while buffer.len() - before < len {
            let got = buffer.len() - before;
            let at = offset + got as u64;
            match read(file.as_fd(), buffer, len - got, at) {
                // Linux 5.9 and 5.10 say so of what is not in memory, too.
                Ok(0) if is_before_end(file, at) => return Err(WouldBlock),
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(WouldBlock),
            }
        }
        Ok(())
    }

    /// The call that reads this part of a file without waiting, and how much of it. None: only a pool may read it.
    fn reader(&self, file: &OpenFile, offset: u64, len: usize) -> Option<(Reader, usize)> {
        if file.direct || file.disk_health().is_some_and(|disk| disk.is_simulated()) {
            return None;
        }
        match file.filesystem() {
            // tmpfs has RWF_NOWAIT since Linux 6.6 only, and does not need it.
            Filesystem::Memory => Some((sys::pread_into, len)),
            Filesystem::Native | Filesystem::Xfs => {
                seems_present(file, offset, len).then_some((sys::pread_nowait, len))
            }
            // What is proven is read as `sendfile` would send it.
            Filesystem::Overlay => {
                let left = file.meta().len.saturating_sub(offset).min(len as u64);
                let known = self.disk().windows.residency(file, offset, left);
                (known == Residency::Present).then_some((sys::pread_into, left as usize))
            }
            Filesystem::Foreign => None,
        }
    }
}

fn part_of(body: &Bytes, offset: u64, len: usize) -> Bytes {
    let start = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(body.len());
    body.slice(start..(start + len).min(body.len()))
}

/// Whether the file, as it is now, has a byte at `offset`.
fn is_before_end(file: &OpenFile, offset: u64) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| offset < stat.st_size.cast_unsigned())
}

/// Asks cachestat(2) first, where it is permitted: a read that misses starts I/O on the loop.
fn seems_present(file: &OpenFile, offset: u64, len: usize) -> bool {
    all_cached(file, offset, len as u64).unwrap_or(true)
}

/// Takes a range, and what shares its pages, out of the kernel's memory, but for what is still to be written. **Waits.**
fn forget(handle: &Handle, offset: u64, len: usize) {
    let start = offset / PAGE_MAX * PAGE_MAX;
    let end = (offset + len as u64).next_multiple_of(PAGE_MAX);
    // Where it cannot be done, memory is read.
    let _ = fadvise(
        handle,
        start,
        NonZeroU64::new(end - start),
        Advice::DontNeed,
    );
}

/// Reads in a pool (or on the loop, [`AioMode::Inline`]). **Waits.**
pub(crate) fn read_waiting(
    handle: &Arc<Handle>,
    offset: u64,
    len: usize,
    direct: bool,
    alignment: u64,
) -> Result<Bytes, Error> {
    let bytes = |bytes: &Bytes| bytes.len() as u64;
    call_times::timed_on(Operation::Read, handle.as_fd(), bytes, || {
        if direct {
            return read_direct(handle.as_fd(), offset, len, alignment)
                .map_err(|error| Error::io("read()", &error));
        }
        read_fully(handle.as_fd(), offset, len)
    })
}

/// Reads with O_DIRECT: offset and length are multiples of the alignment (512 bytes to 1 MiB), and so is the buffer's
/// address, which is aligned to a page at least.
pub(crate) fn read_direct(
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    alignment: u64,
) -> std::io::Result<Bytes> {
    let alignment = alignment.clamp(512, 1 << 20).next_power_of_two();
    let start = offset - offset % alignment;
    let end = (offset + len as u64).next_multiple_of(alignment);
    let (head, whole) = ((offset - start) as usize, (end - start) as usize);
    let memory = (alignment as usize).max(sys::page_size());
    let mut buffer: Vec<u8> = Vec::with_capacity(whole + memory);
    let pad = buffer.as_ptr().align_offset(memory).min(memory);
    buffer.resize(pad, 0);
    let mut got = 0;
    while got < whole {
        match sys::pread_into(file, &mut buffer, whole - got, start + got as u64) {
            Ok(0) => break,
            Ok(read) => {
                got += read;
                // A length that is not a multiple means the end of the file.
                if !(read as u64).is_multiple_of(alignment) {
                    break;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let bytes = Bytes::from(buffer).slice(pad..);
    let from = head.min(got);
    Ok(bytes.slice(from..(head + len).min(got).max(from)))
}
