//! Tokens of ACME (RFC 8555, 8.3): requests that an authority makes to convince itself of a name.
//!
//! Not here: where tokens come from ([`httpcore::tls::acme`]). Invariant: as in nginx-acme, such a request is answered before
//! everything that a configuration says of it (rewriting, access, limits).

use bytes::Bytes;
use message::{Body, Method};

use httpcore::Response;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::tls::acme;

/// Whether any token is waited for now; else a request needs not be looked at.
#[inline]
#[must_use]
pub fn may_be_wanted() -> bool {
    acme::has_tokens()
}

/// Answers a request for a token.
#[must_use]
pub fn run(request: &Request) -> Option<Outcome> {
    if request.method != Method::Get {
        return None;
    }
    let text = acme::token_text(&request.uri)?;
    let mut response = Response::boxed(200);
    response.content_type = Bytes::from_static(b"text/plain");
    response.content_length = Some(text.len() as u64);
    response.body = Body::bytes(text);
    Some(Outcome::Answer(response))
}
