//! What leaves the index with the segment that it lies in.

use super::*;
use crate::index::EntryExtent;

#[test]
fn what_the_table_of_a_segment_does_not_have_leaves_the_index_with_it() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        put_many(&bench, &store, 70).await;
        // As a journal has it that knows more than what came to the disk of the segment.
        let first = bench.hit(&store, "k0").await.known;
        let unwritten = KnownKey {
            key: Key::of(b"unwritten"),
            extent: EntryExtent {
                offset: first.extent.offset + 1,
                blocks: 2,
                ..first.extent
            },
            ..first
        };
        let _ = store.index().put(&unwritten);
        let segments = store.0.segments.as_ref().unwrap();
        segments.set.enter(&unwritten.extent);
        for number in 70..210 {
            let key = format!("k{number}");
            let body = body_of(number, 90_000);
            bench.put_whole(&store, &key, &body).await.unwrap();
        }
        assert!(store.index().peek(&first.key).is_none(), "it was emptied");
        assert_eq!(store.index().peek(&unwritten.key), None);
    });
}

#[test]
fn what_was_used_stays_when_a_clock_that_was_ahead_is_put_right() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        store
            .sweep(&bench.local, NOW + 1_000_000, 100)
            .await
            .unwrap();
        for number in 0..200 {
            let key = format!("k{number}");
            let body = body_of(number, 90_000);
            bench.put_whole(&store, &key, &body).await.unwrap();
            assert!(bench.body(&store, "k0").await.is_some(), "{number}");
        }
        let metrics = store.segment_metrics().unwrap();
        assert!(metrics.emptied > 1 && metrics.readmitted > 1, "{metrics:?}");
    });
}
