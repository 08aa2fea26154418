//! Copies of entries of some size that are used again.

use super::*;
use disk::{COPY_USES, OpenFile};
use std::time::Duration;

/// Whether a file has a copy, once that is written.
async fn has_copy(file: &OpenFile) -> bool {
    while file.gets_copy() && !file.has_copy() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    file.has_copy()
}

#[test]
fn an_entry_of_some_size_that_is_used_again_is_sent_from_a_copy_until_another_has_its_key() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        let lengths = [5_000, 10_000, 30_000, 64 << 10, 100_000];
        let bodies = put_lengths(&bench, &store, &lengths).await;
        for _ in 0..=COPY_USES {
            for (key, body) in &bodies {
                let read = bench.body(&store, key).await.unwrap();
                assert!(read.unwrap() == *body, "{key}");
            }
        }
        for ((key, body), is_copied) in bodies.iter().zip([false, true, true, true, false]) {
            let hit = bench.hit(&store, key).await;
            assert_eq!(has_copy(&hit.file).await, is_copied, "{key}");
            let read = bench.body(&store, key).await.unwrap();
            assert!(read.unwrap() == *body, "{key}");
        }
        let other = body_of(9, 64 << 10);
        bench.put_whole(&store, "k3", &other).await.unwrap();
        for _ in 0..3 {
            let read = bench.body(&store, "k3").await.unwrap();
            assert!(read.unwrap() == other);
        }
    });
}

#[test]
fn what_is_used_again_gets_room_among_what_was_found_once() {
    block_on(async {
        let bench = Bench::new();
        let settings = bench.segment_settings(Some(2 * MAX_SIZE_MIN));
        let (store, _) = bench.open_with(settings).await;
        bench.walk(&store).await;
        // More than a loop keeps.
        let found_once = put_lengths(&bench, &store, &[18_000; 700]).await;
        for (key, _) in &found_once {
            bench.hit(&store, key).await;
        }
        let hot = body_of(9, 64 << 10);
        bench.put_whole(&store, "hot", &hot).await.unwrap();
        for _ in 0..20 * COPY_USES {
            assert!(bench.body(&store, "hot").await.unwrap().unwrap() == hot);
        }
        assert!(has_copy(&bench.hit(&store, "hot").await.file).await);
    });
}
