//! The last error lines and the last stalls, as events: they hold text of requests, as JSON strings.
//!
//! Invariant: their number is bounded at the source ([`logs::recent`], [`runtime::metrics::stalls`]).

use std::sync::Arc;

use bytes::Bytes;
use logs::recent::{self, Line};
use runtime::Ledger;
use runtime::metrics::json::StallObject;
use runtime::metrics::stalls::Stall;

use super::event::event;

/// The state of the lines that were sent.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The number of the next error.
    next_error: u64,
    /// The number of the next stall.
    next_stall: u64,
}

impl Lines {
    /// The new lines as an event, if there are any, and then all lines.
    pub(crate) fn take(&mut self, ledger: &Ledger) -> (Option<Bytes>, Vec<Bytes>) {
        let (errors, stalls) = (recent::lines(), ledger.stalls.last());
        let old_errors = errors.partition_point(|line| line.number < self.next_error);
        let old_stalls = stalls.partition_point(|stall| stall.number < self.next_stall);
        let (new_errors, new_stalls) = (&errors[old_errors..], &stalls[old_stalls..]);
        let mut new = Vec::new();
        if let Some(last) = new_errors.last() {
            self.next_error = last.number + 1;
            new.extend_from_slice(&of_errors(new_errors));
        }
        if let Some(last) = new_stalls.last() {
            self.next_stall = last.number + 1;
            new.extend_from_slice(&of_stalls(new_stalls));
        }
        if new.is_empty() {
            return (None, Vec::new());
        }
        (
            Some(new.into()),
            vec![of_errors(&errors), of_stalls(&stalls)],
        )
    }
}

fn of_errors(lines: &[Arc<Line>]) -> Bytes {
    let lines = lines.iter().map(|line| (line.level.name(), &line.text));
    event("errors", &lines.collect::<Vec<_>>())
}

fn of_stalls(stalls: &[Arc<Stall>]) -> Bytes {
    let stalls = stalls.iter().map(|stall| StallObject::of(stall));
    event("stalls", &stalls.collect::<Vec<_>>())
}
