//! Journals written, damaged and read back.

mod cut;
mod deferred;
mod parts;

use super::frame::{FILE_HEADER_BYTES, JournalFrame, Scanner};
use super::*;
use crate::index::{Cursor, EntryExtent, KeyState, KnownKey, VARY_MAX, VARY_UNKNOWN, Varies};
use crate::lifetime::{Lifetime, Reuse};
use crate::purge::PurgeFilter;
use disk::Disk;
use proptest::prelude::*;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tokio::runtime::Builder;

fn block_on<F: Future>(future: F) -> F::Output {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(Default::default());
    runtime.unwrap().block_on(future)
}

fn local() -> (Local, Pool) {
    let disk = Disk::new(Disk::prepare());
    let pool = disk.define_pool("test", 4, 1000);
    (Local::new(&disk), pool)
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn known(number: u64, tag: u32) -> KnownKey {
    let key = Key::of(&number.to_le_bytes());
    KnownKey {
        purge_filter: PurgeFilter::of_key(key, b""),
        state: KeyState::Stored,
        status: 200,
        lifetime: Lifetime {
            date: 1_700_000_000,
            expires: 1_700_000_000 + number as i64,
            updating: 1,
            error: 2,
            initial_age: 0,
            reuse: Reuse::NeverStale,
        },
        extent: EntryExtent {
            file: tag,
            offset: 0,
            blocks: 5,
        },
        ..KnownKey::seen(key, 1_700_000_000)
    }
}

fn put(number: u64, tag: u32, vary: &'static str) -> JournalRecord {
    JournalRecord::Put {
        known: known(number, tag),
        vary: Bytes::from_static(vary.as_bytes()),
    }
}

/// All that an index knows, with the names of Vary as text.
fn contents(index: &Index) -> HashMap<[u8; 16], (KnownKey, Vec<u8>)> {
    let mut cursor = Cursor::default();
    let mut all = HashMap::new();
    loop {
        let step = index.scan(&mut cursor, 1000);
        if step.is_empty() {
            return all;
        }
        for mut known in step {
            let names = index.vary_names(known.varies.names);
            known.varies.names = 0;
            let names = names.map_or_else(Vec::new, |names| names.to_vec());
            all.insert(known.key.0, (known, names));
        }
    }
}

async fn open(local: &Local, dir: &Path, pool: &Pool) -> (Journal, Recovered, Arc<Index>) {
    let index = Arc::new(Index::new(10_000));
    // The lock is released in a job of its own.
    loop {
        match Journal::open(local, bytes(dir), Levels::default(), pool, &index).await {
            Ok((journal, recovered)) => return (journal, recovered, index),
            Err(Error::InUse) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Writes a record and changes the index, as a store does.
async fn fill(journal: &Journal, local: &Local, index: &Index, number: u64, tag: u32) {
    let key = known(number, tag).key;
    journal
        .write(local, &[JournalRecord::Begin { key, tag }])
        .await
        .unwrap();
    journal
        .write(local, &[put(number, tag, "accept")])
        .await
        .unwrap();
    let mut known = known(number, tag);
    known.varies.names = index.vary_number(b"accept");
    index.put(&known);
    journal.ended(key, tag);
}

#[test]
fn a_start_after_a_kill_knows_what_the_process_knew() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (journal, recovered, index) = open(&local, dir.path(), &pool).await;
        assert!(
            !recovered.is_complete,
            "somebody else's entries may be there"
        );
        journal.walked(&local, 0).await.unwrap();
        for number in 0..10 {
            fill(&journal, &local, &index, number, 1).await;
        }
        fill(&journal, &local, &index, 3, 2).await;
        let lifetime = Lifetime {
            expires: 7,
            ..Lifetime::default()
        };
        let (renewed, removed) = (known(4, 1).key, known(5, 1).key);
        let records = [
            JournalRecord::Renew {
                key: renewed,
                tag: 1,
                lifetime,
            },
            JournalRecord::Remove {
                key: removed,
                tag: 1,
            },
            JournalRecord::Remove {
                key: known(3, 1).key,
                tag: 1,
            },
        ];
        journal.write(&local, &records).await.unwrap();
        index.renew(&renewed, 1, lifetime);
        index.remove_entry(&removed, 1);
        drop(journal);
        let (_journal, recovered, again) = open(&local, dir.path(), &pool).await;
        assert!(recovered.is_complete && !recovered.is_clean && !recovered.is_damaged);
        assert_eq!(recovered.entries, 9);
        assert!(recovered.unfinished.is_empty());
        assert_eq!(contents(&again), contents(&index));
        assert_eq!(again.peek(&known(3, 2).key).unwrap().extent.file, 2);
    });
}

#[test]
fn a_log_that_was_begun_and_no_more_when_its_process_was_killed_hides_nothing() {
    block_on(async {
        for len in [0, FILE_HEADER_BYTES as u64] {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let (journal, _, index) = open(&local, dir.path(), &pool).await;
            journal.walked(&local, 0).await.unwrap();
            fill(&journal, &local, &index, 1, 1).await;
            drop(journal);
            let folder = [bytes(dir.path()), b"/", FOLDER.as_bytes(), b"/"];
            let log = begin_log(&local, &folder.concat(), 2, &pool).await.unwrap();
            drop(log);
            let name = dir.path().join(FOLDER).join("log.2");
            let file = std::fs::OpenOptions::new().write(true).open(name).unwrap();
            file.set_len(len).unwrap();
            for _ in 0..2 {
                let (_journal, recovered, again) = open(&local, dir.path(), &pool).await;
                assert!(recovered.is_complete, "{len}: {recovered:?}");
                assert_eq!(contents(&again), contents(&index));
            }
        }
    });
}

#[test]
fn a_closed_journal_says_so_and_is_one_snapshot() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (journal, _, index) = open(&local, dir.path(), &pool).await;
        journal.walked(&local, 0).await.unwrap();
        for number in 0..500 {
            fill(&journal, &local, &index, number, 1).await;
        }
        for _ in 0..3 {
            assert!(journal.compact(&local, &index).await.unwrap());
        }
        journal.close(&local, &index).await.unwrap();
        let names: Vec<_> = std::fs::read_dir(dir.path().join(FOLDER))
            .unwrap()
            .collect();
        assert_eq!(names.len(), 3, "lock, log and snapshot: {names:?}");
        let (journal, recovered, again) = open(&local, dir.path(), &pool).await;
        assert!(recovered.is_complete && recovered.is_clean);
        assert_eq!(contents(&again), contents(&index));
        fill(&journal, &local, &again, 1000, 1).await;
        drop(journal);
        let (_journal, recovered, last) = open(&local, dir.path(), &pool).await;
        assert!(recovered.is_complete && !recovered.is_clean);
        assert_eq!(contents(&last), contents(&again));
    });
}

