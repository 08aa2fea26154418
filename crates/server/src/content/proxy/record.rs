//! What is known of the servers that a request was passed on to: for the variables and the logs.
//!
//! Shared by the request and by what asks the servers, which may outlive it (a cache's fill). Invariant: all of it stays on one loop.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use message::{Header, ResponseHead};

use crate::upstream::tries::Tries;

/// What a request knows of it.
#[derive(Debug, Default)]
pub struct Passed {
    /// What was tried.
    pub record: Rc<Record>,
    /// `$proxy_host`.
    pub host: Bytes,
    /// `$proxy_port`.
    pub port: Bytes,
    /// The head of the last answer (`$upstream_http_…`).
    pub head: Option<Box<ResponseHead>>,
}

/// What was tried.
#[derive(Debug, Default)]
pub struct Record {
    /// Try after try.
    pub tries: RefCell<Tries>,
    /// Behind the last answer (`$upstream_trailer_…`).
    pub trailers: RefCell<Vec<Header>>,
}
