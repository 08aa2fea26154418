//! The request to an upstream server: where it goes, and all that is evaluated from the client's request for it.
//!
//! `request` makes it: of its `destination` (`resolve`: of a name that is known only then), its head (`head`,
//! `gateway_params`) and its body. `variation`: what a cache wants different. `log_context`: the request, for the
//! error log.

pub mod destination;
pub mod gateway_params;
pub(crate) mod head;
pub(crate) mod log_context;
pub mod request;
pub(crate) mod resolve;
mod tls_order;
pub mod variation;
