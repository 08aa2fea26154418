//! Which of several answers for one key is stored: the one that was asked for last.
//!
//! A job that gives a file its name cannot be taken back, and two of them end in any order. So those of one key are given to the
//! disk one after the other; an answer that is older than what is stored by then, or than another that waits, is given up.
//!
//! Invariants: for one key at most one job runs and at most one answer waits, the newest; no lock is held meanwhile.

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

/// The keys whose files get their names now, and who is next.
#[derive(Debug, Default)]
pub(super) struct PublishOrder(Mutex<HashMap<[u8; 16], Option<Waiter>>>);

#[derive(Debug)]
struct Waiter {
    tag: u32,
    go: oneshot::Sender<PublishTurn>,
}

/// Nobody else gives a file this key's name until this is dropped; then it is the next one's.
#[derive(Debug)]
#[must_use = "it is the next one's turn when this is dropped"]
pub(super) struct PublishTurn {
    store: Store,
    key: Key,
}

#[cfg(test)]
impl PublishOrder {
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl Store {
    /// Waits until no other file gets this key's name.
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

    /// Is something stored under this key that was asked for later?
    #[must_use]
    pub fn has_newer(&self, key: &Key, moment: &FetchMoment) -> bool {
        self.is_superseded(key, moment.tag())
    }

    fn is_superseded(&self, key: &Key, tag: u32) -> bool {
        let stored = self.0.index.peek(key);
        let stored = stored.filter(|known| known.state == KeyState::Stored);
        stored.is_some_and(|known| self.is_newer(known.extent.file, tag))
    }

    /// The turn, or what says when it comes.
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
        // The older one that waited learns it by this.
        *next = Some(Waiter { tag, go });
        Ok(Err(waits))
    }

    /// Was what has the tag `a` asked for after what has the tag `b` (one of this process)?
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
            // If it has gone, this drops its turn.
            let _ = next.go.send(PublishTurn { store, key });
        }
    }
}
