//! Answering with a stored entry: `disk_work` (what the disk is asked), `serve` (`verify` checks it), or `hot_entries` with a prepared answer, or
//! `foreign_cache` with an entry of another process; `rest` is the end of a body whose disk fails in its midst; `age` is the age that a response says.

pub(crate) mod age;
pub(crate) mod disk_work;
pub(crate) mod foreign_cache;
pub(crate) mod hot_entries;
pub(crate) mod rest;
pub(crate) mod serve;
mod verify;
