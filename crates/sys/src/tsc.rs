//! The processor's time stamp counter.

/// Reads the counter; None on architectures without one that every program may read. The length of its step, and
/// whether it runs at a constant rate and the same on all cores, is for the caller to find out.
#[inline]
#[must_use]
pub fn cycles() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: reads a register. RDTSC is part of x86-64, and Linux permits it to every process that has not
        // disabled it for itself (prctl(PR_SET_TSC)).
        Some(unsafe { std::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}
