//! Entries that were moved from files of their own into segments.

use super::*;

/// Entries with files, in a store that puts such into segments now.
async fn with_files(bench: &Bench, keys: &[&str]) -> Store {
    let store = bench.walked().await;
    for key in keys {
        bench.put(&store, key, key.as_bytes()).await.unwrap();
    }
    drop(store);
    bench.segments().await
}

#[test]
fn what_was_moved_is_there_after_many_kills() {
    block_on(async {
        let bench = Bench::new();
        let mut store = with_files(&bench, &["a", "b"]).await;
        let mut conversion = Conversion::default();
        while conversion.step(&store, &bench.local).await.unwrap() {}
        assert_eq!((conversion.moved, bench.entry_files()), (2, 0));
        for start in 0..4 {
            drop(store);
            store = bench.segments().await;
            for key in ["a", "b"] {
                let found = bench.body(&store, key).await;
                let found = found.unwrap_or_else(|| panic!("{key} after start {start}"));
                assert_eq!(found.unwrap(), key.as_bytes());
            }
        }
    });
}

#[test]
fn an_entry_that_cannot_be_read_does_not_hold_up_others() {
    block_on(async {
        let bench = Bench::new();
        let store = with_files(&bench, &["a", "b", "c"]).await;
        let unreadable = bench.entry_file(&store, "b");
        std::fs::remove_file(&unreadable).unwrap();
        std::fs::create_dir(&unreadable).unwrap();
        let mut conversion = Conversion::default();
        while conversion.step(&store, &bench.local).await.unwrap() {}
        assert_eq!((conversion.moved, conversion.unread), (2, 1));
        for key in ["a", "c"] {
            assert!(bench.hit(&store, key).await.known.extent.is_in_segment());
        }
    });
}
