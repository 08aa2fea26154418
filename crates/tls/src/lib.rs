//! TLS as a server and as a client: values of a configuration in, bytes in, bytes out.
//!
//! The way of a connection to a server: [`hello::FirstByte`] tells a request in clear; [`handshake::NeedsInput`] takes bytes
//! until it is [`handshake::Accepted`], which shows what the client asks for; a [`configure::Server`] is chosen for it (and
//! certificates are read, where their names come with the connection); further steps, on whichever thread, lead to
//! [`handshake::Complete`]: what was negotiated, and a [`traffic::Traffic`] that seals and opens. A client's certificate
//! is judged then, by [`verify::Trust`].
//!
//! Not here: sockets, HTTP, directives, files (a function that reads them is given), clocks and loops: a step that
//! takes processor time is a call that any thread may make.
//! Invariants: no input panics; everything kept has a named maximum; nothing waits.

#![warn(unreachable_pub)]

pub mod certificates;
pub mod configure;
mod error;
mod failure;
pub mod handshake;
pub mod hello;
pub mod keys;
pub mod ocsp;
mod provider;
pub mod sessions;
pub mod suites;
pub mod traffic;
pub mod verify;
pub mod x509;

pub use error::{Error, Fault, Kind};
pub use failure::{Cause, Failure, Level};
