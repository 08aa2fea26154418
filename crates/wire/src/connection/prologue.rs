//! What stands before the first request of a connection: the PROXY protocol's header.

use super::{Connection, Error, is_would_block};

use std::future::poll_fn;
use std::time::Duration;

impl Connection {
    /// Reads what stands before the first request. `parse` gets all that has come, and says how many bytes of it that is, and what it
    /// says; `None`: more is needed. It has to know when it has seen enough.
    ///
    /// # Errors
    /// Those of [`Connection::wait`].
    pub async fn read_prologue<T>(
        &mut self,
        timeout: Duration,
        mut parse: impl FnMut(&[u8]) -> Option<(usize, T)>,
    ) -> Result<T, Error> {
        self.arm(timeout);
        let outcome = loop {
            let outcome = self.read_once(|bytes, unread| {
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
            if let Some((used, said)) = parse(&self.unread) {
                self.unread.drain(..used);
                if self.unread.is_empty() {
                    // An idle connection holds no buffer.
                    self.unread = Vec::new();
                }
                break Ok(said);
            }
        };
        self.timer.disarm();
        outcome
    }
}
