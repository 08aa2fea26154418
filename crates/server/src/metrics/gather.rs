//! Gathers a page of all figures, as they are now.
//!
//! Not here: counting. Invariant: no loop is asked for anything, so that a blocked one is shown too.

use std::collections::BTreeMap;

use disk::PoolCounters;
use disk::metrics::Times;

use super::of_modules::{ModuleSum, Used};
use super::page::Value;
use super::parts;
use super::process::{Process, unserved_ns};
use super::{Entry, Family, Ledger, LoopFigures, Page, limits};
use crate::loops::Kind;
use crate::loops::poll_timing::now_ns;
use crate::memory;
use crate::memory::figures::Known;

/// All figures.
#[must_use]
pub fn page(ledger: &Ledger) -> Page {
    let mut page = Page::default();
    page.whole(Family::BuildInfo, &[env!("CARGO_PKG_VERSION")], 1);
    let seconds = |ms: u64| Value::Real(ms as f64 / 1e3);
    page.add(Family::ProcessStart, &[], seconds(ledger.started_ms));
    page.whole(Family::Generation, &[], ledger.generation.get());
    page.add(Family::Configured, &[], seconds(ledger.configured_ms.get()));
    let took = ledger.configuring_ns.get();
    page.nanoseconds(Family::ConfigurationTook, &[], took);
    for (index, sum) in loops(ledger) {
        add_loop(&mut page, &index.to_string(), &sum);
    }
    page.whole(Family::Stalls, &[], ledger.stalls.count());
    page.whole(Family::ProcessorWaits, &[], ledger.stalls.processor_waits());
    parts::add_zones(&mut page, &ledger.zones);
    for pool in ledger.disk.pool_counters() {
        add_pool(&mut page, pool);
    }
    add_logs(&mut page, ledger);
    let anonymous_bytes = add_process(&mut page);
    parts::add_disks(&mut page, &ledger.disk);
    // Outside the lock: a thread that applies a configuration never waits for this.
    let settings = ledger.settings.lock().upgrade();
    let used = settings.as_deref().map(Used::of).unwrap_or_default();
    modules(ledger).show(&mut page, &used);
    let known = Known {
        connections: all_loops(ledger).connections,
        index_bytes: settings.as_deref().map_or(0, parts::index_bytes),
        anonymous_bytes,
    };
    memory::figures::add(&mut page, &ledger.memory, known);
    if let Some(settings) = settings {
        parts::add_caches(&mut page, &settings);
        parts::add_connections(&mut page, &settings);
        limits::add(&mut page, &settings.limits);
    }
    parts::add_peers(&mut page);
    page
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
pub fn all_loops(ledger: &Ledger) -> LoopSum {
    let mut sum = LoopSum::default();
    for entry in ledger.loops.lock().iter() {
        sum.add_numbers(&entry.figures, entry.connections());
    }
    sum
}

/// The figures of each loop.
#[must_use]
pub fn loops(ledger: &Ledger) -> BTreeMap<usize, LoopSum> {
    let mut sums: BTreeMap<usize, LoopSum> = BTreeMap::new();
    // A copy: adding up takes long, and a loop may want to know of all connections meanwhile.
    let entries = ledger.loops.lock().clone();
    for entry in entries {
        let sum = sums.entry(entry.figures.index).or_default();
        sum.add(&entry);
    }
    sums
}

/// The modules' counters, summed over all loops.
fn modules(ledger: &Ledger) -> ModuleSum {
    let mut sum = ModuleSum::default();
    // A copy, as below.
    let entries = ledger.loops.lock().clone();
    for entry in entries {
        sum.add(&entry.figures.modules);
    }
    sum
}

fn add_loop(page: &mut Page, index: &str, sum: &LoopSum) {
    let busy_ns = sum.polls.sum_ns() + sum.running_ns;
    page.nanoseconds(Family::LoopBusy, &[index], busy_ns);
    page.nanoseconds(Family::LoopRunning, &[index], sum.running_ns);
    page.times(Family::LoopBlocked, &[index], sum.blocked.clone());
    page.times(Family::LoopPoll, &[index], sum.polls.clone());
    page.times(Family::LoopTick, &[index], sum.ticks.clone());
    let kind = sum.longest.map_or("none", Kind::name);
    page.nanoseconds(Family::LoopLongest, &[index, kind], sum.longest_ns);
    let states = [
        ("reading", sum.reading()),
        ("writing", sum.answering),
        ("waiting", sum.waiting()),
    ];
    for (state, count) in states {
        page.whole(Family::LoopConnections, &[index, state], count);
    }
    if let Some(ns) = sum.unserved_ns {
        page.nanoseconds(Family::LoopUnserved, &[index], ns);
    }
    page.whole(Family::LoopAccepted, &[index], sum.accepted);
    page.whole(Family::LoopRequests, &[index], sum.requests);
}

fn add_pool(page: &mut Page, pool: PoolCounters) {
    let name = &pool.name;
    let threads = [
        ("max", pool.threads),
        ("started", pool.started),
        ("busy", pool.running),
    ];
    for (state, count) in threads {
        page.whole(Family::PoolThreads, &[name, state], count as u64);
    }
    for (lane, count) in [("read", pool.reads_waiting), ("write", pool.writes_waiting)] {
        page.whole(Family::PoolQueue, &[name, lane], count as u64);
    }
    page.whole(Family::PoolRejected, &[name], pool.rejected);
    page.times(Family::PoolWaiting, &[name], pool.waiting);
    page.times(Family::PoolRunning, &[name], pool.ran);
}

fn add_logs(page: &mut Page, ledger: &Ledger) {
    let logs = ledger.logs.figures();
    let lines = [
        ("written", logs.written),
        ("dropped", logs.dropped),
        ("failed", logs.failed),
    ];
    for (outcome, count) in lines {
        page.whole(Family::LogLines, &[outcome], count);
    }
    page.whole(Family::LogBytes, &[], logs.bytes);
}

/// Adds the process's figures; returns its bytes of anonymous memory.
fn add_process(page: &mut Page) -> u64 {
    let process = Process::look();
    let memory = [
        ("anonymous", process.anonymous_bytes),
        ("resident", process.resident_bytes),
        ("virtual", process.virtual_bytes),
    ];
    for (kind, bytes) in memory {
        page.whole(Family::ProcessMemory, &[kind], bytes);
    }
    page.whole(Family::ProcessDescriptors, &["open"], process.descriptors);
    let max = process.descriptors_max;
    page.whole(Family::ProcessDescriptors, &["max"], max);
    page.whole(Family::ProcessThreads, &[], process.threads);
    page.nanoseconds(Family::ProcessCpu, &[], process.cpu_ns);
    process.anonymous_bytes
}
