//! The modules that run after the content: conditions, ranges, header lines, filters.
//!
//! Not here: their order (`server::steps::after`).

pub mod addition;
pub mod charset;
pub mod compression;
pub(crate) mod expires;
pub mod headers;
pub mod media_types;
pub mod not_modified;
pub mod ranges;
pub mod slice;
pub mod ssi;
pub mod sub_filter;
pub mod userid;
