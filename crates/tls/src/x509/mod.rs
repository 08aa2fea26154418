//! X.509: certificates and lists of revocations read out of DER, names as text, hosts compared with names.
//!
//! Not here: trust (`verify`), PEM (`keys`).

pub(crate) mod der;

pub mod canonical;
pub mod certificate;
pub mod distinguished;
pub mod facts;
pub mod host;
pub mod revocations;
pub mod time;
