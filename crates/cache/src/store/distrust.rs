//! Distrust: every entry is verified at each use while its disk fails, and again at its next use when it does not any more,
//! as after a start.
//!
//! A file system that cannot write what it has taken drops it: what is read then has holes, without an error, or comes from
//! memory until that is needed, and then from a disk that never got it (ext4: blocks whose writing failed stay unwritten,
//! and are read as zeros).

use super::Store;
use crate::index::{Cursor, KeyState, STEP_MAX};
use std::sync::atomic::Ordering::Relaxed;

impl Store {
    /// Whether an entry that was verified, or written, is used without being verified.
    pub fn trust(&self, is_trusted: bool) {
        self.0.index.trust(is_trusted);
    }

    /// Has every entry verified again, from the disk, when it is used next: its disk was failing or out. Other tasks of the
    /// thread get their turn meanwhile.
    pub async fn distrust(&self) {
        self.0.was_distrusted.store(true, Relaxed);
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
