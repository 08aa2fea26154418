//! A hint to the processor of what is needed soon.

/// Asks the processor to fetch the beginning of a value (a cache line, 64 bytes as a rule) while other work goes on; no
/// hint where the language has none.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; no address makes it fail (PREFETCHh in Intel's manual), and this one is that of a value.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint, which changes neither memory nor flags (PRFM in Arm's manual).
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) std::ptr::from_ref(value),
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = value;
}