#[test]
fn one_owner_at_a_time() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (_journal, _, index) = open(&local, dir.path(), &pool).await;
        let second =
            Journal::open(&local, bytes(dir.path()), Levels::default(), &pool, &index).await;
        assert!(matches!(second, Err(Error::InUse)));
    });
}

#[test]
fn fills_that_were_cut_short_are_named_whatever_was_compacted() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (journal, _, index) = open(&local, dir.path(), &pool).await;
        let [a, b, c] = [1, 2, 3].map(|number| known(number, 9).key);
        for key in [a, b, c] {
            journal
                .write(&local, &[JournalRecord::Begin { key, tag: 9 }])
                .await
                .unwrap();
        }
        journal.write(&local, &[put(3, 9, "")]).await.unwrap();
        journal.ended(b, 9);
        assert!(journal.compact(&local, &index).await.unwrap());
        journal.ended(c, 9);
        journal.write_rest(&local).await.unwrap();
        drop(journal);
        let (journal, recovered, index) = open(&local, dir.path(), &pool).await;
        assert_eq!(recovered.unfinished, [(a, 9)]);
        journal.compact(&local, &index).await.unwrap();
        drop(journal);
        let (journal, recovered, index) = open(&local, dir.path(), &pool).await;
        assert_eq!(recovered.unfinished, [(a, 9)], "nobody has deleted it yet");
        fill(&journal, &local, &index, 4, 1).await;
        journal.ended(a, 9);
        journal.close(&local, &index).await.unwrap();
        let (_journal, recovered, index) = open(&local, dir.path(), &pool).await;
        assert!(recovered.unfinished.is_empty() && !index.is_empty());
    });
}

