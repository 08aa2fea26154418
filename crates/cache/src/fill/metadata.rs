//! What followers of a fill learn beside the head and the body.

use crate::key::Key;
use crate::lifetime::Lifetime;
use bytes::Bytes;

/// Metadata of a response that is being stored.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// The names in `Vary`, as `vary_names` writes them; empty if there are none.
    pub vary: Bytes,
    /// The key of its variant ([`crate::variant`]); without meaning if `vary` is empty.
    pub variant: Key,
    /// How long it may be used; None: it is not stored.
    pub lifetime: Option<Lifetime>,
}

/// Why a fill ended without a response to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The stored response was revalidated: look it up again.
    Renewed,
    /// The origin responded with this status; the stored response may be used instead.
    Covered(u16),
    /// No connection, or a lost one; with the status that stands for it.
    Lost(u16),
    /// It timed out.
    TimedOut(u16),
    /// The response was invalid.
    Invalid(u16),
    /// The origin could not be asked at all.
    Refused(u16),
}
