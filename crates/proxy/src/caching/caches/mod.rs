//! The caches of a worker: `open_cache` is one of them, the `registry` has all, the `cache_manager` is the thread
//! that opens, walks and sweeps them; `placing` finds a key's disk
//! among several; `disk_watch` watches their disks, `disk_report` tells their states; `control` takes
//! the orders of `freewheel cache`.

mod cache_manager;
pub mod control;
pub(crate) mod counters;
pub(crate) mod disk_errors;
pub mod disk_report;
mod disk_watch;
pub mod open_cache;
pub mod placing;
pub mod registry;
