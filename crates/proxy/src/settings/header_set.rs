//! Sets of header names: those that are hidden, and those that a location sends itself.
//!
//! Invariant: names are compared without case.

use bytes::Bytes;
use message::HeaderId;

/// Header lines of which only the first one counts.
pub(crate) const SINGLE_LINES: u64 = HeaderId::ContentType.bit()
    | HeaderId::Date.bit()
    | HeaderId::LastModified.bit()
    | HeaderId::ETag.bit()
    | HeaderId::Server.bit()
    | HeaderId::Status.bit()
    | HeaderId::Location.bit()
    | HeaderId::Refresh.bit()
    | HeaderId::Expires.bit()
    | HeaderId::XAccelExpires.bit()
    | HeaderId::XAccelLimitRate.bit()
    | HeaderId::XAccelRedirect.bit();

/// A set of header names.
#[derive(Debug, Clone, Default)]
pub struct HeaderSet {
    /// The well-known ones, by [`HeaderId::bit`].
    known: u64,
    others: Vec<Bytes>,
}

impl HeaderSet {
    /// A set of these well-known names.
    #[must_use]
    pub fn of(ids: &[HeaderId]) -> HeaderSet {
        HeaderSet {
            known: ids.iter().fold(0, |bits, id| bits | id.bit()),
            others: Vec::new(),
        }
    }

    /// Adds a name.
    pub fn add(&mut self, name: &Bytes) {
        match HeaderId::find(name) {
            HeaderId::Other if self.has(name, HeaderId::Other) => {}
            HeaderId::Other => self.others.push(name.clone()),
            id => self.known |= id.bit(),
        }
    }

    /// Removes a name.
    pub fn remove(&mut self, name: &[u8]) {
        match HeaderId::find(name) {
            HeaderId::Other => self
                .others
                .retain(|other| !other.eq_ignore_ascii_case(name)),
            id => self.known &= !id.bit(),
        }
    }

    /// Whether this name, with that id, is in it.
    #[must_use]
    pub fn has(&self, name: &[u8], id: HeaderId) -> bool {
        match id {
            HeaderId::Other => self
                .others
                .iter()
                .any(|other| other.eq_ignore_ascii_case(name)),
            id => self.known & id.bit() != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_case() {
        let mut names = HeaderSet::of(&[HeaderId::Date, HeaderId::Server]);
        names.add(&Bytes::from_static(b"X-one"));
        names.add(&Bytes::from_static(b"X-ONE"));
        names.remove(b"date");
        let has = |name: &str| names.has(name.as_bytes(), HeaderId::find(name.as_bytes()));
        assert!(has("server") && has("x-One") && !has("Date") && !has("X-two"));
        names.remove(b"x-ONE");
        assert!(!names.has(b"X-one", HeaderId::Other));
    }
}
