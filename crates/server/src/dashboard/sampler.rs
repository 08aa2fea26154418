//! The thread that takes samples: sampling would keep a loop too long, and a loop that stands still must be visible.
//!
//! Invariant: it holds nothing that a loop waits for, and ends together with the figures that it samples.

use std::sync::{Arc, Weak};
use std::time::Instant;

use logs::process_log::{Level, error_log};
use logs::recent;
use runtime::Ledger;
use runtime::metrics::now_ms;

use super::PERIOD;
use super::history;
use super::lines::Lines;
use super::series::Series;
use crate::monitoring::gather;

/// Begins to take samples, unless that was begun. It goes on whatever is reloaded.
pub(crate) fn begin(ledger: &Arc<Ledger>) {
    let mut is_sampled = history::of(ledger).is_sampled.lock();
    if *is_sampled {
        return;
    }
    recent::begin();
    let ledger = Arc::downgrade(ledger);
    let thread = std::thread::Builder::new().name("dashboard".to_owned());
    let started = thread.spawn(move || run(&ledger));
    if let Err(error) = &started {
        error_log(
            Level::Alert,
            format_args!(
                "the thread of the dashboard cannot be started ({error}): the next reload tries it again"
            ),
        );
    }
    *is_sampled = started.is_ok();
}

fn run(ledger: &Weak<Ledger>) {
    let (mut series, mut lines) = (Series::default(), Lines::default());
    let mut due = Instant::now();
    while let Some(ledger) = ledger.upgrade() {
        let page = gather::page(&ledger);
        let taken = series.take(&page, now_ms());
        let (new, all) = lines.take(&ledger);
        history::of(&ledger).add(taken, new, all);
        drop(ledger);
        // One that was missed (the machine slept) is not made up for.
        due = (due + PERIOD).max(Instant::now());
        while let Some(left) = due
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
        {
            std::thread::park_timeout(left);
        }
    }
}
