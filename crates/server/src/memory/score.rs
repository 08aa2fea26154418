//! Whom the kernel kills where a control group has no memory left: whoever has the most, files that are mapped counted in.
//!
//! The worker keeps its program's pages in memory (`process::pinned`), from which nobody would gain anything, and gives up what it can
//! do without; a program that takes all there is shall not take the server with it. So the worker counts for a quarter of the limit less than
//! it has. What takes more than that is chosen as before, the worker as well.
//!
//! Invariant: done once, with the rights of who started it; without CAP_SYS_RESOURCE it stays as it is, and also where whoever started the program has set it.
#![expect(
    clippy::disallowed_methods,
    reason = "no disk is behind /proc, and no loop runs yet"
)]

use std::fs;

/// Parts of a thousand of the limit (proc_pid_oom_score_adj(5)): what systemd gives its journal.
const ADJUSTMENT: i32 = -250;
const FILE: &str = "/proc/self/oom_score_adj";

/// Lowers it, unless somebody has set it.
pub fn lower() {
    let now = fs::read_to_string(FILE).unwrap_or_default();
    if now.trim().parse().is_ok_and(|now: i32| now == 0) {
        // Refused, it stays.
        let _ = fs::write(FILE, ADJUSTMENT.to_string());
    }
}
