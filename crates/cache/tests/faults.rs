//! Disks that are full, read-only, or failing: no wrong byte is served, responses that cannot be stored are counted,
//! and the cache recovers with the disk. And: `max_size` under a steady stream of fills.
//!
//! Root only (the tests mount images): `cargo xtask cache-faults`.
#![expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
#![expect(clippy::unwrap_used, reason = "a test")]

mod bench;

use bench::{Bench, NOW, block_on};
use cache::Error;
use cache::store::{StoreKind, StoreSettings};
use disk::Errno;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

const IMAGE_BYTES: u64 = 64 << 20;
const LARGE_IMAGE_BYTES: u64 = 512 << 20;

/// An ext4 of its own in a file, unmounted at the end.
struct Image {
    dir: tempfile::TempDir,
}

fn run(command: &str, arguments: &[&Path]) {
    let mut words = command.split(' ');
    let done = Command::new(words.next().unwrap())
        .args(words)
        .args(arguments)
        .status();
    assert!(done.unwrap().success(), "{command} {arguments:?}");
}

impl Image {
    fn new(bytes: u64) -> Self {
        let image = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let file = std::fs::File::create(image.file()).unwrap();
        file.set_len(bytes).unwrap();
        run("mkfs.ext4 -q -m 0", &[&image.file()]);
        std::fs::create_dir(image.point()).unwrap();
        run("mount -o loop,noatime", &[&image.file(), &image.point()]);
        image
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn point(&self) -> PathBuf {
        self.dir.path().join("point")
    }

    /// Bytes in use, all as of one moment, unlike those of a walk through a directory in which files come and go.
    fn used(&self) -> u64 {
        used(&self.point())
    }

    async fn open(&self) -> Bench {
        self.open_as(StoreKind::Files).await
    }

    async fn open_as(&self, kind: StoreKind) -> Bench {
        let of_kind = |settings: &mut StoreSettings| settings.kind = kind;
        Bench::open(&self.point(), of_kind).await
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // A pool's thread may still have a file open for a moment.
        run("umount -l", &[&self.point()]);
    }
}

fn used(path: &Path) -> u64 {
    let stat = rustix::fs::statvfs(path).unwrap();
    (stat.f_blocks - stat.f_bfree) * stat.f_frsize
}

fn text(number: u64) -> String {
    format!("http://origin/{}/{number}", number % 10)
}

fn body(number: u64) -> Vec<u8> {
    let len = 20_000 + number * 7919 % 300_000;
    (0..len).map(|at| (at * 31 + number * 17) as u8).collect()
}

async fn fill(bench: &Bench, number: u64) -> Result<(), Error> {
    bench
        .fill(&text(number), &[], body(number), number.is_multiple_of(2))
        .await
}

/// The number of these keys that are found, each with the right body. With `may_fail`, the disk may refuse to read.
async fn found(bench: &Bench, numbers: std::ops::Range<u64>, may_fail: bool) -> u64 {
    let mut found = 0;
    for number in numbers {
        let hit = match bench.find(&text(number)).await {
            Ok(Some(hit)) => hit,
            Ok(None) => continue,
            Err(error) => {
                assert!(may_fail, "{number}: {error}");
                continue;
            }
        };
        match bench.read(&hit).await {
            Ok(read) => assert!(read == body(number), "{number}"),
            Err(error) => assert!(may_fail, "{number}: {error}"),
        }
        found += 1;
    }
    found
}

fn errno(error: &Error) -> Option<Errno> {
    match error {
        Error::Disk(error) => error.errno(),
        _ => None,
    }
}

#[test]
#[ignore = "root: cargo xtask cache-faults"]
fn a_file_system_that_runs_full() {
    let image = Image::new(IMAGE_BYTES);
    block_on(async {
        let bench = image.open().await;
        bench.walk().await;
        let (mut stored, mut full) = (0, 0);
        for number in 0..800 {
            match fill(&bench, number).await {
                Ok(()) => stored += 1,
                Err(error) => {
                    assert_eq!(errno(&error), Some(Errno::NOSPC), "{error}");
                    full += 1;
                }
            }
            if number % 50 == 0 {
                let _ = bench.store.sweep(&bench.local, NOW, 100).await;
            }
        }
        assert!(stored > 100 && full > 100, "{stored} stored, {full} not");
        assert_eq!(bench.store.counters().shed, full);
        assert_eq!(found(&bench, 0..800, false).await, stored);
        // A restart with a full disk.
        drop(bench);
        let bench = image.open().await;
        // Some entries were deleted for the journal's new log.
        let known = found(&bench, 0..800, false).await;
        assert!(known + 20 > stored, "{known} of {stored}");
        let purged = bench
            .store
            .purge_prefix(&bench.local, b"http://origin/3")
            .await;
        assert!(purged.is_ok() || errno(&purged.unwrap_err()) == Some(Errno::NOSPC));
        while bench
            .store
            .sweep(&bench.local, NOW, 100)
            .await
            .unwrap_or(false)
        {}
        assert!(found(&bench, 0..800, false).await < known);
        fill(&bench, 3).await.unwrap();
        assert_eq!(found(&bench, 3..4, false).await, 1);
    });
}

#[test]
#[ignore = "root: cargo xtask cache-faults"]
fn min_free_keeps_a_file_system_from_running_full() {
    let image = Image::new(IMAGE_BYTES);
    block_on(async {
        let min_free = |settings: &mut StoreSettings| settings.min_free_bytes = 8 << 20;
        let bench = Bench::open(&image.point(), min_free).await;
        for number in 0..800 {
            fill(&bench, number).await.unwrap();
            if number % 50 == 0 {
                bench.store.sweep(&bench.local, NOW, 100).await.unwrap();
            }
        }
        assert!(bench.store.counters().evicted > 100);
        assert!(found(&bench, 0..800, false).await > 100);
    });
}

#[test]
#[ignore = "root: cargo xtask cache-faults"]
fn a_file_system_that_becomes_read_only() {
    stand_read_only(StoreKind::Files);
}

#[test]
#[ignore = "root: cargo xtask cache-faults"]
fn segments_on_a_file_system_that_becomes_read_only() {
    stand_read_only(StoreKind::Segments);
}

fn stand_read_only(kind: StoreKind) {
    let image = Image::new(IMAGE_BYTES);
    block_on(async {
        let bench = image.open_as(kind).await;
        bench.walk().await;
        for number in 0..50 {
            fill(&bench, number).await.unwrap();
        }
        run("sync -f", &[&image.point()]);
        // As ext4 does on an error.
        run("mount -o remount,abort", &[&image.point()]);
        for number in 50..70 {
            let error = fill(&bench, number).await.unwrap_err();
            assert!(
                matches!(errno(&error), Some(Errno::ROFS | Errno::IO)),
                "{error}"
            );
        }
        assert_eq!(bench.store.counters().shed, 20);
        assert_eq!(found(&bench, 0..70, false).await, 50);
        assert!(bench.store.purge_tag(&bench.local, b"x").await.is_err());
        let swept = bench.store.sweep(&bench.local, NOW, 100).await;
        assert!(swept.is_err(), "it says so");
        let purged = bench.store.purge_prefix(&bench.local, b"http://origin/3");
        assert!(purged.await.is_err());
        assert_eq!(
            found(&bench, 0..70, false).await,
            45,
            "it is purged all the same"
        );
    });
}

#[test]
#[ignore = "root: cargo xtask cache-faults"]
fn a_disk_that_gives_errors() {
    stand_errors(StoreKind::Files);
}

#[test]
#[ignore = "root: cargo xtask cache-faults"]
fn segments_on_a_disk_that_gives_errors() {
    stand_errors(StoreKind::Segments);
}

fn stand_errors(kind: StoreKind) {
    let image = Image::new(IMAGE_BYTES);
    block_on(async {
        let bench = image.open_as(kind).await;
        bench.walk().await;
        for number in 0..100 {
            fill(&bench, number).await.unwrap();
        }
        drop(bench);
        run("sync -f", &[&image.point()]);
        let file = std::fs::File::options().write(true).open(image.file());
        let file = file.unwrap();
        let bench = image.open_as(kind).await;
        // The sectors behind it are gone, and not in memory either.
        file.set_len(IMAGE_BYTES / 4).unwrap();
        std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        let (before, mut failed) = (found(&bench, 0..100, true).await, 0);
        for number in 100..200 {
            failed += u64::from(fill(&bench, number).await.is_err());
        }
        let _ = found(&bench, 0..200, true).await;
        println!("{before} of 100 found, {failed} of 100 not stored");
        assert_eq!(bench.store.counters().shed, failed);
    });
}

#[test]
#[ignore = "root: cargo xtask cache-faults"]
fn segments_on_a_file_system_that_runs_full() {
    let image = Image::new(IMAGE_BYTES);
    block_on(async {
        let bench = image.open_as(StoreKind::Segments).await;
        bench.walk().await;
        let mut stored = 0;
        for number in 0..800 {
            // What has a file of its own finds no room.
            stored += u64::from(fill(&bench, number).await.is_ok());
            if number % 50 == 0 {
                let _ = bench.store.sweep(&bench.local, NOW, 100).await;
            }
        }
        let metrics = bench.store.segment_metrics().unwrap();
        assert!(metrics.emptied > 1 && stored > 400, "{stored}: {metrics:?}");
        let known = found(&bench, 0..800, false).await;
        assert!(known > 50, "{known}");
        drop(bench);
        let bench = image.open_as(StoreKind::Segments).await;
        assert!(found(&bench, 0..800, false).await + 20 > known);
        fill(&bench, 4).await.unwrap();
        assert_eq!(found(&bench, 4..5, false).await, 1);
    });
}

#[test]
#[ignore = "root: cargo xtask cache-faults"]
fn max_size_holds_under_a_steady_stream() {
    hold_max_size(StoreKind::Files);
}

#[test]
#[ignore = "root: cargo xtask cache-faults"]
fn max_size_holds_with_segments_under_a_steady_stream() {
    hold_max_size(StoreKind::Segments);
}

fn hold_max_size(kind: StoreKind) {
    const MAX: u64 = 200_000_000;
    const RATE: u32 = 600;
    const SECONDS: u32 = 15;
    let image = Image::new(LARGE_IMAGE_BYTES);
    let (path, before) = (image.point(), image.used());
    let largest = block_on(async {
        let max_size = |settings: &mut StoreSettings| {
            (settings.kind, settings.max_bytes) = (kind, Some(MAX));
            settings.levels = cache::Levels::parse("1:2").unwrap();
        };
        let bench = Rc::new(Bench::open(&image.point(), max_size).await);
        let is_over = Rc::new(Cell::new(false));
        let sweeper = {
            let (bench, is_over) = (bench.clone(), is_over.clone());
            tokio::task::spawn_local(async move {
                while !is_over.get() {
                    bench.store.sweep(&bench.local, NOW, 100).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            })
        };
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let sampler = std::thread::spawn(move || {
            let mut largest = 0;
            while stopped.recv_timeout(Duration::from_millis(100)).is_err() {
                largest = largest.max(used(&path) - before);
            }
            largest
        });
        let (begun, next) = (Instant::now(), Rc::new(Cell::new(0)));
        let fills = (0..16).map(|_| {
            let (bench, next) = (bench.clone(), next.clone());
            tokio::task::spawn_local(async move {
                while next.get() < RATE * SECONDS {
                    let number = next.replace(next.get() + 1);
                    let due = begun + Duration::from_secs(1) * number / RATE;
                    tokio::time::sleep_until(due.into()).await;
                    let text = text(u64::from(number));
                    bench
                        .fill(&text, &[], vec![7; 64 << 10], true)
                        .await
                        .unwrap();
                }
            })
        });
        for fill in fills.collect::<Vec<_>>() {
            fill.await.unwrap();
        }
        is_over.set(true);
        sweeper.await.unwrap();
        stop.send(()).unwrap();
        println!("{:?}", bench.store.counters());
        sampler.join().unwrap()
    });
    println!("at most {largest} of {MAX} bytes");
    // Segments have three quarters of it, in whole ones; here are no large entries for the rest.
    let least = match kind {
        StoreKind::Files => MAX * 9 / 10,
        StoreKind::Segments => MAX * 6 / 10,
    };
    assert!(largest <= MAX && largest > least, "{largest}");
}
