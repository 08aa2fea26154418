//! Sending ranges: every way gives the same bytes.

use crate::files::residency_memo::HOLDS_NS;
use crate::residency::window::Residency;
use crate::tests::{block_on, local};
use crate::*;
use rustix::fs::{Advice, fadvise};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

pub(super) const LEN: usize = 3 * WINDOW as usize + 12_345;

/// A file whose bytes tell where they stand; its pages are clean, so that they can be evicted.
pub(super) fn large_file(dir: &Path) -> (PathBuf, Vec<u8>) {
    let path = dir.join("large");
    let contents: Vec<u8> = (0..LEN).map(|n| (n / 4096 + n % 251) as u8).collect();
    std::fs::write(&path, &contents).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    (path, contents)
}

pub(super) fn evict(path: &Path) {
    fadvise(
        std::fs::File::open(path).unwrap(),
        0,
        None,
        Advice::DontNeed,
    )
    .unwrap();
}

pub(super) async fn open(local: &Local, path: &Path, access: &Access<'_>) -> Rc<OpenFile> {
    local
        .open(path.as_os_str().as_bytes(), access)
        .await
        .unwrap()
}

/// A [`large_file`] that is open, and not in memory; and its contents.
pub(super) async fn cold_file(
    local: &Local,
    dir: &Path,
    access: &Access<'_>,
) -> (Rc<OpenFile>, Vec<u8>) {
    let (path, contents) = large_file(dir);
    let file = open(local, &path, access).await;
    evict(&path);
    (file, contents)
}

/// A file that can be proven by the page map; `None`: this machine has no such proof.
async fn provable(local: &Local, path: &Path, access: &Access<'_>) -> Option<Rc<OpenFile>> {
    local.disk().windows.in_core.tell_nothing();
    let file = open(local, path, access).await;
    let is_native = file.filesystem().is_native();
    (is_native && local.disk().windows.pagemap.is_some()).then_some(file)
}

/// The bytes that arrive at the other end, and the result of the send.
pub(super) async fn sent(
    local: &Local,
    file: &Rc<OpenFile>,
    range: Range<u64>,
    access: &Access<'_>,
) -> (Vec<u8>, Result<(), Error>) {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let receive = async {
        let mut got = Vec::new();
        there.read_to_end(&mut got).await.unwrap();
        got
    };
    let send = async {
        let mut offset = range.start;
        let result = local
            .send(file, &mut offset, range.end, &here, access)
            .await;
        here.shutdown().await.unwrap();
        (result, offset)
    };
    let (got, (result, offset)) = tokio::join!(receive, send);
    assert_eq!(offset - range.start, got.len() as u64);
    (got, result)
}

#[test]
fn every_way_of_sending_gives_the_same_bytes_cold_and_warm() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (path, contents) = large_file(dir.path());
        let plain = Access::new(&pool);
        let ways = [
            plain,
            Access {
                sendfile: false,
                ..plain
            },
            Access {
                mode: AioMode::Inline,
                ..plain
            },
            Access {
                directio: Some(1),
                output_buffer: 100_000,
                ..plain
            },
            Access {
                sendfile_max_chunk: 1000,
                read_ahead: 4 << 20,
                ..plain
            },
        ];
        for access in &ways {
            for no_cachestat in [false, true] {
                evict(&path);
                for range in [
                    0..LEN as u64,
                    1..LEN as u64,
                    WINDOW - 1..WINDOW + 1,
                    777..4096 * 3 + 5,
                ] {
                    let file = open(&local, &path, access).await;
                    file.no_cachestat.set(no_cachestat);
                    let (got, result) = sent(&local, &file, range.clone(), access).await;
                    result.unwrap();
                    assert!(
                        got == contents[range.start as usize..range.end as usize],
                        "{range:?} {access:?}"
                    );
                }
            }
        }
    });
}

