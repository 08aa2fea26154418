//! Asking the origin for a cache.
//!
//! * `origin_fetch`: decides whether a request gets a fill of its own (`lead`) or follows another one's (`follow`).
//! * `start_fill`, `fill`: one request to the origin (`fill_exchange`); `write_entry` writes its response.
//! * `store_question`: `proxy_no_cache` and slices, asked of the request once the head is there.
//! * `follower_body`: the response as a follower reads it; `no_response`: the outcome where there is none.

pub(crate) mod fetch_params;
mod fill;
mod fill_exchange;
mod follow;
mod follower_body;
mod lead;
mod no_response;
pub(crate) mod origin_fetch;
mod start_fill;
mod store_question;
mod write_entry;
