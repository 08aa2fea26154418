//! Those who wait until the log thread has written a batch.
//!
//! Invariant: at most one entry for each wait, and none of a wait that has ended: while a log's disk hangs, each request
//! that ends begins a wait and gives it up.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::ring::Ring;

/// The waits of all loops, by the batch that they wait for and their own number.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: BTreeMap<(u64, u64), Waker>,
    begun: u64,
}

impl Waiters {
    /// Wakes those whose batch is this one or an earlier one.
    pub(super) fn release(&mut self, upto: u64) {
        while let Some(first) = self.waiting.first_entry()
            && first.key().0 <= upto
        {
            first.remove().wake();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

/// A wait: ready when the thread has written the batch with this number, or naps.
pub(super) struct Progress<'a> {
    ring: &'a Ring,
    batch: u64,
    /// Its own number, once it waits.
    own: Option<u64>,
}

impl<'a> Progress<'a> {
    pub(super) fn of(ring: &'a Ring, batch: u64) -> Self {
        let own = None;
        Self { ring, batch, own }
    }
}

impl Future for Progress<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let queue = &mut *self.ring.queue.lock();
        if queue.has_settled(self.batch) {
            return Poll::Ready(());
        }
        let waiters = &mut queue.waiters;
        let own = *self.own.get_or_insert_with(|| {
            waiters.begun += 1;
            waiters.begun
        });
        let waker = context.waker().clone();
        waiters.waiting.insert((self.batch, own), waker);
        Poll::Pending
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(own) = self.own {
            let waiters = &mut self.ring.queue.lock().waiters;
            waiters.waiting.remove(&(self.batch, own));
        }
    }
}
