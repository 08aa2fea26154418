//! The worker's `oom_score_adj`. Where a control group has no memory left, the kernel kills the process with the most,
//! mapped files included.
//!
//! The worker keeps its program's pages in memory (`process::pinned`), from which no other program would gain anything,
//! and gives up what it can do without; a program that takes all the memory shall not take the server with it. So the
//! worker counts for a quarter of the limit less than it has. Beyond that the kernel chooses as before, the worker
//! included.
//!
//! Invariant: done once, with the rights of the user that started it; the value stays as it is without
//! CAP_SYS_RESOURCE, and where it was set before the program was started.
#![expect(
    clippy::disallowed_methods,
    reason = "no disk is behind /proc, and no loop runs yet"
)]

use std::fs;

/// Thousandths of the limit (proc_pid_oom_score_adj(5)): the value that systemd gives its journal.
const ADJUSTMENT: i32 = -250;
const FILE: &str = "/proc/self/oom_score_adj";

/// Lowers the score, unless it was set before.
pub(crate) fn lower() {
    let now = fs::read_to_string(FILE).unwrap_or_default();
    if now.trim().parse().is_ok_and(|now: i32| now == 0) {
        // If it is refused, the score stays as it is.
        let _ = fs::write(FILE, ADJUSTMENT.to_string());
    }
}
