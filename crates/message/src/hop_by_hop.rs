//! Hop-by-hop header fields: those meant for the next hop alone, never passed on (RFC 9110, 7.6.1).
//!
//! Not here: what a proxy adds, hides or replaces. Invariant: the fields that frame a message or name its host are kept
//! even if the sender lists them in `Connection`.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::field::HeaderId;

/// The connection options that one message lists in its `Connection` lines.
#[derive(Debug, Default)]
pub struct HopByHop<'a> {
    /// Sorted by length, then without regard to case.
    named: SmallVec<[&'a [u8]; 4]>,
}

impl<'a> HopByHop<'a> {
    /// Collects the options from the values of all `Connection` lines.
    pub fn new(values: impl IntoIterator<Item = &'a [u8]>) -> HopByHop<'a> {
        let tokens = values
            .into_iter()
            .flat_map(|value| value.split(|byte| *byte == b','));
        let mut named: SmallVec<[&[u8]; 4]> = tokens
            .map(<[u8]>::trim_ascii)
            .filter(|token| !token.is_empty())
            .collect();
        named.sort_unstable_by(|a, b| compare(a, b));
        HopByHop { named }
    }

    /// Whether a line with this name is hop-by-hop.
    pub fn contains(&self, name: &[u8], id: HeaderId) -> bool {
        match id {
            HeaderId::Connection
            | HeaderId::KeepAlive
            | HeaderId::ProxyConnection
            | HeaderId::Te
            | HeaderId::TransferEncoding
            | HeaderId::Upgrade => true,
            // Without these the message would mean something else; no sender may have them removed.
            HeaderId::Host | HeaderId::ContentLength => false,
            _ => self.names(name),
        }
    }

    /// Whether `Connection` lists this token.
    pub fn names(&self, token: &[u8]) -> bool {
        let found = self.named.binary_search_by(|named| compare(named, token));
        found.is_ok()
    }
}

/// Compares by length, then without regard to case.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let lower = u8::to_ascii_lowercase;
    let by_bytes = || a.iter().map(lower).cmp(b.iter().map(lower));
    a.len().cmp(&b.len()).then_with(by_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestHead;

    fn left(fields: &[(&str, &str)]) -> Vec<String> {
        let head = RequestHead::of_fields(fields);
        let hop_by_hop = HopByHop::new(head.get_each(HeaderId::Connection));
        head.iter()
            .filter(|(name, _, id)| !hop_by_hop.contains(name, *id))
            .map(|(name, _, _)| String::from_utf8_lossy(name).into_owned())
            .collect()
    }

    #[test]
    fn hop_by_hop_lines_are_removed() {
        let fields = [
            ("Host", "a"),
            ("Connection", "close, X-One ,, x-two"),
            ("connection", "HOST, content-length\t, Cookie"),
            ("X-One", "1"),
            ("X-TWO", "2"),
            ("X-Three", "3"),
            ("Content-Length", "0"),
            ("Cookie", "a=b"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Connection", "close"),
            ("TE", "trailers"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
        ];
        assert_eq!(left(&fields), ["Host", "X-Three", "Content-Length"]);
        assert_eq!(left(&[("X-One", "1"), ("Close", "2")]), ["X-One", "Close"]);
    }

    #[test]
    fn tokens_are_found_among_many() {
        let text: String = (0..500).map(|number| format!("X-{number},")).collect();
        let hop_by_hop = HopByHop::new([text.as_bytes(), b"upgrade"]);
        assert!((0..500).all(|number| hop_by_hop.names(format!("x-{number}").as_bytes())));
        assert!(
            hop_by_hop.names(b"Upgrade") && !hop_by_hop.names(b"X-500") && !hop_by_hop.names(b"")
        );
    }
}
