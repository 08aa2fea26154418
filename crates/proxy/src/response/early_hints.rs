//! Early hints (103): interim responses that precede the final one, passed on where the location says so.

use std::sync::Arc;

use message::{Header, HeaderId, HopByHop, ResponseHead};

use crate::response::response_head;
use crate::settings::directives::Hints;
use crate::settings::proxy_pass::PassSettings;
use httpcore::request::Request;

const EARLY_HINTS: u16 = 103;

/// Passes a head on. A client that takes nothing is noticed later.
pub async fn pass(request: &mut Request, head: &Arc<ResponseHead>) {
    let location = request.location();
    let Some(passing) = location.made.share::<PassSettings>() else {
        return;
    };
    if head.status != EARLY_HINTS
        || !request.transport.takes_interim()
        || location.own::<Hints>().early_hints.is_empty()
    {
        return;
    }
    // The conditions may look at the hints.
    let is_wanted = response_head::with_head(request, &passing, head, |request| {
        let hints = request.location().own::<Hints>();
        hints.early_hints.hold(request)
    });
    if !is_wanted {
        return;
    }
    let location = request.location();
    let timeout = location.settings.sending.send_timeout.duration();
    let hop_by_hop = HopByHop::new(head.get_each(HeaderId::Connection));
    let passed_on = head.fields.iter().filter(|field| {
        let name = field.name.of(&head.bytes);
        !passing.hidden.has(name, field.id)
            && !hop_by_hop.contains(name, field.id)
            && field.id != HeaderId::ContentLength
    });
    let lines: Vec<Header> = passed_on
        .map(|field| Header::new(head.part(field.name), head.part(field.value)))
        .collect();
    if lines.is_empty() {
        return;
    }
    let before = request.transport.sent();
    let sent = request
        .transport
        .interim(timeout, EARLY_HINTS, &lines)
        .await;
    request.count(before, u64::MAX);
    if sent.is_err() {
        request.transport.close_after_response();
    }
}
