//! The connection that a request came on. A sub-request has none.

use std::cell::Cell;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::task::Poll;

/// A client's connection in the hands of its request. It is used like the connection itself. A sub-request must not
/// touch it, and calls [`OwnWire::get`] where it cannot know.
pub struct OwnWire(Kind);

enum Kind {
    Own(wire::Connection),
    None(Leave),
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

impl OwnWire {
    /// The connection of a sub-request of this one's request: it reads from no client, and sends to none.
    #[must_use]
    pub fn none_below(&self) -> Self {
        Self(Kind::None(match &self.0 {
            Kind::Own(_) => Leave::default(),
            Kind::None(leave) => leave.clone(),
        }))
    }

    /// The flag by which a sub-request learns that the client has left.
    #[must_use]
    pub fn leave(&self) -> Option<Leave> {
        match &self.0 {
            Kind::Own(_) => None,
            Kind::None(leave) => Some(leave.clone()),
        }
    }

    /// The connection, where there is one.
    #[must_use]
    pub fn get(&self) -> Option<&wire::Connection> {
        match &self.0 {
            Kind::Own(wire) => Some(wire),
            Kind::None(_) => None,
        }
    }

    /// Takes the connection out.
    #[must_use]
    pub fn into_inner(self) -> Option<wire::Connection> {
        match self.0 {
            Kind::Own(wire) => Some(wire),
            Kind::None(_) => None,
        }
    }

    /// Waits until the client has closed its side; in a sub-request, until that was reported.
    pub async fn peer_closed(&self) {
        match &self.0 {
            Kind::Own(wire) => wire.stream.peer_closed().await,
            Kind::None(leave) => {
                poll_fn(|_| match leave.0.get() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                })
                .await;
            }
        }
    }
}

/// The reason why a sub-request does not use its connection.
const NOT_OF_A_SUBREQUEST: &str = "sub-requests neither read from a client nor send to one";

impl From<wire::Connection> for OwnWire {
    fn from(wire: wire::Connection) -> Self {
        Self(Kind::Own(wire))
    }
}

impl Deref for OwnWire {
    type Target = wire::Connection;

    fn deref(&self) -> &wire::Connection {
        self.get().expect(NOT_OF_A_SUBREQUEST)
    }
}

impl DerefMut for OwnWire {
    fn deref_mut(&mut self) -> &mut wire::Connection {
        let own = match &mut self.0 {
            Kind::Own(wire) => Some(wire),
            Kind::None(_) => None,
        };
        own.expect(NOT_OF_A_SUBREQUEST)
    }
}
