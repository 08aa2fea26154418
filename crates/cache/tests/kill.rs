//! A process that fills, renews, evicts and purges is killed, again and again: an entry found later is as it was
//! stored.
//!
//! Entries describe themselves: the body follows from key and version, which are in the head too. So a wrong byte, a
//! mix of two entries, and a purged entry are all noticed.
#![expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
#![expect(clippy::unwrap_used, reason = "a test")]

mod bench;

use bench::{Bench, block_on, lifetime};
use cache::store::{Hit, Renewal, StoreKind, StoreSettings};
use cache::{Error, Key};
use message::HeaderId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

const KILLS: u64 = 50;
const KEYS: u64 = 120;
/// Environment variables with the child's directory, first version, and kind of store.
const DIRECTORY: &str = "CACHE_KILL_DIRECTORY";
const VERSION: &str = "CACHE_KILL_VERSION";
const KIND: &str = "CACHE_KILL_KIND";

/// `max_size`: so small that entries are evicted all the time.
fn max_bytes(kind: StoreKind) -> u64 {
    match kind {
        StoreKind::Files => 4 << 20,
        StoreKind::Segments => cache::MAX_SIZE_MIN,
    }
}

fn key_text(key: u64) -> String {
    format!("http://origin/{}/{key}", key % 7)
}

/// From 0 to 400 KB: one job, or several.
fn body(key: u64, version: u64) -> Vec<u8> {
    let len = match key % 6 {
        0 => key % 50,
        5 => 200_000 + version % 200_000,
        _ => 1_000 + (key * 7919 + version * 104_729) % 60_000,
    };
    let seed =
        key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    (0..len)
        .map(|at| (seed.rotate_left((at % 64) as u32) >> 7) as u8 ^ at as u8)
        .collect()
}

async fn open(directory: &Path, kind: StoreKind) -> Bench {
    let change = |settings: &mut StoreSettings| {
        (settings.kind, settings.max_bytes) = (kind, Some(max_bytes(kind)));
    };
    Bench::open(directory, change).await
}

async fn find(bench: &Bench, key: u64) -> Option<Hit> {
    bench.find(&key_text(key)).await.unwrap()
}

async fn fill(bench: &Bench, key: u64, version: u64) -> Result<(), Error> {
    let (text, said, tag) = (key_text(key), version.to_string(), format!("k{key}"));
    let lines = [
        (&b"X-Version"[..], said.as_bytes(), HeaderId::Other),
        (&b"X-Renewed"[..], &b"0"[..], HeaderId::Other),
        (&b"Cache-Tag"[..], tag.as_bytes(), HeaderId::Other),
    ];
    let body = body(key, version);
    bench
        .fill(&text, &lines, body, version.is_multiple_of(2))
        .await
}

/// Renews an entry, as a 304 with other header lines does.
async fn renew(bench: &Bench, key: u64, times: u64) -> Result<(), Error> {
    let Some(hit) = find(bench, key).await else {
        return Ok(());
    };
    let said = times.to_string();
    // Of another length each time.
    let filler = vec![b'x'; (times % 90) as usize];
    let head = hit.entry.head();
    let kept = head
        .iter()
        .filter(|(name, ..)| !matches!(*name, b"X-Renewed" | b"X-Filler"));
    let new = [
        (&b"X-Renewed"[..], said.as_bytes(), HeaderId::Other),
        (&b"X-Filler"[..], &filler[..], HeaderId::Other),
    ];
    let renewal = Renewal {
        lifetime: lifetime(times),
        fields: kept.chain(new).collect(),
        moment: bench.store.moment(),
    };
    let (local, access) = (&bench.local, bench.access());
    let renewed = bench.store.rewrite(local, &access, &hit, renewal);
    renewed.await.map(|_| ())
}

/// Reports a purge: the key and the last version that it covers. Written at once: a killed process writes nothing
/// later.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).unwrap();
    out.flush().unwrap();
}

/// The child that is killed; without its variables it does nothing.
#[test]
#[ignore = "started by the test below"]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let first: u64 = std::env::var(VERSION).unwrap().parse().unwrap();
    let kind = match std::env::var_os(KIND) {
        Some(_) => StoreKind::Segments,
        None => StoreKind::Files,
    };
    block_on(async {
        let bench = Rc::new(open(Path::new(&directory), kind).await);
        let versions = Rc::new(RefCell::new(HashMap::new()));
        let steps = Rc::new(Cell::new(first));
        say("\nready\n");
        for task in 0..8u64 {
            let (bench, versions, steps) = (bench.clone(), versions.clone(), steps.clone());
            tokio::task::spawn_local(async move {
                loop {
                    let step = steps.replace(steps.get() + 1);
                    let random = step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
                    // Each task has its own keys, so that the versions of a key come one after the other.
                    let key = random % (KEYS / 8) * 8 + task;
                    match random / KEYS % 16 {
                        0 => {
                            let before = versions.borrow().get(&key).copied().unwrap_or(first);
                            let tag = format!("k{key}");
                            if bench
                                .store
                                .purge_tag(&bench.local, tag.as_bytes())
                                .await
                                .is_ok()
                            {
                                say(&format!("{key} {before}\n"));
                            }
                        }
                        1..5 => {
                            let _ = renew(&bench, key, step % 1_000).await;
                        }
                        5..7 => {
                            if let Some(hit) = find(&bench, key).await {
                                check(&bench, key, &hit).await;
                            }
                        }
                        _ => {
                            versions.borrow_mut().insert(key, step);
                            let _ = fill(&bench, key, step).await;
                        }
                    }
                }
            });
        }
        loop {
            bench.store.sweep(&bench.local, 1_000, 10).await.unwrap();
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    });
}

