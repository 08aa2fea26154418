//! The static table (RFC 7541, appendix A).
//!
//! Each entry is the line `name: value CRLF` that a head holds, so that it is copied as it stands.

use message::HeaderId::*;

use crate::http2::field_class::{NameKind, NameKind::Plain, Pseudo};

/// An entry: its line, and what its name is.
#[derive(Clone, Copy, Debug)]
pub struct StaticEntry {
    /// `name: value` with a line end.
    pub line: &'static [u8],
    /// Length of the name in bytes.
    pub name_len: usize,
    /// What the name is.
    pub kind: NameKind,
}

impl StaticEntry {
    /// The name.
    pub fn name(&self) -> &'static [u8] {
        &self.line[..self.name_len]
    }

    /// The value; often empty.
    pub fn value(&self) -> &'static [u8] {
        &self.line[self.name_len + 2..self.line.len() - 2]
    }
}

/// Number of entries.
pub const STATIC_LEN: usize = 61;

macro_rules! entries {
    ($($kind:expr, $name:literal $value:literal)*) => {
        [$(StaticEntry {
            line: concat!($name, ": ", $value, "\r\n").as_bytes(),
            name_len: $name.len(),
            kind: $kind,
        }),*]
    };
}

/// The entries; index 1 of RFC 7541 is the first.
pub static STATIC_TABLE: [StaticEntry; STATIC_LEN] = entries! {
    NameKind::Pseudo(Pseudo::Authority), ":authority" ""
    NameKind::Pseudo(Pseudo::Method), ":method" "GET"
    NameKind::Pseudo(Pseudo::Method), ":method" "POST"
    NameKind::Pseudo(Pseudo::Path), ":path" "/"
    NameKind::Pseudo(Pseudo::Path), ":path" "/index.html"
    NameKind::Pseudo(Pseudo::Scheme), ":scheme" "http"
    NameKind::Pseudo(Pseudo::Scheme), ":scheme" "https"
    NameKind::Pseudo(Pseudo::Status), ":status" "200"
    NameKind::Pseudo(Pseudo::Status), ":status" "204"
    NameKind::Pseudo(Pseudo::Status), ":status" "206"
    NameKind::Pseudo(Pseudo::Status), ":status" "304"
    NameKind::Pseudo(Pseudo::Status), ":status" "400"
    NameKind::Pseudo(Pseudo::Status), ":status" "404"
    NameKind::Pseudo(Pseudo::Status), ":status" "500"
    Plain(Other), "accept-charset" ""
    Plain(AcceptEncoding), "accept-encoding" "gzip, deflate"
    Plain(AcceptLanguage), "accept-language" ""
    Plain(AcceptRanges), "accept-ranges" ""
    Plain(Accept), "accept" ""
    Plain(Other), "access-control-allow-origin" ""
    Plain(Age), "age" ""
    Plain(Allow), "allow" ""
    Plain(Authorization), "authorization" ""
    Plain(CacheControl), "cache-control" ""
    Plain(ContentDisposition), "content-disposition" ""
    Plain(ContentEncoding), "content-encoding" ""
    Plain(Other), "content-language" ""
    Plain(ContentLength), "content-length" ""
    Plain(Other), "content-location" ""
    Plain(ContentRange), "content-range" ""
    Plain(ContentType), "content-type" ""
    Plain(Cookie), "cookie" ""
    Plain(Date), "date" ""
    Plain(ETag), "etag" ""
    Plain(Expect), "expect" ""
    Plain(Expires), "expires" ""
    Plain(Other), "from" ""
    Plain(Host), "host" ""
    Plain(IfMatch), "if-match" ""
    Plain(IfModifiedSince), "if-modified-since" ""
    Plain(IfNoneMatch), "if-none-match" ""
    Plain(IfRange), "if-range" ""
    Plain(IfUnmodifiedSince), "if-unmodified-since" ""
    Plain(LastModified), "last-modified" ""
    Plain(Link), "link" ""
    Plain(Location), "location" ""
    Plain(Other), "max-forwards" ""
    Plain(Other), "proxy-authenticate" ""
    Plain(ProxyAuthorization), "proxy-authorization" ""
    Plain(Range), "range" ""
    Plain(Referer), "referer" ""
    Plain(Refresh), "refresh" ""
    Plain(Other), "retry-after" ""
    Plain(Server), "server" ""
    Plain(SetCookie), "set-cookie" ""
    Plain(Other), "strict-transport-security" ""
    Plain(TransferEncoding), "transfer-encoding" ""
    Plain(UserAgent), "user-agent" ""
    Plain(Vary), "vary" ""
    Plain(Via), "via" ""
    Plain(WwwAuthenticate), "www-authenticate" ""
};

const SLOTS: usize = 256;

/// An open-addressing hash table of the names, filled at compile time: the first index of each name, or 0.
static TABLE: [u8; SLOTS] = {
    let mut table = [0u8; SLOTS];
    let mut index = STATIC_LEN;
    while index > 0 {
        let entry = &STATIC_TABLE[index - 1];
        let mut slot = slot_of(entry.line, entry.name_len);
        while table[slot] != 0 && !is_same_name(table[slot] as usize, index) {
            slot = (slot + 1) % SLOTS;
        }
        table[slot] = index as u8;
        index -= 1;
    }
    table
};

/// Whether two entries have one name: such entries are neighbours, and only pseudo-headers.
const fn is_same_name(one: usize, other: usize) -> bool {
    let (one, other) = (&STATIC_TABLE[one - 1], &STATIC_TABLE[other - 1]);
    one.name_len == other.name_len
        && one.line[0] == b':'
        && other.line[0] == b':'
        && one.line[1] == other.line[1]
}

/// A hash that is the same for letters of both cases.
const fn slot_of(name: &[u8], len: usize) -> usize {
    let first = (name[0] | 0x20) as usize;
    let middle = (name[len / 2] | 0x20) as usize;
    let last = (name[len - 1] | 0x20) as usize;
    (len * 37 + first * 5 + middle * 11 + last * 67) % SLOTS
}

/// The first index of a name in any case.
#[inline]
pub fn find(name: &[u8]) -> Option<usize> {
    if name.is_empty() {
        return None;
    }
    let mut slot = slot_of(name, name.len());
    loop {
        let index = usize::from(TABLE[slot]);
        if index == 0 {
            return None;
        }
        if STATIC_TABLE[index - 1].name().eq_ignore_ascii_case(name) {
            return Some(index);
        }
        slot = (slot + 1) % SLOTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_and_classed() {
        for (at, entry) in STATIC_TABLE.iter().enumerate() {
            assert_eq!(NameKind::of(entry.name()), entry.kind);
            let found = find(entry.name()).unwrap();
            assert_eq!(STATIC_TABLE[found - 1].name(), entry.name());
            assert!(found <= at + 1, "the first one");
            assert_eq!(find(&entry.name().to_ascii_uppercase()), Some(found));
        }
        assert_eq!(STATIC_TABLE[15].value(), b"gzip, deflate");
        assert_eq!((find(b":status"), find(b"host")), (Some(8), Some(38)));
        assert_eq!((find(b""), find(b"x"), find(b"hosts")), (None, None, None));
    }
}
