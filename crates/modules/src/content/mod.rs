//! The modules that make the content of a response, and the files that they share.
//!
//! Not here: which of them makes it (`server::steps::content`).

pub mod autoindex;
pub mod dav;
pub mod empty_gif;
pub mod flv;
pub mod gzip_static;
pub mod index;
mod large_body;
pub mod mp4;
pub mod random_index;
pub mod static_files;
