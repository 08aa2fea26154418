//! The page cache: which pages of a file are in memory, and reads that take only those.

use crate::Mapping;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// cachestat(2), the same number on every architecture with the common table (Linux 6.5).
const SYS_CACHESTAT: libc::c_long = 451;
/// `_IOWR('f', 16, struct pm_scan_arg)` (Linux 6.7).
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
/// `PAGE_IS_PRESENT` of linux/fs.h.
const PAGE_IS_PRESENT: u64 = 1 << 3;
/// "Page present" in an entry of /proc/self/pagemap (proc(5)).
const ENTRY_IS_PRESENT: u64 = 1 << 63;
/// Entries of /proc/self/pagemap that are read in one call: 2 MiB of pages of 4 KiB.
const ENTRIES: usize = 512;

/// The result of cachestat(2) for a range, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CacheStat {
    /// Pages in the cache, those still being read included.
    pub cached: u64,
    /// Dirty pages.
    pub dirty: u64,
    /// Pages being written.
    pub writeback: u64,
    /// Pages evicted.
    pub evicted: u64,
    /// Pages evicted so recently that reading them again would mean memory is short.
    pub recently_evicted: u64,
}

#[repr(C)]
struct PageRange {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct PageScan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// How much of a range of a file is in the page cache. A `len` of 0 means "to the end". Never waits and starts no I/O;
/// costs 0.3 µs for 512 KiB.
///
/// # Errors
/// EPERM unless the caller owns the file, may write it, or has CAP_FOWNER; ENOSYS before Linux 6.5; EOPNOTSUPP on
/// hugetlbfs.
pub fn cachestat(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<CacheStat> {
    let range = PageRange { offset, len };
    let mut stat = CacheStat::default();
    // SAFETY: both pointers are to live values with the kernel's layout (repr(C), 16 and 40 bytes).
    crate::checked(unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut stat,
            0u32,
        )
    })?;
    Ok(stat)
}

/// The offset of the first page in this part of the mapping that is not in the page table. `None`: all are, so they are
/// in memory and up to date.
///
/// `pagemap` is this process's own `/proc/self/pagemap`. `offset` is a multiple of the page size; the end is rounded up
/// to a page.
///
/// # Errors
/// ENOTTY before Linux 6.7; EINVAL if the part does not lie inside the mapping.
pub fn first_absent(
    pagemap: BorrowedFd<'_>,
    mapping: &Mapping,
    offset: usize,
    len: usize,
) -> io::Result<Option<usize>> {
    let page = crate::page_size();
    let start = mapping.at(offset, len)? as u64;
    let end = (start + len as u64).next_multiple_of(page as u64);
    let mut region = Region::default();
    let mut scan = PageScan {
        size: size_of::<PageScan>() as u64,
        start,
        end,
        vec: &raw mut region as u64,
        vec_len: 1,
        category_mask: PAGE_IS_PRESENT,
        return_mask: PAGE_IS_PRESENT,
        ..PageScan::default()
    };
    // SAFETY: `scan` has the kernel's layout and says so in `size`; it lets the kernel write one region, which lives
    // on this stack frame. The scanned addresses are only looked up.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
    // The kernel returned the first region of present pages: the pages before it and the one after it are absent.
    let is_from_start = crate::checked(found)? == 1 && region.start == start;
    let absent = if is_from_start { region.end } else { start };
    Ok((absent < end).then(|| offset + (absent - start) as usize))
}

/// The same by the entries of the page map, one for each page, for kernels before 6.7. It takes as long for 64 KiB, 0.4 µs
/// more for 512 KiB.
///
/// # Errors
/// EINVAL if the part does not lie inside the mapping; those of pread(2).
pub fn first_absent_by_entries(
    pagemap: BorrowedFd<'_>,
    mapping: &Mapping,
    offset: usize,
    len: usize,
) -> io::Result<Option<usize>> {
    let page = crate::page_size();
    let first = mapping.at(offset, len)? / page;
    let end = first + len.div_ceil(page);
    let mut entries = [0_u64; ENTRIES];
    let mut at = first;
    while at < end {
        let part = &mut entries[..ENTRIES.min(end - at)];
        read_entries(pagemap, part, at)?;
        let absent = part.iter().position(|entry| entry & ENTRY_IS_PRESENT == 0);
        if let Some(absent) = absent {
            return Ok(Some(offset + (at + absent - first) * page));
        }
        at += part.len();
    }
    Ok(None)
}

/// Reads the entries of the pages from number `first` on.
fn read_entries(pagemap: BorrowedFd<'_>, entries: &mut [u64], first: usize) -> io::Result<()> {
    let bytes = size_of_val(entries);
    let offset = (first * size_of::<u64>()) as libc::off_t;
    let buffer = entries.as_mut_ptr().cast();
    // SAFETY: the buffer has that many bytes, for which any bits are values.
    let read = unsafe { libc::pread(pagemap.as_raw_fd(), buffer, bytes, offset) };
    match crate::checked(read)? as usize {
        read if read == bytes => Ok(()),
        // Never of pages of a mapping (fs/proc/task_mmu.c).
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// Appends to `buffer` up to `max` bytes of the file at `offset` that are in memory: preadv2(RWF_NOWAIT). It may read
/// fewer than `max`; 0 means the end of the file, or, on Linux 5.9 and 5.10, what EAGAIN means on others (preadv2(2),
/// BUGS).
///
/// # Errors
/// EAGAIN if the first page is not in memory (the kernel may have *started* to read it); EOPNOTSUPP where the file
/// system has no such mode.
pub fn pread_nowait(
    file: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    max: usize,
    offset: u64,
) -> io::Result<usize> {
    pread_flags(file, buffer, max, offset, libc::RWF_NOWAIT)
}

/// Begins to write the dirty pages of a range to the disk (sync_file_range(2), SYNC_FILE_RANGE_WRITE). **Waits** while
/// the disk's queue is full.
///
/// # Errors
/// Those of sync_file_range(2).
pub fn begin_writeback(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let out_of_range = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let offset = libc::off64_t::try_from(offset).map_err(out_of_range)?;
    let len = libc::off64_t::try_from(len).map_err(out_of_range)?;
    // SAFETY: the descriptor is open for as long as it is borrowed; the call takes no pointer.
    let done = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE)
    };
    crate::checked(done).map(drop)
}

/// Appends to `buffer` up to `max` bytes of the file at `offset`. **Waits for the disk.**
///
/// # Errors
/// Those of pread(2).
pub fn pread_into(
    file: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    max: usize,
    offset: u64,
) -> io::Result<usize> {
    pread_flags(file, buffer, max, offset, 0)
}

fn pread_flags(
    file: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    max: usize,
    offset: u64,
    flags: libc::c_int,
) -> io::Result<usize> {
    let offset =
        libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    buffer.reserve(max);
    let spare = &mut buffer.spare_capacity_mut()[..max];
    let vector = libc::iovec {
        iov_base: spare.as_mut_ptr().cast(),
        iov_len: max,
    };
    // SAFETY: the vector names `max` writable bytes of the buffer's spare capacity, alive during the call.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const vector, 1, offset, flags) };
    let read = crate::checked(read)? as usize;
    // SAFETY: the kernel has initialised `read <= max` bytes after the old length.
    unsafe { buffer.set_len(buffer.len() + read) };
    Ok(read)
}
