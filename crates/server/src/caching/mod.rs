//! The server's side of the cache: which caches there are, and how requests use them.
//!
//! * [`directives`], [`zone`]: `proxy_cache_*`, what locations and `http` say.
//! * [`lookup`]: the way of a request: `cache_request` is its question, `serve` answers with what is stored (`verify` checks it),
//!   (or what is [`hot_entries`]),
//!   `fetch` asks the origin or follows another who does (`follow`); `fill` is that asking, `write_entry` writes the answer down,
//!   as the disk takes it (`write_pace`, `write_permits`).
//! * [`registry`]: the worker's caches, kept over reloads; [`cache_manager`]: the thread that opens, walks and sweeps them.
//!
//! Not here: keys, entries, freshness and rooms (the crate `cache`), and the origin (`content::proxy`). Invariant: trouble with a disk
//! never fails a request that the origin can answer.

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
pub mod purging;
pub mod registry;
mod serve;
mod verify;
mod write_entry;
mod write_pace;
mod write_permits;
pub mod zone;

pub use registry::{Cache, Registry};
