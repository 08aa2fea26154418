//! The rule of a purge: what it covers, and how it is written to the journal.

use crate::codec::FieldReader;
use crate::entry::Entry;
use crate::key::Key;
use bytes::Bytes;

/// Maximum length of a prefix or a tag, in bytes.
pub(crate) const RULE_TEXT_MAX: usize = 1024;

/// What a purge covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeRule {
    /// A key, in all its variants.
    Key(Key),
    /// Keys whose text begins with this.
    Prefix(Bytes),
    /// Responses with this tag: a member of `Surrogate-Key` (separated by blanks) or `Cache-Tag` (separated by commas).
    /// Case is ignored.
    Tag(Bytes),
}

impl PurgeRule {
    pub(crate) fn covers(&self, entry: &Entry) -> bool {
        match self {
            Self::Key(key) => entry.main() == *key,
            Self::Prefix(prefix) => entry.key_text().starts_with(prefix),
            Self::Tag(tag) => {
                let lines = entry.head().iter();
                let mut tags = lines.flat_map(|(name, value, _)| tags_of(name, value));
                tags.any(|other| other.eq_ignore_ascii_case(tag))
            }
        }
    }

    fn text(&self) -> &[u8] {
        match self {
            Self::Key(key) => &key.0,
            Self::Prefix(text) | Self::Tag(text) => text,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Key(_) => 0,
            Self::Prefix(_) => 1,
            Self::Tag(_) => 2,
        });
        // At most RULE_TEXT_MAX.
        out.extend_from_slice(&(self.text().len() as u16).to_le_bytes());
        out.extend_from_slice(self.text());
    }

    pub(crate) fn decode(from: &mut FieldReader<'_>) -> Option<Self> {
        let kind = from.u8()?;
        let len = usize::from(from.u16()?);
        let text = from.take(len)?;
        match kind {
            0 => Some(Self::Key(Key(text.try_into().ok()?))),
            _ if len > RULE_TEXT_MAX => None,
            1 => Some(Self::Prefix(Bytes::copy_from_slice(text))),
            2 => Some(Self::Tag(Bytes::copy_from_slice(text))),
            _ => None,
        }
    }
}

/// The tags in a header line, if it is one that has tags.
pub fn tags_of<'a>(name: &[u8], value: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let is_list = name.eq_ignore_ascii_case(b"cache-tag");
    let value = if is_list || name.eq_ignore_ascii_case(b"surrogate-key") {
        value
    } else {
        b""
    };
    let is_end = move |byte: &u8| match is_list {
        true => *byte == b',',
        false => matches!(byte, b' ' | b'\t'),
    };
    value
        .split(is_end)
        .map(<[u8]>::trim_ascii)
        .filter(|tag| !tag.is_empty())
}