/// Checks that lifetime, head and body are of one version, and returns it.
async fn check(bench: &Bench, key: u64, hit: &Hit) -> u64 {
    let line = |name: &str| -> u64 {
        let value = hit.entry.head().get_all(name.as_bytes()).next().unwrap();
        str::from_utf8(value).unwrap().parse().unwrap()
    };
    let (version, times) = (line("X-Version"), line("X-Renewed"));
    assert_eq!(
        hit.entry.lifetime(),
        &lifetime(times),
        "another head's lifetime"
    );
    assert_eq!(hit.entry.key_text(), key_text(key).as_bytes());
    match bench.read(hit).await {
        Ok(read) => assert!(read == body(key, version), "key {key}, version {version}"),
        Err(Error::Fault(fault)) => panic!("key {key}, version {version}: {fault}"),
        Err(error) => panic!("{error}"),
    }
    version
}

/// Runs the child and kills it after so many milliseconds. Returns its purges.
fn run_and_kill(directory: &Path, kind: StoreKind, first: u64, ms: u64) -> HashMap<u64, u64> {
    let kind = (kind == StoreKind::Segments).then_some((KIND, "segments"));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .envs(kind)
        .args([
            "--exact",
            "child",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DIRECTORY, directory)
        .env(VERSION, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while lines.next().unwrap().unwrap() != "ready" {}
    std::thread::sleep(Duration::from_millis(ms));
    let ended = child.try_wait().unwrap();
    assert!(ended.is_none(), "it ended by itself: {ended:?}");
    child.kill().unwrap();
    let mut purged = HashMap::new();
    for line in lines.map_while(Result::ok) {
        // The last line may be cut off.
        if let Some((key, version)) = line.split_once(' ')
            && let (Ok(key), Ok(version)) = (key.parse(), version.parse())
        {
            purged.insert(key, version);
        }
    }
    child.wait().unwrap();
    purged
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    entries
        .map(|entry| entry.path())
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Bytes of everything below a directory, as `du` counts.
fn blocks(path: &Path) -> u64 {
    let own = std::fs::symlink_metadata(path).map_or(0, |meta| meta.blocks() * 512);
    let Ok(entries) = std::fs::read_dir(path) else {
        return own;
    };
    own + entries
        .flatten()
        .map(|entry| blocks(&entry.path()))
        .sum::<u64>()
}

#[test]
fn entries_of_a_killed_process_are_right_or_absent() {
    kill_again_and_again(StoreKind::Files);
}

#[test]
fn entries_in_segments_of_a_killed_process_are_right_or_absent() {
    kill_again_and_again(StoreKind::Segments);
}

fn kill_again_and_again(kind: StoreKind) {
    let max = max_bytes(kind);
    let dir = tempfile::tempdir().unwrap();
    let (mut purged, mut found) = (HashMap::new(), 0);
    block_on(async {
        // Known from its first entry on.
        let bench = open(dir.path(), kind).await;
        bench.walk().await;
    });
    for kill in 1..=KILLS {
        // Whatever the child was doing: opening, filling, compacting its journal.
        purged.extend(run_and_kill(dir.path(), kind, kill << 32, kill * 37 % 60));
        block_on(async {
            let bench = open(dir.path(), kind).await;
            assert!(!bench.store.is_cold(), "the journal knows everything");
            bench.store.sweep(&bench.local, 1_000, 1_000).await.unwrap();
            let bytes = blocks(dir.path());
            assert!(bytes <= max, "{bytes} bytes");
            for key in 0..KEYS {
                let Some(hit) = find(&bench, key).await else {
                    continue;
                };
                let version = check(&bench, key, &hit).await;
                assert!(
                    purged.get(&key).is_none_or(|purged| version > *purged),
                    "key {key} was purged"
                );
                found += 1;
            }
            let left = files(dir.path());
            let own = [cache::JOURNAL_FOLDER, cache::SEGMENTS_FOLDER];
            let own = own.map(|folder| dir.path().join(folder));
            let is_entry = |file: &&PathBuf| !own.iter().any(|folder| file.starts_with(folder));
            let entries = left.iter().filter(is_entry).count();
            // A key that was only requested is known too.
            let all = bench.store.index().len();
            let others = (0..KEYS)
                .filter_map(|key| bench.store.index().peek(&Key::of(key_text(key).as_bytes())))
                .filter(|known| {
                    known.state != cache::KeyState::Stored || known.extent.is_in_segment()
                });
            let known = all - others.count();
            assert_eq!(entries, known, "every file is known: {left:?}");
            assert_eq!(bench.store.counters().damaged, 0);
        });
    }
    assert!(
        found > KILLS * 10,
        "{found} entries were found: too few to say anything"
    );
}
