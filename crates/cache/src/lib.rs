//! The cache of proxied answers.
//!
//! * [`Key`], [`variant`]: what names an entry. [`freshness`]: what may be stored, and for how long it may be used.
//! * [`Store`]: one cache on one disk: finding, writing, evicting, walking. It is made of [`entry`] (what lies in a file), [`Index`]
//!   (what is known without asking the disk), [`Journal`] (the index on the disk) and [`Space`] (room, reserved before it is
//!   written).
//! * [`purge`]: what was stored before a moment, and is covered by a rule, is none any more.
//! * [`Fill`]: one request to the origin, and everyone who waits for its answer.
//!
//! Not here, ever: sockets and directives. Invariants: keys and places are nginx's, so that a directory that nginx filled can be
//! taken over; nothing that was stored is believed before its checksum was right; all work on files is done in a pool of `disk`.

mod codec;
pub mod entry;
mod error;
pub mod fill;
pub mod freshness;
pub mod index;
pub mod journal;
mod key;
mod lifetime;
pub mod purge;
pub mod space;
pub mod store;
mod vary;

pub use entry::Entry;
pub use error::{Error, Fault};
pub use fill::{Fill, Fills};
pub use index::Index;
pub use journal::Journal;
pub use key::{KEY_BYTES, Key, LEVELS_MAX, Levels};
pub use lifetime::{AGE_MAX, Lifetime, Reuse};
pub use purge::FetchMoment;
pub use space::Space;
pub use store::Store;
pub use vary::{variant, vary_names};
