//! Early hints (103): interim responses that precede the final one, passed on where the location says so.

use std::sync::Arc;

use logs::Level;
use message::{Header, HeaderId, HopByHop, ResponseHead};

use crate::response::response_head;
use crate::settings::directives::Hints;
use crate::settings::proxy_pass::PassSettings;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

const EARLY_HINTS: u16 = 103;
/// Logged status of a client that takes nothing.
const TIMED_OUT: u16 = 408;

/// Passes a head on. A client that is gone is noticed later.
///
/// # Errors
/// The client took nothing for `send_timeout`, which is logged. It may have a part of the head: nothing may follow.
pub async fn pass(request: &mut Request, head: &Arc<ResponseHead>) -> Result<(), Outcome> {
    let location = request.location();
    let Some(passing) = location.made.share::<PassSettings>() else {
        return Ok(());
    };
    if head.status != EARLY_HINTS
        || !request.transport.takes_interim()
        || location.own::<Hints>().early_hints.is_empty()
    {
        return Ok(());
    }
    // The conditions may look at the hints.
    let is_wanted = response_head::with_head(request, &passing, head, |request| {
        let hints = request.location().own::<Hints>();
        hints.early_hints.hold(request)
    });
    if !is_wanted {
        return Ok(());
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
        return Ok(());
    }
    let before = request.transport.sent();
    let sent = request
        .transport
        .interim(timeout, EARLY_HINTS, &lines)
        .await;
    request.count(before, u64::MAX);
    match sent {
        Ok(()) => Ok(()),
        Err(wire::Error::Timeout) => {
            request.transport.close_after_response();
            request.log(Level::Info, &|out| {
                out.extend_from_slice(wire::Error::Timeout.to_string().as_bytes());
                out.extend_from_slice(b" while sending early hints to client");
            });
            Err(Outcome::Close(TIMED_OUT))
        }
        Err(_) => {
            request.transport.close_after_response();
            Ok(())
        }
    }
}
