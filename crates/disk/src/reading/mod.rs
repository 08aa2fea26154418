//! Reading into memory: ranges of files, jobs that read as they go, directories.
//!
//! Not here: sending to a socket (`sending`).

pub(crate) mod probe_read;
pub(crate) mod read;
pub(crate) mod read_job;
pub(crate) mod readdir;
