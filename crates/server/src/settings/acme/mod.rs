//! Certificates by ACME: the directives of nginx-acme, the certificates that servers ask for, variables and metrics.
//!
//! Not here: getting certificates (crate `acme`; the master runs it: [`crate::process::acme`]), showing them
//! ([`httpcore::tls::acme`]). Invariant: keys of accounts are read by the master alone, and stay there.

mod directives;
mod issuers;
pub(crate) mod metrics;
mod orders;
pub(crate) mod variables;

pub(crate) use directives::{AcmeServer, IssuerLines, lines};
pub(crate) use issuers::{Acme, Declared, Places};
