//! The connection that a request came on, and that no sub-request has.

use std::ops::{Deref, DerefMut};

/// A client's connection in the hands of its request. It is used as the connection itself; a sub-request must not touch it, and
/// asks [`OwnWire::get`] where it cannot know.
pub struct OwnWire(Option<wire::Connection>);

impl OwnWire {
    /// That of a sub-request: nothing is read from a client for it, and nothing is sent to one.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// The connection, where there is one.
    #[must_use]
    pub fn get(&self) -> Option<&wire::Connection> {
        self.0.as_ref()
    }

    /// Gives the connection away.
    #[must_use]
    pub fn into_inner(self) -> Option<wire::Connection> {
        self.0
    }

    /// Waits until the client has closed its side. For a sub-request nobody does.
    pub async fn peer_closed(&self) {
        match &self.0 {
            Some(wire) => wire.stream.peer_closed().await,
            None => std::future::pending().await,
        }
    }
}

impl From<wire::Connection> for OwnWire {
    fn from(wire: wire::Connection) -> Self {
        Self(Some(wire))
    }
}

impl Deref for OwnWire {
    type Target = wire::Connection;

    fn deref(&self) -> &wire::Connection {
        self.0
            .as_ref()
            .expect("sub-requests neither read from a client nor send to one")
    }
}

impl DerefMut for OwnWire {
    fn deref_mut(&mut self) -> &mut wire::Connection {
        self.0
            .as_mut()
            .expect("sub-requests neither read from a client nor send to one")
    }
}
