//! Answering with a stored entry: `serve` (`verify` checks it), or `hot_entries` with a prepared answer, or
//! `foreign_cache` with an entry of another process; `age` is the age that a response says.

pub mod age;
pub mod foreign_cache;
pub mod hot_entries;
pub mod serve;
mod verify;
