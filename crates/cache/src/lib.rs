//! The cache of proxied answers. So far: what names an entry, and where an entry lies below a cache directory.
//!
//! Not here, ever: sockets and directives. Invariant: keys and places are nginx's, so that a directory that nginx filled can be read by
//! who knows them.

mod key;

pub use key::{KEY_BYTES, Key, LEVELS_MAX, Levels};
