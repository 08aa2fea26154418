//! The resource usage of the calling thread or the process: getrusage(2).

/// Blocks of 512 bytes read from disks for this thread so far. Always 0 on a kernel without CONFIG_TASK_IO_ACCOUNTING.
#[must_use]
pub fn blocks_read() -> u64 {
    usage(libc::RUSAGE_THREAD).ru_inblock as u64
}

/// Voluntary context switches of this thread so far: how often it slept in a call that had to wait. Preemptions are not
/// counted.
#[must_use]
pub fn sleeps() -> u64 {
    usage(libc::RUSAGE_THREAD).ru_nvcsw as u64
}

/// [`blocks_read`] for all threads of this process, those that have ended included.
#[must_use]
pub fn blocks_read_by_all() -> u64 {
    usage(libc::RUSAGE_SELF).ru_inblock as u64
}

fn usage(of: libc::c_int) -> libc::rusage {
    // SAFETY: all-zero is a valid value of this struct of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the struct, which outlives the call.
    unsafe { libc::getrusage(of, &raw mut usage) };
    usage
}
