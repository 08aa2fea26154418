//! The server's side of the cache: which caches there are, and how requests use them.
//!
//! * [`directives`], [`zone`]: `proxy_cache_*`, what locations and `http` say.
//! * [`answering`]: the way of a request: `inquiry` is its question, `serve` answers with what is stored (`verify` checks it),
//!   (or what is [`ready`]),
//!   `fetch` asks the origin or follows another who does (`follow`); `fill` is that asking, `saving` writes the answer down,
//!   as the disk takes it (`pace`, `turns`).
//! * [`registry`]: the worker's caches, kept over reloads; [`keeper`]: the thread that opens, walks and sweeps them.
//!
//! Not here: keys, entries, freshness and rooms (the crate `cache`), and the origin (`content::proxy`). Invariant: trouble with a disk
//! never fails a request that the origin can answer.

pub mod answering;
pub mod directives;
mod fetch;
mod fill;
mod follow;
mod guest;
pub mod inquiry;
pub mod keeper;
pub mod note;
mod pace;
pub mod purging;
pub mod ready;
pub mod registry;
mod saving;
mod serve;
pub mod tally;
pub mod troubles;
mod turns;
mod verify;
pub mod zone;

pub use registry::{Cache, Registry};
