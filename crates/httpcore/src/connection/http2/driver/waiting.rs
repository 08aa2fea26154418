//! What a connection waits for while no request is being answered, and for how long.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use runtime::{Idle, Waiting};
use wire::http2::Reason;
use wire::{loop_clock, turn};

use super::{Driver, Finish, Http2Counters, LEAVING_WAIT, TIMED_OUT, default_server, events};

/// What the driver waits for, of its client alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing: requests are being answered, or the socket has not taken all of a response.
    Nothing,
    /// The next request.
    Request,
    /// The rest of a frame, or of a header block.
    Frame,
    /// The rest of a header block, while requests are being answered.
    Block,
}

impl<'a> Driver<'a> {
    /// Waits for the client while no request is being answered, in the list of idle connections.
    pub(super) fn wait(
        &mut self,
        idle: &mut Option<Idle<'a>>,
        context: &mut Context<'_>,
    ) -> Poll<Finish> {
        let now = self.waits_for();
        if now != self.waits || std::mem::take(&mut self.has_begun) {
            self.waits = now;
            self.timer.disarm();
            *idle = None;
            if now == Wait::Nothing {
                return Poll::Pending;
            }
            self.timer.arm(self.timeout(now));
            self.waits_since = loop_clock::monotonic_ms();
            self.is_resting = false;
            if now != Wait::Block {
                *idle = Some(self.enter_idle());
            }
        }
        if now == Wait::Nothing {
            return Poll::Pending;
        }
        let entry = idle.as_mut();
        let is_told = entry.is_some_and(|entry| entry.poll_close(context).is_ready());
        if is_told && now == Wait::Request {
            self.rest();
        }
        let must_close = is_told && !self.is_resting;
        if !must_close {
            ready!(self.timer.poll_expired(context));
        }
        // GOAWAY is not written in a turn that is over.
        ready!(turn::poll_go_on(context));
        if !must_close && now != Wait::Request {
            self.time_out();
        }
        self.give_way(must_close)
    }

    /// Where the loop ends: a client that has just had a response may be about to ask again. Its next request goes together
    /// with GOAWAY; one that comes across GOAWAY some clients give up (curl 7.88).
    fn rest(&mut self) {
        let waited = loop_clock::monotonic_ms().saturating_sub(self.waits_since);
        let left = LEAVING_WAIT.saturating_sub(Duration::from_millis(waited));
        let is_kept = self.client.requests.get() > 0;
        if !self.is_resting && self.client.loop_.is_leaving() && is_kept && !left.is_zero() {
            self.is_resting = true;
            self.timer.arm(left);
        }
    }

    /// What of the client's is waited for.
    fn waits_for(&self) -> Wait {
        let (is_busy, is_in_block) = self.connection.with_session(|session| {
            let is_busy = session.live() > 0 || !session.output().is_empty();
            (is_busy, session.is_in_block())
        });
        match is_busy {
            _ if self.is_behind() => Wait::Nothing,
            false if self.unread.is_empty() && !is_in_block => Wait::Request,
            false => Wait::Frame,
            true if is_in_block => Wait::Block,
            true => Wait::Nothing,
        }
    }

    /// Enters the list of idle connections, without what such a connection needs not.
    fn enter_idle(&mut self) -> Idle<'a> {
        self.unread = Bytes::copy_from_slice(&self.unread);
        self.opened = VecDeque::new();
        self.generation = None;
        self.connection.release_buffers();
        self.connection
            .place
            .enter(match self.client.requests.get() {
                0 => Waiting::New,
                _ => Waiting::Kept,
            })
    }

    /// The client has begun a frame or a header block, and not ended it in time.
    fn time_out(&mut self) {
        let reason = Reason::TimedOut;
        self.connection.with_session(|session| session.end(reason));
        self.is_leaving = true;
        self.is_broken = true;
        let counters = self.client.loop_.figures.of::<Http2Counters>();
        counters.faults[reason as usize].add(1);
        events::log_end(self.client, TIMED_OUT);
    }

    /// Ends an idle connection: the client is told so, as far as the socket takes it. A request may be on its way: the client
    /// has to read that it was not taken, to send it elsewhere. Anything on its way would also meet a closed socket, whose
    /// kernel then drops what it has not sent yet of the last response. So the connection lingers, unless its place is wanted.
    fn give_way(&mut self, must_close: bool) -> Poll<Finish> {
        self.leave_at_once();
        self.connection.with_session(|session| {
            // What does not fit is not waited for.
            let _ = self.connection.stream.try_write(session.output());
        });
        Poll::Ready(match must_close && !self.client.loop_.is_leaving() {
            true => Finish::AtOnce,
            false => Finish::Orderly,
        })
    }

    fn timeout(&self, wait: Wait) -> Duration {
        let generation = self.client.generation();
        let Some(server) = default_server(self.client, &generation) else {
            return Duration::ZERO;
        };
        match wait {
            Wait::Frame | Wait::Block => server.settings.client_header_timeout.duration(),
            // As for the first request of an HTTP/1 connection.
            Wait::Request if self.client.requests.get() == 0 => {
                server.settings.client_header_timeout.duration()
            }
            // For what crosses the first GOAWAY of two.
            Wait::Request if self.goaway_timer.is_some() => LEAVING_WAIT,
            Wait::Request | Wait::Nothing => {
                let location = generation.settings.location(server.location);
                Duration::from_millis(location.settings.keepalive.keepalive_timeout.timeout_ms)
            }
        }
    }
}
