//! The modules that make the content of a response, and the files that they share.
//!
//! Not here: which of them makes it ([`crate::steps::content`]).

pub mod autoindex;
pub mod dav;
pub mod empty_gif;
pub mod error_text;
pub mod files;
pub mod flv;
pub mod gzip_static;
pub mod hot_files;
pub mod index;
pub mod module;
pub mod mp4;
pub mod proxy;
pub mod random_index;
pub mod static_files;
pub mod tunnel_pass;
