//! The metrics of caches, as they are now.

use std::sync::Arc;

use cache::Store;
use cache::store::SegmentMetrics;
use runtime::families;
use runtime::metrics::Page;
use runtime::metrics::page::label;

use crate::caching::caches::open_cache::Cache;
use crate::caching::caches::registry::Caches;
use crate::state::cache_state::STATUSES;
use httpcore::settings::Settings;

families! {
    /// The families of these counters.
    pub FAMILIES;
    CACHE_REQUESTS Counter "freewheel_cache_requests" "" ["cache", "status"] "Responses by cache status ($upstream_cache_status).";
    CACHE_SIZE Gauge "freewheel_cache_size_bytes" "bytes" ["cache"] "Space that a cache uses on its disk, including reserved space.";
    CACHE_MAX Gauge "freewheel_cache_max_size_bytes" "bytes" ["cache"] "Limit of that space (max_size); missing if there is none.";
    CACHE_ENTRIES Gauge "freewheel_cache_entries" "" ["cache"] "Keys in a cache's index.";
    CACHE_INDEX Gauge "freewheel_cache_index_bytes" "bytes" ["cache"] "Memory of a cache's index.";
    CACHE_FILLS Counter "freewheel_cache_fills" "" ["cache"] "Fetches from the origin that were started.";
    CACHE_FILLING Gauge "freewheel_cache_fills_running" "" ["cache"] "Fetches in progress that requests may follow.";
    CACHE_FOLLOWERS Counter "freewheel_cache_followers" "" ["cache"] "Requests that followed another request's fetch.";
    CACHE_EVENTS Counter "freewheel_cache_events" "" ["cache", "event"] "Entries stored, evicted, purged, found damaged; responses not stored because there was no space or the disk failed (shed), or the disk was behind or memory scarce (passed).";
    CACHE_UNSAVED Gauge "freewheel_cache_unsaved_bytes" "bytes" ["cache"] "Bytes waiting to be written.";
    CACHE_TROUBLES Counter "freewheel_cache_troubles" "" ["cache"] "Failures of a cache's disk.";
    CACHE_SEGMENTS Gauge "freewheel_cache_segments" "" ["cache", "state"] "Segments of a cache with store=segments: in use, free, emptied and held by their last readers, or retired since they could not be read.";
    CACHE_SEGMENTS_LIVE Gauge "freewheel_cache_segments_live_bytes" "bytes" ["cache"] "Bytes of the entries in a cache's segments.";
    CACHE_SEGMENTS_EMPTIED Counter "freewheel_cache_segments_emptied" "" ["cache"] "Segments that were emptied, to be filled again.";
    CACHE_READMITTED Counter "freewheel_cache_readmitted_bytes" "bytes" ["cache"] "Bytes of entries that were written again when their segment was emptied, because they had been used.";
    CACHE_DISK_STATE Gauge "freewheel_cache_disk_state" "" ["cache", "disk"] "State of a cache's disk: 0 well, 1 slow, 2 failing, 3 out (nothing is asked of it).";
    CACHE_DISK_WRITING Gauge "freewheel_cache_disk_write_state" "" ["cache", "disk"] "Whether a cache's disk is written to: 0 it is, 1 it is full, 2 it is read-only, 3 its writes make no progress.";
    CACHE_DISK_CHANGES Counter "freewheel_cache_disk_changes" "" ["cache", "disk"] "Changes of these two states; the error log has the reasons.";
    CACHE_DISK_USUAL Gauge "freewheel_cache_disk_usual_seconds" "seconds" ["cache", "disk"] "Usual p99 of the reads of a cache's disk, with which it is compared.";
    CACHE_DISK_READS Histogram "freewheel_cache_disk_read_seconds" "seconds" ["cache", "disk"] "Duration of jobs of pools that read a cache's disk.";
    CACHE_DISK_JOBS Gauge "freewheel_cache_disk_jobs" "" ["cache", "disk", "kind"] "Jobs of pools for a cache's disk that wait or run, and probes that hang.";
    CACHE_DISK_EVENTS Counter "freewheel_cache_disk_events" "" ["cache", "disk", "event"] "Calls that failed because of a cache's disk, jobs refused because it was out, probes begun.";
    CACHE_PAST_DISK Counter "freewheel_cache_past_disk" "" ["cache"] "Requests answered past the cache's disk, which was out, failed or took too long.";
    CACHE_HEDGES Counter "freewheel_cache_hedges" "" ["cache", "outcome"] "Reads of a cache's disk that were raced by the origin (proxy_cache_hedge), and those of them that the origin won.";
    CACHE_TAKEOVERS Counter "freewheel_cache_takeovers" "" ["cache", "outcome"] "Responses whose disk failed in their middle, and whose rest the origin gave (origin) or could not give (refused).";
    CACHE_SNAPSHOT Gauge "freewheel_cache_snapshot_age_seconds" "seconds" ["cache"] "Age of the saved index; missing if there is none.";
}

