//! Ranges of a body: 206, `multipart/byteranges` and 416 (RFC 9110, 14; nginx-drop-in 26–29).
//!
//! Works on any body of known length; several ranges need a body in one piece, or one that can be cut again. A
//! file stays a file.

use std::cell::Cell;
use std::ops::Range;

use config::{Number, directives};
use message::range::{self, Multipart, RANGES_UNLIMITED, RangeOutcome};
use message::response::Ranges as Allowed;
use message::{Body, HeaderId, Version, conditional};

use httpcore::request::Request;
use httpcore::{Failure, Response};

directives! {
    /// Byte ranges.
    pub struct Ranges in Location {
        /// Limits the number of ranges in one request; with more, the whole body is sent. `0` switches ranges off.
        /// Unlimited by default.
        max_ranges: Option<Number> = none, [HTTP | SERVER | LOCATION] 1;
    }
}

thread_local! {
    /// Makes the multipart boundaries of one loop differ.
    static BOUNDARY: Cell<u64> = const { Cell::new(0) };
}

/// Cuts the body down to the ranges that `Range` asks for; returns the part if it is a single one.
///
/// # Errors
/// 416 when no range can be satisfied; it carries `Content-Range`.
pub fn apply(
    request: &Request,
    settings: &Ranges,
    response: &mut Response,
) -> Result<Option<Range<u64>>, Failure> {
    let max_ranges = settings.max_ranges.map_or(RANGES_UNLIMITED, |n| {
        n.0.min(u64::from(RANGES_UNLIMITED)) as u32
    });
    if response.status != 200
        || response.ranges == Allowed::Refused
        || request.head.version < Version::HTTP_10
    {
        return Ok(None);
    }
    let Some(length) = response.content_length else {
        return Ok(None);
    };
    if max_ranges == 0 {
        return Ok(None);
    }
    // With a limit of one, parsing ends at the second range: what comes behind it is no syntax error.
    let max_ranges = match response.ranges {
        Allowed::Single => 1,
        Allowed::Allowed | Allowed::Refused => max_ranges,
    };
    response.accept_ranges = true;
    let Some(value) = request.head.get(HeaderId::Range) else {
        return Ok(None);
    };
    if !conditional::if_range_holds(&request.head, response.modified(), response.etag.as_ref()) {
        return Ok(None);
    }
    match range::parse(value, length, max_ranges) {
        RangeOutcome::Full => Ok(None),
        RangeOutcome::Single(part) => {
            response.status = 206;
            response.status_line = None;
            let value = range::content_range(&part, length);
            response.headers.replace("Content-Range", value);
            response.content_length = Some(part.end - part.start);
            response.accept_ranges = false;
            let body = std::mem::take(&mut response.body);
            response.body = body.cut(part.start, part.end);
            Ok(Some(part))
        }
        RangeOutcome::Multi(parts) => {
            several(response, &parts, length);
            Ok(None)
        }
        RangeOutcome::Unsatisfiable => Err(Failure::new(416)
            .with_header("Content-Range", range::content_range_unsatisfied(length))),
    }
}

fn several(response: &mut Response, parts: &[Range<u64>], length: u64) {
    let can_be_cut = match &response.body {
        Body::Once(_) => true,
        Body::Stream(source) => source.can_be_cut_again(),
        Body::Empty | Body::Tunnel => false,
    };
    if !can_be_cut {
        return;
    }
    let boundary = BOUNDARY.with(|next| next.replace(next.get().wrapping_add(1)));
    let parts = Multipart::new(parts, length, &response.content_type_text(), boundary);
    response.content_length = Some(parts.length());
    response.body = match std::mem::take(&mut response.body) {
        Body::Once(whole) => Body::chunks(parts.of_chunk(&whole)),
        Body::Stream(source) => parts.of_source(source),
        other => other,
    };
    response.status = 206;
    response.status_line = None;
    response.headers.remove(b"Content-Range");
    response.content_type = range::multipart_type(boundary);
    response.charset = bytes::Bytes::new();
    response.accept_ranges = false;
}
