//! Files for event loops that never wait for a disk.
//!
//! One rule, one shape: `try_x(..) -> Result<_, WouldBlock>` touches only what the kernel has in memory; `async fn
//! x(..)` is `try_x`, else a job in a named, bounded [`Pool`] that comes back to the same `await`. Useful to any tokio
//! program; it knows nothing of HTTP.
//!
//! * [`Disk`]: one per process: mounts, pools, what the kernel permits.
//! * [`Local`]: one per loop (`Rc` inside): open, stat, read, send, readdir, and all changes.
//! * [`OpenFile`]: an open file with its metadata.
//! * [`metrics`]: counters and histograms, for this crate and its callers; [`metrics::call_times`]: durations of the
//!   calls that may wait.
//!
//! The folders, each of which imports only those behind it: `sending` to sockets, `changing` the disk, `reading` ranges
//! and directories, `opening` a path; then [`Disk`] and [`Local`]; then `keeping` files open between requests,
//! `residency` (which parts of a file are in memory), `files` (mounts, open files, errors), the `pool`, [`metrics`],
//! and [`memory`]: the budget for everything outside the kernel's cache. The names of `pub use` below are the whole
//! interface.
//!
//! Invariant: nothing here makes a call on a loop that may wait for a disk, unless the caller asked for
//! [`AioMode::Inline`], or the crate was built with the feature `open_inline`, which only `bench/spikes` does.

#![warn(unreachable_pub)]

mod access;
mod changing;
mod disk;
mod files;
mod keeping;
mod local;
pub mod memory;
pub mod metrics;
mod opening;
pub mod pool;
mod reading;
mod residency;
mod sending;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests;

pub use access::{Access, AioMode};
pub use changing::batch::{BatchStep, ENDING_BYTES, FreeSpace, Lock, NewFile};
pub use changing::group_commit::GroupCommit;
pub use changing::move_file::{PutOptions, PutOutcome};
pub use changing::replace::ReplaceOptions;
pub use changing::temporary::{LEVELS_MAX, Retention, Spooled, Temporary, TemporaryPlace};
pub use changing::tree::{CopyPurpose, TREE_DEPTH_MAX, TREE_ERRORS_MAX, TreeError, TreeErrors};
pub use changing::write::{Create, Output};
pub use disk::{Disk, POOLS_MAX, PreparedDisk, Probe};
pub use files::error::{Error, STEPS_MAX, WouldBlock, message as errno_text};
pub use files::mount::{Filesystem, MOUNTS_MAX};
pub use files::open_file::{FileKind, Meta, OpenFile};
pub use keeping::open_file_cache::{OpenFileCache, OpenFileCacheSettings};
pub use keeping::walk::Symlinks;
pub use local::{Local, SWEEP_EVERY};
pub use metrics::counters::{
    OPERATIONS, Operation, OperationCount, WaitTimes, forget_last_operation, last_operation,
    set_waited, waited,
};
pub use opening::open::BODY_MAX;
pub use opening::path_file::PathFile;
pub use pool::{Hold, Lane, Overflow, Pool, PoolCounters, PoolKind};
pub use reading::read::READ_MAX;
pub use reading::read_job::FileReader;
pub use reading::readdir::{DirEntry, EntryName, NAMES_MAX, READDIR_MAX};
pub use residency::mappings::MAPPED_MAX;
pub use residency::window::WINDOW;
pub use rustix::io::Errno;
pub use sending::sink::Sink;
