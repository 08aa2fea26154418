//! Names that are looked up while serving: `resolver`, as nginx has it, with the name servers that the configuration
//! names.
//!
//! * [`directives`]: `resolver`, `resolver_timeout`.
//! * [`Resolver`]: the cache of names, bounded, shared by all loops; a loop awaits [`Resolver::resolve`].
//! * [`query`]: asks the servers. [`dns_message`]: the messages to and from them.
//! * [`thread`]: the one helper thread on which all of this waits.
//!
//! Not here: names that are looked up once, while a configuration is built ([`logs::getaddrinfo`]).
//! Invariant: a loop only looks into a table under a short lock and waits for a wake-up; no loop owns a name server's
//! socket.

pub mod address;
pub mod cache;
pub mod directives;
pub mod dns_message;
pub mod query;
#[cfg(test)]
mod tests;
pub mod thread;

pub use cache::{Query, ResolveError, ResolvedAddress, ResolvedName, Resolver};
pub use directives::Resolving;
