//! The lines behind a body's last chunk (RFC 9112, 7.1.2), byte by byte.

use bytes::Bytes;
use message::{Field, Header};

use super::body_decoder::BodyFault;
use super::header_line;

/// Maximum size of all trailers in bytes.
pub(super) const TRAILERS_MAX: usize = 16 * 1024;
/// Maximum size in bytes of all lines after the last chunk, including those that are dropped, so that they must end.
pub(super) const TRAILERS_READ_MAX: u32 = 256 * 1024;

/// The trailers of a body as far as they were received.
#[derive(Clone, Debug, Default)]
pub(super) struct TrailerLines {
    /// Of all lines that were not dropped, without their ends.
    text: Vec<u8>,
    line_start: usize,
    fields: Vec<Field>,
    read: u32,
}

impl TrailerLines {
    /// Adds a byte of a line.
    pub(super) fn push(&mut self, byte: u8) -> Result<(), BodyFault> {
        self.read += 1;
        if self.text.len() == TRAILERS_MAX || self.read > TRAILERS_READ_MAX {
            return Err(BodyFault::Framing);
        }
        self.text.push(byte);
        Ok(())
    }

    /// Ends the line. An invalid one is refused, or dropped if `is_lenient`; one with an invalid name is dropped as in a
    /// head.
    pub(super) fn end_line(&mut self, is_lenient: bool) -> Result<(), BodyFault> {
        let found = match header_line::parse(&self.text, self.line_start, self.text.len(), false) {
            Ok(found) if found.has_colon => found,
            _ if is_lenient => {
                self.text.truncate(self.line_start);
                return Ok(());
            }
            _ => return Err(BodyFault::Framing),
        };
        if !found.is_invalid {
            self.fields.push(found.field);
        }
        self.line_start = self.text.len();
        Ok(())
    }

    /// The fields.
    pub(super) fn headers(&self) -> Vec<Header> {
        let text = Bytes::copy_from_slice(&self.text);
        let part = |span: message::Span| text.slice(span.start as usize..span.end());
        self.fields
            .iter()
            .map(|field| Header {
                name: part(field.name),
                value: part(field.value),
            })
            .collect()
    }
}
