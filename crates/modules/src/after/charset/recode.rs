//! Recodes texts piece by piece: by a table of bytes, to UTF-8 and from it. Not here: the choice of the table (`maps`).

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;

/// Maximum bytes of a UTF-8 character in a `charset_map`: up to U+FFFF.
pub(super) const UTF8_MAX: usize = 3;

/// Maximum bytes that may be missing of a character: the longest has four.
const SEQUENCE_MAX: usize = 4;

/// The characters of 256 bytes in UTF-8.
pub(super) type Utf8Table = [Box<[u8]>; 256];

/// The bytes of the characters up to U+FFFF, by their upper byte; 0: none.
pub(super) type ByteTable = [Option<Box<[u8; 256]>>; 256];

/// A conversion from one charset to another.
#[derive(Debug, Clone)]
pub enum Way {
    /// Byte by byte: the text keeps its length.
    Bytes(Arc<[u8; 256]>),
    /// To UTF-8.
    ToUtf8(Arc<Utf8Table>),
    /// From UTF-8.
    FromUtf8(Arc<ByteTable>),
}

/// The recoding of one text.
#[derive(Debug)]
pub(super) struct Recoder {
    way: Way,
    /// The beginning of a character that is not complete yet.
    begun: Vec<u8>,
}

impl Recoder {
    /// Begins recoding a text by this conversion.
    #[must_use]
    pub(super) fn new(way: Way) -> Self {
        Self {
            way,
            begun: Vec::new(),
        }
    }

    /// The next piece of the text, recoded. A character that is still incomplete at the end of the text is lost, as in
    /// nginx.
    #[must_use]
    pub(super) fn recode(&mut self, piece: Bytes) -> Bytes {
        match &self.way {
            Way::Bytes(table) => by_table(piece, table),
            Way::ToUtf8(table) => to_utf8(piece, table),
            Way::FromUtf8(table) => from_utf8(piece, table, &mut self.begun),
        }
    }
}

fn by_table(piece: Bytes, table: &[u8; 256]) -> Bytes {
    if piece.iter().all(|byte| table[usize::from(*byte)] == *byte) {
        return piece;
    }
    let recoded: Vec<u8> = piece.iter().map(|byte| table[usize::from(*byte)]).collect();
    recoded.into()
}

fn to_utf8(piece: Bytes, table: &Utf8Table) -> Bytes {
    let Some(first) = piece
        .iter()
        .position(|byte| *byte >= 0x80 || !is_same(*byte, table))
    else {
        return piece;
    };
    let mut out = Vec::with_capacity(piece.len() + (piece.len() - first) / 2 + SEQUENCE_MAX);
    out.extend_from_slice(&piece[..first]);
    for byte in &piece[first..] {
        out.extend_from_slice(&table[usize::from(*byte)]);
    }
    out.into()
}

fn is_same(byte: u8, table: &Utf8Table) -> bool {
    *table[usize::from(byte)] == [byte]
}

fn from_utf8(piece: Bytes, table: &ByteTable, begun: &mut Vec<u8>) -> Bytes {
    if begun.is_empty() && piece.is_ascii() {
        return piece;
    }
    let mut out = Vec::with_capacity(piece.len() + SEQUENCE_MAX);
    let mut rest = &piece[..];
    // Terminates: each turn takes a byte of what has begun, or returns.
    while !begun.is_empty() {
        let had = begun.len();
        let more = (SEQUENCE_MAX - had).min(rest.len());
        begun.extend_from_slice(&rest[..more]);
        let (decoded, used) = decode(begun);
        if matches!(decoded, Decoded::Incomplete) {
            return out.into();
        }
        match begun[0].is_ascii() {
            true => out.push(begun[0]),
            false => write(&decoded, table, &mut out),
        }
        rest = &rest[used.saturating_sub(had)..];
        // Those behind a wrong sequence are looked at again.
        begun.truncate(had);
        begun.drain(..used.min(had));
    }
    while let Some(first) = rest.first() {
        if first.is_ascii() {
            out.push(*first);
            rest = &rest[1..];
            continue;
        }
        let (decoded, used) = decode(rest);
        if matches!(decoded, Decoded::Incomplete) {
            begun.extend_from_slice(rest);
            break;
        }
        write(&decoded, table, &mut out);
        rest = &rest[used..];
    }
    out.into()
}

/// The beginning of a text, decoded.
#[derive(Debug, PartialEq, Eq)]
enum Decoded {
    Character(u32),
    Invalid,
    Incomplete,
}

/// Decodes the first character as nginx does, which also takes in a byte that does not continue it.
fn decode(text: &[u8]) -> (Decoded, usize) {
    let (first, least, more) = match text[0] {
        byte @ 0xf0..=0xf7 => (byte & 0x07, 0x1_0000, 3),
        byte @ 0xe0..=0xef => (byte & 0x0f, 0x800, 2),
        byte @ 0xc2..=0xdf => (byte & 0x1f, 0x80, 1),
        _ => return (Decoded::Invalid, 1),
    };
    if text.len() <= more {
        return (Decoded::Incomplete, 0);
    }
    let mut character = u32::from(first);
    for (at, byte) in text.iter().enumerate().take(more + 1).skip(1) {
        if byte.is_ascii() {
            return (Decoded::Invalid, at + 1);
        }
        character = (character << 6) | u32::from(byte & 0x3f);
    }
    if character < least || character > 0x10_ffff {
        return (Decoded::Invalid, more + 1);
    }
    (Decoded::Character(character), more + 1)
}

