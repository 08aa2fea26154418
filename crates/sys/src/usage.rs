//! What the calling thread has used: getrusage(2) with RUSAGE_THREAD.

/// Blocks of 512 bytes that this thread has had read from disks so far. Always 0 on a kernel without CONFIG_TASK_IO_ACCOUNTING.
#[must_use]
pub fn blocks_read() -> u64 {
    usage().ru_inblock as u64
}

/// How often this thread has gone to sleep so far, in a call that had to wait (voluntary context switches). That the kernel ran somebody
/// else on its core is not counted.
#[must_use]
pub fn sleeps() -> u64 {
    usage().ru_nvcsw as u64
}

fn usage() -> libc::rusage {
    // SAFETY: all-zero is a valid value of this struct of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the struct, which outlives the call.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage
}
