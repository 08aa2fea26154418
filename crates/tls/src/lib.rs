//! TLS as a server and as a client: values of a configuration in, bytes in, bytes out.
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
