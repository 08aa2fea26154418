//! A header line: the spans of its name and value, and its well-known name, if it has one.
//!
//! A name is looked up once, when it is parsed; every later comparison is of one byte.

/// A range of bytes within a head. Heads are far smaller than 4 GiB (`large_client_header_buffers` limits them).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Number of bytes.
    pub len: u32,
}

impl Span {
    /// The span from `start` to before `end`.
    pub fn new(start: usize, end: usize) -> Span {
        debug_assert!(start <= end);
        Span {
            start: start as u32,
            len: (end - start) as u32,
        }
    }

    /// The bytes of the span in `text`.
    pub fn of<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.start as usize..self.end()]
    }

    /// The offset of the first byte after the span.
    pub fn end(&self) -> usize {
        self.start as usize + self.len as usize
    }

    /// Whether the span has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A header line, as spans of the head that holds it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name as it was sent.
    pub name: Span,
    /// The value without surrounding whitespace.
    pub value: Span,
    /// The well-known name, or `Other`.
    pub id: HeaderId,
}

macro_rules! header_ids {
    ($($id:ident $name:literal)*) => {
        /// The header names that the server itself looks at. `Other` is every other name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum HeaderId {
            /// Not a well-known name.
            Other,
            $(#[doc = concat!("`", $name, "`")] $id,)*
        }

        const NAMES: &[&str] = &["", $($name),*];
        const IDS: &[HeaderId] = &[HeaderId::Other, $(HeaderId::$id),*];
    };
}

header_ids! {
    Accept "Accept"
    AcceptEncoding "Accept-Encoding"
    AcceptLanguage "Accept-Language"
    AcceptRanges "Accept-Ranges"
    Age "Age"
    Allow "Allow"
    Authorization "Authorization"
    CacheControl "Cache-Control"
    Connection "Connection"
    ContentDisposition "Content-Disposition"
    ContentEncoding "Content-Encoding"
    ContentLength "Content-Length"
    ContentRange "Content-Range"
    ContentType "Content-Type"
    Cookie "Cookie"
    Date "Date"
    Depth "Depth"
    Destination "Destination"
    ETag "ETag"
    Expect "Expect"
    Expires "Expires"
    Host "Host"
    IfMatch "If-Match"
    IfModifiedSince "If-Modified-Since"
    IfNoneMatch "If-None-Match"
    IfRange "If-Range"
    IfUnmodifiedSince "If-Unmodified-Since"
    KeepAlive "Keep-Alive"
    LastModified "Last-Modified"
    Link "Link"
    Location "Location"
    Overwrite "Overwrite"
    Pragma "Pragma"
    ProxyAuthorization "Proxy-Authorization"
    ProxyConnection "Proxy-Connection"
    Range "Range"
    Referer "Referer"
    Refresh "Refresh"
    Server "Server"
    SetCookie "Set-Cookie"
    Status "Status"
    Te "TE"
    Trailer "Trailer"
    TransferEncoding "Transfer-Encoding"
    Upgrade "Upgrade"
    UserAgent "User-Agent"
    Vary "Vary"
    Via "Via"
    WwwAuthenticate "WWW-Authenticate"
    XAccelBuffering "X-Accel-Buffering"
    XAccelCharset "X-Accel-Charset"
    XAccelExpires "X-Accel-Expires"
    XAccelLimitRate "X-Accel-Limit-Rate"
    XAccelRedirect "X-Accel-Redirect"
    XForwardedFor "X-Forwarded-For"
    XPad "X-Pad"
    XRealIp "X-Real-IP"
}

const SLOTS: usize = 256;

/// A hash table, filled at compile time. A slot holds an index into `NAMES`; 0 means empty.
static TABLE: [u8; SLOTS] = {
    assert!(NAMES.len() <= 64, "HeaderId::bit needs an id below 64");
    let mut table = [0u8; SLOTS];
    let mut index = 1;
    while index < NAMES.len() {
        let slot = slot_of(NAMES[index].as_bytes());
        assert!(table[slot] == 0, "each name has a slot of its own");
        table[slot] = index as u8;
        index += 1;
    }
    table
};

/// A perfect hash: the factors were searched for, so that each name has a slot of its own.
const fn slot_of(name: &[u8]) -> usize {
    let first = (name[0] | 0x20) as usize;
    let middle = (name[name.len() / 2] | 0x20) as usize;
    let last = (name[name.len() - 1] | 0x20) as usize;
    (name.len() * 127 + first * 38 + middle * 96 + last * 21) % SLOTS
}

