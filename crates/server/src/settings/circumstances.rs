//! The surroundings that give a configuration its meaning beside its text: root or not, the number of processors, the
//! addresses of its host names, and the files that its directives name.
//!
//! The master finds them out and sends them along, so that the worker, which has another user and environment, reads
//! the same text with the same result. Not here: the text ([`crate::process::source`]). Invariant: every question of
//! [`crate::process::load`] to its surroundings is asked here.

use logs::getaddrinfo::Hosts;

use super::named_files::NamedFiles;

/// See the module.
#[derive(Debug, Clone)]
pub struct Circumstances {
    /// Runs with the rights of root: without them a `server` that has no `listen` is at port 8000.
    pub is_root: bool,
    /// The processors that may be used: what `auto` means.
    pub cores: usize,
    /// The addresses of the names that were looked up.
    pub hosts: Hosts,
    /// The files that were read: certificates and keys.
    pub files: NamedFiles,
}

impl Circumstances {
    /// Those of this process, with no name looked up yet.
    #[must_use]
    pub fn here() -> Self {
        Self {
            is_root: rustix::process::geteuid().is_root(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            hosts: Hosts::default(),
            files: NamedFiles::default(),
        }
    }
}
