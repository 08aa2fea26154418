//! The cache of proxied answers: what names an entry, what it looks like on a disk, what is known of it in memory, how long it may
//! be used.
//!
//! Not here, ever: sockets and directives. Invariants: keys and places are nginx's, so that a directory that nginx filled can be
//! read by who knows them; nothing that was stored is believed before its checksum was right.

mod codec;
pub mod entry;
mod error;
pub mod freshness;
pub mod index;
pub mod journal;
mod key;
mod lifetime;
pub mod space;
mod vary;

pub use entry::Entry;
pub use error::{Error, Fault};
pub use index::Index;
pub use journal::Journal;
pub use key::{KEY_BYTES, Key, LEVELS_MAX, Levels};
pub use lifetime::{AGE_MAX, Lifetime, Reuse};
pub use space::Space;
pub use vary::{variant, vary_names};
