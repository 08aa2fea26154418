//! What only some requests have: state of modules that most configurations do not use, in one box.
//!
//! Who is the first to need it makes it ([`Request::rare`](super::Request::rare)). Not here: what the state means, which its module knows.
//! Invariant: a request that nobody keeps anything for costs one empty pointer.

use std::cell::Cell;

use crate::after::userid::Uids;

/// State of modules. An internal redirect forgets it, as nginx's contexts of modules.
#[derive(Debug, Default)]
pub struct Rare {
    /// What `userid` knows of the client.
    pub uids: Cell<Option<Uids>>,
}