#[test]
fn a_compaction_waits_for_tickets_of_the_old_log() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (journal, _, index) = open(&local, dir.path(), &pool).await;
        journal.walked(&local, 0).await.unwrap();
        let late = journal.ticket(&[put(1, 1, "")]).unwrap();
        let compaction = {
            let (journal, local, index) = (journal.clone(), local.clone(), index.clone());
            tokio::task::spawn_local(async move { journal.compact(&local, &index).await })
        };
        // Past the switch, into the new log.
        fill(&journal, &local, &index, 2, 1).await;
        while journal.0.state.lock().generation == 1 {
            tokio::task::yield_now().await;
        }
        fill(&journal, &local, &index, 3, 1).await;
        assert!(!compaction.is_finished());
        assert!(
            !journal.compact(&local, &index).await.unwrap(),
            "one at a time"
        );
        local.change(vec![late.step()], &pool).await.unwrap();
        index.put(&known(1, 1));
        drop(late);
        assert!(compaction.await.unwrap().unwrap());
        drop(journal);
        let (_journal, recovered, again) = open(&local, dir.path(), &pool).await;
        assert!(recovered.is_complete);
        assert_eq!(contents(&again), contents(&index));
        assert_eq!(again.len(), 3);
    });
}

#[test]
fn an_abandoned_compaction_can_be_repeated() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (journal, _, index) = open(&local, dir.path(), &pool).await;
        journal.walked(&local, 0).await.unwrap();
        fill(&journal, &local, &index, 1, 1).await;
        for turns in 0..12 {
            // Polled so many times, then dropped.
            let mut looks = 0;
            let mut compaction = Box::pin(journal.compact(&local, &index));
            std::future::poll_fn(|context| {
                looks += 1;
                let _ = compaction.as_mut().poll(context);
                if looks > turns {
                    return std::task::Poll::Ready(());
                }
                context.waker().wake_by_ref();
                std::task::Poll::Pending
            })
            .await;
            drop(compaction);
            fill(&journal, &local, &index, 10 + turns, 1).await;
        }
        assert!(journal.compact(&local, &index).await.unwrap());
        drop(journal);
        let (_journal, _, again) = open(&local, dir.path(), &pool).await;
        assert_eq!(contents(&again), contents(&index));
    });
}

#[test]
fn a_smaller_index_evicts() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (journal, _, index) = open(&local, dir.path(), &pool).await;
        for number in 0..100 {
            fill(&journal, &local, &index, number, 1).await;
        }
        journal.close(&local, &index).await.unwrap();
        let small = Arc::new(Index::new(40));
        let (_journal, recovered) = loop {
            match Journal::open(&local, bytes(dir.path()), Levels::default(), &pool, &small).await {
                Err(Error::InUse) => tokio::task::yield_now().await,
                other => break other.unwrap(),
            }
        };
        assert_eq!((recovered.entries, recovered.evicted.len()), (40, 60));
    });
}

#[test]
fn a_vary_that_is_not_kept_stays_unknown() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (journal, _, index) = open(&local, dir.path(), &pool).await;
        let mut strange = known(1, 1);
        for number in 0..=VARY_MAX {
            strange.varies = Varies::of(
                index.vary_number(format!("x-{number}").as_bytes()),
                &strange.key,
            );
        }
        assert_eq!(strange.varies.names, VARY_UNKNOWN);
        index.put(&strange);
        journal.close(&local, &index).await.unwrap();
        let (_journal, _, again) = open(&local, dir.path(), &pool).await;
        assert_eq!(again.peek(&strange.key), Some(strange));
    });
}

