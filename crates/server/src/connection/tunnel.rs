//! What takes over a connection behind a response's head: bytes in both directions that are not HTTP.

use std::pin::Pin;

use crate::request::Request;

/// The far side of a tunnel, and the rules for moving bytes through it.
pub trait Tunnel {
    /// Moves bytes until one side has closed.
    fn run<'a>(self: Box<Self>, request: &'a mut Request)
    -> Pin<Box<dyn Future<Output = ()> + 'a>>;
}
