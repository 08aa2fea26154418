//! A mapping of a file that is never read through: it exists only so that the kernel's page table shows which pages are
//! in memory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// Bytes `offset .. offset + len` of a file, mapped read-only and shared. Never dereferenced, so truncating the file
/// does no harm (no SIGBUS). Unmapped on drop, which waits for the process's mapping lock: drop it in a pool.
#[derive(Debug)]
pub struct Mapping {
    address: NonNull<libc::c_void>,
    len: usize,
}

// SAFETY: the address is only ever handed to the kernel (madvise, mincore, munmap, ioctl), which is thread-safe.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Pages that one call touches at most.
const TOUCHED_AT_ONCE: usize = 64;
/// Pages that one call of mincore(2) tells of at most.
const TOLD_AT_ONCE: usize = 128;

/// Bytes in a page of memory.
#[must_use]
pub fn page_size() -> usize {
    rustix::param::page_size()
}

impl Mapping {
    /// Maps `len` bytes at `offset` (a multiple of the page size).
    ///
    /// # Errors
    /// Those of mmap(2): ENODEV (no mappings on this file system), ENOMEM (vm.max_map_count), EINVAL.
    pub fn new(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Mapping> {
        let offset = libc::off_t::try_from(offset)
            .map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // SAFETY: the kernel chooses the address, so that no existing mapping is replaced.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        match NonNull::new(address) {
            Some(address) if address.as_ptr() != libc::MAP_FAILED => {
                let mapping = Mapping { address, len };
                // Mapping a page must not count as a use of it (vma_has_recency in mm_inline.h, Linux 6.3), or reclaim
                // would keep pages that were read once and take those that are read all the time.
                mapping.advise(0, len, libc::MADV_RANDOM)?;
                Ok(mapping)
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Marks a part as unused: its pages are like pages just read ahead (madvise MADV_COLD, Linux 5.4).
    ///
    /// # Errors
    /// EINVAL on older kernels.
    pub fn cool(&self, offset: usize, len: usize) -> io::Result<()> {
        self.advise(offset, len, libc::MADV_COLD)
    }

    /// Bytes mapped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is nothing mapped? (Never: mmap refuses it.)
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Brings a part into memory and into the page table (madvise MADV_POPULATE_READ, Linux 5.14; elsewhere as
    /// [`Mapping::touch`]). **Waits for the disk.** `offset` counts from the mapping's start and is a multiple of the page
    /// size; the end is rounded up.
    ///
    /// # Errors
    /// EFAULT for pages after the end of the file or that could not be read; where neither way is there, those of
    /// process_vm_readv(2).
    pub fn populate(&self, offset: usize, len: usize) -> io::Result<()> {
        let outcome = self.advise(offset, len, libc::MADV_POPULATE_READ);
        match outcome.as_ref().map_err(io::Error::raw_os_error) {
            // Not known to the kernel, or forbidden by a profile.
            Err(Some(libc::EINVAL | libc::ENOSYS | libc::EPERM)) => self.touch(offset, len),
            _ => outcome,
        }
    }

    /// The same by having the kernel read a byte of each page (process_vm_readv(2), Linux 3.2), which, unlike a read of
    /// ours, fails where there is nothing.
    ///
    /// # Errors
    /// As [`Mapping::populate`]; EPERM or ENOSYS where a profile forbids it.
    pub fn touch(&self, offset: usize, len: usize) -> io::Result<()> {
        let first = self.at(offset, len)?;
        let mut bytes = [0_u8; TOUCHED_AT_ONCE];
        let mut pages = (first..first + len).step_by(page_size());
        loop {
            let page = |address: usize| libc::iovec {
                iov_base: address as *mut libc::c_void,
                iov_len: 1,
            };
            let some: Vec<_> = pages.by_ref().take(TOUCHED_AT_ONCE).map(page).collect();
            if some.is_empty() {
                return Ok(());
            }
            let into = libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: some.len(),
            };
            let (from, count) = (some.as_ptr(), some.len() as libc::c_ulong);
            // SAFETY: the kernel writes at most as many bytes as there are pages in `some`, and `bytes` has that many. What
            // it reads are bytes of this mapping, which may change meanwhile: it only copies them.
            let read = unsafe {
                libc::process_vm_readv(libc::getpid(), &raw const into, 1, from, count, 0)
            };
            // Fewer: up to the first that cannot be read.
            if crate::checked(read)? as usize != some.len() {
                return Err(io::Error::from_raw_os_error(libc::EFAULT));
            }
        }
    }

    /// Is a part in memory and up to date, whether it is in the page table or not: mincore(2). The kernel tells that to the
    /// file's owner and to those that may write to it; **to others, that all of it is**. Never waits for a disk. `offset` is
    /// a multiple of the page size; the end is rounded up.
    ///
    /// # Errors
    /// EINVAL if the part does not lie inside the mapping; ENOSYS or EPERM where a profile forbids the call.
    pub fn is_in_core(&self, offset: usize, len: usize) -> io::Result<bool> {
        let len = len.next_multiple_of(page_size());
        let first = self.at(offset, len)?;
        let mut told = [0_u8; TOLD_AT_ONCE];
        let part = TOLD_AT_ONCE * page_size();
        for address in (first..first + len).step_by(part) {
            let len = part.min(first + len - address);
            // SAFETY: the range lies inside the mapping (`at`), and `told` has a byte for each of its pages.
            let outcome = unsafe {
                libc::mincore(address as *mut libc::c_void, len, told.as_mut_ptr().cast())
            };
            crate::checked(outcome)?;
            let pages = len / page_size();
            if told[..pages].iter().any(|page| page & 1 == 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn advise(&self, offset: usize, len: usize, advice: libc::c_int) -> io::Result<()> {
        let address = self.at(offset, len)?;
        // SAFETY: the range lies inside the mapping (`at`), and populating changes no contents.
        crate::checked(unsafe { libc::madvise(address as *mut libc::c_void, len, advice) })
            .map(drop)
    }

    /// The address of a part, which must lie inside the mapping (else EINVAL).
    pub(crate) fn at(&self, offset: usize, len: usize) -> io::Result<usize> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.address.as_ptr() as usize + offset),
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped; nothing points into it.
        unsafe { libc::munmap(self.address.as_ptr(), self.len) };
    }
}