/// Bytes of all caches' indexes.
#[must_use]
pub fn index_bytes(settings: &Settings) -> u64 {
    let of = |cache: &Arc<Cache>| {
        let index = cache.store().map_or(0, |store| store.index().memory());
        (index + cache.admission_memory()) as u64
    };
    Caches::of(settings).iter().map(of).sum()
}

/// Shows the caches of a configuration; one over several disks as one.
pub fn show(settings: &Settings, page: &mut Page) {
    let of_one = |one: &Arc<Cache>, next: &Arc<Cache>| one.zone.name == next.zone.name;
    for disks in Caches::of(settings).chunk_by(of_one) {
        show_cache(page, disks);
        show_stores(page, disks);
    }
}

fn show_cache(page: &mut Page, disks: &[Arc<Cache>]) {
    let name = &*label(&disks[0].zone.name);
    let sum = |figure: &dyn Fn(&Cache) -> u64| disks.iter().map(|cache| figure(cache)).sum();
    for status in STATUSES {
        let count = sum(&|cache| cache.counters.of(status));
        page.whole(&CACHE_REQUESTS, &[name, status.name()], count);
    }
    let own = [name];
    page.whole(&CACHE_FILLS, &own, sum(&|cache| cache.fills.begun()));
    page.whole(&CACHE_FILLING, &own, sum(&|cache| cache.fills.len() as u64));
    page.whole(
        &CACHE_FOLLOWERS,
        &own,
        sum(&|cache| cache.counters.followed()),
    );
    page.whole(
        &CACHE_UNSAVED,
        &own,
        sum(&|cache| cache.backpressure.unsaved()),
    );
    page.whole(&CACHE_TROUBLES, &own, sum(&|cache| cache.disk_errors()));
    let passed = sum(&|cache| cache.counters.passed());
    page.whole(&CACHE_EVENTS, &[name, "passed"], passed);
    let past = sum(&|cache| cache.counters.past_disk());
    page.whole(&CACHE_PAST_DISK, &own, past);
    let (begun, won) = (
        sum(&|cache| cache.hedges.begun()),
        sum(&|cache| cache.hedges.won()),
    );
    for (outcome, count) in [("begun", begun), ("won", won)] {
        page.whole(&CACHE_HEDGES, &[name, outcome], count);
    }
    let outcomes = disks.iter().map(|cache| cache.counters.taken_over());
    let (taken, refused) = outcomes.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    for (outcome, count) in [("origin", taken), ("refused", refused)] {
        page.whole(&CACHE_TAKEOVERS, &[name, outcome], count);
    }
    for cache in disks {
        show_disk(page, name, cache);
    }
}

