//! The assembly of a configuration: from the tree that `config` read to the settings of all modules.
//!
//! Done in the master (to check it) and in the worker (to use it); blocking work (names, regexes) is done then. Not here:
//! the settings themselves ([`httpcore::settings`]), the directives, which stand at the top of the modules that obey them.

pub(crate) mod acme;
pub(crate) mod build;
mod certificate_status;
pub mod circumstances;
mod content_source;
pub(crate) mod locations;
pub mod named_files;
mod order;
pub(crate) mod scopes;
mod sessions;
pub(crate) mod tables;
pub(crate) mod told;