#[test]
fn a_warm_file_is_sent_while_all_pool_threads_are_frozen() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (path, contents) = large_file(dir.path());
        let access = Access::new(&pool);
        for no_cachestat in [false, true] {
            let file = open(&local, &path, &access).await;
            file.no_cachestat.set(no_cachestat);
            sent(&local, &file, 0..LEN as u64, &access).await.1.unwrap();
            let hold = local.disk().hold_pools(PoolKind::Disk);
            let again = sent(&local, &file, 0..LEN as u64, &access);
            let (got, _) = tokio::time::timeout(Duration::from_secs(5), again)
                .await
                .expect("it waited for the pool");
            assert!(got == contents);
            drop(hold);
        }
    });
}

#[test]
fn an_evicted_window_is_absent_to_every_proof_and_frozen_pools_delay_it() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (path, contents) = large_file(dir.path());
        let access = Access::new(&pool);
        for no_cachestat in [false, true] {
            let file = open(&local, &path, &access).await;
            file.no_cachestat.set(no_cachestat);
            sent(&local, &file, 0..LEN as u64, &access).await.1.unwrap();
            local.disk().windows.mappings.unmap_all();
            evict(&path);
            // A look of before the eviction is trusted for HOLDS_NS and a tick of the clock.
            tokio::time::sleep(Duration::from_nanos(3 * HOLDS_NS)).await;
            let hold = local.disk().hold_pools(PoolKind::Disk);
            let cold = sent(&local, &file, 0..LEN as u64, &access);
            tokio::pin!(cold);
            assert!(
                tokio::time::timeout(Duration::from_millis(20), &mut cold)
                    .await
                    .is_err()
            );
            drop(hold);
            assert!(cold.await.0 == contents);
        }
    });
}

#[test]
fn a_file_truncated_while_it_is_sent_ends_with_an_error() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (path, contents) = large_file(dir.path());
        let plain = Access::new(&pool);
        for access in [
            plain,
            Access {
                sendfile: false,
                ..plain
            },
            Access {
                mode: AioMode::Inline,
                ..plain
            },
        ] {
            for no_cachestat in [false, true] {
                std::fs::write(&path, &contents).unwrap();
                let file = open(&local, &path, &access).await;
                file.no_cachestat.set(no_cachestat);
                std::fs::OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .set_len(WINDOW + 10)
                    .unwrap();
                let (got, result) = sent(&local, &file, 0..LEN as u64, &access).await;
                assert!(
                    matches!(result, Err(Error::Truncated { len }) if len == WINDOW + 10),
                    "{result:?}"
                );
                assert!(got == contents[..WINDOW as usize + 10]);
            }
        }
    });
}

#[test]
fn many_clients_of_a_cold_window_share_one_fill() {
    const CLIENTS: u64 = 50;
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (path, contents) = large_file(dir.path());
        let access = Access::new(&pool);
        let file = open(&local, &path, &access).await;
        file.no_cachestat.set(true);
        evict(&path);
        let hold = pool.hold();
        let before = pool.counters().completed;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (local, file, pool) = (local.clone(), file.clone(), pool.clone());
                tokio::task::spawn_local(async move {
                    sent(&local, &file, 0..WINDOW, &Access::new(&pool)).await
                })
            })
            .collect();
        tokio::task::yield_now().await;
        // One to send it to the first, and one, since others wait, to bring it before all else.
        assert_eq!(pool.counters().reads_waiting, 2);
        drop(hold);
        for client in clients {
            let (got, result) = client.await.unwrap();
            result.unwrap();
            assert!(got == contents[..WINDOW as usize]);
        }
        let jobs = pool.counters().completed - before;
        // These two and that which held the pool. On a busy machine the kernel takes pages back meanwhile, which then
        // are read again: so there may be more, but not one for each client.
        assert!(jobs < CLIENTS / 2, "{jobs}");
    });
}

