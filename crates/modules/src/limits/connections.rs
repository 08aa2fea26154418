//! The number of requests with a key that are being answered, as `limit_conn` counts them. nginx-drop-in 52.
//!
//! Invariant: a request is counted until its [`CountedRequest`] is dropped; a key with no requests takes no memory.

use std::sync::Arc;

use super::Counted;
use super::keys::{KeyState, Keys};
use super::table::Slot;

/// The reason why a request is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The key has its maximum number of requests.
    Limit,
    /// The zone has no room for the key.
    Full,
}

/// The keys of one zone, for all loops.
pub(crate) type Connections = Keys<u32>;

impl KeyState for u32 {
    const NODE_BYTES: usize = 36;
}

/// A request that is counted.
#[derive(Debug)]
pub struct CountedRequest {
    zone: Arc<Connections>,
    slot: Slot,
}

impl Connections {
    /// Counts a request with this key, for which `max` requests are allowed.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn take(self: &Arc<Self>, key: &[u8], max: u32) -> Result<CountedRequest, Refused> {
        let hash = self.hasher.hash(key);
        let mut keys = self.keys.lock();
        let slot = match keys.find(hash, key) {
            Some(slot) if keys.get(slot) >= max => return Err(Refused::Limit),
            Some(slot) => {
                *keys.get_mut(slot) += 1;
                slot
            }
            None => keys.insert(hash, key, 1).ok_or(Refused::Full)?,
        };
        Ok(CountedRequest {
            zone: Arc::clone(self),
            slot,
        })
    }
}

impl CountedRequest {
    /// Counts a request that all limits let pass, in the figures.
    pub fn count_passed(&self) {
        self.zone.figures.count(Counted::Passed);
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let mut keys = self.zone.keys.lock();
        match keys.get_mut(self.slot) {
            1 => keys.remove(self.slot),
            count => *count -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_until_it_is_dropped() {
        let zone = Arc::new(Connections::new(32 << 10, Arc::default()).expect("there is memory"));
        let first = zone.take(b"a", 2).expect("there is none");
        let second = zone.take(b"a", 2).expect("there is one");
        assert_eq!(zone.take(b"a", 2).err(), Some(Refused::Limit));
        assert!(zone.take(b"b", 1).is_ok());
        drop(first);
        assert!(zone.take(b"a", 2).is_ok());
        drop(second);
        let held: Vec<CountedRequest> = (0_u32..)
            .map_while(|number| zone.take(&number.to_le_bytes(), 1).ok())
            .collect();
        assert_eq!(held.len(), 6 * 64);
        assert_eq!(zone.take(b"a", 1).err(), Some(Refused::Full));
        drop(held);
        assert!(zone.take(b"a", 1).is_ok());
    }
}
