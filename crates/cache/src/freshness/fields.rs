//! Which header lines are stored, and what a 304 changes of them.

use super::Line;
use message::HeaderId;

/// Fields of one connection (RFC 9110, 7.6.1; RFC 9111, 3.1), and `Age`, which the lifetime knows.
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

/// The lines of an answer that are to be stored: not those of the connection, nor those that `Connection` names, nor `without`
/// ([`Storable::without`](super::Storable::without)).
pub fn stored_fields<'a, I>(fields: I, without: &'a [Vec<u8>]) -> impl Iterator<Item = Line<'a>>
where
    I: Iterator<Item = Line<'a>> + Clone,
{
    let all = fields.clone();
    fields.filter(move |(name, _, id)| {
        let is_without = || without.iter().any(|other| name.eq_ignore_ascii_case(other));
        !is_of_connection(name, *id) && !is_without() && !is_named(name, all.clone())
    })
}

/// Does `Connection` name it?
fn is_named<'a>(name: &[u8], fields: impl Iterator<Item = Line<'a>>) -> bool {
    let lines = fields.filter(|(_, _, id)| *id == HeaderId::Connection);
    let mut options = lines.flat_map(|(_, value, _)| value.split(|byte| *byte == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(name))
}

/// Is a 304 about the stored answer? Not if it has another entity tag (RFC 9111, 4.3.4).
pub fn confirms<'a>(
    stored: impl Iterator<Item = Line<'a>>,
    answer: impl Iterator<Item = Line<'a>>,
) -> bool {
    let (stored, answer) = (tag(stored), tag(answer));
    match (stored, answer) {
        (Some(stored), Some(answer)) => stored == answer,
        _ => true,
    }
}

/// The entity tag, compared weakly.
fn tag<'a>(mut fields: impl Iterator<Item = Line<'a>>) -> Option<&'a [u8]> {
    let (_, value, _) = fields.find(|(_, _, id)| *id == HeaderId::ETag)?;
    Some(value.strip_prefix(b"W/").unwrap_or(value))
}

/// The lines of a stored answer after a 304 (RFC 9111, 3.2 and 4.3.4): each name that the 304 has is replaced by what it says, but
/// for what describes the stored body, and for cookies, which are for one client.
pub fn updated_fields<'a, S, I>(stored: S, answer: I) -> Vec<Line<'a>>
where
    S: Iterator<Item = Line<'a>>,
    I: Iterator<Item = Line<'a>> + Clone,
{
    let new: Vec<Line<'a>> = stored_fields(answer, &[])
        .filter(|(name, _, id)| {
            !describes_body(*id) && *id != HeaderId::SetCookie && !is_status(name)
        })
        .collect();
    let is_replaced = |(name, _, _): &Line<'_>| {
        new.iter()
            .any(|(other, _, _)| other.eq_ignore_ascii_case(name))
    };
    let kept = stored.filter(|line| !is_replaced(line));
    let mut lines: Vec<Line<'a>> = kept.collect();
    lines.extend(&new);
    lines
}

/// A CGI program's status (RFC 3875, 6.3.3) is that of its 304, not of what is stored.
fn is_status(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"Status")
}

fn describes_body(id: HeaderId) -> bool {
    use HeaderId::{ContentEncoding, ContentLength, ContentRange, ContentType};
    matches!(
        id,
        ContentEncoding | ContentLength | ContentRange | ContentType
    )
}

/// Does an answer with this status to a request with this method make what is stored for its URI invalid (RFC 9111, 4.4)? A method
/// that nobody knows might have changed something.
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
