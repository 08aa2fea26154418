//! The server's side of the cache: which caches there are, and how requests use them.
//!
//! * [`directives`], [`zone`]: `proxy_cache_*`, of locations and of `http`.
//! * [`lookup`]: the way of a request. `cache_request` is what it asks for; `serve` answers with a stored entry
//!   (`verify` checks it), [`hot_entries`] with a prepared one; `fetch` asks the origin, or follows the fill of another
//!   request (`follow`); `fill` is one request to the origin; `write_entry` writes its answer, as fast as the disk
//!   takes it (`write_pace`, `write_permits`).
//! * [`registry`]: the worker's caches, kept over reloads; [`cache_manager`]: the thread that opens, walks and sweeps
//!   them.
//! * [`counters`]: how requests were answered; [`metrics`] shows them.
//!
//! Not here: keys, entries, freshness and space (the crate `cache`), and the origin (`content::proxy`). Invariant: a
//! disk's error never fails a request that the origin can answer.

pub mod cache_manager;
pub mod cache_request;
pub mod cache_state;
pub mod counters;
pub mod directives;
pub mod disk_errors;
mod fetch;
mod fill;
mod follow;
mod foreign_cache;
pub mod hot_entries;
pub mod lookup;
pub mod metrics;
pub mod purging;
pub mod registry;
mod serve;
mod verify;
mod write_entry;
mod write_pace;
mod write_permits;
pub mod zone;

pub use registry::{Cache, Registry};
