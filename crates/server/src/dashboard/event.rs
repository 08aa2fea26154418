//! Events of a stream (HTML, 9.2 "Server-sent events"), each with a value as JSON.

use bytes::Bytes;
use serde::Serialize;

/// An event with this name.
pub(super) fn event(name: &str, value: &impl Serialize) -> Bytes {
    let mut out = format!("event: {name}\ndata: ").into_bytes();
    let written = serde_json::to_writer(&mut out, value);
    written.expect("a Vec takes all that is written, and keys are strings");
    out.extend_from_slice(b"\n\n");
    out.into()
}