/// Length of the longest name in bytes.
const LONGEST: usize = 24;

/// A name of at most `LONGEST` bytes as 64-bit words, padded with zeros.
type NameWords = [u64; LONGEST / 8];

/// Every name, with a mask of its bits to compare: all bits but, in letters, the one that differs between the cases.
static WORDS: [(NameWords, NameWords); NAMES.len()] = {
    let mut words = [([0; LONGEST / 8], [0; LONGEST / 8]); NAMES.len()];
    let mut index = 0;
    while index < NAMES.len() {
        let name = NAMES[index].as_bytes();
        assert!(name.len() <= LONGEST);
        let mut at = 0;
        while at < name.len() {
            let shift = 8 * (at % 8);
            words[index].0[at / 8] |= (name[at] as u64) << shift;
            words[index].1[at / 8] |= match name[at].is_ascii_alphabetic() {
                true => 0xdf << shift,
                false => 0xff << shift,
            };
            at += 1;
        }
        index += 1;
    }
    words
};

/// The eight bytes of a name from `at` on, as in [`WORDS`]: zeros behind its end.
fn word_at(name: &[u8], at: usize) -> u64 {
    let rest = name.get(at..).unwrap_or_default();
    if let Some(eight) = rest.first_chunk() {
        return u64::from_le_bytes(*eight);
    }
    // Reads that overlap, in the place of a copy of so many bytes, which would be a call.
    if let Some(eight) = name.last_chunk() {
        let surplus = 8 - rest.len() as u32;
        let word = u64::from_le_bytes(*eight);
        return word.checked_shr(8 * surplus).unwrap_or(0);
    }
    if let (Some(first), Some(last)) = (rest.first_chunk(), rest.last_chunk()) {
        let [first, last] = [first, last].map(|four| u64::from(u32::from_le_bytes(*four)));
        return first | last << (8 * (rest.len() - 4));
    }
    let bytes = rest.iter().rev();
    bytes.fold(0, |word, byte| word << 8 | u64::from(*byte))
}

impl HeaderId {
    /// The id of a name in any case.
    pub fn find(name: &[u8]) -> HeaderId {
        HeaderId::of_start(name, name.len())
    }

    /// The id of the name that the first `len` bytes of `text` are. Quicker where more text follows, as in a head.
    pub fn of_start(text: &[u8], len: usize) -> HeaderId {
        let name = match text.get(..len) {
            Some(name) if !name.is_empty() => name,
            _ => return HeaderId::Other,
        };
        let index = TABLE[slot_of(name)] as usize;
        if NAMES[index].len() != len {
            return HeaderId::Other;
        }
        let (known, counts) = &WORDS[index];
        let differs = |at: usize, word: u64| (word ^ known[at]) & counts[at] != 0;
        let is_another = match text.first_chunk::<LONGEST>() {
            Some(bytes) => {
                let (words, _) = bytes.as_chunks();
                (0..LONGEST / 8).any(|at| differs(at, u64::from_le_bytes(words[at])))
            }
            None => (0..len.div_ceil(8)).any(|at| differs(at, word_at(name, 8 * at))),
        };
        match is_another {
            true => HeaderId::Other,
            false => IDS[index],
        }
    }

    /// The name in its usual spelling; empty for `Other`.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// The bit of this id in a set of ids.
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case() {
        for (name, id) in NAMES.iter().zip(IDS).skip(1) {
            assert_eq!(HeaderId::find(name.as_bytes()), *id);
            assert_eq!(HeaderId::find(name.to_lowercase().as_bytes()), *id);
            assert_eq!(HeaderId::find(name.to_uppercase().as_bytes()), *id);
            assert_eq!(id.name(), *name);
            let line = format!("{}: and what follows it in the line", name.to_lowercase());
            assert_eq!(HeaderId::of_start(line.as_bytes(), name.len()), *id);
            assert_eq!(
                HeaderId::of_start(line.as_bytes(), name.len() + 1),
                HeaderId::Other
            );
            assert_eq!(
                HeaderId::of_start(name.as_bytes(), name.len() + 1),
                HeaderId::Other
            );
        }
        for other in [
            "",
            "x",
            "hos",
            "hostt",
            "x-forwarded-fo",
            "accept-charset",
            "proxy-authorization-of-the-other",
            "Content\rLength",
            "Age\0",
            "\u{e9}",
        ] {
            assert_eq!(HeaderId::find(other.as_bytes()), HeaderId::Other);
        }
    }
}
