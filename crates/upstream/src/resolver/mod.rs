//! Names that are looked up while serving: `resolver`, as nginx has it, with the name servers that the configuration
//! names.
//!
//! * `directives`: `resolver`, `resolver_timeout`.
//! * [`Resolver`]: the cache of names, bounded, shared by all loops; a loop awaits [`Resolver::resolve`].
//! * `query`: asks the servers. [`dns_message`]: the messages to and from them.
//! * `thread`: the one helper thread on which all of this waits.
//!
//! Not here: names that are looked up once, while a configuration is built ([`logs::getaddrinfo`]).
//! Invariant: a loop only looks into a table under a short lock and waits for a wake-up; no loop owns a name server's
//! socket.

pub(crate) mod address;
pub(crate) mod cache;
pub(crate) mod directives;
pub mod dns_message;
mod query;
#[cfg(test)]
mod tests;
pub(crate) mod thread;

pub(crate) use cache::{Query, ResolvedName};
pub use cache::{ResolveError, Resolver};
pub use directives::Resolving;
