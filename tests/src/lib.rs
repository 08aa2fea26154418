//! Harness of the black-box tests: starts the real program with a configuration text in a directory of its own, on free ports,
//! talks to it through plain sockets, stops it by QUIT and looks at its error log.
//!
//! It is not a client library: nothing is retried, followed or repaired, so that a test sees the bytes as they came.
//! Invariant: a [`Server`] that goes out of scope has ended, with exit status 0 and without an `[alert]` or `[crit]` line, or the
//! test has failed.
//!
//! ```no_run
//! let server = blackbox::Server::start("server { listen 127.0.0.1:%PORT%; location / { } }");
//! server.file("hello.txt", b"hello");
//! assert_eq!(server.get("/hello.txt").text(), "hello");
//! ```
//!
//! The program is `freewheel` of this workspace, built on first use; `FREEWHEEL_TEST_BINARY=/path/to/nginx` names another, which is how
//! a test is tried on the server whose behaviour it describes.
#![expect(
    clippy::disallowed_methods,
    reason = "tests have no event loop: a thread per test, blocking sockets and files"
)]

pub mod acme;
mod binary;
mod client;
mod echo;
mod exposition;
pub mod gateway;
mod http2;
pub mod http2_origin;
pub mod ocsp;
mod origin;
mod port;
mod reply;
mod server;
mod site;
pub mod slow;
pub mod tls;
pub mod tls_origin;
mod until;

pub use binary::{binary, is_nginx};
pub use client::{Connection, PATIENCE};
pub use echo::{echo, echo_ahead};
pub use exposition::Exposition;
pub use http2::{Http2Client, Http2Reply};
pub use origin::{Answer, Origin, Received};
pub use port::Port;
pub use reply::{Reply, split_reply};
pub use server::{Server, is_running, statuses_of, text_of};
pub use site::{Refused, Site};
pub use until::until;
