//! Write back-pressure: what limits what is written to a cache's disk. As much is written as the disk takes; the rest
//! goes past it, from the origin to the clients.
//!
//! A fill meets three limits, one after the other:
//! * a permit (`WriteBackpressure::permit`): one loop has a limited number of complete answers written at a time. A
//!   loop can fetch faster than a pool's thread that shares its core can write. A backlog between the two costs more
//!   than waiting: its bytes are no longer in the CPU's cache when they are written, and take new memory instead of
//!   memory that was just used. So further answers wait until some are written; the thread that has written them wakes
//!   the loop.
//! * the backlog (`WriteBackpressure::admits`): what waits for the disk, in bytes and in writes. Behind a long one a
//!   fill waits a little, then it is not stored.
//! * patience (`WriteBackpressure::push`): a body that arrives piece by piece is held back by the disk for a limited
//!   time in all, then the rest is not stored.
//!
//! Not here: the writing (`fetch::write_entry`). Invariants: the bytes that wait for a disk are bounded, and no request
//! waits for it longer than the times below. Once a fill has waited in vain (then the disk is slow, not the CPU), none
//! waits for a while.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use cache::Store;
use cache::fill::Filler;
use disk::memory::level::level;
use disk::memory::{self, MemoryLevel};
use runtime::Loop;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum of responses that one loop writes at once: two batches of a pool thread.
const PERMITS_MAX: usize = 32;
/// Maximum time that a response waits for a permit.
const PERMIT_PATIENCE: Duration = Duration::from_millis(50);
/// Number of loops with permits of their own; with more, some share them.
const LOOPS_MAX: usize = 64;

/// Maximum of writes that wait for a disk; above it responses are passed on and not stored.
const WRITES_WAITING_MAX: usize = 16_384;
/// Maximum size of complete responses that wait for a disk, in bytes (fewer where memory is short); above it the next
/// ones are passed on and not stored.
const UNSAVED_BYTES_MAX: u64 = 128 << 20;
/// From this fraction of these limits on, the next fill waits a little: perhaps only the CPU is behind.
const HURRIED: u64 = 8;
/// Maximum time of that wait.
const BACKLOG_PATIENCE: Duration = Duration::from_millis(250);
/// Interval at which it checks whether the backlog is shorter.
const BACKLOG_LOOK: Duration = Duration::from_millis(2);

/// Maximum total time for which a fill lets the disk hold back its clients; then the response is passed on and not
/// stored.
pub(crate) const DISK_PATIENCE: Duration = Duration::from_secs(1);
/// Interval at which it is checked whether the disk is the cause.
const DISK_LOOK: Duration = Duration::from_millis(100);

/// Milliseconds for which none waits, after one has waited in vain.
const DISTRUST_MS: u64 = 5000;

/// The back-pressure of one cache's disk.
#[derive(Debug)]
pub struct WriteBackpressure {
    permits: Box<[Arc<Semaphore>]>,
    permit_waits: Trust,
    unsaved: AtomicU64,
    backlog_waits: Trust,
}

/// A response's permit; passes to the next one when it is dropped.
#[derive(Debug)]
#[must_use = "it is the next one's when this is dropped"]
pub(crate) struct WritePermit {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Whether waits of one kind are worth their time: not for a while after one in vain.
#[derive(Debug, Default)]
struct Trust {
    /// None waits until then, in milliseconds of the monotonic clock.
    lost_until_ms: AtomicU64,
}

impl Trust {
    fn is_given(&self) -> bool {
        self.lost_until_ms.load(Relaxed) <= now_ms()
    }

    fn lose(&self) {
        self.lost_until_ms.store(now_ms() + DISTRUST_MS, Relaxed);
    }
}

fn now_ms() -> u64 {
    wire::loop_clock::monotonic_ms()
}

impl Default for WriteBackpressure {
    fn default() -> Self {
        let permits = || Arc::new(Semaphore::new(PERMITS_MAX));
        Self {
            permits: std::iter::repeat_with(permits).take(LOOPS_MAX).collect(),
            permit_waits: Trust::default(),
            unsaved: AtomicU64::new(0),
            backlog_waits: Trust::default(),
        }
    }
}

impl WriteBackpressure {
    /// Waits a short time until one more response of this loop may be written.
    pub(crate) async fn permit(&self, loop_: &Loop) -> WritePermit {
        let permits = &self.permits[loop_.index % LOOPS_MAX];
        let permit = match Arc::clone(permits).try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => self.wait_for_permit(Arc::clone(permits), loop_).await,
        };
        WritePermit { _permit: permit }
    }

