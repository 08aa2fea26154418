//! The figures of disks, caches and upstreams, as they are now.

use disk::metrics::call_times;
use disk::{Disk, OPERATIONS};

use super::page::label;
use super::process::mount_points;
use super::zones::{CLASSES, Zones};
use super::{Family, Page};
use crate::caching::Cache;
use crate::caching::counters::STATUSES;
use crate::settings::Settings;
use crate::upstream::{Now, peer_counters};

pub(super) fn add_disks(page: &mut Page, disk: &Disk) {
    for (operation, count) in OPERATIONS.iter().zip(disk.counts()) {
        let sources = [
            ("memory", count.memory - count.cached.min(count.memory)),
            ("kept", count.cached),
            ("pool", count.offloaded),
            ("refused", count.overflowed),
        ];
        for (source, count) in sources {
            page.whole(Family::DiskAnswers, &[operation, source], count);
        }
        page.nanoseconds(Family::DiskWaited, &[operation], count.offloaded_ns);
    }
    for calls in call_times::operations() {
        page.times(Family::DiskCalls, &[calls.operation], calls.took);
        page.whole(Family::DiskCallErrors, &[calls.operation], calls.errors);
    }
    let points = mount_points();
    for disk in call_times::disks() {
        let (major, minor) = (
            rustix::fs::major(disk.device),
            rustix::fs::minor(disk.device),
        );
        let device = format!("{major}:{minor}");
        let mount = points.get(&device).map_or("", |point| &point[..]);
        let labels = [&device[..], mount];
        page.times(Family::DiskReads, &labels, disk.reads);
        page.times(Family::DiskWrites, &labels, disk.writes);
        let directions = [("read", disk.read_bytes), ("written", disk.written_bytes)];
        for (direction, bytes) in directions {
            page.whole(Family::DiskBytes, &[&device, mount, direction], bytes);
        }
        page.whole(Family::DiskErrors, &labels, disk.errors);
    }
}

pub(super) fn add_zones(page: &mut Page, zones: &Zones) {
    for (name, sum) in zones.sums() {
        for (class, count) in CLASSES.iter().zip(sum.classes) {
            page.whole(Family::ZoneRequests, &[&name, class], count);
        }
        if let Some(running) = sum.running {
            page.whole(Family::ZoneRunning, &[&name], running);
        }
        page.whole(Family::ZoneBytes, &[&name, "received"], sum.received);
        page.whole(Family::ZoneBytes, &[&name, "sent"], sum.sent);
        page.times(Family::ZoneFirstByte, &[&name], sum.first_byte);
        page.times(Family::ZoneTotal, &[&name], sum.total);
    }
}

pub(super) fn add_caches(page: &mut Page, settings: &Settings) {
    for cache in settings.caches() {
        add_cache(page, cache);
    }
}

/// Bytes of all caches' indexes.
pub(super) fn index_bytes(settings: &Settings) -> u64 {
    let stores = settings.caches().iter().filter_map(|cache| cache.store());
    stores.map(|store| store.index().memory() as u64).sum()
}

fn add_cache(page: &mut Page, cache: &Cache) {
    let name = &*label(&cache.zone.name);
    let tally = &cache.tally;
    for status in STATUSES {
        page.whole(
            Family::CacheRequests,
            &[name, status.name()],
            tally.of(status),
        );
    }
    page.whole(Family::CacheFills, &[name], cache.fills.begun());
    page.whole(Family::CacheFilling, &[name], cache.fills.len() as u64);
    page.whole(Family::CacheFollowers, &[name], tally.followed());
    page.whole(Family::CacheUnsaved, &[name], tally.unsaved());
    page.whole(Family::CacheTroubles, &[name], cache.troubles());
    page.whole(Family::CacheEvents, &[name, "passed"], tally.passed());
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
        page.whole(Family::CacheEvents, &[name, event], count);
    }
    let space = store.space();
    let bytes = |blocks: u64| blocks.saturating_mul(space.block_bytes());
    page.whole(Family::CacheSize, &[name], bytes(space.used()));
    if let Some(max) = space.max() {
        page.whole(Family::CacheMax, &[name], bytes(max));
    }
    page.whole(Family::CacheEntries, &[name], store.index().len() as u64);
    let memory = store.index().memory() as u64;
    page.whole(Family::CacheIndex, &[name], memory);
    if let Some(age) = store.snapshot_age() {
        page.whole(Family::CacheSnapshot, &[name], age);
    }
}

pub(super) fn add_peers(page: &mut Page) {
    for ((upstream, peer), figures) in peer_counters::all() {
        let labels = [&upstream[..], &peer[..]];
        let outcomes = [
            ("answered", &figures.answered),
            ("unwanted", &figures.unwanted),
            ("failed", &figures.failed),
            ("abandoned", &figures.abandoned),
        ];
        for (outcome, count) in outcomes {
            let labels = [labels[0], labels[1], outcome];
            page.whole(Family::PeerRequests, &labels, count.get());
        }
        page.whole(Family::PeerOpened, &labels, figures.opened.get());
        page.times(Family::PeerHeader, &labels, figures.header.times());
        page.times(Family::PeerResponse, &labels, figures.response.times());
    }
}

pub(super) fn add_connections(page: &mut Page, settings: &Settings) {
    let mut shown = std::collections::BTreeSet::new();
    for upstream in settings.upstreams.list() {
        let group = upstream.group();
        let states = group.connections().into_iter();
        let states = states.zip(group.failing(Now::read()));
        for (peer, (count, is_failing)) in group.peers().zip(states) {
            // The same server may stand twice, and the same name with two ports.
            let name = upstream.name();
            if shown.insert((name.to_string(), peer.name.to_string())) {
                let labels = [&*name, &peer.name];
                page.whole(Family::PeerConnections, &labels, u64::from(count));
                page.whole(Family::PeerFailing, &labels, u64::from(is_failing));
            }
        }
    }
}
