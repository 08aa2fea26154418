//! Certificates by ACME (RFC 8555): an issuer and names in, certificates and keys out, got and renewed by themselves.
//!
//! * [`Issuer`], [`Order`]: what is wanted. [`keys::KeyKind`], [`Identifier`]: their parts, out of words.
//! * [`Renewal`]: a thread for each issuer, which orders what is missing and renews what is due; its [`Sink`] is told of
//!   challenges, certificates, figures and lines for a log.
//! * `client`: the protocol. `http`: a client of HTTP/1.1 over the crate `tls`. `store`: the state on disk.
//! * [`schedule`]: when to order. [`challenge`]: what a server answers to be believed.
//!
//! Not here: directives, loops, the server that answers challenges. Everything here may wait, so it runs on threads of its own.
//! Invariants: one order of a certificate at a time, in all processes that share a state directory; a certificate is written to
//! disk before it is forgotten, and never without its key; no input of an authority panics, and all that it sends has a named
//! maximum.
#![warn(unreachable_pub)]
#![expect(
    clippy::disallowed_methods,
    reason = "all of this runs on threads that may wait, never on a loop"
)]

mod account;
pub mod challenge;
mod client;
mod clock;
mod error;
mod http;
mod identifier;
mod issuer;
pub mod keys;
mod messages;
mod renewal;
pub mod schedule;
mod sink;
mod store;
mod url;

pub use error::{Error, Problem};
pub use identifier::{IDENTIFIERS_MAX, Identifier, NameFault, Order};
pub use issuer::{AccountKey, Authorities, ExternalAccount, Issuer, Profile, Resolve};
pub use renewal::{ORDERS_MAX, Renewal};
pub use sink::{Figures, Level, Sink};
pub use store::{Issued, Store};
pub use url::Url;