#[test]
fn deferred_records_keep_their_order() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (journal, _, index) = open(&local, dir.path(), &pool).await;
        for number in 0..20 {
            journal.found(known(number, 1), Bytes::new());
        }
        fill(&journal, &local, &index, 0, 2).await;
        journal.write_rest(&local).await.unwrap();
        drop(journal);
        let (_, recovered, index) = open(&local, dir.path(), &pool).await;
        assert_eq!(index.peek(&known(0, 2).key).unwrap().extent.file, 2);
        assert!(recovered.unfinished.is_empty(), "{recovered:?}");
    });
}

#[test]
fn names_of_temp_files() {
    let key = Key::of(b"a");
    let mut name = key.name().into_bytes();
    push_temp(&mut name, 0xFE01);
    assert!(name.ends_with(b".0000fe01"));
    assert_eq!(temp_of(&name), Some((key, 0xFE01)));
    for other in [&key.name()[..], "x.000000ff", &format!("{}.ff", key.name())] {
        assert_eq!(temp_of(other.as_bytes()), None, "{other}");
    }
}

/// A journal with all kinds of records: a snapshot, and two logs after it.
async fn write_all_kinds(local: &Local, dir: &Path, pool: &Pool) -> Arc<Index> {
    let (journal, _, index) = open(local, dir, pool).await;
    journal.walked(local, 0).await.unwrap();
    for number in 0..20 {
        fill(&journal, local, &index, number, 1).await;
    }
    journal.compact(local, &index).await.unwrap();
    for number in 15..25 {
        fill(&journal, local, &index, number, 2).await;
    }
    drop(journal);
    let (journal, _, index) = open(local, dir, pool).await;
    for number in 0..5 {
        let key = known(number, 1).key;
        index.remove_entry(&key, 1);
        journal
            .write(local, &[JournalRecord::Remove { key, tag: 1 }])
            .await
            .unwrap();
    }
    index
}

/// Damage to one of the journal's files.
#[derive(Clone, Debug)]
enum Damage {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Zero(prop::sample::Index, usize),
    Grow(Vec<u8>),
    Delete,
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<prop::sample::Index>;
    prop_oneof![
        (place(), 0u8..8).prop_map(|(place, bit)| Damage::Flip(place, bit)),
        place().prop_map(Damage::Cut),
        (place(), 1usize..600).prop_map(|(place, len)| Damage::Zero(place, len)),
        prop::collection::vec(any::<u8>(), 1..100).prop_map(Damage::Grow),
        Just(Damage::Delete),
    ]
}

