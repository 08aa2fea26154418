//! Reads the bytes before the first request of a connection: the header of the PROXY protocol, a handshake of TLS, the
//! preface of HTTP/2.

use super::{Connection, Error, is_would_block};

use std::future::poll_fn;
use std::time::Duration;

impl Connection {
    /// Reads what precedes the first request. `parse` gets all bytes received so far, and returns the length and the
    /// content of the prologue, or `None` if more bytes are needed. It must itself limit how many it asks for.
    ///
    /// # Errors
    /// Those of [`Connection::wait`].
    pub async fn read_prologue<T>(
        &mut self,
        timeout: Duration,
        mut parse: impl FnMut(&[u8]) -> Option<(usize, T)>,
    ) -> Result<T, Error> {
        if self.has_unread()
            && let Some(said) = self.take_prologue(&mut parse)
        {
            return Ok(said);
        }
        self.arm(timeout);
        let outcome = loop {
            let outcome = self.input.read_once(&self.stream, |bytes, unread| {
                unread.extend_from_slice(bytes);
                bytes.is_empty()
            });
            match outcome {
                Ok(true) => break Err(Error::Closed),
                Ok(false) => {}
                Err(error) if is_would_block(&error) => {
                    match poll_fn(|cx| self.poll_readable(cx)).await {
                        Ok(()) => continue,
                        Err(error) => break Err(error),
                    }
                }
                Err(error) => break Err(error.into()),
            }
            if let Some(said) = self.take_prologue(&mut parse) {
                break Ok(said);
            }
        };
        self.timer.disarm();
        outcome
    }

    fn take_prologue<T>(
        &mut self,
        parse: &mut impl FnMut(&[u8]) -> Option<(usize, T)>,
    ) -> Option<T> {
        let (used, said) = parse(&self.input.unread)?;
        self.input.unread.drain(..used);
        if self.input.unread.is_empty() {
            // An idle connection holds no buffer.
            self.input.unread = Vec::new();
        }
        Some(said)
    }

    /// The first line of what was received and not taken, without its LF; `None` before it is whole.
    pub fn first_line(&self) -> Option<&[u8]> {
        let end = memchr::memchr(b'\n', &self.input.unread)?;
        Some(&self.input.unread[..end])
    }

    /// Puts back what a prologue turned out to be: the first bytes of a request.
    pub fn put_back(&mut self, mut bytes: Vec<u8>) {
        bytes.append(&mut self.input.unread);
        self.input.unread = bytes;
    }

    /// Whether the bytes to come begin with `text`: reads as many of them as decide that,
    /// and keeps them all.
    ///
    /// # Errors
    /// Those of [`Connection::wait`], where the peer stopped before it was decided.
    pub async fn begins_with(&mut self, text: &[u8], timeout: Duration) -> Result<bool, Error> {
        let decided = |unread: &[u8]| {
            let len = unread.len().min(text.len());
            match unread[..len] == text[..len] {
                false => Some(false),
                true => (len == text.len()).then_some(true),
            }
        };
        self.read_prologue(timeout, |bytes| decided(bytes).map(|begins| (0, begins)))
            .await
    }
}
