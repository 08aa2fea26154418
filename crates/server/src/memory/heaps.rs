//! The allocator's arenas where memory is tight: few of them, and their free memory is given back all the time.
//!
//! glibc gives nearly every thread an arena of its own, and each keeps what its busiest moment took: of 44 MiB of a
//! worker with 16 loops in a control group of 64 MiB, 20 were free memory in arenas (`bench/small`). With few arenas
//! threads contend for their locks, which are held for less than a microsecond.
//!
//! Not here: the thread that gives back ([`super::watch`]). Invariant: the number is bounded before the process has
//! threads that serve.

use std::path::Path;

use disk::memory::limits::{self, Groups};

/// Heaps of all threads together.
const HEAPS_MAX: i32 = 2;

/// Bounds them, where memory is tight.
pub(crate) fn bound() {
    let limit = limits::least(&Groups::of(Path::new("/proc"))).bytes;
    if disk::memory::is_tight(disk::memory::of_limit(limit)) {
        sys::bound_heaps(HEAPS_MAX);
    }
}
