//! Which windows of large files are in memory, by proof, and the fills that bring in the others.
//!
//! Not here: what is done with a window that is (`sending`).

pub(crate) mod ahead_limit;
pub(crate) mod cached;
pub(crate) mod eviction_pressure;
pub(crate) mod fill;
pub(crate) mod in_core;
pub(crate) mod mappings;
pub(crate) mod pagemap;
pub(crate) mod shared_reads;
pub(crate) mod window;
