//! The settings of a location that passes requests on: the directives, and the values that are made of them once.
//!
//! * `directives`: of `proxy_pass`; `gateways`, `grpc`: those that FastCGI, uwsgi, SCGI and gRPC have alone; `families`: those
//!   that all share, under the names of each; `ssl`: of TLS to servers; `caching`, `store`: of a cache or of stored files; `cache_path`:
//!   the caches of a configuration.
//! * `url`, `bind`, `proxy_redirect`, `cookie_flags`: the values of some of them.
//! * `proxy_pass`: a location's directives, made ready; with `header_set`, `params` and `peer_tls`.
//!
//! Invariant: knows nothing of a request's exchange.

pub mod bind;
pub mod cache_path;
pub mod caching;
pub(crate) mod cookie_flags;
pub mod directives;
pub mod families;
pub mod family;
pub mod gateways;
pub mod grpc;
pub(crate) mod header_set;
pub(crate) mod params;
pub mod peer_tls;
pub mod proxy_pass;
pub(crate) mod proxy_redirect;
pub mod ssl;
pub mod store;
pub(crate) mod url;
