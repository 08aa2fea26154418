//! The metrics of caches, as they are now.

use std::sync::Arc;

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
    CACHE_EVENTS Counter "freewheel_cache_events" "" ["cache", "event"] "Entries stored, evicted, purged, found damaged; responses not stored because there was no space (shed) or the disk was behind (passed).";
    CACHE_UNSAVED Gauge "freewheel_cache_unsaved_bytes" "bytes" ["cache"] "Bytes waiting to be written.";
    CACHE_TROUBLES Counter "freewheel_cache_troubles" "" ["cache"] "Failures of a cache's disk.";
    CACHE_SEGMENTS Gauge "freewheel_cache_segments" "" ["cache", "state"] "Segments of a cache with store=segments: in use, free, or emptied and held by their last readers.";
    CACHE_SEGMENTS_LIVE Gauge "freewheel_cache_segments_live_bytes" "bytes" ["cache"] "Bytes of the entries in a cache's segments.";
    CACHE_SEGMENTS_EMPTIED Counter "freewheel_cache_segments_emptied" "" ["cache"] "Segments that were emptied, to be filled again.";
    CACHE_READMITTED Counter "freewheel_cache_readmitted_bytes" "bytes" ["cache"] "Bytes of entries that were written again when their segment was emptied, because they had been used.";
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

/// Shows the caches of a configuration.
pub fn show(settings: &Settings, page: &mut Page) {
    for cache in Caches::of(settings) {
        show_cache(page, cache);
    }
}

fn show_cache(page: &mut Page, cache: &Cache) {
    let name = &*label(&cache.zone.name);
    let counters = &cache.counters;
    for status in STATUSES {
        page.whole(&CACHE_REQUESTS, &[name, status.name()], counters.of(status));
    }
    page.whole(&CACHE_FILLS, &[name], cache.fills.begun());
    page.whole(&CACHE_FILLING, &[name], cache.fills.len() as u64);
    page.whole(&CACHE_FOLLOWERS, &[name], counters.followed());
    page.whole(&CACHE_UNSAVED, &[name], cache.backpressure.unsaved());
    page.whole(&CACHE_TROUBLES, &[name], cache.disk_errors());
    page.whole(&CACHE_EVENTS, &[name, "passed"], counters.passed());
    let Some(store) = cache.store() else {
        return;
    };
    let stored = store.counters();
    let events = [
        ("stored", stored.stored),
        ("shed", stored.shed),
        ("evicted", stored.evicted),
        ("purged", stored.purged),
        ("damaged", stored.damaged),
    ];
    for (event, count) in events {
        page.whole(&CACHE_EVENTS, &[name, event], count);
    }
    page.whole(&CACHE_SIZE, &[name], store.used_bytes());
    if let Some(max) = store.max_bytes() {
        page.whole(&CACHE_MAX, &[name], max);
    }
    if let Some(segments) = store.segment_metrics() {
        show_segments(page, name, &segments);
    }
    page.whole(&CACHE_ENTRIES, &[name], store.index().len() as u64);
    let memory = (store.index().memory() + cache.admission_memory()) as u64;
    page.whole(&CACHE_INDEX, &[name], memory);
    if let Some(age) = store.snapshot_age() {
        page.whole(&CACHE_SNAPSHOT, &[name], age);
    }
}

fn show_segments(page: &mut Page, name: &str, segments: &SegmentMetrics) {
    let counts = &segments.counts;
    let states = [
        ("used", counts.all - counts.free - counts.held),
        ("free", counts.free),
        ("held", counts.held),
    ];
    for (state, count) in states {
        page.whole(&CACHE_SEGMENTS, &[name, state], count);
    }
    page.whole(&CACHE_SEGMENTS_LIVE, &[name], counts.live_bytes);
    page.whole(&CACHE_SEGMENTS_EMPTIED, &[name], segments.emptied);
    page.whole(&CACHE_READMITTED, &[name], segments.readmitted_bytes);
}
