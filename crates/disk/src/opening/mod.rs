//! Opening a path: from memory with `openat2(RESOLVE_CACHED)`, else in a pool.
//!
//! Not here: which open files are kept (`keeping`), and the mounts (`files::mount`).

pub(crate) mod guard_path;
pub(crate) mod open;
pub(crate) mod open_waiting;
pub(crate) mod path_file;
