//! A request's state of being passed on, for variables and logs: data without decisions.

pub mod cache_state;
pub(crate) mod upstream_state;
pub mod variables;
