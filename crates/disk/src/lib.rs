//! Files for event loops that never wait for a disk.
//!
//! A single-threaded tokio runtime (a *loop*) must not wait: while it waits for one file, all its other tasks wait, too. Handing
//! every call to a pool of threads avoids that, and makes data that is in memory wait behind data that is not, at some
//! microseconds a call. This crate asks the kernel first: **what is in memory is opened, read and sent at once, on the
//! loop; everything else goes to a named, bounded pool of threads**, and comes back to the same `await`.
//!
//! One rule, one shape: `try_x(..) -> Result<_, WouldBlock>` touches only what the kernel has in memory; `async fn
//! x(..)` is `try_x`, else a job in a [`Pool`].
//!
//! ```
//! use disk::{Access, Disk, Local, Pool};
//!
//! async fn first_bytes(local: &Local, pool: &Pool, path: &[u8]) -> Result<bytes::Bytes, disk::Error> {
//!     let access = Access::new(pool);
//!     let file = local.open(path, &access).await?; // openat2(RESOLVE_CACHED), else the pool
//!     local.read(&file, 0, 512, &access).await // from memory, else the pool
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Once per process. One that drops privileges calls `prepare` before it does.
//! let disk = Disk::new(Disk::prepare());
//! // 8 threads at most, and 1000 jobs that wait for one; a further job is refused with an error of its own.
//! let pool = disk.define_pool("archive", 8, 1000);
//! // Once per loop.
//! let runtime = tokio::runtime::Builder::new_current_thread()
//!     .enable_all()
//!     .build_local(Default::default())?;
//! runtime.block_on(async {
//!     let local = Local::new(&disk);
//!     let bytes = first_bytes(&local, &pool, b"/proc/self/exe").await?;
//!     assert_eq!(&bytes[..4], b"\x7fELF");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! # What there is
//!
//! * [`Disk`]: one per process: mounts, pools, what the kernel permits. [`Disk::probe`] says how the files of a directory
//!   will be served.
//! * [`Local`]: one per loop (`Rc` inside): open, stat, read, send to a socket, list, and all changes: create, append,
//!   replace, rename, remove, copy a tree, several steps in one job ([`BatchStep`]).
//! * [`OpenFile`]: an open file with its metadata. Files stay open, and small ones in memory, from use to use; each use
//!   is checked, so that a changed file is never taken for the old one.
//! * [`Pool`]: also for other work that waits ([`Pool::run`]). Reads and writes have lanes of their own, jobs own what
//!   they use, and a full queue is [`Overflow`], of which the caller decides what it means.
//! * [`DiskHealth`]: whether a disk is well; a pool made for one refuses its jobs while it is out.
//! * [`Access`]: how a caller wants its files opened, read and sent.
//! * [`metrics`]: counters and histograms, for this crate and its callers; [`metrics::call_times`]: durations of the
//!   calls that may wait.
//! * [`memory`]: a budget for everything outside the kernel's cache, in accounts by holder. The list of holders is that
//!   of the server for which this crate was written; other programs use those of files.
//! * [`in_place`]: large futures, as those of this crate are, in boxes.
//!
//! # What it needs
//!
//! Linux from 4.15 on; the more of `openat2` (5.12 for `RESOLVE_CACHED`), `cachestat` (6.5) and `PAGEMAP_SCAN` (6.7) the kernel has and permits, the
//! less goes to the pools. What is missing is found out at the start, not assumed. On file systems that may wait at any call (FUSE,
//! NFS and others not on a list) every call goes to a pool. A runtime made by `build_local`, or a `LocalSet`: nothing
//! here is `Send` that need not be.
//!
//! # How it is built
//!
//! The folders, each of which imports only those behind it: `sending` to sockets, `changing` the disk, `reading` ranges
//! and directories, `opening` a path; then [`Disk`] and [`Local`]; then `keeping` files open between uses,
//! `residency` (which parts of a file are in memory), `files` (mounts, open files, errors), the `pool`, [`metrics`],
//! and [`memory`]. The names of `pub use` below are the whole interface.
//!
//! Invariant: nothing here makes a call on a loop that may wait for a disk, unless the caller asked for
//! [`AioMode::Inline`], or the crate was built with the feature `open_inline`, which is for a benchmark.

#![warn(unreachable_pub)]

mod access;
mod changing;
mod disk;
mod files;
pub mod health;
pub mod in_place;
mod keeping;
mod local;
pub mod memory;
pub mod metrics;
mod opening;
pub mod pool;
mod reading;
mod refusals;
mod residency;
mod sending;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests;

pub use access::{Access, AioMode};
pub use changing::batch::{BatchStep, ENDING_BYTES, FreeSpace, Lock, NewFile, take_steps};
pub use changing::device::{Device, DeviceUse, DirectFile, open_device};
pub use changing::group_commit::GroupCommit;
pub use changing::move_file::{PutOptions, PutOutcome};
pub use changing::relation::Relation;
pub use changing::replace::ReplaceOptions;
pub use changing::segment_file::{SegmentFile, names_in, remove_waiting};
pub use changing::temporary::{LEVELS_MAX, Retention, Spooled, Temporary, TemporaryPlace};
pub use changing::tree::{CopyPurpose, TREE_DEPTH_MAX, TREE_ERRORS_MAX, TreeError, TreeErrors};
pub use changing::write::{Create, Output};
pub use disk::{Disk, POOLS_MAX, PreparedDisk, Probe};
pub use files::error::{Error, STEPS_MAX, WouldBlock, message as errno_text};
pub use files::mount::{Filesystem, MOUNTS_MAX};
pub use files::open_file::{DIRECT_ALIGNMENT, FileKind, Meta, OpenFile};
pub use health::disk_health::{DiskHealth, HealthChange};
pub use health::machine::{DiskState, WriteState};
pub use keeping::open_file_cache::{OpenFileCache, OpenFileCacheSettings};
pub use keeping::open_files::FILES_MAX;
pub use keeping::slow_hand::{COPY_USES, SlowHand};
pub use keeping::walk::Symlinks;
pub use local::{Local, SWEEP_EVERY};
pub use metrics::counters::{
    OPERATIONS, Operation, OperationCount, WaitTimes, forget_last_operation, last_operation,
    set_waited, waited,
};
pub use opening::open::BODY_MAX;
pub use opening::path_file::PathFile;
pub use pool::{
    BatchLimits, BatchQueue, CpuJobs, Hold, Lane, Loan, Overflow, Pool, PoolCounters, PoolKind,
};
pub use reading::read::READ_MAX;
pub use reading::read_job::FileReader;
pub use reading::readdir::{
    DirEntry, EntryName, FileNames, Listing, NAMES_MAX, READDIR_MAX, STAT_ERRORS_MAX, StatErrors,
};
pub use refusals::{Refusal, refusals};
pub use residency::mappings::MAPPED_MAX;
pub use residency::window::WINDOW;
pub use rustix::io::Errno;
pub use sending::sink::Sink;
