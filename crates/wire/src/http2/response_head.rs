//! Response heads and trailers from header blocks, in the form that HTTP/1's parser gives them (RFC 9113, 8.1 and
//! 8.3.2).
//!
//! Not here: what a 1xx means. Invariant: as for requests, a block is decoded to its end.

use std::sync::Arc;

use bytes::Bytes;
use message::{Field, Header, HeaderId, ResponseFraming, ResponseHead, Span, Version};

use super::Reason;
use super::field_class::{NameKind, Pseudo};
use super::hpack::{BlockLimits, DecodedLine, Decoder, HpackFault};
use super::request_head::{check_connection_field, with_scratch};
use crate::http1::head_buffers::joined;
use crate::http1::request_parser::parse_length;
use crate::http1::request_writer::is_token;
use crate::http1::response_parser::RESPONSE_HEADERS_MAX;

/// Decodes the block of a response's head. `framing` is [`ResponseFraming::Chunked`] if no length is given: the end of
/// the stream ends the body, and nothing else does.
///
/// # Errors
/// The connection must end. The inner error: the response is malformed.
pub fn decode(
    decoder: &mut Decoder,
    block: &[u8],
    limits: &BlockLimits,
) -> Result<Result<Arc<ResponseHead>, Reason>, HpackFault> {
    with_scratch(|scratch| {
        let mut head = ResponseHead::new(Bytes::new());
        head.version = Version::HTTP_2;
        head.framing = ResponseFraming::Chunked;
        let mut fields = decoder.block(block, limits);
        let mut outcome = Ok(());
        let mut left = limits.block_max;
        while let Some(line) = fields.next(&mut scratch.lines)? {
            if outcome.is_ok() {
                outcome =
                    count(&mut left, line).and_then(|()| take(&mut head, &scratch.lines, line));
            }
            if outcome.is_err() {
                scratch.lines.truncate(line.name.start as usize);
            }
        }
        if outcome.is_ok() && head.status == 0 {
            outcome = Err(Reason::PseudoMissing);
        }
        scratch.lines.extend_from_slice(b"\r\n");
        head.bytes = joined(&[&scratch.lines]);
        Ok(outcome.map(|()| Arc::new(head)))
    })
}

/// Counts a line against what is left of [`BlockLimits::block_max`]; with more, nothing is kept.
fn count(left: &mut usize, line: DecodedLine) -> Result<(), Reason> {
    let bytes = (line.name.len + line.value.len) as usize;
    *left = left.checked_sub(bytes).ok_or(Reason::BlockTooLarge)?;
    Ok(())
}

/// Takes a line of a response. The line of `:status` stays in the bytes, but is no field.
fn take(head: &mut ResponseHead, lines: &[u8], line: DecodedLine) -> Result<(), Reason> {
    let value = line.value.of(lines);
    if !line.is_value_valid {
        return Err(Reason::FieldValue);
    }
    let id = match line.kind {
        NameKind::Pseudo(Pseudo::Status) if head.status != 0 => {
            return Err(Reason::PseudoDuplicate);
        }
        NameKind::Pseudo(Pseudo::Status) => {
            head.status = status(value)?;
            return Ok(());
        }
        NameKind::Pseudo(_) | NameKind::PseudoUnknown => return Err(Reason::PseudoUnknown),
        NameKind::Invalid => return Err(Reason::FieldName),
        _ if head.status == 0 => return Err(Reason::PseudoMissing),
        NameKind::Plain(id) => id,
        NameKind::Underscored | NameKind::Odd if is_token(line.name.of(lines)) => HeaderId::Other,
        NameKind::Underscored | NameKind::Odd => return Ok(()),
    };
    if head.fields.len() == RESPONSE_HEADERS_MAX {
        return Err(Reason::FieldCount);
    }
    let is_first = head.known & id.bit() == 0;
    match id {
        HeaderId::ContentLength if !head.is_interim() => {
            if !is_first {
                return Err(Reason::FieldDuplicate);
            }
            let length = parse_length(value).ok_or(Reason::ContentLength)?;
            head.framing = ResponseFraming::Length(length);
        }
        id => check_connection_field(id, value, is_first)?,
    }
    head.push(Field {
        name: line.name,
        value: line.value,
        id,
    });
    Ok(())
}

/// Three digits; 101 does not exist (RFC 9113, 8.6).
fn status(value: &[u8]) -> Result<u16, Reason> {
    let [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = value else {
        return Err(Reason::Status);
    };
    let digit = |c: &u8| u16::from(c - b'0');
    match 100 * digit(a) + 10 * digit(b) + digit(c) {
        101 => Err(Reason::Status),
        status => Ok(status),
    }
}

/// Decodes the block of trailers; the names are in lower case. A name that is no token is dropped, as in HTTP/1.
///
/// # Errors
/// The connection must end. The inner error: the message is malformed.
pub fn decode_trailers(
    decoder: &mut Decoder,
    block: &[u8],
    limits: &BlockLimits,
) -> Result<Result<Vec<Header>, Reason>, HpackFault> {
    with_scratch(|scratch| {
        let mut spans: Vec<(Span, Span)> = Vec::new();
        let mut fields = decoder.block(block, limits);
        let mut outcome = Ok(());
        let mut left = limits.block_max;
        while let Some(line) = fields.next(&mut scratch.lines)? {
            let counted = count(&mut left, line);
            match counted.and_then(|()| check_trailer(line, &scratch.lines)) {
                Ok(true) if outcome.is_ok() => spans.push((line.name, line.value)),
                Ok(_) => scratch.lines.truncate(line.name.start as usize),
                Err(reason) => {
                    outcome = outcome.and(Err(reason));
                    scratch.lines.truncate(line.name.start as usize);
                }
            }
        }
        let bytes = joined(&[&scratch.lines]);
        let part = |span: Span| bytes.slice(span.start as usize..span.end());
        let header = |(name, value)| Header {
            name: part(name),
            value: part(value),
        };
        Ok(outcome.map(|()| spans.into_iter().map(header).collect()))
    })
}

/// Whether a trailer is kept.
fn check_trailer(line: DecodedLine, lines: &[u8]) -> Result<bool, Reason> {
    match line.kind {
        _ if !line.is_value_valid => Err(Reason::FieldValue),
        NameKind::Pseudo(_) | NameKind::PseudoUnknown => Err(Reason::PseudoOrder),
        NameKind::Invalid => Err(Reason::FieldName),
        NameKind::Plain(id) => {
            check_connection_field(id, line.value.of(lines), true).map(|()| true)
        }
        NameKind::Underscored | NameKind::Odd => Ok(is_token(line.name.of(lines))),
    }
}
