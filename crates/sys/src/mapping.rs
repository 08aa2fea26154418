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

// SAFETY: the address is only ever handed to the kernel (madvise, munmap, ioctl), which is thread-safe.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

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

    /// Brings a part into memory and into the page table (madvise MADV_POPULATE_READ, Linux 5.14). **Waits for the
    /// disk.** `offset` counts from the mapping's start and is a multiple of the page size; the end is rounded up.
    ///
    /// # Errors
    /// EFAULT for pages after the end of the file or that could not be read; EINVAL on older kernels.
    pub fn populate(&self, offset: usize, len: usize) -> io::Result<()> {
        self.advise(offset, len, libc::MADV_POPULATE_READ)
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