fn inflict(path: &Path, damage: &Damage) {
    let mut file = std::fs::read(path).unwrap();
    match damage {
        Damage::Flip(place, bit) => {
            let at = place.index(file.len());
            file[at] ^= 1u8 << bit;
        }
        Damage::Cut(place) => file.truncate(place.index(file.len())),
        Damage::Zero(place, len) => {
            let at = place.index(file.len());
            let end = (at + len).min(file.len());
            file[at..end].fill(0);
        }
        Damage::Grow(more) => file.extend_from_slice(more),
        Damage::Delete => return std::fs::remove_file(path).unwrap(),
    }
    std::fs::write(path, file).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn damage_neither_invents_entries_nor_hides_missing_ones(
        damage in damage(), which in any::<prop::sample::Index>(),
    ) {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let index = write_all_kinds(&local, dir.path(), &pool).await;
            let before = contents(&index);
            drop(index);
            let folder = dir.path().join(FOLDER);
            let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            files.retain(|path| !path.ends_with("lock"));
            files.sort();
            assert_eq!(files.len(), 3, "{files:?}");
            inflict(&files[which.index(files.len())], &damage);
            let (journal, recovered, index) = open(&local, dir.path(), &pool).await;
            let after = contents(&index);
            for (key, (known, names)) in &after {
                let tag = known.extent.file;
                let number = (0..25u64).find(|number| Key::of(&number.to_le_bytes()).0 == *key).unwrap();
                let mut written = super::tests::known(number, tag);
                written.varies.names = 0;
                assert_eq!((known, &names[..]), (&written, &b"accept"[..]));
                assert!(tag == 1 && number < 20 || tag == 2 && (15..25).contains(&number));
            }
            // The end of the last log may be missing without a trace, as if the process had been killed earlier.
            let is_last = which.index(files.len()) == 1;
            let is_cut = is_last && matches!(damage, Damage::Cut(_) | Damage::Delete);
            assert!(!recovered.is_complete || is_cut || after == before, "{recovered:?}");
            // It is usable from here on, and remembers that records are missing.
            fill(&journal, &local, &index, 999, 3).await;
            drop(journal);
            let (_journal, again, index) = open(&local, dir.path(), &pool).await;
            assert!(again.is_complete <= recovered.is_complete);
            assert!(index.peek(&super::tests::known(999, 3).key).is_some());
        });
    }

    #[test]
    fn records_are_read_back(number in any::<u64>(), tag in any::<u32>(), vary in "[a-z,-]{0,60}", kind in 0..10) {
        let key = Key::of(&number.to_le_bytes());
        let lifetime = known(number % 1_000, tag).lifetime;
        let record = match kind {
            0 => JournalRecord::Begin { key, tag },
            1 => JournalRecord::Put { known: known(number % 1_000, tag), vary: Bytes::from(vary) },
            2 => JournalRecord::Renew { key, tag, lifetime },
            3 => JournalRecord::Remove { key, tag },
            4 => JournalRecord::Opened {
                generation: number,
                boot: [tag as u8; 16],
                is_known: tag % 2 == 0,
                foreign: number,
                before: (number, 7),
            },
            5 => JournalRecord::Ended { key, tag },
            6 => JournalRecord::Purge { number: tag, rule: crate::purge::PurgeRule::Tag(Bytes::from(vary)) },
            7 => JournalRecord::Purged { number: tag },
            8 => JournalRecord::LeftOut,
            _ => JournalRecord::Complete { entries: number, is_walked: tag % 2 == 0 },
        };
        let mut batch = FrameBatch::default();
        batch.push(&record);
        batch.push(&JournalRecord::Walked { foreign: 7 });
        let mut scanner = Scanner::default();
        for byte in batch.frame(number).iter() {
            scanner.push(&[*byte]);
        }
        let frame = scanner.next(true).unwrap();
        prop_assert_eq!(frame.number, number);
        prop_assert_eq!(frame.records().collect::<Vec<_>>(), vec![Some(record), Some(JournalRecord::Walked { foreign: 7 })]);
        prop_assert!(!scanner.is_damaged());
    }

    #[test]
    fn any_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut scanner = Scanner::default();
        scanner.push(&bytes);
        while scanner.next(true).is_some() {}
        let records = Bytes::from(bytes);
        let frame = JournalFrame { number: 1, records };
        prop_assert!(frame.records().count() <= 401);
    }
}

#[test]
fn a_snapshot_that_cannot_be_written_leaves_nothing_and_is_not_tried_again_at_once() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (journal, _, index) = open(&local, dir.path(), &pool).await;
        journal.walked(&local, 0).await.unwrap();
        for number in 0..10 {
            fill(&journal, &local, &index, number, 1).await;
        }
        let folder = dir.path().join(FOLDER);
        let files = || std::fs::read_dir(&folder).unwrap().count();
        let before = files();
        // A directory stands where its final name is.
        let in_the_way = folder.join(format!("snapshot.{}", journal.generation() + 1));
        std::fs::create_dir(&in_the_way).unwrap();
        for times in 0..20 {
            let failed = journal.compact(&local, &index).await;
            assert!(failed.is_err(), "{failed:?}");
            assert_eq!(files(), before + 2, "a log, and what is in the way");
            fill(&journal, &local, &index, 20 + times, 1).await;
        }
        // However little is allowed.
        let many = vec![Vec::new(); LOGS_MAX + 1];
        let old = std::mem::replace(&mut journal.0.state.lock().old, many);
        assert!(!journal.is_long(index.len()), "it failed a moment ago");
        journal.0.state.lock().old = old;
        std::fs::remove_dir(&in_the_way).unwrap();
        assert!(journal.compact(&local, &index).await.unwrap());
        assert_eq!(files(), 3, "a snapshot, a log, the lock");
        drop(journal);
        let (_, recovered, after) = open(&local, dir.path(), &pool).await;
        assert!(recovered.is_complete, "{recovered:?}");
        assert_eq!(contents(&after), contents(&index));
    });
}
