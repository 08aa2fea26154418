//! A timer of the kernel that wakes a task of a loop (timerfd_create(2)).
//!
//! In the place of tokio's: where a runtime has that one, each turn of its loop reads the clock two times more. Not here:
//! the timeouts that share it ([`crate::Wheel`]). Invariant: the kernel is told a time only where it changes.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timer of the kernel, for one task.
#[derive(Debug)]
pub struct KernelTimer {
    descriptor: AsyncFd<OwnedFd>,
    /// Time at which it expires; 0: it is not set, or has expired.
    at_ms: u64,
}

impl KernelTimer {
    /// A timer that is not set, on the runtime of the caller, whose I/O must be enabled.
    ///
    /// # Errors
    /// There are too many descriptors, or there is no memory for another one.
    pub fn new() -> io::Result<KernelTimer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "deprecated for types whose descriptor may change; an OwnedFd keeps it open"
        )]
        let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
        Ok(KernelTimer {
            descriptor,
            at_ms: 0,
        })
    }

    /// Has it expire at a time of [`crate::loop_clock::monotonic_ms`], instead of any other.
    pub(crate) fn set(&mut self, at_ms: u64) {
        if self.at_ms == at_ms {
            return;
        }
        self.at_ms = at_ms;
        let time = |ms: u64| Timespec {
            tv_sec: (ms / 1000) as i64,
            tv_nsec: (ms % 1000 * 1_000_000) as i64,
        };
        let spec = Itimerspec {
            it_interval: time(0),
            it_value: time(at_ms),
        };
        timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::ABSTIME, &spec)
            .expect("descriptor and time are valid");
    }

    /// Ready once for each time that it expires, perhaps also where it was set anew meanwhile. Wakes only the task that
    /// called last.
    pub(crate) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The number of times that it expired is not read: setting it anew forgets it.
        match self.descriptor.poll_read_ready(cx) {
            Poll::Ready(Ok(mut ready)) => {
                ready.clear_ready();
                // The clock of the caller's poll may be behind: the same time is then set once more.
                self.at_ms = 0;
                Poll::Ready(())
            }
            // The runtime is shut down.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::loop_clock;

    #[test]
    fn the_time_that_has_come_can_be_set_again() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut timer = KernelTimer::new().unwrap();
            let soon = loop_clock::monotonic_ms() + 2;
            for _ in 0..3 {
                timer.set(soon);
                poll_fn(|context| timer.poll_expired(context)).await;
            }
        });
    }
}
