//! Distrust: every entry is verified again at its next use, as after a start.

use super::Store;
use crate::index::{Cursor, KeyState, STEP_MAX};

impl Store {
    /// Has every entry verified again when it is used next: its disk was out. Other tasks of the thread get their turn
    /// meanwhile.
    pub async fn distrust(&self) {
        if let Some(segments) = &self.0.segments {
            segments.set.forget_read_errors();
        }
        let index = &self.0.index;
        let mut cursor = Cursor::default();
        loop {
            let step = index.scan(&mut cursor, STEP_MAX);
            if step.is_empty() {
                return;
            }
            let verified = step
                .iter()
                .filter(|known| known.state == KeyState::Stored && known.is_verified);
            for known in verified {
                index.set_unverified(&known.key, known.extent.file);
            }
            tokio::task::yield_now().await;
        }
    }
}