/// Writes a character: as its byte, else as an entity.
fn write(decoded: &Decoded, table: &ByteTable, out: &mut Vec<u8>) {
    let Decoded::Character(character) = *decoded else {
        out.push(b'?');
        return;
    };
    let page = usize::try_from(character >> 8).ok();
    let page = page.and_then(|page| table.get(page)?.as_ref());
    match page.map_or(0, |page| page[(character & 0xff) as usize]) {
        0 => {
            // Writing to memory cannot fail.
            let _ = write!(out, "&#{character};");
        }
        byte => out.push(byte),
    }
}

/// The character that a text in UTF-8 is, as far as a `charset_map` may have it: none of ASCII.
#[must_use]
pub(super) fn character(text: &[u8]) -> Option<u16> {
    match (!text.is_empty()).then(|| decode(text).0) {
        Some(Decoded::Character(character)) => u16::try_from(character).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> (Arc<Utf8Table>, Arc<ByteTable>) {
        let mut to: Utf8Table = std::array::from_fn(|byte| match byte {
            0..128 => Box::from([byte as u8]),
            _ => Box::from(*b"?"),
        });
        let mut from: ByteTable = std::array::from_fn(|_| None);
        for (byte, text) in [(0xc1, "а"), (0xc2, "б"), (0x80, "€")] {
            to[byte] = text.as_bytes().into();
            let character = character(text.as_bytes()).unwrap();
            let page = from[usize::from(character >> 8)].get_or_insert_with(|| Box::new([0; 256]));
            page[usize::from(character & 0xff)] = byte as u8;
        }
        (Arc::new(to), Arc::new(from))
    }

    fn recoded(way: Way, pieces: &[&[u8]]) -> Vec<u8> {
        let mut recoder = Recoder::new(way);
        let pieces = pieces.iter();
        pieces
            .flat_map(|piece| recoder.recode(Bytes::copy_from_slice(piece)))
            .collect()
    }

    #[test]
    fn bytes() {
        let mut table: [u8; 256] = std::array::from_fn(|byte| byte as u8);
        table[b'X' as usize] = b'Y';
        let way = Way::Bytes(Arc::new(table));
        assert_eq!(recoded(way.clone(), &[b"aXb", b"X"]), b"aYbY");
        let piece = Bytes::from_static(b"as it is");
        let same = Recoder::new(way).recode(piece.clone());
        assert_eq!(same.as_ptr(), piece.as_ptr());
    }

    #[test]
    fn to_utf_8() {
        let way = Way::ToUtf8(tables().0);
        let recoded = recoded(way, &[b"abc", b"a\xc1\xc2\x80\xff"]);
        assert_eq!(recoded, "abcaаб€?".as_bytes());
    }

    #[test]
    fn from_utf_8_whatever_the_pieces() {
        let way = Way::FromUtf8(tables().1);
        let text = "xаб€–😀y".as_bytes();
        let expected = b"x\xc1\xc2\x80&#8211;&#128512;y";
        for size in 1..=text.len() {
            let pieces: Vec<&[u8]> = text.chunks(size).collect();
            assert_eq!(recoded(way.clone(), &pieces), expected, "{size}");
        }
    }

    #[test]
    fn what_is_no_utf_8() {
        let way = Way::FromUtf8(tables().1);
        let from = |pieces: &[&[u8]]| recoded(way.clone(), pieces);
        assert_eq!(from(&[b"a\xffb\x80c"]), b"a?b?c");
        // The byte that should have continued it is a part of it.
        assert_eq!(from(&[b"\xd0ab"]), b"?b");
        // Too long for what it is, and beyond the last character.
        assert_eq!(from(&[b"\xe0\x80\x80-\xf7\xbf\xbf\xbf-"]), b"?-?-");
        // Incomplete at the end.
        assert_eq!(from(&[b"a\xd0"]), b"a");
        assert_eq!(from(&[b"a\xd0", b"xb"]), b"a?b");
        // A wrong one on the border of two pieces takes no more than in one.
        for text in [
            &b"M\xf6bel"[..],
            b"\xf0a\xd0\xb1xy",
            b"\xf0\xd0a\xd0\xb1x",
            b"\xf6\xf6ab\xf6abcd",
        ] {
            let whole = from(&[text]);
            for size in 1..text.len() {
                let pieces: Vec<&[u8]> = text.chunks(size).collect();
                assert_eq!(from(&pieces), whole, "{size}: {text:?}");
            }
        }
    }

    #[test]
    fn characters() {
        assert_eq!(character(b"a"), None);
        assert_eq!(character("€".as_bytes()), Some(0x20ac));
        assert_eq!(character("😀".as_bytes()), None);
        assert_eq!(character(b""), None);
        assert_eq!(character(b"\xe2\x82"), None);
        assert_eq!(character(b"\xff"), None);
    }
}
