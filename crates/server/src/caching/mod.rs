//! The server's side of the cache: which caches there are, and how requests use them.
//!
//! * [`directives`], [`zone`]: `proxy_cache_*`, what locations and `http` say.
//! * [`registry`]: the worker's caches, kept over reloads; [`keeper`]: the thread that opens, walks and sweeps them.
//!
//! Not here: keys, entries, freshness and rooms (the crate `cache`), and the origin (`content::proxy`). Invariant: trouble with a disk
//! never fails a request that the origin can answer.

pub mod directives;
pub mod keeper;
pub mod registry;
pub mod tally;
pub mod troubles;
pub mod zone;

pub use registry::{Cache, Registry};
