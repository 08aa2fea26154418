//! Steps that every server needs, and what the lists of steps are made of.
//!
//! Not here: the lists themselves (`server::steps`), steps of modules.

pub mod client_tls;
pub mod error_page;
pub mod find_location;
pub mod observe;
pub mod satisfy;
