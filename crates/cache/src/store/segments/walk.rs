//! Finding what is in the segments without the journal: each tells by its table, or entry by entry.

use crate::error::Error;
use crate::index::{KeyState, KnownKey};
use crate::segments::SegmentUse;
use crate::store::Store;
use disk::{Lane, Local};

/// Entries that are put into the index before other tasks get their turn.
const ENTRIES_OF_STEP: usize = 1024;

/// The segments that are still to be read, the newest last taken first.
#[derive(Debug)]
pub(in crate::store) struct SegmentsWalk {
    /// The oldest first.
    left: Vec<SegmentUse>,
    /// Was one left out, because it cannot be read?
    pub is_partial: bool,
}

impl SegmentsWalk {
    /// None: there is none.
    pub(in crate::store) fn new(store: &Store) -> Option<Self> {
        let segments = store.0.segments.as_ref();
        let mut left = segments.map_or_else(Vec::new, |segments| segments.set.readable());
        left.reverse();
        let is_partial = false;
        (!left.is_empty()).then_some(Self { left, is_partial })
    }

    /// Reads the next segment, and puts what the index does not know into it. True: that was the last.
    ///
    /// # Errors
    /// [`Error::Disk`]: the step is to be repeated.
    pub(in crate::store) async fn step(
        &mut self,
        local: &Local,
        store: &Store,
    ) -> Result<bool, Error> {
        let Some(of) = self.left.last().cloned() else {
            return Ok(true);
        };
        let sequence = of.header.sequence;
        let (reader, pool) = (store.clone(), &store.0.settings.pool);
        let read = pool.run(Lane::Read, move || reader.entries_of(&of));
        let read = read.await.map_err(disk::Error::from)?;
        // A segment that cannot be read has nothing that could be found now.
        let entries = read.unwrap_or_else(|error| {
            self.is_partial |= error.errno().is_some();
            Vec::new()
        });
        // What was written last comes first: an older entry of the same key does not replace it.
        for part in entries.rchunks(ENTRIES_OF_STEP) {
            let gone = store.take_out(|_| {
                let each = part.iter().rev();
                each.flat_map(|known| store.adopt(known, sequence))
                    .collect::<Vec<_>>()
            });
            store.delete(local, gone).await?;
            tokio::task::yield_now().await;
        }
        self.left.pop();
        Ok(self.left.is_empty())
    }
}

impl Store {
    /// Puts an entry into the index that was found in a segment with this number in the order of writing, unless it may
    /// not be found any more or the index has one. Returns the one that had to give way.
    pub(in crate::store) fn adopt(&self, known: &KnownKey, sequence: u64) -> Option<KnownKey> {
        let set = &self.0.segments.as_ref()?.set;
        // Asked before anything gives way to it, too.
        if !set.has_found(&known.extent, sequence) {
            return None;
        }
        if self.0.journal.has_left_out() {
            let present = self.0.index.peek(&known.key);
            if present.is_none_or(|present| present.extent != known.extent) {
                set.leave_found(&known.extent, sequence);
            }
            return None;
        }
        let known = KnownKey {
            is_verified: false,
            // As of an entry that is found in a file of its own: compared with all purges that are pending.
            clean_of: self.0.rules.floor(),
            ..*known
        };
        // The writer may empty the segment and fill it anew at any moment, and a fill may store the key.
        let enters = || set.enter_found(&known.extent, sequence);
        let evicted = self.0.index.put_absent(&known, enters);
        evicted.filter(|known| known.state == KeyState::Stored)
    }
}