#[test]
fn shared_reads_fill_the_following_windows_too() {
    block_on(async {
        for (clients, jobs) in [(1, 1), (3, 1), (4, 2), (20, 2)] {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let (path, contents) = large_file(dir.path());
            let file = open(&local, &path, &Access::new(&pool)).await;
            evict(&path);
            let hold = pool.hold();
            let tasks: Vec<_> = (0..clients)
                .map(|_| {
                    let (local, file, pool) = (local.clone(), file.clone(), pool.clone());
                    tokio::task::spawn_local(async move {
                        sent(&local, &file, 0..LEN as u64, &Access::new(&pool)).await
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            assert_eq!(pool.counters().reads_waiting, jobs, "{clients} clients");
            drop(hold);
            for task in tasks {
                let (got, result) = task.await.unwrap();
                result.unwrap();
                assert!(got == contents);
            }
        }
    });
}

#[test]
fn a_file_is_mapped_at_its_second_request() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (path, _) = large_file(dir.path());
        let access = Access::new(&pool);
        let Some(file) = provable(&local, &path, &access).await else {
            return;
        };
        evict(&path);
        // No more than the socket takes at once.
        let range = WINDOW..WINDOW + 65536;
        sent(&local, &file, range.clone(), &access).await.1.unwrap();
        assert_eq!(local.disk().mapped(), 0);
        sent(&local, &file, range, &access).await.1.unwrap();
        assert!(local.disk().mapped() > 0);
    });
}

#[test]
fn under_eviction_pressure_few_receivers_get_buffers() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (path, contents) = large_file(dir.path());
        let access = Access::new(&pool);
        // Sent without a pool, from a new proof: with sendfile, and out of a buffer?
        let ways = async |sendings: u32| {
            let file = open(&local, &path, &access).await;
            file.proofs().learn(0..=LEN as u64 / WINDOW, false);
            file.sendings.set(sendings);
            let before = local.counts();
            let (got, result) = sent(&local, &file, 0..LEN as u64, &access).await;
            result.unwrap();
            assert!(got == contents);
            let after = local.counts();
            file.sendings.set(0);
            [Operation::Send, Operation::Read].map(|operation| {
                let place = operation as usize;
                assert_eq!(before[place].offloaded, after[place].offloaded);
                after[place].memory > before[place].memory
            })
        };
        let file = open(&local, &path, &access).await;
        sent(&local, &file, 0..LEN as u64, &access).await.1.unwrap();
        let pressure = &local.disk().windows.pressure;
        let is_proven = local.disk().windows.residency(&file, 0, WINDOW) == Residency::Present;
        if !is_proven || pressure.is_high() {
            return;
        }
        assert_eq!(ways(0).await, [true, false]);
        pressure.hold_high();
        assert_eq!(ways(0).await, [false, true]);
        assert_eq!(ways(100).await, [true, false]);
    });
}

#[test]
fn while_a_thread_maps_proven_windows_go_out_of_a_buffer() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (path, _) = large_file(dir.path());
        let access = Access::new(&pool);
        let Some(file) = provable(&local, &path, &access).await else {
            return;
        };
        sent(&local, &file, 0..LEN as u64, &access).await.1.unwrap();
        let mappings = &local.disk().windows.mappings;
        let looks = |window: u64| {
            local
                .disk()
                .windows
                .residency(&file, window * WINDOW, WINDOW)
        };
        assert_eq!(looks(0), Residency::Present);
        file.proofs().learn(1..=1, false);
        // A fresh proof needs no scan, so it must expire first.
        tokio::time::sleep(Duration::from_millis(50)).await;
        mappings.change(|| {
            assert_eq!(looks(0), Residency::Fleeting);
            assert_eq!(looks(1), Residency::Absent);
        });
        assert_eq!(looks(1), Residency::Present);
    });
}

