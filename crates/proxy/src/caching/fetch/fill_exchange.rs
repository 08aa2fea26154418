//! The exchange of a fill with the origin, until the head of its response has arrived; and when nothing needs it any more.
//!
//! Not here: what becomes of the response (`fill`).

use std::rc::Rc;
use std::sync::Arc;

use cache::fill::{Filler, Unwanted};
use message::ResponseHead;
use tokio::sync::mpsc;

use crate::caching::fetch::fill::FillContext;
use crate::caching::fetch::store_question::Storing;
use crate::caching::write_backpressure::WritePermit;
use crate::exchange::upstream_exchange::{ExchangeStep, NoAnswer, UpstreamExchange};
use crate::response::upstream_response::UpstreamResponse;
use crate::upstream_request::request::UpstreamRequest;

/// What a fill got from the origin, and its leave to have that written.
pub(super) enum Asked {
    /// The server's name has no address.
    Unresolved,
    /// No server answered.
    Nothing(NoAnswer),
    /// A response.
    Answer(UpstreamResponse, Option<WritePermit>),
}

/// Asks the origin, until the head of its response has arrived. What follows needs the room that this takes.
pub(super) async fn ask(
    context: &FillContext,
    upstream_request: Rc<UpstreamRequest>,
    may_store: bool,
    hints: Option<mpsc::Sender<Arc<ResponseHead>>>,
) -> Asked {
    let Some(upstream_request) = upstream_request.resolved().await else {
        return Asked::Unresolved;
    };
    let mut asking = UpstreamExchange::new(upstream_request);
    if let Err(none) = asking.answer_comes().await {
        return Asked::Nothing(none);
    }
    // A response that is not read yet takes no memory while it waits.
    let permit = match may_store && context.write_refusal().is_none() {
        true => Some(context.cache.backpressure.permit(&context.loop_).await),
        false => None,
    };
    match answer(&mut asking, hints).await {
        Ok(answer) => Asked::Answer(answer, permit),
        Err(none) => Asked::Nothing(none),
    }
}

/// Waits until nothing needs the origin's response, which is not there yet: what may be stored is needed in any case.
pub(super) async fn unwanted(filler: &Filler, storing: &mut Storing) -> Unwanted {
    match storing {
        Storing::Yes => return std::future::pending().await,
        Storing::No => {}
        // Once the request has ended it is a no.
        Storing::Ask(owner) => owner.closed().await,
    }
    filler.unwanted().await
}

/// Waits for the origin's response. Interim heads are handed on.
async fn answer(
    asking: &mut UpstreamExchange,
    hints: Option<mpsc::Sender<Arc<ResponseHead>>>,
) -> Result<UpstreamResponse, NoAnswer> {
    loop {
        match asking.next().await? {
            ExchangeStep::Answer(answer) => return Ok(answer),
            ExchangeStep::Interim(head) => {
                // Dropped when the request is slow or has ended.
                let _ = hints.as_ref().map(|hints| hints.try_send(head));
            }
        }
    }
}
