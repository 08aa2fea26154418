//! What a request remembers of being passed on, for the variables and the logs: data, and no judgement.

pub mod cache_state;
pub(crate) mod upstream_state;
pub mod variables;
