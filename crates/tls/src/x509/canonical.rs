//! Names of subjects and issuers as they are compared (RFC 5280, 7.1): as what they say and not by their bytes.
//!
//! An authority's name may stand in its own certificate as a PrintableString and in one that it issued as an UTF8String,
//! or with other capitals or blanks. The form is OpenSSL's: texts of any type in UTF-8, ASCII letters small, blanks at
//! the ends gone and others single. Not here: names in hashes and lists for clients, which are bytes.
//! Invariant: no name has the form of one that OpenSSL tells apart from it; what cannot be read stays as it is.

use crate::x509::der::{self, Reader};
use crate::x509::distinguished::characters;

/// The types of texts that are compared by their characters: UTF-8, printable, T61, IA5, visible, universal, BMP.
const TEXTS: [u8; 7] = [12, 19, 20, 22, 26, 28, 30];
const UTF8_STRING: u8 = 12;

/// A name in the form in which it is compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CanonicalName(Vec<u8>);

impl CanonicalName {
    /// Of a whole SEQUENCE.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        let Some(contents) = der::only(name, der::SEQUENCE) else {
            return Self(name.to_vec());
        };
        let mut form = Vec::with_capacity(contents.len());
        let (mut names, mut rest) = (Reader::new(contents), contents);
        while let Some(relative) = names.next() {
            rest = &rest[relative.whole.len()..];
            match pairs(&relative) {
                Some(pairs) => form.extend(der::value(der::SET, &pairs.concat())),
                None => form.extend_from_slice(relative.whole),
            }
        }
        form.extend_from_slice(rest);
        Self(form)
    }

    /// Whether the name begins with all relative names of the base.
    #[must_use]
    pub fn is_below(&self, base: &Self) -> bool {
        self.0.starts_with(&base.0)
    }
}

/// Whether two names, whole SEQUENCEs, say the same.
#[must_use]
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    one == other || CanonicalName::of(one) == CanonicalName::of(other)
}

/// The attributes of a relative name in the order of a set (X.690, 11.6); `None` if it cannot be read.
fn pairs(relative: &der::Value<'_>) -> Option<Vec<Vec<u8>>> {
    let mut set = Reader::new(der::only(relative.whole, der::SET)?);
    let mut pairs = Vec::new();
    while !set.is_empty() {
        let mut pair = set.enter(der::SEQUENCE)?;
        let (oid, value) = (pair.expect_value(der::OID)?, pair.next()?);
        pair.is_empty().then_some(())?;
        pairs.push(match text(&value) {
            Some(text) => {
                let value = der::value(UTF8_STRING, &text);
                der::values(der::SEQUENCE, &[oid.whole, &value])
            }
            None => der::values(der::SEQUENCE, &[oid.whole, value.whole]),
        });
    }
    pairs.sort_unstable();
    Some(pairs)
}

/// A text's characters in UTF-8, small, with single blanks between words; `None` if the value is no text.
fn text(value: &der::Value<'_>) -> Option<Vec<u8>> {
    if !TEXTS.contains(&value.tag) {
        return None;
    }
    let characters = characters(value)?;
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let words = characters.split(is_blank).filter(|word| !word.is_empty());
    let mut text = words.collect::<Vec<_>>().join(&b' ');
    text.make_ascii_lowercase();
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON_NAME: &[u8] = &[0x55, 4, 3];
    const UNIT: &[u8] = &[0x55, 4, 11];

    /// A relative name with one attribute.
    fn relative(pairs: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
        let pair = |(oid, tag, text): &(&[u8], u8, &[u8])| {
            der::values(
                der::SEQUENCE,
                &[&der::value(der::OID, oid), &der::value(*tag, text)],
            )
        };
        let pairs: Vec<_> = pairs.iter().map(pair).collect();
        der::value(der::SET, &pairs.concat())
    }

    fn name(tag: u8, text: &[u8]) -> Vec<u8> {
        der::value(der::SEQUENCE, &relative(&[(COMMON_NAME, tag, text)]))
    }

    #[test]
    fn texts_are_compared_by_what_they_say() {
        let own = name(19, b"Example CA");
        for (tag, text) in [
            (12, &b"Example CA"[..]),
            (22, b"EXAMPLE ca"),
            (20, b"  example \t  CA\n"),
            (30, b"\0E\0x\0a\0m\0p\0l\0e\0 \0C\0A"),
        ] {
            assert!(is_same(&own, &name(tag, text)), "{tag}");
        }
        for (tag, text) in [
            (12, &b"ExampleCA"[..]),
            (12, b"Example CB"),
            (18, b"Example CA"),
            (4, b"Example CA"),
        ] {
            assert!(!is_same(&own, &name(tag, text)), "{tag}");
        }
        // Other letters than those of ASCII have a size; Latin-1 of a T61String has their codes.
        assert!(!is_same(
            &name(12, "É".as_bytes()),
            &name(12, "é".as_bytes())
        ));
        assert!(is_same(&name(12, "é".as_bytes()), &name(20, b"\xe9")));
    }

    #[test]
    fn attributes_of_a_relative_name_are_a_set() {
        let (one, other) = ((COMMON_NAME, 12, &b"a"[..]), (UNIT, 12, &b"b"[..]));
        let whole = |sets: &[Vec<u8>]| der::value(der::SEQUENCE, &sets.concat());
        let both = whole(&[relative(&[one, other])]);
        assert!(is_same(&both, &whole(&[relative(&[other, one])])));
        let apart = whole(&[relative(&[one]), relative(&[other])]);
        assert!(!is_same(&both, &apart));
        assert!(!is_same(
            &apart,
            &whole(&[relative(&[other]), relative(&[one])])
        ));
    }

    #[test]
    fn what_cannot_be_read_stays_as_it_is() {
        let mut broken = name(12, b"A");
        let last = broken.len() - 1;
        broken[last] = 0xff;
        assert!(is_same(&broken, &broken.clone()));
        assert!(!is_same(&broken, &name(20, b"\xff")));
        // What stands before it is compared all the same.
        let (readable, rest) = (relative(&[(COMMON_NAME, 12, b"A")]), [5, 0, 0x31, 9]);
        let long = der::values(der::SEQUENCE, &[&readable, &rest]);
        assert!(CanonicalName::of(&long).is_below(&CanonicalName::of(&name(19, b"a"))));
        assert!(!CanonicalName::of(&long).is_below(&CanonicalName::of(&name(19, b"b"))));
        assert!(is_same(b"\x30\x05", b"\x30\x05") && !is_same(b"\x30\x05", b""));
    }
}
