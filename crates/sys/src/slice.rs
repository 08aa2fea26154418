//! How long a thread's turns on a processor are: sched_getattr(2) and sched_setattr(2), whose `sched_runtime` is that for the policies of
//! ordinary threads since Linux 6.12. Before, it is 0 and what is set is ignored.

use std::io;

/// What sched_getattr(2) says of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Turns(libc::sched_attr);

impl Turns {
    /// Those of a thread, by its id; 0: of the calling one.
    ///
    /// # Errors
    /// ESRCH: there is no such thread.
    pub fn of(thread: u32) -> io::Result<Turns> {
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
        Ok(Turns(attr))
    }

    /// Nanoseconds of a turn; 0: the kernel does not say.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.0.sched_runtime
    }

    /// Is the thread's policy one of those for ordinary threads, which share a processor by weight?
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        matches!(
            self.0.sched_policy as libc::c_int,
            libc::SCHED_OTHER | libc::SCHED_BATCH
        )
    }

    /// Gives the calling thread turns of so many nanoseconds (the kernel takes 100 µs to 100 ms) and all else as it is here.
    ///
    /// # Errors
    /// EPERM: a filter of system calls forbids it.
    pub fn take(mut self, nanos: u64) -> io::Result<()> {
        self.0.sched_runtime = nanos;
        let (this_thread, none) = (0, 0);
        // SAFETY: the kernel reads the struct, whose size it was told by itself.
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
    fn turns_become_shorter_where_the_kernel_knows_them() {
        let before = Turns::of(0).unwrap();
        before.take(200_000).unwrap();
        let after = Turns::of(0).unwrap();
        assert_eq!(after.0.sched_nice, before.0.sched_nice);
        if before.nanos() > 0 {
            assert_eq!(after.nanos(), 200_000);
        }
    }
}
