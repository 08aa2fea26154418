//! The last lines of errors and the last stalls, as events: they hold what requests said, as strings of JSON.
//!
//! Invariant: what is kept is bounded where it is kept ([`crate::log::recent`]).

use std::fmt::Write as _;

use bytes::Bytes;

use crate::figures::{Ledger, json};
use crate::log::recent::{self, Line};

/// What was told.
#[derive(Debug, Default)]
pub struct Lines {
    /// The number of the next error.
    next_error: u64,
}

impl Lines {
    /// What is new as an event, if anything is, and then all that there is.
    pub fn take(&mut self, _ledger: &Ledger) -> (Option<Bytes>, Vec<Bytes>) {
        let errors = recent::lines();
        let new: Vec<&Line> = errors
            .iter()
            .filter(|line| line.number >= self.next_error)
            .collect();
        let Some(last) = new.last() else {
            return (None, Vec::new());
        };
        self.next_error = last.number + 1;
        let all: Vec<&Line> = errors.iter().collect();
        (Some(event(&new)), vec![event(&all)])
    }
}

fn event(lines: &[&Line]) -> Bytes {
    let mut out = String::from("event: errors\ndata: [");
    for (nth, line) in lines.iter().enumerate() {
        out.push_str(if nth == 0 { "" } else { "," });
        // A String takes all that is written.
        let _ = write!(out, "[\"{}\",", line.level.name());
        json::string(&line.text, &mut out);
        out.push(']');
    }
    out.push_str("]\n\n");
    out.into()
}
