//! A response head as an upstream sent it: the bytes, stored once, and the spans of its parts in them.
//!
//! Made by `wire::http1::response_parser`. The proxy decides what of it reaches the client, and makes a
//! [`crate::Response`].

use bytes::Bytes;
use smallvec::SmallVec;

use crate::field::{Field, HeaderId, Span};
use crate::head::{FIELDS_INLINE, Version};

/// How the end of a response body is found, as far as the head says (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseFraming {
    /// When the connection is closed.
    #[default]
    UntilClose,
    /// This number of bytes.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
}

/// A response's head. All positions are spans into `bytes`.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// The head as received, including the empty line.
    pub bytes: Bytes,
    /// The version that the upstream speaks.
    pub version: Version,
    /// The status code.
    pub status: u16,
    /// Code and reason phrase, `404 Not Found`.
    pub status_line: Span,
    /// The header lines, in order.
    pub fields: SmallVec<[Field; FIELDS_INLINE]>,
    /// The well-known names that occur in `fields`, as a set of `HeaderId::bit`.
    pub known: u64,
    /// Whether the upstream closes the connection after this response, by its version or by `Connection`.
    pub is_last: bool,
    /// How the body ends; meaningless for responses to HEAD, and for 1xx, 204 and 304.
    pub framing: ResponseFraming,
}

impl Default for ResponseHead {
    /// A head without bytes, of which nothing has been parsed yet.
    fn default() -> ResponseHead {
        ResponseHead {
            bytes: Bytes::new(),
            version: Version::HTTP_09,
            status: 0,
            status_line: Span::default(),
            fields: SmallVec::new(),
            known: 0,
            is_last: false,
            framing: ResponseFraming::UntilClose,
        }
    }
}

impl ResponseHead {
    /// Returns a head with these bytes, of which nothing has been parsed yet.
    pub fn new(bytes: Bytes) -> ResponseHead {
        ResponseHead {
            bytes,
            ..ResponseHead::default()
        }
    }

    /// Whether it is a 1xx that another head follows. Not so 101: what follows it is no longer HTTP.
    pub fn is_interim(&self) -> bool {
        matches!(self.status, 100 | 102..=199)
    }

    /// The bytes of a span, not copied.
    pub fn part(&self, span: Span) -> Bytes {
        self.bytes.slice(span.start as usize..span.end())
    }

    /// The value of the first line of a well-known name.
    pub fn get(&self, id: HeaderId) -> Option<&[u8]> {
        self.get_each(id).next()
    }

    /// The values of every line of a well-known name.
    pub fn get_each(&self, id: HeaderId) -> impl Iterator<Item = &[u8]> {
        let fields: &[Field] = if self.known & id.bit() == 0 {
            &[]
        } else {
            &self.fields
        };
        fields
            .iter()
            .filter(move |field| field.id == id)
            .map(|field| field.value.of(&self.bytes))
    }

    /// The values of every line with this name, in any case.
    pub fn get_all<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let is_wanted = move |field: &&Field| field.name.of(&self.bytes).eq_ignore_ascii_case(name);
        self.fields
            .iter()
            .filter(is_wanted)
            .map(|field| field.value.of(&self.bytes))
    }

    /// Name, value and id of every line.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], HeaderId)> + Clone {
        self.fields.iter().map(|field| {
            (
                field.name.of(&self.bytes),
                field.value.of(&self.bytes),
                field.id,
            )
        })
    }

    /// Appends a line whose spans lie in `bytes`.
    pub fn push(&mut self, field: Field) {
        self.known |= field.id.bit();
        self.fields.push(field);
    }
}
