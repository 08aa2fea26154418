//! The sums of the loops' metrics: of each loop number, and of all loops together.
//!
//! Invariant: no loop is asked for anything, so that a blocked one is shown too.

use std::collections::BTreeMap;

use disk::metrics::Times;

use super::ledger::{Entry, Ledger};
use crate::families;
use crate::metrics::Page;
use crate::timing::cpu_wait::unserved_in;
use crate::timing::poll_timing::now_ns;
use crate::timing::{Kind, LoopFigures};

families! {
    /// The families of these metrics.
    pub FAMILIES;
    LOOP_BUSY Counter "freewheel_loop_busy_seconds" "seconds" ["loop"] "Time that a loop spent in its tasks; its rate is the busy share.";
    LOOP_UNSERVED Counter "freewheel_loop_processor_wait_seconds" "seconds" ["loop"] "Time that a loop was ready and had no processor, because the machine was busy: no request is the cause of such a wait. Missing if the kernel does not report it.";
    LOOP_BLOCKED Histogram "freewheel_event_loop_blocked_seconds" "seconds" ["loop"] "Time from an event's arrival at a loop to the start of the task that handles it.";
    LOOP_POLL Histogram "freewheel_loop_poll_seconds" "seconds" ["loop"] "Time that tasks kept the loop per poll.";
    LOOP_TICK Histogram "freewheel_loop_tick_lateness_seconds" "seconds" ["loop"] "Lateness of a tick of one millisecond: until the end of the loop's iteration, or until it woke.";
    LOOP_LONGEST Gauge "freewheel_loop_longest_poll_seconds" "seconds" ["loop", "task"] "The longest poll so far, with the kind of its task.";
    LOOP_RUNNING Gauge "freewheel_loop_current_poll_seconds" "seconds" ["loop"] "Duration of the poll in progress; 0: none. It is not yet included in the other metrics, except the busy time.";
    LOOP_CONNECTIONS Gauge "freewheel_loop_connections" "" ["loop", "state"] "Connections of clients: reading a request, writing a response, waiting for a request.";
    LOOP_ACCEPTED Counter "freewheel_loop_accepted_connections" "" ["loop"] "Connections accepted by a loop's sockets.";
    LOOP_REQUESTS Counter "freewheel_loop_requests" "" ["loop"] "Requests whose head was read.";
}

/// The figures of one loop number; an ending loop may have the same number as a serving one.
#[derive(Debug, Default)]
pub struct LoopSum {
    /// `event_loop_blocked`.
    pub blocked: Times,
    /// Durations of polls.
    pub polls: Times,
    /// Lateness of ticks.
    pub ticks: Times,
    /// Duration so far of the poll that runs now, in nanoseconds.
    pub running_ns: u64,
    /// Connections now.
    pub connections: u64,
    in_exchange: u64,
    /// Connections that answer, a part of these.
    pub answering: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Requests begun.
    pub requests: u64,
    /// The longest poll.
    pub longest_ns: u64,
    /// The kind of task of the longest poll.
    pub longest: Option<Kind>,
    /// Time that the loop was ready without a processor, in nanoseconds; `None`: unknown.
    pub unserved_ns: Option<u64>,
}

impl LoopSum {
    fn add(&mut self, entry: &Entry) {
        let figures = &entry.figures;
        self.blocked.merge(&figures.blocked);
        self.polls.merge(&figures.polls);
        self.ticks.merge(&figures.ticks);
        // Read after the ended polls: a poll that ends in between is counted the next time, and never twice.
        let began_ns = figures.began_ns.get();
        if began_ns > 0 {
            self.running_ns += now_ns().saturating_sub(began_ns);
        }
        self.add_numbers(figures, entry.connections());
        // The thread id of a thread that has ended may belong to another one by now.
        let look = |thread| entry.is_alive().then(|| unserved_ns(thread))?;
        if let Some(ns) = figures.unserved.lock().sum_ns(look) {
            *self.unserved_ns.get_or_insert_default() += ns;
        }
        if figures.longest_ns.get() > self.longest_ns {
            self.longest_ns = figures.longest_ns.get();
            self.longest = *figures.longest.lock();
        }
    }

    fn add_numbers(&mut self, figures: &LoopFigures, connections: u64) {
        self.connections += connections;
        self.in_exchange += figures.in_exchange.get();
        self.answering += figures.answering.get();
        self.accepted += figures.accepted.get();
        self.requests += figures.requests.get();
    }

    /// Connections that read a request. (The numbers are read one after the other while they change.)
    #[must_use]
    pub fn reading(&self) -> u64 {
        self.in_exchange.saturating_sub(self.answering)
    }

    /// Connections that wait for one.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.connections.saturating_sub(self.in_exchange)
    }
}

/// The numbers of all loops together, without times.
#[must_use]
pub fn all(ledger: &Ledger) -> LoopSum {
    let mut sum = LoopSum::default();
    ledger.each(|entry| sum.add_numbers(&entry.figures, entry.connections()));
    sum
}

/// The figures of each loop.
#[must_use]
pub fn by_number(ledger: &Ledger) -> BTreeMap<usize, LoopSum> {
    let mut sums: BTreeMap<usize, LoopSum> = BTreeMap::new();
    for entry in ledger.entries() {
        let sum = sums.entry(entry.figures.index).or_default();
        sum.add(&entry);
    }
    sums
}

/// Time that a thread of this process was ready without a processor, in nanoseconds.
///
/// **Blocks** on reading /proc, which has no disk behind it: not on a loop.
#[expect(
    clippy::disallowed_methods,
    reason = "procfs, in a thread that gathers metrics"
)]
fn unserved_ns(thread: i32) -> Option<u64> {
    unserved_in(&std::fs::read(format!("/proc/self/task/{thread}/schedstat")).ok()?)
}

/// Shows the loops, and what kept them.
pub fn show(ledger: &Ledger, page: &mut Page) {
    for (index, sum) in by_number(ledger) {
        show_one(page, &index.to_string(), &sum);
    }
    ledger.stalls.show(page);
}

fn show_one(page: &mut Page, index: &str, sum: &LoopSum) {
    let busy_ns = sum.polls.sum_ns() + sum.running_ns;
    page.nanoseconds(&LOOP_BUSY, &[index], busy_ns);
    page.nanoseconds(&LOOP_RUNNING, &[index], sum.running_ns);
    page.times(&LOOP_BLOCKED, &[index], sum.blocked.clone());
    page.times(&LOOP_POLL, &[index], sum.polls.clone());
    page.times(&LOOP_TICK, &[index], sum.ticks.clone());
    let kind = sum.longest.map_or("none", Kind::name);
    page.nanoseconds(&LOOP_LONGEST, &[index, kind], sum.longest_ns);
    let states = [
        ("reading", sum.reading()),
        ("writing", sum.answering),
        ("waiting", sum.waiting()),
    ];
    for (state, count) in states {
        page.whole(&LOOP_CONNECTIONS, &[index, state], count);
    }
    if let Some(ns) = sum.unserved_ns {
        page.nanoseconds(&LOOP_UNSERVED, &[index], ns);
    }
    page.whole(&LOOP_ACCEPTED, &[index], sum.accepted);
    page.whole(&LOOP_REQUESTS, &[index], sum.requests);
}
