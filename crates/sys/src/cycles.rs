//! The processor's counter.

/// What it shows, where there is one that every program may read. What a step of it lasts, and whether it goes on as fast at all times and
/// on all cores, is another question.
#[inline]
#[must_use]
pub fn cycles() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: reads a register. That RDTSC is there is a part of x86-64; Linux lets everybody use it who has not given it up himself
        // (prctl(PR_SET_TSC)).
        Some(unsafe { std::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}
