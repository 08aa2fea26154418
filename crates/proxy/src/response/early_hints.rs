//! Early hints (103): interim responses that precede the final one, passed on where the location says so.

use message::{Header, HeaderId, HopByHop, ResponseHead};

use crate::settings::directives::Hints;
use crate::settings::proxy_pass::PassSettings;
use httpcore::request::Request;

const EARLY_HINTS: u16 = 103;

/// Passes a head on. A client that takes nothing is noticed later.
pub async fn pass(request: &mut Request, head: &ResponseHead) {
    let location = request.location();
    let is_wanted = head.status == EARLY_HINTS
        && request.transport.takes_interim()
        && location.own::<Hints>().early_hints.hold(request);
    let Some(passing) = request
        .location()
        .made
        .share::<PassSettings>()
        .filter(|_| is_wanted)
    else {
        return;
    };
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
