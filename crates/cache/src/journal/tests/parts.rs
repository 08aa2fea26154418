//! Snapshots read in parts, beside the same read by one reader.

use super::super::files::{read_parts, read_snapshot};
use super::super::frame::FileHeader;
use super::super::parts::PartsFound;
use super::super::replay::Replay;
use super::*;
use std::collections::BTreeSet;

type Contents = HashMap<[u8; 16], (KnownKey, Vec<u8>)>;
/// What a start goes by: the index, `is_complete`, `is_damaged`, the purges, the keys whose files are to be deleted.
type Outcome = (Contents, bool, bool, PurgeList, BTreeSet<[u8; 16]>);

const HEADER: FileHeader = FileHeader {
    generation: 1,
    is_snapshot: true,
};

/// One of few keys, so that some come again, in a segment or not.
fn entry(number: u64, tag: u32, is_in_segment: bool) -> KnownKey {
    let mut known = known(number, tag);
    known.extent.offset = u32::from(is_in_segment) * (tag + 1);
    known.clean_of = tag % 7;
    known
}

/// A snapshot with the entries in this order, so many in a frame.
fn snapshot_of(entries: &[KnownKey], in_frame: usize, more: Option<JournalRecord>) -> Vec<u8> {
    let mut file = HEADER.encode().to_vec();
    let (mut frames, end) = (Vec::new(), entries.len() as u64);
    for entries in entries.chunks(in_frame) {
        let mut batch = FrameBatch::default();
        for known in entries {
            let vary = Bytes::from_static([&b""[..], b"accept"][known.key.0[1] as usize % 2]);
            let known = *known;
            batch.push(&JournalRecord::Put { known, vary });
        }
        frames.push(batch);
    }
    let complete = JournalRecord::Complete {
        entries: end,
        is_walked: true,
    };
    for record in more.into_iter().chain([complete]) {
        let mut batch = FrameBatch::default();
        batch.push(&record);
        frames.push(batch);
    }
    for (number, batch) in (0..).zip(frames) {
        file.extend_from_slice(&batch.frame(number));
    }
    file
}

fn outcome(index: &Index, replay: Replay<'_>) -> Outcome {
    let (found, _) = replay.finish(1, &[(1, 1)], true, [0; 16]);
    // The file has the key's name, whichever of the key's entries is in it; what is in a segment has none.
    let files = found.evicted.iter();
    let files = files.filter(|known| !known.extent.is_in_segment());
    let evicted = files.map(|known| known.key.0).collect();
    (
        contents(index),
        found.is_complete,
        found.is_damaged,
        found.purges,
        evicted,
    )
}

async fn by_one(name: &Path, keys_max: usize) -> Outcome {
    let (local, pool) = local();
    let index = Index::new(keys_max);
    let mut replay = Replay::new(&index);
    let read = read_snapshot(&local, bytes(name), &pool, &mut replay, 0);
    read.await.unwrap();
    outcome(&index, replay)
}

/// Also whether the parts were enough.
async fn by_parts(name: &Path, parts: usize, expected: usize) -> (Outcome, bool) {
    let (local, pool) = local();
    let index = Arc::new(Index::new(10_000));
    let mut replay = Replay::new(&index);
    let found = read_parts(&local, bytes(name), &pool, &index, (expected, parts)).await;
    let found: Option<PartsFound> = found.unwrap();
    let is_enough = found.is_some();
    match found {
        Some(found) => replay.adopt(found),
        None => {
            let read = read_snapshot(&local, bytes(name), &pool, &mut replay, 0);
            read.await.unwrap();
        }
    }
    (outcome(&index, replay), is_enough)
}

/// As a writer has them.
fn in_order(entries: &mut [KnownKey]) {
    entries.sort_by_key(|known| crate::index::shard_of(&known.key));
}

#[test]
fn parts_give_the_index_that_one_reader_gives() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("snapshot");
        let mut entries: Vec<_> = (0..6000)
            .map(|number| entry(number, number as u32, number % 3 > 0))
            .collect();
        in_order(&mut entries);
        // Frames of 35 to 63 KiB lie across each border, and the file is read by several jobs.
        for in_frame in [1, 400, 700] {
            std::fs::write(&name, snapshot_of(&entries, in_frame, None)).unwrap();
            let one = by_one(&name, 10_000).await;
            assert!(one.1 || one.0.len() == 6000, "all are in it");
            for parts in 1..=4 {
                assert_eq!(by_parts(&name, parts, 6000).await, (one.clone(), true));
            }
        }
    });
}

#[test]
fn what_only_one_reader_replays_as_it_is_to_be_is_read_again() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("snapshot");
        let mut entries: Vec<_> = (0..600).map(|number| entry(number, 1, true)).collect();
        in_order(&mut entries);
        let key = entries[0].key;
        let remove = JournalRecord::Remove { key, tag: 1 };
        std::fs::write(&name, snapshot_of(&entries, 10, Some(remove))).unwrap();
        let one = by_one(&name, 10_000).await;
        assert_eq!(one.0.len(), 599);
        assert_eq!(by_parts(&name, 3, 600).await, (one, false));
        // Two snapshots in one file: the end of the first stands in its midst.
        let mut twice = snapshot_of(&entries, 10, None);
        let again = twice[FILE_HEADER_BYTES..].to_vec();
        twice.extend_from_slice(&again);
        std::fs::write(&name, twice).unwrap();
        let one = by_one(&name, 10_000).await;
        assert_eq!(by_parts(&name, 2, 600).await, (one, false));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn parts_are_as_one_reader_whatever_is_in_the_file(
        numbers in prop::collection::vec((0..60u64, any::<bool>()), 1..200),
        in_frame in 1..9usize,
        is_in_order in any::<bool>(),
        damages in prop::collection::vec(damage(), 0..3),
        parts in 1..=4usize,
    ) {
        block_on(async {
            let mut entries: Vec<_> = (0..).zip(&numbers).map(|(tag, (number, is_in))| entry(*number, tag, *is_in)).collect();
            if is_in_order {
                in_order(&mut entries);
            }
            let dir = tempfile::tempdir().unwrap();
            let name = dir.path().join("snapshot");
            std::fs::write(&name, snapshot_of(&entries, in_frame, None)).unwrap();
            for damage in damages.iter().filter(|damage| !matches!(damage, Damage::Delete)) {
                if std::fs::metadata(&name).unwrap().len() > 0 {
                    inflict(&name, damage);
                }
            }
            let one = by_one(&name, 10_000).await;
            let (several, _) = by_parts(&name, parts, entries.len()).await;
            assert_eq!(several, one);
        });
    }
}
