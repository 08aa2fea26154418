//! What followers of a fill are told beside the head and the body.

use crate::key::Key;
use crate::lifetime::Lifetime;
use bytes::Bytes;

/// An answer on its way into the cache.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// The names that it varies by, as [`crate::vary_names`] writes them; empty if it does not.
    pub vary: Bytes,
    /// Which variant it is ([`crate::variant`]); of no meaning where `vary` is empty.
    pub variant: Key,
    /// How long it may be used; None: it is not stored.
    pub lifetime: Option<Lifetime>,
}

/// Why a fill came to its end without an answer to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// What is stored has not changed: look again.
    Renewed,
    /// The origin's answer had this code, in place of which what is stored may be used.
    Covered(u16),
    /// No connection, or a lost one; the code that stands for it.
    Lost(u16),
    /// It took too long.
    TimedOut(u16),
    /// It was no answer.
    Invalid(u16),
    /// It could not be asked at all.
    Refused(u16),
}
