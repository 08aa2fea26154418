//! The length of a thread's slices on a processor: `sched_runtime` of sched_getattr(2) and sched_setattr(2), which is
//! that for ordinary policies since Linux 6.12. Before, it reads as 0, and setting it has no effect.

use std::io;

/// Gives the calling thread, and those that it starts from then on, the idle class of ioprio_set(2): its reads wait
/// while others use the disk, where the disk's scheduler heeds that.
///
/// # Errors
/// EPERM or ENOSYS: a seccomp filter forbids it.
pub fn set_idle_io() -> io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_IDLE: libc::c_int = 3 << 13;
    let this_thread: libc::c_int = 0;
    // SAFETY: the call takes three numbers and no pointer.
    let done = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, this_thread, CLASS_IDLE) };
    crate::checked(done).map(drop)
}

/// The scheduling attributes of a thread, from sched_getattr(2).
#[derive(Clone, Copy, Debug)]
pub struct SchedAttributes(libc::sched_attr);

impl SchedAttributes {
    /// The attributes of a thread, by its id; 0: of the calling thread.
    ///
    /// # Errors
    /// ESRCH: there is no such thread.
    pub fn of(thread: u32) -> io::Result<SchedAttributes> {
        // SAFETY: all-zero is a valid value of this struct of integers.
        let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
        let (size, none) = (size_of::<libc::sched_attr>(), 0);
        // SAFETY: the kernel fills at most `size` bytes of the struct, which outlives the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_sched_getattr,
                thread,
                &raw mut attr,
                size as libc::c_uint,
                none as libc::c_uint,
            )
        };
        crate::checked(done)?;
        Ok(SchedAttributes(attr))
    }

    /// Nanoseconds of a slice; 0: the kernel does not report it.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.0.sched_runtime
    }

    /// Is the thread's policy an ordinary one, under which threads share a processor by weight?
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        matches!(
            self.0.sched_policy as libc::c_int,
            libc::SCHED_OTHER | libc::SCHED_BATCH
        )
    }

    /// Gives the calling thread slices of `nanos` nanoseconds (the kernel accepts 100 µs to 100 ms), and all other
    /// attributes as they are here.
    ///
    /// # Errors
    /// EPERM: a seccomp filter forbids it.
    pub fn set_slice(mut self, nanos: u64) -> io::Result<()> {
        self.0.sched_runtime = nanos;
        let (this_thread, none) = (0, 0);
        // SAFETY: the kernel reads the struct, whose `size` field it has filled in itself.
        let done = unsafe {
            libc::syscall(
                libc::SYS_sched_setattr,
                this_thread as libc::c_uint,
                &raw const self.0,
                none as libc::c_uint,
            )
        };
        crate::checked(done).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_become_shorter_where_the_kernel_supports_them() {
        let before = SchedAttributes::of(0).unwrap();
        before.set_slice(200_000).unwrap();
        let after = SchedAttributes::of(0).unwrap();
        assert_eq!(after.0.sched_nice, before.0.sched_nice);
        if before.nanos() > 0 {
            assert_eq!(after.nanos(), 200_000);
        }
    }
}
