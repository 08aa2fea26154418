//! The server's side of the cache: which caches there are, and how requests use them.
//!
//! * `lookup`: the way of a request. `cache_request` is what it asks for; `purging`: deletes.
//! * `stored`: answers with a stored entry.
//! * `fetch`: asks the origin, and stores what it says.
//! * `hedge`: a disk that is waited for, raced by the origin; `hedge_budget`: how often.
//! * `caches`: the worker's caches, and the thread that keeps them in order.
//! * `write_backpressure`: what limits the writing.
//! * `metrics`, `variables`: how requests were answered.
//!
//! Not here: the directives (`settings::caching`, `settings::cache_path`); keys, entries, freshness and space (the
//! crate `cache`). Invariant: a disk's error, or its silence, never fails a request that the origin can
//! answer.

pub mod cache_request;
pub mod caches;
mod fetch;
pub(crate) mod hedge;
pub(crate) mod hedge_budget;
pub(crate) mod lookup;
pub mod metrics;
pub(crate) mod purging;
mod stored;
pub mod variables;
pub(crate) mod write_backpressure;
