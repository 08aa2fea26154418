//! `proxy_pass`: passing requests on to upstream servers, and their responses back, through a cache or not.
//!
//! * `settings`: what a location says, and what is made of that once.
//! * `state`: what a request remembers of its upstream servers and of its cache.
//! * `upstream_request`: the request as a server gets it.
//! * `response`: from the response of a server to ours.
//! * `exchange`: asks one server after the other.
//! * `caching`: the caches, and the way of a request through one.
//! * `pass`: the way of a request; `tunnel_pass`: that of a CONNECT.
//!
//! Invariants: an exchange borrows nothing of the request; a slow client does not hold the server of a buffered
//! response back, as far as a temporary file may reach.

#![warn(unreachable_pub)]

pub mod caching;
mod exchange;
pub mod pass;
pub mod response;
pub mod settings;
pub mod state;
pub mod tls_metrics;
pub mod tunnel_pass;
pub mod upstream_request;
