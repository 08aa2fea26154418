//! The processes: a master that holds the configuration and the sockets, a worker that serves.
//!
//! Not here: the loops ([`crate::loops`]) and the request's way. Invariant: the master runs no loop and
//! no thread; the worker learns everything from the master's bundle and opens no configuration itself.

pub mod report;
/// What stands for the settings until they exist.
pub mod settings_to_come {
    /// The configuration, built.
    #[derive(Debug, Default)]
    pub struct Settings;
}
