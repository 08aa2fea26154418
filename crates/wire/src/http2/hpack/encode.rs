//! Encodes header fields: names by the static table, values as literals, nothing in the dynamic table (as nginx).
//!
//! An encoded field therefore means the same in every block of every connection: lines that do not change (`server`,
//! the date of a second) can be kept encoded. Strings are in Huffman's code where that is shorter, as in nginx: it takes
//! a quarter off a head and costs about 2 ns a byte. Invariant: names are written in lower case.

use super::{huffman, integer, static_table};

/// The pattern of a literal without indexing (RFC 7541, 6.2.2).
const WITHOUT_INDEXING: u8 = 0x00;
/// The pattern of a literal that no one may index (RFC 7541, 6.2.3).
const NEVER_INDEXED: u8 = 0x10;
/// The encoded fields that are secrets (RFC 7541, 7.1.3): `authorization`, `cookie`, `proxy-authorization`, by their
/// static index. (Of `set-cookie` nginx does not say so, either.)
const SECRETS: [usize; 3] = [23, 32, 49];
/// The static index of `:status: 200`; `name` of all others.
const STATUS: usize = 8;

/// The encoder of a connection.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Whether the next block must say that the table is empty.
    must_update: bool,
}

impl Encoder {
    /// Notes a SETTINGS_HEADER_TABLE_SIZE of the peer: it wants an answer in the next block (RFC 7541, 4.2).
    pub fn note_table_size(&mut self) {
        self.must_update = true;
    }

    /// Begins a block.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.must_update) {
            out.push(0x20);
        }
    }
}

/// Appends `:status`.
#[inline]
pub fn status(out: &mut Vec<u8>, status: u16) {
    let index = match status {
        200 => STATUS,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            let digit = |value: u16| b'0' + (value % 10) as u8;
            let digits = [digit(status / 100), digit(status / 10), digit(status)];
            return indexed_name(out, STATUS, &digits);
        }
    };
    out.push(0x80 | index as u8);
}

/// Appends a field that the static table has with its value.
#[inline]
pub fn indexed(out: &mut Vec<u8>, index: usize) {
    integer::encode(out, 0x80, 7, index);
}

/// Appends a field whose name has this static index.
#[inline]
pub fn indexed_name(out: &mut Vec<u8>, index: usize, value: &[u8]) {
    let pattern = match SECRETS.contains(&index) {
        true => NEVER_INDEXED,
        false => WITHOUT_INDEXING,
    };
    integer::encode(out, pattern, 4, index);
    string(out, value);
}

/// Appends a field; the name may be in any case.
#[inline]
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match static_table::find(name) {
        Some(index) => indexed_name(out, index, value),
        None => {
            out.push(WITHOUT_INDEXING);
            lower_case(out, name);
            string(out, value);
        }
    }
}

/// Appends a name as a string.
fn lower_case(out: &mut Vec<u8>, name: &[u8]) {
    /// Maximum length in bytes of a name that is copied on the stack.
    const SHORT: usize = 64;
    if !name.iter().any(u8::is_ascii_uppercase) {
        return string(out, name);
    }
    let mut copy = [0; SHORT];
    match copy.get_mut(..name.len()) {
        Some(copy) => {
            copy.copy_from_slice(name);
            copy.make_ascii_lowercase();
            string(out, copy);
        }
        None => string(out, &name.to_ascii_lowercase()),
    }
}

/// Appends a string (RFC 7541, 5.2), in Huffman's code if that is shorter.
#[inline]
pub fn string(out: &mut Vec<u8>, text: &[u8]) {
    let len = huffman::encoded_len(text);
    if len < text.len() {
        integer::encode(out, 0x80, 7, len);
        huffman::encode(text, out);
    } else {
        integer::encode(out, 0, 7, text.len());
        out.extend_from_slice(text);
    }
}
