//! `proxy_no_cache`, whose conditions may look at the response, and slices, which must be those that were asked for:
//! asked of the request when the head is there.
//!
//! The fill, which may outlive the request, asks by a channel; a request that has ended gives no answer, which is a no.

use std::rc::Rc;
use std::sync::Arc;

use message::ResponseHead;
use runtime::{Kind, spawn};
use tokio::sync::oneshot;

use crate::caching::cache_request::CacheRequest;
use crate::caching::fetch::fetch_params::FetchParams;
use crate::response::response_head;
use crate::settings::proxy_pass::PassSettings;
use crate::upstream_request::request::UpstreamRequest;
use httpcore::request::Request;

/// Whether the response may be stored, as far as the request decides that.
#[derive(Debug)]
pub(super) enum Storing {
    /// No.
    No,
    /// Yes, if the answer allows it.
    Yes,
    /// Let the request look at the head (`proxy_no_cache`, slices); no, if the request has ended.
    Ask(oneshot::Sender<StoreQuestion>),
}

/// A response's head, sent to the request that it is for: may it be stored?
#[derive(Debug)]
pub(super) struct StoreQuestion {
    /// The head.
    pub head: Arc<ResponseHead>,
    /// The channel for the answer.
    pub may_store: oneshot::Sender<bool>,
}

/// How it is decided whether the response may be stored.
pub(super) fn storing(
    cache_request: &CacheRequest<'_>,
    params: &FetchParams,
) -> (Storing, Option<oneshot::Receiver<StoreQuestion>>) {
    if !params.may_store {
        return (Storing::No, None);
    }
    let has_conditions = !cache_request.caching.proxy_no_cache.is_empty();
    if !has_conditions && !cache_request.passing.asks_for_ranges() {
        return (Storing::Yes, None);
    }
    let (ask, question) = oneshot::channel();
    (Storing::Ask(ask), Some(question))
}

/// Answers the question for the request.
pub(super) fn decide(request: &mut Request, passing: &PassSettings, question: StoreQuestion) {
    let StoreQuestion { head, may_store } = question;
    let _ = may_store.send(!keeps_out(request, passing, &head));
}

/// Answers it for a fetch behind the request, which gets another response meanwhile.
pub(super) fn answer_behind(
    request: &Request,
    upstream_request: &Rc<UpstreamRequest>,
    question: oneshot::Receiver<StoreQuestion>,
) {
    let mut stand_in = request.stand_in();
    stand_in.states.put(Rc::clone(&upstream_request.state));
    let passing = Arc::clone(&upstream_request.passing);
    drop(spawn(Kind::Module("fill"), async move {
        if let Ok(question) = question.await {
            decide(&mut stand_in, &passing, question);
        }
    }));
}

/// Whether a response with this head is kept out of the cache, for this request: by a module that asked for another one,
/// or by `proxy_no_cache`.
pub(super) fn keeps_out(
    request: &mut Request,
    passing: &PassSettings,
    head: &Arc<ResponseHead>,
) -> bool {
    if request.refuses(head) {
        return true;
    }
    let conditions = &passing.groups.caching.proxy_no_cache;
    response_head::with_head(request, passing, head, |request| conditions.hold(request))
}
