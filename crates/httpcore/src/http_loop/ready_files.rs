//! The places of ready responses with files, of one loop.
//!
//! Not here: when one is used or kept ([`crate::files::hot_files`]). Invariant: there are at most `PLACES`.

use std::rc::Weak;

use disk::OpenFile;
use runtime::direct_mapped::Places;

use crate::Response;
use crate::route::{LocationId, ServerId};

/// Maximum number of ready responses of one loop; a power of two.
const PLACES: usize = 16_384;

/// The ready responses of one loop.
#[derive(Debug, Default)]
pub struct ReadyFiles(pub(crate) Places<Prepared, PLACES>);

impl ReadyFiles {
    /// Removes all of them, when memory is scarce.
    pub fn clear(&self) {
        self.0.clear();
    }
}

/// A ready response, and what a request must have in common with the one that it was made for.
pub(crate) struct Prepared {
    pub uri: Box<[u8]>,
    pub server: ServerId,
    pub generation: u64,
    pub location: LocationId,
    pub file: Weak<OpenFile>,
    pub head: Response,
}
