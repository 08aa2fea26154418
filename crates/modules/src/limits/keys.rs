//! The keys of a zone, shared by all loops behind one lock.
//!
//! Not here: the state of a key and the checks on it ([`super::requests`], [`super::connections`]).

use std::sync::Arc;

use parking_lot::Mutex;

use super::metrics::LimitFigures;
use super::table::{Hasher, Room, Table, TooLarge};

/// The state of a key.
pub trait KeyState: Copy {
    /// Bytes of the corresponding node in nginx, its key not counted.
    const NODE_BYTES: usize;
}

/// The keys of one zone and the state of each.
#[derive(Debug)]
pub struct Keys<V> {
    pub(super) hasher: Hasher,
    pub(super) keys: Mutex<Table<V>>,
    pub(super) figures: Arc<LimitFigures>,
}

impl<V: KeyState> Keys<V> {
    /// An empty zone of this many bytes; the results of requests are counted in `figures`.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn new(zone_bytes: u64, figures: Arc<LimitFigures>) -> Result<Self, TooLarge> {
        Ok(Self {
            hasher: Hasher::default(),
            keys: Mutex::new(Table::new(zone_bytes, V::NODE_BYTES)?),
            figures,
        })
    }

    /// Its counters.
    #[must_use]
    pub fn figures(&self) -> &LimitFigures {
        &self.figures
    }

    /// How full it is.
    #[must_use]
    pub fn room(&self) -> Room {
        self.keys.lock().room()
    }
}
