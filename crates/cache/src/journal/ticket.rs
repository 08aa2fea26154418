//! Records on their way to the log.

use super::{JournalInner, JournalRecord};
use bytes::Bytes;
use disk::{BatchStep, Output};
use std::sync::Arc;

/// Records to be appended to the log: a [`BatchStep`] for the job that makes the change they describe. To be kept until
/// the index has the change too.
#[derive(Debug)]
#[must_use = "its step is to be taken, and the index changed, before it is dropped"]
pub(crate) struct Ticket {
    pub(super) frame: Bytes,
    pub(super) log: Output,
    pub(super) writer: Option<Arc<()>>,
    pub(super) journal: Arc<JournalInner>,
    /// The deferred records that it has beside its own.
    pub(super) deferred: Vec<JournalRecord>,
}

impl Ticket {
    /// The step that appends the records to the log.
    #[must_use]
    pub(crate) fn step(&self) -> BatchStep {
        BatchStep::Append(self.log.clone(), vec![self.frame.clone()])
    }

    /// The log and the bytes to append to it, for a caller that groups several tickets.
    #[must_use]
    pub(crate) fn record(&mut self) -> (Output, Bytes) {
        (self.log.clone(), std::mem::take(&mut self.frame))
    }

    /// Defers the records that it has beside its own again: it was not written.
    pub(crate) fn defer(mut self) {
        let deferred = self.take_deferred();
        self.journal.defer(deferred);
    }

    /// The records that it has beside its own, for a caller that gives it away, to be deferred again
    /// ([`Journal::defer`](super::Journal::defer)).
    #[must_use]
    pub(crate) fn take_deferred(&mut self) -> Vec<JournalRecord> {
        std::mem::take(&mut self.deferred)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.writer = None;
        self.journal.dropped.notify_waiters();
    }
}
