//! `charset_map`: the tables from one charset to another, and the charsets that a configuration names.

use std::sync::Arc;

use bytes::Bytes;
use config::{Directive, Error, Problem, blocks};

use super::recode::{ByteTable, UTF8_MAX, Utf8Table, Way, character};

blocks! {
    /// Charsets of responses.
    pub fn lines in Http {
        /// Maps the bytes of one charset to those of another: each line has a byte of the first and, also in
        /// hexadecimal digits, the byte of the second, or its bytes in UTF-8 if the second is `utf-8`.
        "charset_map": [HTTP] 2 => LINES, syntax "charset1 charset2";
    }
}

/// Maximum maps of one configuration.
pub const MAPS_MAX: usize = 1024;

/// The charset whose characters may have more than one byte.
const UTF_8: &[u8] = b"utf-8";

slots::slotted!(config::made::WHOLE: Charsets);

/// The charsets that a configuration names, and the conversions between them.
#[derive(Debug, Default)]
pub struct Charsets {
    maps: Vec<Map>,
    /// The names as first written.
    names: Vec<Bytes>,
}

#[derive(Debug)]
struct Map {
    source: Bytes,
    target: Bytes,
    there: Way,
    back: Way,
}

impl Map {
    fn is_between(&self, source: &[u8], target: &[u8]) -> bool {
        self.source.eq_ignore_ascii_case(source) && self.target.eq_ignore_ascii_case(target)
    }
}

impl Charsets {
    /// Reads a `charset_map` block.
    ///
    /// # Errors
    /// The fault in the block, at its place.
    pub fn read(&mut self, block: &Directive) -> Result<(), Error> {
        let [source, target] = &block.args[..] else {
            return Err(block.error(&Problem::argument_count("charset_map")));
        };
        let fail = |sentence: String| Err(block.error(&Problem::new(sentence)));
        let names = format!("\"{}\" and \"{}\"", source.display(), target.display());
        if source.bytes().eq_ignore_ascii_case(target.bytes()) {
            return fail(format!("\"charset_map\" between the same charsets {names}"));
        }
        if source.bytes().eq_ignore_ascii_case(UTF_8) {
            return fail(
                "\"charset_map\" with \"utf-8\" charset should be given in the second column"
                    .into(),
            );
        }
        let (source, target) = (source.bytes().clone(), target.bytes().clone());
        let is_known =
            |map: &Map| map.is_between(&source, &target) || map.is_between(&target, &source);
        if self.maps.iter().any(is_known) {
            return fail(format!("duplicate \"charset_map\" between {names}"));
        }
        if self.maps.len() == MAPS_MAX {
            return fail(format!("more than {MAPS_MAX} of \"charset_map\""));
        }
        let (there, back) = match target.eq_ignore_ascii_case(UTF_8) {
            true => read_utf8(block)?,
            false => read_bytes(block)?,
        };
        self.add(&source);
        self.add(&target);
        self.maps.push(Map {
            source,
            target,
            there,
            back,
        });
        Ok(())
    }

    /// Registers a charset that a location names.
    pub fn add(&mut self, name: &Bytes) {
        if !self.knows(name) {
            self.names.push(name.clone());
        }
    }

    /// Whether there is any.
    #[must_use]
    pub fn is_any(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether the configuration names it.
    #[must_use]
    pub fn knows(&self, name: &[u8]) -> bool {
        self.name(name).is_some()
    }

    /// A charset's name as first written in the configuration.
    #[must_use]
    pub fn name(&self, name: &[u8]) -> Option<&Bytes> {
        let mut names = self.names.iter();
        names.find(|known| known.eq_ignore_ascii_case(name))
    }

    /// The conversion from one charset to another one.
    #[must_use]
    pub fn way(&self, from: &[u8], to: &[u8]) -> Option<&Way> {
        self.maps.iter().find_map(|map| {
            if map.is_between(from, to) {
                Some(&map.there)
            } else {
                map.is_between(to, from).then_some(&map.back)
            }
        })
    }
}

/// The lines of a map from bytes to bytes.
fn read_bytes(block: &Directive) -> Result<(Way, Way), Error> {
    let same =
        || -> [u8; 256] { std::array::from_fn(|byte| if byte < 128 { byte as u8 } else { b'?' }) };
    let (mut there, mut back) = (same(), same());
    for line in block.children() {
        let (from, value) = line_of(line)?;
        let to = hex(value).ok_or_else(|| invalid(line, value))?;
        there[usize::from(from)] = to;
        back[usize::from(to)] = from;
    }
    Ok((Way::Bytes(Arc::new(there)), Way::Bytes(Arc::new(back))))
}

/// The lines of a map from bytes to UTF-8.
fn read_utf8(block: &Directive) -> Result<(Way, Way), Error> {
    let mut there: Utf8Table = std::array::from_fn(|byte| match byte {
        0..128 => Box::from([byte as u8]),
        _ => Box::from(*b"?"),
    });
    let mut back: ByteTable = std::array::from_fn(|_| None);
    let ascii = std::array::from_fn(|byte| if byte < 128 { byte as u8 } else { 0 });
    back[0] = Some(Box::new(ascii));
    for line in block.children() {
        let (from, value) = line_of(line)?;
        let text: Option<Box<[u8]>> = value.chunks(2).map(hex).collect();
        let text = text.filter(|text| text.len() <= UTF8_MAX && value.len() % 2 == 0);
        let found = text.and_then(|text| Some((character(&text)?, text)));
        let (character, text) = found.ok_or_else(|| invalid(line, value))?;
        there[usize::from(from)] = text;
        let page = back[usize::from(character >> 8)].get_or_insert_with(|| Box::new([0; 256]));
        page[usize::from(character & 0xff)] = from;
    }
    Ok((Way::ToUtf8(Arc::new(there)), Way::FromUtf8(Arc::new(back))))
}

/// The byte of a line, and its replacement.
fn line_of(line: &Directive) -> Result<(u8, &[u8]), Error> {
    let [value] = &line.args[..] else {
        return Err(line.error(&Problem::new("invalid parameters number")));
    };
    let name = &line.name.bytes()[..];
    let from = hex(name).ok_or_else(|| invalid(line, name))?;
    Ok((from, value.bytes()))
}

fn invalid(line: &Directive, value: &[u8]) -> Error {
    let value = String::from_utf8_lossy(value);
    line.error(&Problem::new(format!("invalid value \"{value}\"")))
}

/// A byte in hexadecimal digits.
fn hex(text: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(text).ok()?;
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_bytes() {
        assert_eq!(hex(b"c1"), Some(0xc1));
        assert_eq!(hex(b"0C1"), Some(0xc1));
        for bad in [&b""[..], b"100", b"g1", b"+1", b"\xff"] {
            assert_eq!(hex(bad), None);
        }
    }
}
