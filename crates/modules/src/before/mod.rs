//! The modules that run before the content: each may answer, refuse or redirect.
//!
//! Not here: their order (`server::steps::before`, `server::steps::judges`).

pub mod access;
pub mod acme_challenge;
pub mod auth_basic;
pub mod auth_request;
pub mod client_body_early_read;
pub mod client_max_body_size;
pub mod mirror;
pub mod real_ip;
pub(crate) mod return_;
pub mod rewrite;
pub mod try_files;
