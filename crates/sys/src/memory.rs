//! Memory for what a process keeps for as long as it runs.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// mlock2(2).
const MLOCK_ONFAULT: libc::c_uint = 1;

/// Room for so many values, for good: a mapping of its own, beside whatever an allocator does with the memory of what comes and goes.
/// A page of it is in memory from the first time it is written to.
///
/// # Errors
/// Those of mmap(2): ENOMEM.
pub fn lasting<T>(count: usize) -> io::Result<&'static mut [MaybeUninit<T>]> {
    const { assert!(align_of::<T>() <= 4096, "a mapping begins with a page") }
    let bytes = size_of::<T>().checked_mul(count).filter(|bytes| *bytes > 0);
    let bytes = bytes.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the kernel chooses the address, so that no existing mapping is replaced.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as many bytes as that were mapped, aligned to a page, for nobody else, and are never unmapped; no value is claimed to
    // lie there.
    Ok(unsafe { std::slice::from_raw_parts_mut(address.cast(), count) })
}

/// Has the kernel bring these bytes of this process's addresses into memory and keep them there: mlock(2).
///
/// # Errors
/// Those of mlock(2): ENOMEM over RLIMIT_MEMLOCK or where nothing is mapped, EPERM where that is 0.
pub fn lock(addresses: std::ops::Range<usize>) -> io::Result<()> {
    let start = ptr::without_provenance(addresses.start);
    // SAFETY: the kernel reads nothing from the address and changes no byte behind it.
    crate::checked(unsafe { libc::mlock(start, addresses.len()) })?;
    Ok(())
}

/// The same for what of them is in memory, or is brought there later: mlock2(2) with MLOCK_ONFAULT.
///
/// # Errors
/// As [`lock`]; ENOSYS before Linux 4.4.
pub fn lock_on_fault(addresses: std::ops::Range<usize>) -> io::Result<()> {
    // A system call by its number, since not every C library has a name for it.
    // SAFETY: as for `lock`.
    crate::checked(unsafe {
        libc::syscall(
            libc::SYS_mlock2,
            addresses.start,
            addresses.len(),
            MLOCK_ONFAULT,
        )
    })?;
    Ok(())
}

/// The allocator makes at most so many heaps for all threads: mallopt(3) with M_ARENA_MAX. To be called before there are threads. With another C
/// library than glibc it does nothing.
pub fn bound_heaps(count: i32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number that the allocator reads when it makes a heap.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, count);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = count;
}

/// Gives freed memory of the process's heaps back to the kernel: malloc_trim(3). Takes the lock of one heap after the other and may wait for
/// the lock of the process's map, so it is for a thread that may wait. With another C library than glibc it does nothing.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches free memory alone, and takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
