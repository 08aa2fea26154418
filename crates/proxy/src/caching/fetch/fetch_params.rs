//! The parameters of a fetch, and its result.

use cache::Key;
use cache::fill::FillKey;
use cache::store::Hit;

use crate::caching::cache_request::CacheRequest;
use crate::state::cache_state::Status;
use httpcore::outcome::Outcome;

/// The parameters of a fetch from the origin.
#[derive(Debug, Default)]
pub(crate) struct FetchParams {
    /// The stored response that is no longer fresh. Boxed: it is large, handed on from step to step, and few have one.
    pub stale: Option<Box<Hit>>,
    /// The variant that was looked up.
    pub looked_for: Option<Key>,
    /// `$upstream_cache_status` of a response from the origin.
    pub status: Option<Status>,
    /// Whether the response may be stored, as far as the request decides that.
    pub may_store: bool,
    /// Whether it was looked up once only: then another request may have stored it since.
    pub may_have_come: bool,
    /// Whether its disk cannot be asked: what is stored there is no reason not to fetch it.
    pub is_past_disk: bool,
    /// Whether its disk is waited for meanwhile: nothing of a response that is no better may be at the request.
    pub is_raced: bool,
}

impl FetchParams {
    pub(super) fn key(&self, cache_request: &CacheRequest<'_>) -> FillKey {
        FillKey {
            key: self.looked_for.unwrap_or(cache_request.main),
            main: cache_request.main,
            text: cache_request.key_text.clone(),
        }
    }
}

/// The result of a fetch.
pub(crate) enum Fetched {
    /// A response.
    Answer(Outcome),
    /// Another request stored something: look it up again.
    Again,
    /// The other request's response is of another variant: this one is wanted.
    Variant(Key),
    /// The request is to be passed on without the cache.
    Pass,
}
