//! Changes request headers.
//!
//! Not here: when this is done (see [`crate::before`]). Invariant: the framing of the request's body and the
//! connection's keepalive were decided when the request was read; no line changes them.

use std::sync::Arc;

use bytes::Bytes;
use message::head::HostText;
use message::{Field, HeaderId, RequestHead, Span, host};

use super::{Change, Mode};
use crate::headers_more::HeadersMore;
use httpcore::Failure;
use httpcore::request::Request;

/// The bytes that the head of a request may have with what lines put into it.
const HEAD_BYTES_MAX: usize = 16 << 20;

/// Obeys the lines, in their order: values may look at what was changed before.
///
/// # Errors
/// A `Host` that is none, a value that is no line, or a head too long: 500.
pub fn run(request: &mut Request) -> Result<(), Failure> {
    let commands = Arc::clone(&request.location().own::<HeadersMore>().input);
    for command in commands.iter() {
        let of_body = request.head.get(HeaderId::ContentType);
        let is_type = |known: &Bytes| of_body.is_some_and(|of_body| known[..] == *of_body);
        if !command.types.is_empty() && !command.types.iter().any(is_type) {
            continue;
        }
        for change in &command.changes {
            let value = change.value.as_ref().map(|value| request.evaluate(value));
            change.change(&mut request.head, &value.unwrap_or_default())?;
        }
    }
    Ok(())
}

impl Change {
    /// Gives a request's head the value; an empty one removes.
    fn change(&self, head: &mut RequestHead, value: &[u8]) -> Result<(), Failure> {
        let id = if self.is_prefix {
            HeaderId::Other
        } else {
            HeaderId::find(&self.name)
        };
        let first = head
            .fields
            .iter()
            .position(|field| self.is_about(head, field));
        let is_set = !value.is_empty();
        if is_set && first.is_none() && (self.mode == Mode::ReplaceOnly || self.is_prefix) {
            return Ok(());
        }
        if is_set {
            self.keep_for_next(head)?;
        }
        let line = match is_set {
            true => Some(write(head, &self.name, value, id)?),
            false => None,
        };
        if id == HeaderId::Host {
            set_host(head, value)?;
        }
        let mut fields = std::mem::take(&mut head.fields);
        let mut line = line;
        fields.retain(|field| {
            if !self.is_about(head, field) {
                return true;
            }
            match line.take() {
                Some(written) => {
                    field.value = written.value;
                    true
                }
                None => false,
            }
        });
        fields.extend(line);
        head.known = fields.iter().fold(0, |known, field| known | field.id.bit());
        head.fields = fields;
        Ok(())
    }

    /// Takes the names of the lines that are set out of `Connection`: a client that lists them there would have them
    /// removed from the request that is passed on (RFC 9110, 7.6.1).
    fn keep_for_next(&self, head: &mut RequestHead) -> Result<(), Failure> {
        let is_about = |token: &[u8]| self.is_name(token.trim_ascii());
        let names_one = |value: &[u8]| value.split(|byte| *byte == b',').any(is_about);
        for at in 0..head.fields.len() {
            let field = &head.fields[at];
            if field.id != HeaderId::Connection || !names_one(head.text(field.value)) {
                continue;
            }
            let tokens = head.text(field.value).split(|byte| *byte == b',');
            let kept: Vec<&[u8]> = tokens.filter(|token| !is_about(token)).collect();
            let kept = kept.join(&b',');
            head.fields[at] = write(head, b"Connection", &kept, HeaderId::Connection)?;
        }
        Ok(())
    }

    fn is_about(&self, head: &RequestHead, field: &Field) -> bool {
        self.is_name(head.text(field.name))
    }

    fn is_name(&self, name: &[u8]) -> bool {
        match self.is_prefix {
            true => {
                let start = name.get(..self.name.len());
                start.is_some_and(|start| start.eq_ignore_ascii_case(&self.name))
            }
            false => name.eq_ignore_ascii_case(&self.name),
        }
    }
}

/// Writes a line behind the head's bytes: all that lies in them stays where it is.
fn write(
    head: &mut RequestHead,
    name: &[u8],
    value: &[u8],
    id: HeaderId,
) -> Result<Field, Failure> {
    let length = head.bytes.len() + name.len() + value.len() + 4;
    // A line's end in a value would be another line for who gets the request next.
    let is_one_line = !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    if length > HEAD_BYTES_MAX || !is_one_line {
        return Err(Failure::new(500));
    }
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&head.bytes);
    let name_at = Span::new(bytes.len(), bytes.len() + name.len());
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(b": ");
    let value_at = Span::new(bytes.len(), bytes.len() + value.len());
    bytes.extend_from_slice(value);
    bytes.extend_from_slice(b"\r\n");
    head.bytes = bytes.into();
    Ok(Field {
        name: name_at,
        value: value_at,
        id,
    })
}

/// `$host` follows what `Host` says.
fn set_host(head: &mut RequestHead, value: &[u8]) -> Result<(), Failure> {
    head.host = None;
    head.port = None;
    if value.is_empty() {
        return Ok(());
    }
    let Ok(parsed) = host::parse(value) else {
        return Err(Failure::new(500));
    };
    head.port = parsed.port;
    head.host = Some(HostText::Lowered(parsed.name.to_ascii_lowercase().into()));
    Ok(())
}
