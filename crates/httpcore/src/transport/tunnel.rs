//! What takes over a transport behind a response's head: bytes in both directions that are not HTTP.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use wire::{Loop, Stream, Timer};

/// The client's side of a tunnel.
pub struct ClientSide<'a> {
    /// The bytes that have arrived already.
    pub early: Vec<u8>,
    /// The socket, from here on without any framing.
    pub stream: &'a Stream,
    /// A timer for both directions.
    pub timer: &'a mut Timer,
    /// The loop that the socket belongs to.
    pub owner: Rc<Loop>,
    /// Maximum time for which the client takes none of the bytes for it.
    pub patience: Duration,
}

/// The far side of a tunnel, and the rules for moving bytes through it.
pub trait Tunnel {
    /// Moves bytes until one side has closed; returns the number of those that the client has taken.
    fn run<'a>(self: Box<Self>, client: ClientSide<'a>) -> Pin<Box<dyn Future<Output = u64> + 'a>>;
}
