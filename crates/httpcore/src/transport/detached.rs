//! The transport of a request without a client: a sub-request, or what a request goes on to after its response.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

/// The state of a request without a client.
#[derive(Debug)]
pub struct Detached {
    leave: Leave,
    /// Whether the connection of the client's request is kept, where that is the same request.
    pub(super) is_persistent: bool,
    /// Whether the client's request was pipelined, where that is the same request.
    pub(super) is_pipelined: bool,
}

/// Whether the client has left: shared with a sub-request and those below it.
#[derive(Debug, Clone, Default)]
pub struct Leave(Rc<Cell<bool>>);

impl Leave {
    /// Records that the client has left. No task is woken: the caller then has the sub-request polled.
    pub fn tell(&self) {
        self.0.set(true);
    }
}

impl Detached {
    pub(super) fn new(leave: Leave) -> Self {
        Self {
            leave,
            is_persistent: false,
            is_pipelined: false,
        }
    }

    pub(super) fn leave(&self) -> Leave {
        self.leave.clone()
    }

    pub(super) async fn peer_closed(&self) {
        poll_fn(|_| match self.leave.0.get() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}
