//! The processors that a loop's thread may run on (`worker_cpu_affinity`).
//!
//! Invariant: a loop without processors of its own runs where the process may.

use logs::process_log::{Level, error_log};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, getpid};

use super::Loop;

/// Has this loop's thread run on these processors; none: on those of the process.
pub(super) fn set_cpus(loop_: &Loop, cpus: &[usize]) {
    let was_pinned = loop_.is_pinned.replace(!cpus.is_empty());
    let set = match cpus {
        [] if !was_pinned => return,
        // The main thread is not pinned.
        [] => sched_getaffinity(getpid()),
        cpus => {
            let mut set = CpuSet::new();
            let known = cpus.iter().filter(|&&cpu| set.set(cpu).is_ok()).count();
            if known == 0 {
                return;
            }
            Ok(set)
        }
    };
    let applied = set.and_then(|set| sched_setaffinity(Pid::from_raw(0), &set));
    if let Err(error) = applied {
        let consequence = match cpus {
            [] => "the loop stays on its processors",
            _ => "the loop runs on any processor",
        };
        error_log(
            Level::Warn,
            format_args!(
                "sched_setaffinity() failed ({}: {}): {consequence}",
                error as i32,
                error.desc()
            ),
        );
    }
}
