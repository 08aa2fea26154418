//! The two measurements: elapsed time, or the CPU time of all threads.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A clock that grows.
#[derive(Clone, Copy)]
pub enum Clock {
    /// The time that passes.
    Elapsed,
    /// The process's CPU time, kernel included.
    Cpu,
}

impl Clock {
    /// Part of a group's name.
    pub fn name(self) -> &'static str {
        match self {
            Clock::Elapsed => "elapsed",
            Clock::Cpu => "CPU",
        }
    }

    /// Since whatever it began at.
    pub fn now(self) -> Duration {
        let time = clock_gettime(match self {
            Clock::Elapsed => ClockId::Monotonic,
            Clock::Cpu => ClockId::ProcessCPUTime,
        });
        Duration::new(
            time.tv_sec.unsigned_abs(),
            u32::try_from(time.tv_nsec).unwrap_or(0),
        )
    }
}
