//! The order in which several responses for one key are published: the one that was requested last stays.
//!
//! A job that gives a file its name cannot be cancelled, and two such jobs end in any order. So the jobs of one key run
//! one after the other. A response is dropped if a newer one has been stored by then, or is waiting. What deletes a
//! key's file takes the same turn (`removal::claim_files`), so that it never removes a newer file of that name.
//!
//! Invariants: for one key at most one job runs, and at most one response waits, the newest; no lock is held meanwhile.

use super::Store;
use crate::error::Error;
use crate::index::KeyState;
use crate::key::Key;
use crate::purge::FetchMoment;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use parking_lot::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::oneshot;

/// The keys whose files are being published, each with the next one that waits.
#[derive(Debug, Default)]
pub(super) struct PublishOrder(Mutex<HashMap<[u8; 16], Option<PublishWaiter>>>);

#[derive(Debug)]
struct PublishWaiter {
    tag: u32,
    go: oneshot::Sender<PublishTurn>,
}

/// The right to publish a key's file. When it is dropped, it passes to the one that waits.
#[derive(Debug)]
#[must_use = "it is the next one's turn when this is dropped"]
pub(super) struct PublishTurn {
    store: Store,
    key: Key,
}

impl PublishTurn {
    pub(super) fn is_of(&self, key: &Key) -> bool {
        self.key == *key
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }
}

#[cfg(test)]
impl PublishOrder {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl Store {
    /// Waits for the right to publish a key's file.
    ///
    /// # Errors
    /// [`Error::Superseded`].
    pub(super) async fn turn(&self, key: Key, tag: u32) -> Result<PublishTurn, Error> {
        let turn = match self.take_turn(key, tag)? {
            Ok(turn) => turn,
            Err(waits) => waits.await.map_err(|_| Error::Superseded)?,
        };
        match self.is_superseded(&key, tag) {
            true => Err(Error::Superseded),
            false => Ok(turn),
        }
    }

    /// The right to publish a key's file. None: another one has it.
    pub(super) fn try_turn(&self, key: Key) -> Option<PublishTurn> {
        match self.0.publish_order.0.lock().entry(key.0) {
            Entry::Occupied(_) => None,
            Entry::Vacant(place) => {
                place.insert(None);
                let store = self.clone();
                Some(PublishTurn { store, key })
            }
        }
    }

    /// Is a response stored under this key that was requested later?
    #[must_use]
    pub fn has_newer(&self, key: &Key, moment: &FetchMoment) -> bool {
        self.is_superseded(key, moment.tag())
    }

    fn is_superseded(&self, key: &Key, tag: u32) -> bool {
        let stored = self.0.index.peek(key);
        let stored = stored.filter(|known| known.state == KeyState::Stored);
        stored.is_some_and(|known| self.is_newer(known.extent.file, tag))
    }

    /// The turn, or a receiver for it.
    fn take_turn(
        &self,
        key: Key,
        tag: u32,
    ) -> Result<Result<PublishTurn, oneshot::Receiver<PublishTurn>>, Error> {
        let mut turns = self.0.publish_order.0.lock();
        let next = match turns.entry(key.0) {
            Entry::Vacant(place) => {
                place.insert(None);
                let store = self.clone();
                return Ok(Ok(PublishTurn { store, key }));
            }
            Entry::Occupied(running) => running.into_mut(),
        };
        if next
            .as_ref()
            .is_some_and(|next| self.is_newer(next.tag, tag))
        {
            return Err(Error::Superseded);
        }
        let (go, waits) = oneshot::channel();
        // This drops the sender of the older one that waited, which tells it so.
        *next = Some(PublishWaiter { tag, go });
        Ok(Err(waits))
    }

    /// Was the response with tag `a` requested after the one with tag `b` (of this process)?
    fn is_newer(&self, a: u32, b: u32) -> bool {
        let until_now = self.0.next_tag.load(Relaxed).wrapping_sub(b);
        (1..until_now).contains(&a.wrapping_sub(b))
    }
}

impl Drop for PublishTurn {
    fn drop(&mut self) {
        let (store, key) = (self.store.clone(), self.key);
        let next = {
            let mut turns = store.0.publish_order.0.lock();
            let next = turns.get_mut(&key.0).and_then(Option::take);
            if next.is_none() {
                turns.remove(&key.0);
            }
            next
        };
        if let Some(next) = next {
            // If the receiver is gone, this drops its turn.
            let _ = next.go.send(PublishTurn { store, key });
        }
    }
}
