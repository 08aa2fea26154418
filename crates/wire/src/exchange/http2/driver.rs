//! The task that moves the bytes of a connection of HTTP/2 to a server: one write for all that its exchanges have
//! queued, one read for all that has come.
//!
//! Not here: what the bytes mean (`shared_connection`). Invariant: it ends when the connection does, and no exchange waits for a
//! connection without a driver.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use super::shared_connection::Shared;
use crate::answer::AnswerFault;
use crate::exchange::ExchangeError;
use crate::http2::session::INPUT_MAX;
use crate::stream::Stream;
use crate::turn;

/// The driver of a connection; it is to be spawned on the connection's loop.
#[derive(Debug)]
pub struct SharedDriver {
    shared: Rc<Shared>,
    stream: Stream,
    /// The beginning of a frame.
    unread: Vec<u8>,
    /// Why the socket takes nothing more. What the server said before may still be there to be read.
    write_fault: Option<io::Error>,
}

impl SharedDriver {
    pub(super) fn new(shared: Rc<Shared>, stream: Stream) -> SharedDriver {
        SharedDriver {
            shared,
            stream,
            unread: Vec::new(),
            write_fault: None,
        }
    }

    /// Writes the output; returns whether nothing of it waits for the socket. Where that takes nothing more, the output is
    /// dropped, and no more requests are taken.
    fn write(&mut self) -> bool {
        let state = &mut *self.shared.state.borrow_mut();
        while !state.session.output().is_empty() && self.write_fault.is_none() {
            match self.stream.try_write(state.session.output()) {
                Ok(count) => state.session.sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => self.write_fault = Some(error),
            }
        }
        if self.write_fault.is_some() {
            state.is_leaving = true;
            state.session.sent(state.session.output().len());
        }
        true
    }

    /// Reads once; returns whether more may have come.
    fn read(&mut self) -> io::Result<bool> {
        let owner = Rc::clone(&self.shared.owner);
        let mut scratch = owner.scratch.borrow_mut();
        let kept = self.unread.len();
        debug_assert!(kept < INPUT_MAX && INPUT_MAX < scratch.len());
        scratch[..kept].copy_from_slice(&self.unread);
        let count = match self.stream.try_read(&mut scratch[kept..]) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let state = &mut *self.shared.state.borrow_mut();
        if count == 0 {
            state.end(|| match &self.write_fault {
                Some(error) => ExchangeError::Receive(like(error)),
                None => AnswerFault::Closed.into(),
            });
            return Ok(false);
        }
        let input = &scratch[..kept + count];
        let used = state.take(input);
        self.unread.clear();
        self.unread.extend_from_slice(&input[used..]);
        Ok(true)
    }

    /// Moves bytes until the socket has and takes no more.
    fn poll_move(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            // More may be there than this turn may move.
            ready!(turn::poll_go_on(context));
            let is_written = self.write();
            let has_read = self.read()?;
            self.shared.state.borrow_mut().wake_senders();
            if self.is_over() {
                return Poll::Ready(Ok(()));
            }
            if has_read {
                continue;
            }
            let mut event = self.stream.poll_readable(context);
            if event.is_pending() && !is_written {
                event = self.stream.poll_writable(context);
            }
            ready!(event)?;
        }
    }

    /// Whether nothing more is to be done on the connection. Output that no request is behind is not waited for: the write
    /// before this was its chance, and a server that takes nothing would keep the connection for ever.
    fn is_over(&self) -> bool {
        let state = self.shared.state.borrow();
        let is_left = state.is_leaving || state.session.is_going();
        state.is_closed || (is_left && state.session.live() == 0)
    }
}

impl Future for SharedDriver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.shared.state.borrow_mut().set_driver(context);
        let moved = this.poll_move(context);
        let is_orderly = match moved {
            Poll::Pending => {
                this.shared.state.borrow_mut().count();
                return Poll::Pending;
            }
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => {
                let state = &mut *this.shared.state.borrow_mut();
                state.end(|| ExchangeError::Receive(like(&error)));
                false
            }
        };
        // What the server is still told, as far as the socket takes it.
        this.write();
        if is_orderly && this.write_fault.is_none() {
            this.stream.close_notify();
        }
        let state = &mut *this.shared.state.borrow_mut();
        state.end(|| AnswerFault::Closed.into());
        Poll::Ready(())
    }
}

impl Drop for SharedDriver {
    /// Where the loop ends before the connection.
    fn drop(&mut self) {
        let state = &mut *self.shared.state.borrow_mut();
        state.end(|| AnswerFault::Closed.into());
    }
}

/// The same error once more: each exchange tells it.
fn like(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => match error.get_ref() {
            Some(inner) => match inner.downcast_ref::<tls::Failure>() {
                Some(failure) => io::Error::new(error.kind(), failure.clone()),
                None => io::Error::new(error.kind(), inner.to_string()),
            },
            None => error.kind().into(),
        },
    }
}
