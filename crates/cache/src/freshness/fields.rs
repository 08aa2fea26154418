//! The header lines that are stored, and their update by a 304.

use super::FieldLine;
use message::{HeaderId, HopByHop};

/// Is it a field of one connection (RFC 9110, 7.6.1; RFC 9111, 3.1), or `Age`, which is in the lifetime?
fn is_of_connection(name: &[u8], id: HeaderId) -> bool {
    const OTHERS: [&[u8]; 3] = [
        b"Proxy-Authenticate",
        b"Proxy-Authentication-Info",
        b"Trailers",
    ];
    match id {
        HeaderId::Connection
        | HeaderId::KeepAlive
        | HeaderId::ProxyConnection
        | HeaderId::ProxyAuthorization
        | HeaderId::Te
        | HeaderId::Trailer
        | HeaderId::TransferEncoding
        | HeaderId::Upgrade
        | HeaderId::Age => true,
        HeaderId::Other => OTHERS.iter().any(|other| name.eq_ignore_ascii_case(other)),
        _ => false,
    }
}

/// The lines of a response that are stored: without those of the connection, those that `Connection` names, and
/// `without` ([`Storable::without`](super::Storable::without)).
pub fn stored_fields<'a, I>(
    fields: I,
    without: &'a [Vec<u8>],
) -> impl Iterator<Item = FieldLine<'a>>
where
    I: Iterator<Item = FieldLine<'a>> + Clone,
{
    let of_connection = fields
        .clone()
        .filter(|(_, _, id)| *id == HeaderId::Connection);
    let hop_by_hop = HopByHop::new(of_connection.map(|(_, value, _)| value));
    fields.filter(move |(name, _, id)| {
        let is_without = || without.iter().any(|other| name.eq_ignore_ascii_case(other));
        !is_of_connection(name, *id) && !is_without() && !hop_by_hop.names(name)
    })
}

/// The lines of a stored response after a 304 (RFC 9111, 3.2 and 4.3.4): the 304's lines replace those of the same
/// name, except fields that describe the stored body, and those that are for one client or one response; without
/// `without` ([`Storable::without`](super::Storable::without)). As in nginx, a 304 with another entity tag counts:
/// servers that compress send the tag of the plain response (`"a"` for `"a-gzip"`). The tag of the body stays.
pub fn updated_fields<'a, S, I>(stored: S, answer: I, without: &'a [Vec<u8>]) -> Vec<FieldLine<'a>>
where
    S: Iterator<Item = FieldLine<'a>>,
    I: Iterator<Item = FieldLine<'a>> + Clone,
{
    let is_merged = |(name, _, id): &FieldLine<'_>| {
        !describes_body(*id) && !is_for_one(name, *id) && !is_status(name)
    };
    let new: Vec<FieldLine<'a>> = stored_fields(answer, without).filter(is_merged).collect();
    let is_without = |name: &[u8]| without.iter().any(|other| name.eq_ignore_ascii_case(other));
    let is_replaced = |(name, _, _): &FieldLine<'_>| {
        new.iter()
            .any(|(other, _, _)| other.eq_ignore_ascii_case(name))
    };
    let kept = stored.filter(|line| !is_replaced(line) && !is_without(line.0));
    let mut lines: Vec<FieldLine<'a>> = kept.collect();
    lines.extend(&new);
    lines
}

/// A CGI program's `Status` (RFC 3875, 6.3.3) is that of its 304, not of the stored response.
fn is_status(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"Status")
}

/// Whether a 304 says it to the client that asked, or of itself: a cookie, a challenge, a place elsewhere.
fn is_for_one(name: &[u8], id: HeaderId) -> bool {
    use HeaderId::{Location, SetCookie, WwwAuthenticate, XAccelRedirect};
    let is_one = matches!(id, Location | SetCookie | WwwAuthenticate | XAccelRedirect);
    is_one || name.eq_ignore_ascii_case(b"Refresh") || name.eq_ignore_ascii_case(b"Content-MD5")
}

fn describes_body(id: HeaderId) -> bool {
    use HeaderId::{ContentEncoding, ContentLength, ContentRange, ContentType, ETag};
    matches!(
        id,
        ContentEncoding | ContentLength | ContentRange | ContentType | ETag
    )
}

/// Does a response with this status to a request with this method invalidate the responses stored for its URI (RFC
/// 9111, 4.4)? An unknown method may have changed something.
#[must_use]
pub fn invalidates(method: &[u8], status: u16) -> bool {
    // RFC 9110, 9.2.1, and the IANA registry of methods.
    const SAFE: [&[u8]; 7] = [
        b"GET",
        b"HEAD",
        b"OPTIONS",
        b"TRACE",
        b"PROPFIND",
        b"REPORT",
        b"SEARCH",
    ];
    !SAFE.contains(&method) && (200..400).contains(&status)
}