/// Shows what is stored, where it is known.
fn show_stores(page: &mut Page, disks: &[Arc<Cache>]) {
    let name = &*label(&disks[0].zone.name);
    let stores: Vec<&Store> = disks.iter().filter_map(|cache| cache.store()).collect();
    if stores.is_empty() {
        return;
    }
    let sum = |figure: &dyn Fn(&Store) -> u64| stores.iter().map(|store| figure(store)).sum();
    let events = [
        ("stored", sum(&|store| store.counters().stored)),
        ("shed", sum(&|store| store.counters().shed)),
        ("evicted", sum(&|store| store.counters().evicted)),
        ("purged", sum(&|store| store.counters().purged)),
        ("damaged", sum(&|store| store.counters().damaged)),
    ];
    for (event, count) in events {
        page.whole(&CACHE_EVENTS, &[name, event], count);
    }
    let own = [name];
    page.whole(&CACHE_SIZE, &own, sum(&Store::used_bytes));
    let max = stores.iter().map(|store| store.max_bytes());
    if let Some(max) = max.sum::<Option<u64>>() {
        page.whole(&CACHE_MAX, &own, max);
    }
    if stores.iter().any(|store| store.segment_metrics().is_some()) {
        show_segments(page, name, &stores);
    }
    let entries = sum(&|store| store.index().len() as u64);
    page.whole(&CACHE_ENTRIES, &own, entries);
    let admission: usize = disks.iter().map(|cache| cache.admission_memory()).sum();
    let memory = sum(&|store| store.index().memory() as u64) + admission as u64;
    page.whole(&CACHE_INDEX, &own, memory);
    // The oldest is what a crash would cost.
    let ages = stores.iter().filter_map(|store| store.snapshot_age());
    if let Some(age) = ages.max() {
        page.whole(&CACHE_SNAPSHOT, &own, age);
    }
}

fn show_disk(page: &mut Page, name: &str, cache: &Cache) {
    let directory = &*label(&cache.zone.directory);
    let (own, disk) = ([name, directory], &cache.disk);
    let counts = disk.counts();
    page.whole(&CACHE_DISK_STATE, &own, disk.state() as u64);
    page.whole(&CACHE_DISK_WRITING, &own, disk.writing() as u64);
    page.whole(&CACHE_DISK_CHANGES, &own, counts.changes);
    let usual = u64::try_from(disk.usual().as_nanos()).unwrap_or(u64::MAX);
    page.nanoseconds(&CACHE_DISK_USUAL, &own, usual);
    page.times(&CACHE_DISK_READS, &own, disk.read_times());
    let jobs = [
        ("read", counts.reads_waiting),
        ("write", counts.writes_waiting),
        ("probe", counts.probes_hanging),
    ];
    for (kind, count) in jobs {
        page.whole(&CACHE_DISK_JOBS, &[name, directory, kind], count);
    }
    let events = [
        ("failed", counts.errors),
        ("refused", counts.refused),
        ("probed", counts.probes),
    ];
    for (event, count) in events {
        page.whole(&CACHE_DISK_EVENTS, &[name, directory, event], count);
    }
}

fn show_segments(page: &mut Page, name: &str, stores: &[&Store]) {
    let all: Vec<_> = stores
        .iter()
        .filter_map(|store| store.segment_metrics())
        .collect();
    let sum = |figure: fn(&SegmentMetrics) -> u64| all.iter().map(figure).sum::<u64>();
    let states = [
        (
            "used",
            sum(|all| all.counts.all - all.counts.free - all.counts.held - all.counts.retired),
        ),
        ("free", sum(|all| all.counts.free)),
        ("held", sum(|all| all.counts.held)),
        ("retired", sum(|all| all.counts.retired)),
    ];
    for (state, count) in states {
        page.whole(&CACHE_SEGMENTS, &[name, state], count);
    }
    page.whole(
        &CACHE_SEGMENTS_LIVE,
        &[name],
        sum(|all| all.counts.live_bytes),
    );
    page.whole(&CACHE_SEGMENTS_EMPTIED, &[name], sum(|all| all.emptied));
    page.whole(&CACHE_READMITTED, &[name], sum(|all| all.readmitted_bytes));
}
