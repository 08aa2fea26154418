//! An answer that came whole with its head: followed from memory, so that the one who writes it down need not follow.

use super::{Fill, Filler, PIECE_COST, Progress};
use bytes::Bytes;
use message::ResponseHead;
use std::sync::Arc;

/// Nobody finds the entry of an answer yet, which therefore is followed. To be dropped when the index knows it, or will not.
#[derive(Debug)]
#[must_use = "the answer is followed until this is dropped"]
pub struct Unindexed(Fill);

impl Filler {
    /// The head and the whole body are there, for everybody. Given back where it is being saved: others may join (also one that was
    /// alone) until that is dropped.
    pub fn finish_with(
        self,
        head: Arc<ResponseHead>,
        body: Bytes,
        is_storing: bool,
    ) -> Option<Unindexed> {
        let mut state = self.fill.0.state.lock();
        state.head = Some(head);
        state.is_storing = is_storing;
        state.end = body.len() as u64;
        if !body.is_empty() {
            state.cost.set(body.len() + PIECE_COST);
            state.pieces.reserve_exact(1);
            state.pieces.push_back((body.len() as u64, body));
        }
        self.end_now(state, Progress::Complete);
        is_storing.then(|| Unindexed(self.fill.clone()))
    }
}

impl Unindexed {
    /// What is followed.
    #[must_use]
    pub fn fill(&self) -> &Fill {
        &self.0
    }
}

impl Drop for Unindexed {
    fn drop(&mut self) {
        self.0.0.state.lock().is_storing = false;
        self.0.leave_registry();
    }
}
