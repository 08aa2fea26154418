//! Connections to upstreams, and what is shown of them, as far as that needs a loop or its metrics.
//!
//! Not here: upstreams themselves, the crate `upstream`.

pub mod connect;
pub mod keepalive_pool;
pub mod metrics;

pub use ::upstream::*;
pub use keepalive_pool::KeepalivePool;
