//! Writes the framing around the pieces of a request's body: chunks, FastCGI records, or none.
//!
//! Not here: the pieces themselves. Invariant: as many bytes follow a head as it announced, else the request fails.

use message::{Framing, Header};

use crate::fastcgi;
use crate::http1::request_writer::RequestFault;
use crate::http1::response_writer;

/// Writes the body of a request.
#[derive(Clone, Debug)]
pub struct BodyWriter {
    framing: Framing,
    is_in_records: bool,
    written: u64,
}

impl BodyWriter {
    /// For the body after a head that announced `framing`.
    pub fn new(framing: Framing) -> BodyWriter {
        BodyWriter {
            framing,
            is_in_records: false,
            written: 0,
        }
    }

    /// Whether the body is known to be empty.
    pub fn is_empty(&self) -> bool {
        matches!(self.framing, Framing::None | Framing::Length(0))
    }

    /// For a body in FastCGI records, of the length that `framing` gives; chunked means that the length is unknown.
    pub fn in_records(framing: Framing) -> BodyWriter {
        BodyWriter {
            is_in_records: true,
            ..BodyWriter::new(framing)
        }
    }

    /// Maximum size of a piece in bytes.
    pub(crate) fn piece_max(&self) -> usize {
        match self.is_in_records {
            true => fastcgi::CONTENT_MAX,
            false => usize::MAX,
        }
    }

    /// Begins a piece of `len` bytes, at most `piece_max`: appends the framing before it to `out`, and
    /// returns the framing after it.
    ///
    /// # Errors
    /// The body is longer than announced; no byte of the piece may be sent.
    pub fn piece(&mut self, out: &mut Vec<u8>, len: u64) -> Result<&'static [u8], RequestFault> {
        if len == 0 {
            return Ok(b"");
        }
        self.written = self.written.saturating_add(len);
        match self.announced() {
            Some(announced) if self.written > announced => Err(self.mismatch(announced)),
            _ if self.is_in_records => Ok(fastcgi::write::body_piece(out, len as usize)),
            Some(_) => Ok(b""),
            None => {
                response_writer::chunk_head(out, len);
                Ok(response_writer::CRLF)
            }
        }
    }

    /// Counts a piece of a body whose framing is written elsewhere (HTTP/2).
    ///
    /// # Errors
    /// The body is longer than announced; no byte of the piece may be sent.
    pub(crate) fn count(&mut self, len: u64) -> Result<(), RequestFault> {
        self.written = self.written.saturating_add(len);
        match self.announced() {
            Some(announced) if self.written > announced => Err(self.mismatch(announced)),
            _ => Ok(()),
        }
    }

    /// Ends a body whose framing is written elsewhere.
    ///
    /// # Errors
    /// As [`BodyWriter::end`].
    pub(crate) fn check_end(&self) -> Result<(), RequestFault> {
        match self.announced() {
            Some(announced) if self.written != announced => Err(self.mismatch(announced)),
            _ => Ok(()),
        }
    }

    /// Ends the body: appends the framing that says so.
    ///
    /// # Errors
    /// The body is shorter than announced: the connection must be closed.
    pub fn end(&mut self, out: &mut Vec<u8>, trailers: &[Header]) -> Result<(), RequestFault> {
        match self.announced() {
            Some(announced) if self.written != announced => Err(self.mismatch(announced)),
            _ if self.is_in_records => {
                fastcgi::write::end_body(out);
                Ok(())
            }
            Some(_) => Ok(()),
            None => {
                response_writer::last_chunk(out, trailers);
                Ok(())
            }
        }
    }

    /// Bytes of the body so far, without framing.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn announced(&self) -> Option<u64> {
        match self.framing {
            Framing::None => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        }
    }

    fn mismatch(&self, announced: u64) -> RequestFault {
        RequestFault::Length {
            announced,
            found: self.written,
        }
    }
}
