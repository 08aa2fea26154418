//! The minimum of memory: what the worker takes for itself before it caches anything. A start with less logs that.
//!
//! Not here: the bounds themselves ([`disk::memory::limits`]). Invariant: nothing is refused; the administrator who set
//! the limit may know better.

use disk::memory::limits::MemoryLimit;
use logs::process_log::{Level, error_log};

/// Bytes that the master, the worker and their threads take under load, including the kernel's memory for them and the
/// parts of the program that are used (`bench/small`).
const BASE: u64 = 28 << 20;
/// Bytes that each loop takes beside that.
const LOOP: u64 = 1 << 20;

const MIB: u64 = 1 << 20;

/// Bytes below which there is no room for a cache of files beside the server, nor for another program that takes some.
fn least(loops: usize) -> u64 {
    BASE + LOOP * loops as u64
}

/// Logs a warning where the limit is less.
pub(crate) fn warn(limit: &MemoryLimit, loops: usize) {
    if let Some(text) = text(limit, loops) {
        error_log(Level::Warn, format_args!("{text}"));
    }
}

fn text(limit: &MemoryLimit, loops: usize) -> Option<String> {
    let least = least(loops);
    (limit.bytes < least).then(|| {
        format!(
            "memory: {} MiB ({}) are little for worker_processes {loops}: under load they take about {} MiB, and more for what caches know; \
             give the server more, or fewer of them",
            limit.bytes / MIB,
            limit.of,
            least / MIB
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::memory::limits::LimitSource;

    #[test]
    fn it_is_said_where_the_loops_have_no_room() {
        let limit = |mib: u64| MemoryLimit {
            bytes: mib * MIB,
            of: LimitSource::Process("RLIMIT_AS"),
        };
        assert_eq!(text(&limit(64), 16), None);
        assert_eq!(text(&limit(32), 2), None);
        let said = text(&limit(40), 16).unwrap();
        assert!(
            said.starts_with("memory: 40 MiB (RLIMIT_AS) are little for worker_processes 16: under load they take about 44 MiB"),
            "{said}"
        );
    }
}
