//! Variables with figures of the server, and with the times that a request has waited.

use std::io::Write as _;

use crate::after::compression::ratio;
use crate::caching::counters::Status;
use crate::loops::current_request;
use crate::metrics::gather;
use crate::request::Request;

use super::names::Core;

/// Appends one of these variables; `None`: `core` is none of them.
pub(super) fn core(request: &Request, core: Core, out: &mut Vec<u8>) -> Option<bool> {
    let connections = || gather::all_loops(&request.client.loop_.ledger);
    let count = match core {
        Core::ConnectionsActive => connections().connections,
        Core::ConnectionsReading => connections().reading(),
        Core::ConnectionsWaiting => connections().waiting(),
        Core::ConnectionsWriting => connections().answering,
        Core::DiskWait => return Some(seconds(current_request::waited().disk_ns, out)),
        Core::PoolWait => return Some(seconds(current_request::waited().pool_ns, out)),
        Core::FirstByteTime => {
            let first = request.first_byte.get();
            return Some(first > 0 && seconds(first.saturating_sub(request.moment), out));
        }
        Core::ServedFrom => return Some(served_from(request, out)),
        _ => return ratio::core(request, core, out),
    };
    // Writing to memory cannot fail.
    let _ = write!(out, "{count}");
    Some(true)
}

fn seconds(ns: u64, out: &mut Vec<u8>) -> bool {
    let (whole, rest) = (ns / 1_000_000_000, ns / 1000 % 1_000_000);
    let _ = write!(out, "{whole}.{rest:06}");
    true
}

fn served_from(request: &Request, out: &mut Vec<u8>) -> bool {
    let note = request.cached.as_ref();
    let cached = note.and_then(|note| note.status);
    let word = match cached {
        Some(Status::Miss | Status::Expired) => "fill",
        Some(Status::Hit) if note.is_some_and(|note| note.follows) => "fill",
        Some(Status::Bypass) => "upstream",
        None if request.passed.is_some() => "upstream",
        _ if current_request::waited().disk_ns > 0 => "disk",
        _ => "memory",
    };
    out.extend_from_slice(word.as_bytes());
    true
}
