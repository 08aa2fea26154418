//! Places in segments that other entries have by then.

use super::*;
use crate::index::EntryExtent;
use crate::segments::Segments;

fn set_of(store: &Store) -> &Segments {
    &store.0.segments.as_ref().unwrap().set
}

/// The number in the order of writing of the segment that an entry is in.
fn sequence_of(store: &Store, known: &KnownKey) -> u64 {
    let number = set_of(store).place(known.extent.offset).0;
    let readable = set_of(store).readable().into_iter();
    let of = readable.filter(|one| one.number == number);
    of.map(|one| one.header.sequence).max().unwrap_or_default()
}

/// Stores entries until the segment of one that was known is being filled with them.
pub(in crate::store::tests) async fn fill_anew(bench: &Bench, store: &Store, known: &KnownKey) {
    let (sequence, number) = (sequence_of(store, known), known.extent.offset);
    let number = set_of(store).place(number).0;
    for other in 0..300 {
        let key = format!("other{other}");
        let put = bench.put_whole(store, &key, &body_of(other, 90_000)).await;
        let place = set_of(store).place(put.unwrap().extent.offset).0;
        if place == number && sequence_of(store, known) != sequence {
            return;
        }
    }
    panic!("{:?}", store.segment_metrics());
}

#[test]
fn what_a_walk_has_read_is_not_found_in_a_segment_that_is_filled_anew() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        put_many(&bench, &store, 45).await;
        let old = store.index().peek(&Key::of(b"k30")).unwrap();
        let sequence = sequence_of(&store, &old);
        let live = || store.segment_metrics().unwrap().counts.live_bytes;
        let _ = store.index().remove_at(&old.key, &old.extent);
        set_of(&store).move_away(&old.extent);
        let before = live();
        // As long as the segment is the same, it is found.
        assert_eq!(store.adopt(&old, sequence), None);
        assert_eq!(store.index().peek(&old.key).unwrap().extent, old.extent);
        assert!(live() > before);
        fill_anew(&bench, &store, &old).await;
        assert_eq!(store.index().peek(&old.key), None, "it was emptied");
        let before = live();
        assert_eq!(store.adopt(&old, sequence), None);
        assert_eq!((store.index().peek(&old.key), live()), (None, before));
    });
}

#[test]
fn what_was_looked_up_before_its_segment_was_filled_anew_is_not_read_there() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        put_many(&bench, &store, 45).await;
        // From now on the loop keeps its head.
        let old = bench.hit(&store, "k0").await.known;
        let access = Access::new(&bench.pool);
        let open = || store.open_in_segment(&bench.local, &access, &old);
        assert!(open().await.unwrap().is_some());
        fill_anew(&bench, &store, &old).await;
        assert!(open().await.unwrap().is_none());
    });
}

#[test]
fn what_lies_behind_the_last_entry_is_not_written_over_after_a_start() {
    block_on(async {
        let bench = Bench::new();
        let mut store = bench.segments().await;
        bench.put_whole(&store, "a", b"a").await.unwrap();
        let b = bench.put_whole(&store, "b", b"b").await.unwrap();
        store.purge(&bench.local, &b.key).await.unwrap();
        store.write_dead_maps(true).await.unwrap();
        drop(store);
        store = bench.segments().await;
        let c = bench.put_whole(&store, "c", b"c").await.unwrap();
        // A socket may hold some of it.
        assert!(c.extent.offset > b.extent.offset);
        for why in ["after a close", "after a kill"] {
            if why == "after a close" {
                store.close(&bench.local).await.unwrap();
            }
            drop(store);
            store = bench.segments().await;
            let found = bench.body(&store, "c").await;
            assert_eq!(found.expect(why).unwrap(), b"c", "{why}");
        }
        let d = bench.put_whole(&store, "d", b"d").await.unwrap();
        assert_eq!(d.extent.offset, c.extent.offset + c.extent.blocks);
        store.close(&bench.local).await.unwrap();
        drop(store);
        std::fs::remove_dir_all(bench.dir.path().join(crate::journal::FOLDER)).unwrap();
        let store = bench.segments().await;
        assert_eq!(bench.body(&store, "c").await.unwrap().unwrap(), b"c");
        assert!(bench.body(&store, "b").await.is_none());
    });
}

#[test]
fn an_entry_stays_whose_place_the_index_had_for_another_one() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        let k0 = bench.put_whole(&store, "k0", b"k0").await.unwrap();
        // As a journal has it some of whose frames were written before the place was used again.
        let other = KnownKey {
            key: Key::of(b"other"),
            extent: EntryExtent {
                file: k0.extent.file + 1000,
                ..k0.extent
            },
            ..k0
        };
        let _ = store.index().put(&other);
        set_of(&store).enter(&other.extent);
        assert!(bench.body(&store, "other").await.is_none());
        assert_eq!(store.index().peek(&other.key), None);
        store.close(&bench.local).await.unwrap();
        drop(store);
        let store = bench.segments().await;
        assert_eq!(bench.body(&store, "k0").await.unwrap().unwrap(), b"k0");
    });
}
