//! A response that came complete with its head: it is followed from memory, so that its writer need not follow.

use super::{Fill, FillProgress, Filler, PIECE_COST};
use bytes::Bytes;
use message::ResponseHead;
use std::sync::Arc;

/// A complete response that is followed because its entry is not in the index yet. To be dropped when the entry is in
/// the index, or will not be.
#[derive(Debug)]
#[must_use = "the answer is followed until this is dropped"]
pub struct Unindexed(Fill);

impl Filler {
    /// Ends the fill with its head and complete body. `Some` if the response is being stored: then requests may join
    /// (even if the fill was alone) until it is dropped.
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
        self.end_now(state, FillProgress::Complete);
        is_storing.then(|| Unindexed(self.fill.clone()))
    }
}

impl Unindexed {
    /// The fill.
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
