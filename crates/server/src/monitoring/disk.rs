//! The metrics of pools and disks, as they are now.

use disk::metrics::call_times;
use disk::{Disk, OPERATIONS, PoolCounters};
use runtime::families;
use runtime::metrics::Page;

use super::process::mount_points;

families! {
    /// Pools and disks.
    pub(super) FAMILIES;
    POOL_THREADS Gauge "freewheel_pool_threads" "" ["pool", "state"] "Threads of a pool: limit (max), started, busy.";
    POOL_QUEUE Gauge "freewheel_pool_queue" "" ["pool", "lane"] "Jobs waiting in a pool.";
    POOL_WAITING Histogram "freewheel_pool_waiting_seconds" "seconds" ["pool"] "How long jobs waited in a pool's queue.";
    POOL_RUNNING Histogram "freewheel_pool_running_seconds" "seconds" ["pool"] "How long jobs ran in a pool.";
    POOL_REJECTED Counter "freewheel_pool_rejected_jobs" "" ["pool"] "Jobs rejected because the queue was full.";
    DISK_ANSWERS Counter "freewheel_disk_answers" "" ["operation", "source"] "Operations of the loops by source: the kernel's memory, what was kept open (kept), a pool, refused by a full pool.";
    DISK_WAITED Counter "freewheel_disk_waited_seconds" "seconds" ["operation"] "Time that callers waited for pools, in the queue and running.";
    DISK_CALLS Histogram "freewheel_disk_call_seconds" "seconds" ["operation"] "Time of calls that may wait for a disk, each in a pool's thread.";
    DISK_CALL_ERRORS Counter "freewheel_disk_call_errors" "" ["operation"] "Of these, calls that failed because of the disk (EIO, ENOSPC and the like).";
    DISK_READS Histogram "freewheel_disk_read_seconds" "seconds" ["device", "mount"] "Time of opening, reading and sending from a disk.";
    DISK_WRITES Histogram "freewheel_disk_write_seconds" "seconds" ["device", "mount"] "Time of writing to a disk.";
    DISK_BYTES Counter "freewheel_disk_bytes" "bytes" ["device", "mount", "direction"] "Bytes read from a disk by pools, and bytes written to it.";
    DISK_ERRORS Counter "freewheel_disk_errors" "" ["device", "mount"] "Calls that failed because of the disk.";
}

/// Shows them.
pub(super) fn show(disk: &Disk, page: &mut Page) {
    for pool in disk.pool_counters() {
        show_pool(page, pool);
    }
    show_disks(page, disk);
}

fn show_pool(page: &mut Page, pool: PoolCounters) {
    let name = &pool.name;
    let threads = [
        ("max", pool.threads),
        ("started", pool.started),
        ("busy", pool.running),
    ];
    for (state, count) in threads {
        page.whole(&POOL_THREADS, &[name, state], count as u64);
    }
    let lanes = [
        ("read", pool.reads_waiting),
        ("write", pool.writes_waiting),
        ("release", pool.releases_waiting),
    ];
    for (lane, count) in lanes {
        page.whole(&POOL_QUEUE, &[name, lane], count as u64);
    }
    page.whole(&POOL_REJECTED, &[name], pool.rejected);
    page.times(&POOL_WAITING, &[name], pool.waiting);
    page.times(&POOL_RUNNING, &[name], pool.ran);
}

fn show_disks(page: &mut Page, disk: &Disk) {
    for (operation, count) in OPERATIONS.iter().zip(disk.counts()) {
        let sources = [
            ("memory", count.memory - count.cached.min(count.memory)),
            ("kept", count.cached),
            ("pool", count.offloaded),
            ("refused", count.overflowed),
        ];
        for (source, count) in sources {
            page.whole(&DISK_ANSWERS, &[operation, source], count);
        }
        page.nanoseconds(&DISK_WAITED, &[operation], count.offloaded_ns);
    }
    for calls in call_times::operations() {
        page.times(&DISK_CALLS, &[calls.operation], calls.took);
        page.whole(&DISK_CALL_ERRORS, &[calls.operation], calls.errors);
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
        page.times(&DISK_READS, &labels, disk.reads);
        page.times(&DISK_WRITES, &labels, disk.writes);
        let directions = [("read", disk.read_bytes), ("written", disk.written_bytes)];
        for (direction, bytes) in directions {
            page.whole(&DISK_BYTES, &[&device, mount, direction], bytes);
        }
        page.whole(&DISK_ERRORS, &labels, disk.errors);
    }
}
