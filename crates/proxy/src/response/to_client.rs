//! From an upstream server's response to the client's: stored on the way where the location says so, limited in its
//! rate, read ahead of a slow client, or a tunnel.
//!
//! Not here: its head (`response_head`), and responses by way of a cache.

use std::rc::Rc;
use std::sync::Arc;

use message::{Body, ResponseHead, Source};
use runtime::timing::yield_turn;

use crate::response::response_head::{self, Origin};
use crate::response::upgrade::{SWITCHING, SwitchedUpstream};
use crate::response::upstream_response::{UpstreamBody, UpstreamResponse};
use crate::response::{accel, response_body, store};
use crate::settings::directives::ProxyAnswers;
use crate::settings::family::Family;
use crate::settings::proxy_pass::PassSettings;
use crate::state::upstream_state::UpstreamState;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::transport::Tunnel;

/// Maximum size of a body that may wait until the other responses have arrived too, in bytes. A longer one is sent
/// while it is in the CPU cache: many waiting ones do not fit in there, and 64 KiB would cost a quarter more.
const IN_A_ROW_MAX: usize = 8 * 1024;

/// The client's view of a response.
pub(crate) async fn respond(
    request: &mut Request,
    passing: &PassSettings,
    answer: UpstreamResponse,
) -> Outcome {
    if answer.body.is_whole_within(IN_A_ROW_MAX) {
        yield_turn::others_first().await;
    }
    let UpstreamResponse { mut head, mut body } = answer;
    if let UpstreamBody::Stream(stream) = &mut body {
        head = limit(request, head, stream);
    }
    if store::is_wanted(request, passing, &head) {
        match Box::pin(store::body(request, passing, &head, body)).await {
            Ok(body) => return response_head::shape(request, passing, head, body, Origin::Server),
            Err(unstored) => body = unstored,
        }
    }
    let body = match body {
        UpstreamBody::Whole(whole) if whole.is_empty() => Body::Empty,
        UpstreamBody::Whole(whole) => Body::bytes(whole),
        UpstreamBody::Stream(stream) => flowing(request, &head, stream),
    };
    response_head::shape(request, passing, head, body, Origin::Server)
}

/// `proxy_limit_rate` may depend on the response. It holds where the body is buffered.
fn limit(
    request: &Request,
    head: Arc<ResponseHead>,
    stream: &mut response_body::BodyStream,
) -> Arc<ResponseHead> {
    let generation = Rc::clone(&request.generation);
    let settings = generation.settings.location(request.location).groups();
    let rate = settings.own::<ProxyAnswers>().proxy_limit_rate.as_ref();
    let state = request.states.get::<UpstreamState>();
    let (Some(rate), Some(state)) = (rate.filter(|rate| rate.varies()), state) else {
        return head;
    };
    if !accel::is_buffered(request.location(), &head) {
        return head;
    }
    *state.head.borrow_mut() = Some(head);
    stream.limit(request.size(rate));
    state.head.take().expect("it was put there")
}

/// The body after a response's head.
fn flowing(
    request: &mut Request,
    head: &ResponseHead,
    mut stream: Box<response_body::BodyStream>,
) -> Body<Rc<disk::OpenFile>> {
    if Source::is_over(&*stream) {
        return Body::Empty;
    }
    if head.status == SWITCHING {
        request.tunnel =
            SwitchedUpstream::of(*stream).map(|side| Box::new(side) as Box<dyn Tunnel>);
        return Body::Tunnel;
    }
    let is_streamed = stream.upstream_request().family == Family::Grpc;
    if !is_streamed && accel::is_buffered(request.location(), head) {
        stream.buffer(request);
    }
    Body::Stream(stream)
}
