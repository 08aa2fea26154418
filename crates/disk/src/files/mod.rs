//! Files and what a process knows of them: mounts, open files with the copies and proofs that belong to them, errors.
//!
//! Not here: which files stay open (`keeping`), and every call on a path (`opening`, `changing`).

pub(crate) mod access_time;
pub(crate) mod copier;
pub(crate) mod error;
pub(crate) mod memfd_copies;
pub(crate) mod mount;
pub(crate) mod open_file;
pub(crate) mod pread;
pub(crate) mod residency_memo;