    async fn wait_for_permit(
        &self,
        permits: Arc<Semaphore>,
        loop_: &Loop,
    ) -> Option<OwnedSemaphorePermit> {
        if !self.permit_waits.is_given() {
            return None;
        }
        tokio::select! {
            biased;
            permit = permits.acquire_owned() => permit.ok(),
            () = loop_.wire.wheel.sleep(PERMIT_PATIENCE) => {
                self.permit_waits.lose();
                None
            }
        }
    }

    /// Adds bytes that have arrived and are to be written.
    pub(crate) fn begin_saving(&self, bytes: u64) {
        self.unsaved.fetch_add(bytes, Relaxed);
    }

    /// Subtracts bytes that were written or given up.
    pub(crate) fn end_saving(&self, bytes: u64) {
        self.unsaved.fetch_sub(bytes, Relaxed);
    }

    /// Bytes that wait to be written.
    #[must_use]
    pub fn unsaved(&self) -> u64 {
        self.unsaved.load(Relaxed)
    }

    /// Whether the waiting writes exceed one in `part` of the limit.
    fn is_behind(&self, store: &Store, part: u64) -> bool {
        let writes = store.writes_waiting();
        let unsaved_max = UNSAVED_BYTES_MAX.min(memory::budget() / memory::UNSAVED_SHARE);
        self.unsaved() > unsaved_max / part || writes as u64 > WRITES_WAITING_MAX as u64 / part
    }

    /// Whether the disk has room for one more response. One of several that were asked for at once (`proxy_cache_lock
    /// off`) is not worth storing where they get in each other's way.
    pub(crate) async fn admits(&self, store: &Store, loop_: &Loop, is_alone: bool) -> bool {
        if level() >= MemoryLevel::Fills {
            return false;
        }
        let is_wanted = !is_alone || self.backlog_waits.is_given();
        is_wanted && self.wait_for_backlog(store, loop_).await
    }

    /// Waits until earlier responses are written, where that is soon. False: the disk is so far behind that it is given
    /// nothing more. (A loop can fetch faster than the pool beside it can write, even on an otherwise idle disk.)
    async fn wait_for_backlog(&self, store: &Store, loop_: &Loop) -> bool {
        if !self.is_behind(store, HURRIED) {
            return true;
        }
        let begun = now_ms();
        // After one fill has just waited in vain, no other one waits.
        while self.backlog_waits.is_given() {
            loop_.wire.wheel.sleep(BACKLOG_LOOK).await;
            if !self.is_behind(store, HURRIED) {
                return true;
            }
            if now_ms() - begun > BACKLOG_PATIENCE.as_millis() as u64 {
                self.backlog_waits.lose();
            }
        }
        !self.is_behind(store, 1)
    }

    /// Hands a piece of a body to the followers and the writer of its fill; false: they need no more. The disk may hold
    /// it back for what is left of `patience`; after that the body is not stored, and `given_up` is called.
    pub(crate) async fn push(
        &self,
        loop_: &Loop,
        filler: &Filler,
        piece: Bytes,
        patience: &mut Duration,
        given_up: impl Fn(),
    ) -> bool {
        let mut push = pin!(filler.push(piece));
        loop {
            tokio::select! {
                biased;
                outcome = &mut push => return outcome.is_ok(),
                () = loop_.wire.wheel.sleep(DISK_LOOK) => {}
            }
            if filler.is_held_by_disk() {
                *patience = patience.saturating_sub(DISK_LOOK);
                if patience.is_zero() {
                    filler.stop_storing();
                    given_up();
                    self.backlog_waits.lose();
                }
            }
        }
    }
}
