//! Memory that is never freed, memory locks, and the allocator's heaps.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// mlock2(2).
const MLOCK_ONFAULT: libc::c_uint = 1;

/// Memory for `count` values that is never freed: a mapping of its own, outside the allocator's heaps. Each page takes
/// memory from its first write on.
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
    // SAFETY: this many bytes were mapped, aligned to a page, for this caller alone, and are never unmapped;
    // `MaybeUninit` claims no value.
    Ok(unsafe { std::slice::from_raw_parts_mut(address.cast(), count) })
}

/// Brings a range of this process's addresses into memory and keeps it there: mlock(2).
///
/// # Errors
/// Those of mlock(2): ENOMEM over RLIMIT_MEMLOCK or where nothing is mapped, EPERM where that is 0.
pub fn lock(addresses: std::ops::Range<usize>) -> io::Result<()> {
    let start = ptr::without_provenance(addresses.start);
    // SAFETY: the kernel reads nothing from the address and changes no byte behind it.
    crate::checked(unsafe { libc::mlock(start, addresses.len()) })?;
    Ok(())
}

/// Keeps those pages of a range that are in memory, or will be brought there later: mlock2(2) with MLOCK_ONFAULT.
///
/// # Errors
/// As [`lock`]; ENOSYS before Linux 4.4.
pub fn lock_on_fault(addresses: std::ops::Range<usize>) -> io::Result<()> {
    // Called by number, since not every C library has this function.
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

/// Takes the code of the program and its libraries out of this process's page tables, locked pages too: what is in use
/// comes back with its next use, out of the kernel's cache or from the disk, and what is not may be dropped there.
/// madvise(2) with MADV_DONTNEED_LOCKED; does nothing before Linux 5.18.
pub fn unmap_idle_code() {
    // SAFETY: the callback has the form that dl_iterate_phdr(3) asks for, and uses no data.
    unsafe { libc::dl_iterate_phdr(Some(unmap_code), ptr::null_mut()) };
}

/// The callback for one program or library.
unsafe extern "C" fn unmap_code(
    object: *mut libc::dl_phdr_info,
    _: libc::size_t,
    _: *mut libc::c_void,
) -> libc::c_int {
    const MADV_DONTNEED_LOCKED: libc::c_int = 24;
    // SAFETY: dl_iterate_phdr(3) gives a valid description, whose headers stay while the callback runs.
    let (base, headers) = unsafe {
        let object = &*object;
        let headers = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        (object.dlpi_addr, headers)
    };
    let page = crate::page_size() as u64;
    for header in headers {
        let is_code = header.p_type == libc::PT_LOAD
            && header.p_flags & (libc::PF_X | libc::PF_W) == libc::PF_X;
        if is_code {
            let start = (base + header.p_vaddr) & !(page - 1);
            let end = base + header.p_vaddr + header.p_memsz;
            let address = ptr::without_provenance_mut(start as usize);
            // SAFETY: nobody writes to code, so that no byte of it differs from the file's. A refusal changes nothing.
            unsafe { libc::madvise(address, (end - start) as usize, MADV_DONTNEED_LOCKED) };
        }
    }
    0
}

/// Limits the number of the allocator's heaps: mallopt(3) with M_ARENA_MAX. Call it before there are threads. Does
/// nothing with a C library other than glibc.
pub fn bound_heaps(count: i32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number that the allocator reads when it makes a heap.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, count);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = count;
}

/// Gives freed memory of the process's heaps back to the kernel: malloc_trim(3). Takes the lock of one heap after the
/// other and may wait for the process's mapping lock, so it is for a thread that may wait. Does nothing with a C
/// library other than glibc.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: touches free memory only, and takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
