//! The metrics of caches, as they are now.

use runtime::families;
use runtime::metrics::Page;
use runtime::metrics::page::label;

use super::Cache;
use super::counters::STATUSES;
use crate::settings::Settings;

families! {
    /// The families of these counters.
    pub FAMILIES;
    CACHE_REQUESTS Counter "freewheel_cache_requests" "" ["cache", "status"] "Answers by what the cache did for them ($upstream_cache_status).";
    CACHE_SIZE Gauge "freewheel_cache_size_bytes" "bytes" ["cache"] "What a cache takes on its disk, reserved room included.";
    CACHE_MAX Gauge "freewheel_cache_max_size_bytes" "bytes" ["cache"] "What it may take at most (max_size); missing without a bound.";
    CACHE_ENTRIES Gauge "freewheel_cache_entries" "" ["cache"] "Keys that a cache knows.";
    CACHE_INDEX Gauge "freewheel_cache_index_bytes" "bytes" ["cache"] "Memory of a cache's index.";
    CACHE_FILLS Counter "freewheel_cache_fills" "" ["cache"] "Fetches from the origin that were begun.";
    CACHE_FILLING Gauge "freewheel_cache_fills_running" "" ["cache"] "Fetches that others may follow now.";
    CACHE_FOLLOWERS Counter "freewheel_cache_followers" "" ["cache"] "Requests that followed the fetch of another one.";
    CACHE_EVENTS Counter "freewheel_cache_events" "" ["cache", "event"] "Entries stored, evicted, purged, found damaged; answers not stored since there was no room (shed) or the disk was behind (passed).";
    CACHE_UNSAVED Gauge "freewheel_cache_unsaved_bytes" "bytes" ["cache"] "Bytes that wait to be written.";
    CACHE_TROUBLES Counter "freewheel_cache_troubles" "" ["cache"] "How often a cache's disk did something wrong.";
    CACHE_SNAPSHOT Gauge "freewheel_cache_snapshot_age_seconds" "seconds" ["cache"] "How old the saved index is; missing where there is none.";
}

/// Bytes of all caches' indexes.
#[must_use]
pub fn index_bytes(settings: &Settings) -> u64 {
    let stores = settings.caches().iter().filter_map(|cache| cache.store());
    stores.map(|store| store.index().memory() as u64).sum()
}

/// Shows the caches of a configuration.
pub fn show(settings: &Settings, page: &mut Page) {
    for cache in settings.caches() {
        show_cache(page, cache);
    }
}

fn show_cache(page: &mut Page, cache: &Cache) {
    let name = &*label(&cache.zone.name);
    let tally = &cache.tally;
    for status in STATUSES {
        page.whole(&CACHE_REQUESTS, &[name, status.name()], tally.of(status));
    }
    page.whole(&CACHE_FILLS, &[name], cache.fills.begun());
    page.whole(&CACHE_FILLING, &[name], cache.fills.len() as u64);
    page.whole(&CACHE_FOLLOWERS, &[name], tally.followed());
    page.whole(&CACHE_UNSAVED, &[name], tally.unsaved());
    page.whole(&CACHE_TROUBLES, &[name], cache.troubles());
    page.whole(&CACHE_EVENTS, &[name, "passed"], tally.passed());
    let Some(store) = cache.store() else {
        return;
    };
    let counters = store.counters();
    let events = [
        ("stored", counters.stored),
        ("shed", counters.shed),
        ("evicted", counters.evicted),
        ("purged", counters.purged),
        ("damaged", counters.damaged),
    ];
    for (event, count) in events {
        page.whole(&CACHE_EVENTS, &[name, event], count);
    }
    let space = store.space();
    let bytes = |blocks: u64| blocks.saturating_mul(space.block_bytes());
    page.whole(&CACHE_SIZE, &[name], bytes(space.used()));
    if let Some(max) = space.max() {
        page.whole(&CACHE_MAX, &[name], bytes(max));
    }
    page.whole(&CACHE_ENTRIES, &[name], store.index().len() as u64);
    let memory = store.index().memory() as u64;
    page.whole(&CACHE_INDEX, &[name], memory);
    if let Some(age) = store.snapshot_age() {
        page.whole(&CACHE_SNAPSHOT, &[name], age);
    }
}
