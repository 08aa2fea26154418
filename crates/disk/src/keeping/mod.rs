//! Files that a loop keeps open from request to request, and the proof at each use that they are current.
//!
//! Exact by default (`open_files`, with `path_guards` over `inotify` for the directories above). What may
//! be out of date is in a table of its own (`open_file_cache`).

pub(crate) mod inotify;
pub(crate) mod open_file_cache;
pub(crate) mod open_files;
pub(crate) mod path_guards;
pub(crate) mod slow_hand;
pub(crate) mod walk;
