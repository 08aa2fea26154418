//! Files for event loops that never wait for a disk.
//!
//! One rule, one shape: `try_x(..) -> Result<_, WouldBlock>` touches only what the kernel has in memory, and
//! `async fn x(..)` is `try_x`, else a job in a named, bounded [`Pool`], and comes back to the same `await`. Useful to any
//! tokio program; it knows nothing of HTTP.
//!
//! * [`Disk`]: one per process: mounts, pools, what the kernel permits.
//! * [`Local`]: one per loop (`Rc` inside): open, stat, read, send, readdir.
//! * [`figures`]: how is counted, here and by who uses it; [`calls`]: what calls took that may wait.
//! * [`OpenFile`]: an open file with what is known of it.
//!
//! Invariant: nothing here makes a call on a loop that may wait for a disk, unless the caller asked for
//! [`Mode::Inline`], or the crate was built with the feature `open_inline`, which only `bench/spikes` does.

mod access;
mod cache;
pub mod calls;
mod change;
mod copies;
mod count;
mod disk;
mod error;
mod examine;
pub mod figures;
mod file;
mod fill;
mod front;
mod group;
mod guards;
mod hurry;
mod local;
mod mappings;
pub mod memory;
mod mount;
mod open;
mod path;
pub mod pool;
mod pressure;
mod proofs;
mod read;
mod readdir;
mod recycle;
mod relocate;
mod replace;
mod send;
mod sink;
mod stale;
mod stream;
mod temporary;
mod tree;
mod walk;
mod watch;
mod window;
mod write;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod close_tests;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod nobody_tests;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod send_tests;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tree_tests;

pub use access::{Access, Mode, Symlinks};
pub use cache::{BODY_BYTES_MAX, FILES_MAX};
pub use change::{ENDING_BYTES, Lock, Place, Room, STEPS_MAX, Step};
pub use copies::COPY_MIN;
pub use count::{
    Count, OPERATIONS, Operation, Waited, forget_last_operation, last_operation, set_waited, waited,
};
pub use disk::{Disk, POOLS_MAX, Prepared, Probe};
pub use error::{Error, WouldBlock, message as errno_text};
pub use examine::Reader;
pub use file::{INLINE_CLOSE_MAX, Kind, Meta, OpenFile};
pub use group::Group;
pub use guards::WALKS_MAX;
pub use local::{Local, SWEEP_EVERY};
pub use mappings::{IDLE, MAPPED_MAX, SEGMENTS_MAX};
pub use mount::{Filesystem, MOUNTS_MAX, Mount};
pub use open::BODY_MAX;
pub use path::PathFile;
pub use pool::{Hold, Lane, Overflow, Pool, PoolCounters};
pub use read::READ_MAX;
pub use readdir::{Entry, NAMES_MAX, Name, READDIR_MAX};
pub use relocate::{Before, Putting};
pub use replace::Placing;
pub use rustix::io::Errno;
pub use sink::Sink;
pub use stale::{StaleFiles, StaleSettings};
pub use temporary::{Fate, LEVELS_MAX, Spooled, Temporary, TemporaryPlace};
pub use tree::{Purpose as CopyPurpose, TREE_DEPTH_MAX, TROUBLES_MAX, Trouble, Troubles};
pub use watch::GUARDS_MAX;
pub use window::WINDOW;
pub use write::{Create, Output};
