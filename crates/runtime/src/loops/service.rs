//! What the server above the loops is to a loop: a service that is given what arrives.
//!
//! Not here: any protocol, and what a configuration holds. Invariant: a loop has one service, from its start to its end.

use std::any::Any;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use super::{Accepted, Listener, Loop};

/// A configuration, handed on by loops that do not know its type.
pub type Configuration = Arc<dyn Any + Send + Sync>;

/// Serves what has arrived, to its end.
pub type Serving = Pin<Box<dyn Future<Output = ()>>>;

/// Makes the service of a new loop, on the loop's thread, with the number of a configuration and the configuration.
pub type Start = Arc<dyn Fn(&Rc<Loop>, u64, Configuration) -> Box<dyn Service> + Send + Sync>;

/// A socket of one loop that receives datagrams.
#[derive(Debug)]
pub struct Datagrams {
    /// The socket: non-blocking, close-on-exec; the master holds it too.
    pub socket: Arc<OwnedFd>,
    /// Its address.
    pub listener: Arc<Listener>,
}

/// The service of one loop.
pub trait Service {
    /// Whether connections of this listener are accepted now; those that are not wait in the kernel's queue. Asked before
    /// every batch of them.
    fn may_accept(&self, listener: &Listener) -> bool;

    /// Serves a connection to its end.
    fn serve(&self, accepted: Accepted) -> Serving;

    /// Serves a socket that receives datagrams. Dropped when the loop lets go of the socket.
    fn receive(&self, datagrams: Datagrams) -> Serving;

    /// Takes another configuration, for what begins from now on.
    fn configure(&self, number: u64, configuration: Configuration);
}