#[test]
fn a_window_evicted_again_and_again_reaches_a_slow_socket_through_a_buffer() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (path, contents) = large_file(dir.path());
        let access = Access::new(&pool);
        for no_cachestat in [false, true] {
            let file = open(&local, &path, &access).await;
            file.no_cachestat.set(no_cachestat);
            let (here, mut there) = UnixStream::pair().unwrap();
            let send = async {
                let mut offset = 0;
                local
                    .send(&file, &mut offset, LEN as u64, &here, &access)
                    .await
                    .unwrap();
                drop(here);
            };
            let receive = async {
                let (mut got, mut piece) = (Vec::new(), vec![0; 20_000]);
                loop {
                    local.disk().windows.mappings.unmap_all();
                    evict(&path);
                    match there.read(&mut piece).await.unwrap() {
                        0 => return got,
                        read => got.extend_from_slice(&piece[..read]),
                    }
                }
            };
            // `send` drops the socket at its end, which ends `receive`.
            let ((), got) = tokio::join!(send, receive);
            assert!(got == contents);
        }
    });
}

#[test]
fn a_full_pool_refuses_a_cold_window_and_nothing_hangs() {
    block_on(async {
        let (local, _) = local();
        let tight = local.disk().define_pool("tight", 1, 1);
        let dir = tempfile::tempdir().unwrap();
        let access = Access::new(&tight);
        let (file, _) = cold_file(&local, dir.path(), &access).await;
        let hold = tight.hold();
        let waiting = tight.submit(Lane::Read, || ()).unwrap();
        let (_, result) = sent(&local, &file, 0..LEN as u64, &access).await;
        let text = result.unwrap_err().to_string();
        assert_eq!(
            text,
            "thread pool \"tight\" queue overflow: 1 tasks waiting"
        );
        drop(hold);
        waiting.await;
        let (got, result) = sent(&local, &file, 0..WINDOW, &access).await;
        assert!(result.is_ok() && got.len() as u64 == WINDOW);
    });
}

#[test]
fn a_sending_without_a_reader_is_small() {
    let (local, pool) = block_on(async { local() });
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let (path, _) = large_file(dir.path());
        let access = Access::new(&pool);
        let file = open(&local, &path, &access).await;
        let (here, _there) = UnixStream::pair().unwrap();
        let mut offset = 0;
        let sending = local.send(&file, &mut offset, LEN as u64, &here, &access);
        assert!(size_of_val(&sending) < 2048, "{}", size_of_val(&sending));
    });
}

#[test]
fn a_look_at_parts_of_windows_is_remembered_of_all_of_them() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (path, _) = large_file(dir.path());
        let access = Access::new(&pool);
        let Some(file) = provable(&local, &path, &access).await else {
            return;
        };
        for _ in 0..2 {
            sent(&local, &file, 0..LEN as u64, &access).await.1.unwrap();
        }
        // Another loop has looked at nothing yet.
        let other = Local::new(local.disk());
        let file = open(&other, &path, &access).await;
        let disk = other.disk();
        assert_eq!(
            disk.windows.residency(&file, WINDOW + 1000, WINDOW),
            Residency::Present
        );
        assert!(file.proofs().remember(1..=2));
        assert!(!file.proofs().remember(0..=0));
    });
}

#[test]
fn what_a_job_reads_is_not_present_where_only_cachestat_is_asked() {
    block_on(async {
        let disk = Disk::new(PreparedDisk { pagemap: None });
        let (local, pool) = (Local::new(&disk), disk.define_pool("it", 2, 100));
        let dir = tempfile::tempdir().unwrap();
        let (path, _) = large_file(dir.path());
        let access = Access::new(&pool);
        let file = open(&local, &path, &access).await;
        sent(&local, &file, 0..LEN as u64, &access).await.1.unwrap();
        let windows = &disk.windows;
        let is_present = |at| windows.residency(&file, at, 4096) == Residency::Present;
        if !is_present(0) {
            return;
        }
        let reads = windows.begin_reads(file.meta(), WINDOW - 1, 2);
        assert!(!is_present(0) && !is_present(WINDOW));
        drop(reads);
        assert!(is_present(0) && is_present(WINDOW));
    });
}
