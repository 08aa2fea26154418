//! Connections to upstreams, as far as they need a loop.
//!
//! Not here: upstreams themselves, the crate `upstream`.

pub mod connect;
pub mod keepalive_pool;

pub use ::upstream::*;
pub use keepalive_pool::KeepalivePool;
