//! The part of an entry between prologue and body: the key's text, Vary, the status line and the header lines.

use super::Entry;
use super::prologue::{PROLOGUE_BYTES, Prologue};
use crate::codec::FieldReader;
use crate::error::EntryFault;
use bytes::Bytes;
use message::field::{Field, Span};
use message::{HeaderId, ResponseFraming, ResponseHead, Version, words};
use std::sync::Arc;

/// Maximum length of a head, room to grow included. (An upstream's head is bounded by `proxy_buffer_size` long before.)
pub(crate) const HEAD_BYTES_MAX: usize = 1 << 20;
/// Maximum number of header lines.
pub(crate) const FIELDS_MAX: usize = 4096;
/// Maximum length of a key's text.
pub(crate) const KEY_TEXT_MAX: usize = 64 << 10;
/// Maximum length of the names in `Vary`. (nginx: 128; a response with more is not stored.)
pub(crate) const VARY_BYTES_MAX: usize = 1024;
/// Maximum length of a status line.
const STATUS_LINE_MAX: usize = 1024;
/// Length that the part before the body does not exceed in most entries.
const FRONT_TYPICAL: usize = 640;

/// Encodes a head, behind free bytes for the prologue.
pub(super) fn encode<'a>(
    key_text: &[u8],
    vary: &[u8],
    status_line: &[u8],
    fields: impl Iterator<Item = (&'a [u8], &'a [u8], HeaderId)>,
) -> Result<Vec<u8>, EntryFault> {
    let mut out = Vec::with_capacity(FRONT_TYPICAL);
    out.resize(PROLOGUE_BYTES, 0);
    put(&mut out, key_text, KEY_TEXT_MAX, "key")?;
    put(&mut out, vary, VARY_BYTES_MAX, "Vary")?;
    put_line(&mut out, status_line, STATUS_LINE_MAX, "status line")?;
    for (index, (name, value, _)) in fields.enumerate() {
        if index == FIELDS_MAX {
            return Err(EntryFault::Unstorable("too many header lines"));
        }
        if name.is_empty() || name.contains(&b':') {
            return Err(EntryFault::Unstorable("name of a header line"));
        }
        put_line(&mut out, name, HEAD_BYTES_MAX, "name of a header line")?;
        put_line(&mut out, value, HEAD_BYTES_MAX, "value of a header line")?;
    }
    if out.len() - PROLOGUE_BYTES > HEAD_BYTES_MAX / 2 {
        return Err(EntryFault::Unstorable("too long a head"));
    }
    Ok(out)
}

fn put(out: &mut Vec<u8>, text: &[u8], max: usize, what: &'static str) -> Result<(), EntryFault> {
    if text.len() > max {
        return Err(EntryFault::Unstorable(what));
    }
    // Every maximum is far below 4 GiB.
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
    Ok(())
}

fn put_line(
    out: &mut Vec<u8>,
    text: &[u8],
    max: usize,
    what: &'static str,
) -> Result<(), EntryFault> {
    if !is_one_line(text) {
        return Err(EntryFault::Unstorable(what));
    }
    put(out, text, max, what)
}

/// May it stand in a header line? (RFC 9110, 5.5: CR, LF and NUL are dangerous wherever they come from.)
fn is_one_line(text: &[u8]) -> bool {
    !words::has_any(text, [0, b'\r', b'\n'])
}

/// Decodes a head. The checksum of `bytes` was verified; lengths are checked all the same.
pub(super) fn decode(bytes: Bytes, prologue: Prologue) -> Result<Entry, EntryFault> {
    const DAMAGED: EntryFault = EntryFault::Damaged("head");
    let mut from = FieldReader::new(&bytes);
    let key_text = take(&mut from, KEY_TEXT_MAX).ok_or(DAMAGED)?;
    let vary = take(&mut from, VARY_BYTES_MAX).ok_or(DAMAGED)?;
    let status_line = take(&mut from, STATUS_LINE_MAX).ok_or(DAMAGED)?;
    let mut fields = Vec::new();
    while !from.is_empty() {
        let name = take(&mut from, HEAD_BYTES_MAX).ok_or(DAMAGED)?;
        let value = take(&mut from, HEAD_BYTES_MAX).ok_or(DAMAGED)?;
        let are_lines = is_one_line(name.of(&bytes)) && is_one_line(value.of(&bytes));
        if fields.len() == FIELDS_MAX || name.is_empty() || !are_lines {
            return Err(DAMAGED);
        }
        let id = HeaderId::find(name.of(&bytes));
        fields.push(Field { name, value, id });
    }
    let part = |span: Span| bytes.slice(span.start as usize..span.end());
    let (key_text, vary) = (part(key_text), part(vary));
    let mut head = ResponseHead::new(bytes);
    head.version = Version::HTTP_11;
    head.status = prologue.status;
    head.status_line = status_line;
    head.framing = ResponseFraming::Length(prologue.body_len);
    fields.into_iter().for_each(|field| head.push(field));
    Ok(Entry {
        prologue,
        vary,
        key_text,
        head: Arc::new(head),
    })
}

fn take(from: &mut FieldReader<'_>, max: usize) -> Option<Span> {
    let len = from.u32()? as usize;
    if len > max {
        return None;
    }
    let start = from.at();
    from.take(len)?;
    Some(Span::new(start, start + len))
}
