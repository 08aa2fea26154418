//! Asking the origin for a cache: `origin_fetch` for one request, by a fill of its own or as a follower (`follow`) of
//! another one's; `fill` is one request to the origin; `write_entry` writes its answer.

mod fill;
mod follow;
pub(crate) mod origin_fetch;
mod write_entry;
