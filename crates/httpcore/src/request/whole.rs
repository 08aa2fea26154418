//! A response that sub-requests are parts of: the state that they share, and how each belongs to it.
//!
//! Not here: how parts are asked for and shown ([`crate::subrequest::include`]).

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use slots::{Family, Table};

use crate::Response;

/// The types of state that modules keep for the parts of one response.
pub static WHOLE: Family = Family::new();
/// Maximum number of them.
const STATES_MAX: usize = 2;

/// The state that the parts of one response share.
#[derive(Debug, Default)]
pub struct Whole {
    /// The charset of all parts; empty: each keeps its own.
    pub charset: Bytes,
    /// State that a module keeps for all of them.
    pub state: Table<STATES_MAX>,
    /// Whether the first of its page has been read, and the commands in it obeyed (`ssi`).
    pub is_read: Cell<bool>,
    /// Whether the part that is being polled stands behind the one that is shown.
    pub is_behind: Cell<bool>,
    /// Parts that are being requested.
    pub running: Cell<usize>,
    /// Parts that have been requested so far.
    pub(crate) asked: Cell<u32>,
}

impl Whole {
    /// A response with its parts, which have its charset.
    #[must_use]
    pub fn new(response: &Response) -> Self {
        Self {
            charset: response.declared_charset(),
            ..Self::default()
        }
    }
}

/// How a sub-request belongs to the one above it.
#[derive(Debug)]
pub struct Inclusion {
    /// The whole that it is a part of.
    pub whole: Rc<Whole>,
    /// Shown in the place of its response if that fails or is empty.
    pub stub: Option<Box<Response>>,
    /// Whether its body becomes the value of a variable.
    pub is_value: bool,
}
