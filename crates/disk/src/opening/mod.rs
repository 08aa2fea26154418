//! Opening a path: from memory with `openat2(RESOLVE_CACHED)`, else in a pool.
//!
//! Not here: which open files are kept (`keeping`), and the mounts (`mount`).

pub(crate) mod open;
pub(crate) mod path_file;
