//! The worker's metrics as lines of the error log, on USR1: of the loops, the pools, the caches, the logs.
//!
//! Not here: counting. Invariant: writing them costs the loops nothing.

use std::sync::Arc;

use disk::{Disk, PoolCounters};
use logs::Logs;
use logs::process_log::{Level, error_log};
use runtime::loops::sums::{self, LoopSum};
use runtime::{Kind, Ledger};

use proxy::caching::caches::open_cache::Cache;
use proxy::state::cache_state::Status;

/// Writes everything.
pub(crate) fn write(ledger: &Ledger, disk: &Arc<Disk>, logs: &Logs) {
    for (index, sum) in sums::by_number(ledger) {
        tell_loop(index, &sum);
    }
    disk.pool_counters().iter().for_each(tell_pool);
    let figures = logs.figures();
    error_log(
        Level::Notice,
        format_args!(
            "logs: {} lines written, {} bytes; {} lines dropped since there was no room, {} failed; longest wait for room {} us",
            figures.written,
            figures.bytes,
            figures.dropped,
            figures.failed,
            figures.worst_wait.as_micros(),
        ),
    );
}

/// Writes what the caches have done.
pub(crate) fn write_caches(caches: &[Arc<Cache>]) {
    caches.iter().for_each(|cache| tell_cache(cache));
}

fn tell_cache(cache: &Cache) {
    let directory = cache.zone.directory.escape_ascii();
    let Some(store) = cache.store() else {
        return error_log(
            Level::Notice,
            format_args!("cache \"{directory}\": not open"),
        );
    };
    let (counters, answers) = (store.counters(), &cache.counters);
    let of = |status| answers.of(status);
    error_log(
        Level::Notice,
        format_args!(
            "cache \"{directory}\": {} entries, {} blocks; {} hits, {} misses, {} expired, {} stale, {} updating, {} revalidated, \
             {} bypassed; {} stored, {} shed, {} passed on unstored, {} evicted, {} damaged; {} fetches now; trouble with its disk {} times",
            store.index().len(),
            store.space().used(),
            of(Status::Hit),
            of(Status::Miss),
            of(Status::Expired),
            of(Status::Stale),
            of(Status::Updating),
            of(Status::Revalidated),
            of(Status::Bypass),
            counters.stored,
            counters.shed,
            answers.passed(),
            counters.evicted,
            counters.damaged,
            cache.fills.len(),
            cache.disk_errors(),
        ),
    );
}

fn tell_loop(index: usize, sum: &LoopSum) {
    let micros = |share: f64| sum.blocked.quantile_ns(share) / 1000;
    error_log(
        Level::Notice,
        format_args!(
            "loop {index}: {} connections, {} idle, {} accepted; event_loop_blocked p50 {} us, p99 {} us, max {} us; \
             {} polls, longest {} us ({})",
            sum.connections,
            sum.waiting(),
            sum.accepted,
            micros(0.5),
            micros(0.99),
            micros(1.0),
            sum.polls.count(),
            sum.longest_ns / 1000,
            sum.longest.map_or("none", Kind::name),
        ),
    );
}

fn tell_pool(pool: &PoolCounters) {
    let share = |times: &disk::metrics::Times, share: f64| times.quantile_ns(share) / 1000;
    error_log(
        Level::Notice,
        format_args!(
            "thread pool \"{}\": {} of {} threads started, {} running; {} reads and {} writes waiting; {} done, \
             {} refused; waited p50 {} us, p99 {} us; ran p50 {} us, p99 {} us",
            pool.name,
            pool.started,
            pool.threads,
            pool.running,
            pool.reads_waiting,
            pool.writes_waiting,
            pool.completed,
            pool.rejected,
            share(&pool.waiting, 0.5),
            share(&pool.waiting, 0.99),
            share(&pool.ran, 0.5),
            share(&pool.ran, 0.99),
        ),
    );
}
