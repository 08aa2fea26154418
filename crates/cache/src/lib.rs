//! The cache of proxied responses.
//!
//! * [`Key`], [`variant`]: the name of an entry. [`freshness`]: which responses may be stored, and how long they may be
//!   used.
//! * [`Store`]: one cache on one disk: finding, writing, evicting, walking. Its parts are `entry` (the format of a
//!   file), [`Index`] (what is known without asking the disk), `journal` (the index on the disk), `segments` (files that
//!   hold many small entries) and `space` (room, reserved before it is written).
//! * `purge`: an entry that was requested before a purge, and that its rule covers, is invalid.
//! * [`inspect`]: a directory as another process sees it, which does not own it.
//! * [`Admission`]: which keys were asked for lately.
//! * [`Fill`]: one request to the origin, and all requests that wait for its response.
//!
//! Never here: sockets and directives. Invariants: keys and paths are nginx's, so that a directory that nginx filled
//! can be taken over; no stored byte is trusted before its checksum was verified; all work on files is done in a pool
//! of `disk`.

#![warn(unreachable_pub)]

mod admission;
mod codec;
mod entry;
mod error;
pub mod fill;
pub mod freshness;
mod index;
pub mod inspect;
mod journal;
mod key;
mod lifetime;
mod purge;
mod segments;
mod space;
pub mod store;
mod vary;

pub use admission::Admission;
pub use entry::{CHECKSUM_BYTES, ChecksumTable, Description, Entry};
pub use error::{EntryFault, Error, TooManyPurges};
pub use fill::{Fill, Fills};
pub use index::{Index, KeyState, KnownKey, USES_MAX, keys_of_zone};
pub use journal::FOLDER as JOURNAL_FOLDER;
pub use key::{KEY_BYTES, Key, LEVELS_MAX, Levels};
pub use lifetime::{AGE_MAX, Lifetime, Reuse};
pub use purge::{FetchMoment, PurgeRule, tags_of};
pub use segments::device;
pub use segments::{MAX_SIZE_MIN, SEGMENTS_FOLDER, SegmentCounts};
pub use store::Store;
pub use vary::variant;
