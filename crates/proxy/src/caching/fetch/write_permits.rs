//! Limits the complete answers that one loop hands to a cache's disk at a time.
//!
//! A loop can fetch faster than a pool's thread that shares its core can write. A backlog between the two costs more
//! than waiting: its bytes are no longer in the CPU's cache when they are written, and take new memory instead of
//! memory that was just used. So further answers wait until some are written; the thread that has written them wakes
//! the loop.
//!
//! Not here: how much may wait for a disk (`write_pace`). Invariant: no answer waits for longer than `PATIENCE`. Once
//! one has waited that long in vain (then the disk is slow, not the CPU), none waits for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use runtime::Loop;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum of responses that one loop writes at once: two batches of a pool thread.
const TURNS_MAX: usize = 32;
/// Maximum time that a response waits for one before it.
const PATIENCE: Duration = Duration::from_millis(50);
/// Milliseconds for which no response waits, after one has waited in vain.
const DISTRUST_MS: u64 = 5000;
/// Number of loops with permits of their own; with more, some share them.
const LOOPS_MAX: usize = 64;

/// The permits of one cache's disk.
#[derive(Debug)]
pub struct Turns {
    loops: Box<[Arc<Semaphore>]>,
    /// Until then no response waits, in milliseconds of the monotonic clock.
    distrusted_until: AtomicU64,
}

/// A response's permit; passes to the next one when it is dropped.
#[derive(Debug)]
#[must_use = "it is the next one's turn when this is dropped"]
pub struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Default for Turns {
    fn default() -> Self {
        let turns = || Arc::new(Semaphore::new(TURNS_MAX));
        Self {
            loops: std::iter::repeat_with(turns).take(LOOPS_MAX).collect(),
            distrusted_until: AtomicU64::new(0),
        }
    }
}

impl Turns {
    /// Waits a short time until one more response of this loop may be written.
    pub async fn take(&self, loop_: &Loop) -> Turn {
        let turns = &self.loops[loop_.index % LOOPS_MAX];
        let permit = match Arc::clone(turns).try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => self.wait(Arc::clone(turns), loop_).await,
        };
        Turn { _permit: permit }
    }

    async fn wait(&self, turns: Arc<Semaphore>, loop_: &Loop) -> Option<OwnedSemaphorePermit> {
        let now = wire::loop_clock::monotonic_ms;
        if now() < self.distrusted_until.load(Relaxed) {
            return None;
        }
        tokio::select! {
            biased;
            permit = turns.acquire_owned() => permit.ok(),
            () = loop_.wire.wheel.sleep(PATIENCE) => {
                self.distrusted_until.store(now() + DISTRUST_MS, Relaxed);
                None
            }
        }
    }
}
