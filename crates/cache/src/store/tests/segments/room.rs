//! The room that segments have: what files leave of `max_size`, until files need it.

use super::*;

const MAX: u64 = 2 * MAX_SIZE_MIN;
const LARGE: usize = 3 << 20;
const SEGMENT: u64 = 4 << 20;
/// Segments: three quarters of `MAX`, and one more.
const SHARE: usize = 6;
const MORE: usize = SHARE + 1;

#[test]
fn nothing_gives_way_to_what_never_fits() {
    block_on(async {
        let files = Bench::new();
        let settings = StoreSettings {
            max_bytes: Some(4 << 20),
            ..files.settings()
        };
        let (store, _) = files.open_with(settings).await;
        let beside = Bench::new();
        let (with_segments, _) = beside.open_with(beside.segment_settings(Some(MAX))).await;
        beside.walk(&with_segments).await;
        for (bench, store, len, fits) in [
            (&files, store, 30_000, 2 << 20),
            (&beside, with_segments, 2 << 20, LARGE),
        ] {
            let mut kept = Vec::new();
            for number in 0..3 {
                let key = format!("k{number}");
                let body = body_of(number, len);
                bench.put_whole(&store, &key, &body).await.unwrap();
                kept.push(key);
            }
            let evicted = store.counters().evicted;
            let never = body_of(9, MAX as usize - 6 * SEGMENT as usize);
            let put = bench.put_whole(&store, "never", &never).await;
            assert!(matches!(put, Err(Error::NoRoom(_))), "{put:?}");
            assert_eq!(store.counters().evicted, evicted);
            for key in kept {
                assert!(bench.body(&store, &key).await.is_some(), "{key}");
            }
            bench
                .put_whole(&store, "fits", &body_of(9, fits))
                .await
                .unwrap();
        }
    });
}

/// Sweeps at this moment until there are so many segments.
async fn sweep_until(bench: &Bench, store: &Store, now: Seconds, segments: usize) {
    for _ in 0..10_000 {
        store.sweep(&bench.local, now, 100).await.unwrap();
        // The room of one that was removed is free a moment later.
        let of_files = MAX - segments as u64 * SEGMENT;
        let has_room = store.space().max() == Some(of_files / store.space().block_bytes());
        if bench.segment_files().len() == segments && has_room {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{:?}", store.segment_metrics());
}

#[test]
fn segments_have_what_files_leave_and_give_it_back() {
    block_on(async {
        let bench = Bench::new();
        let settings = || bench.segment_settings(Some(MAX));
        let (store, _) = bench.open_with(settings()).await;
        bench.walk(&store).await;
        let held = || {
            let bytes = du(bench.dir.path());
            assert!(bytes <= MAX, "{bytes}");
        };
        put_many(&bench, &store, 300).await;
        assert_eq!(bench.segment_files().len(), SHARE);
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        put_many(&bench, &store, 300).await;
        sweep_until(&bench, &store, NOW, MORE).await;
        assert_eq!(store.max_bytes(), Some(MAX));
        held();
        // It is kept over a start.
        drop(store);
        let (store, _) = bench.open_with(settings()).await;
        assert_eq!(bench.segment_files().len(), MORE);
        assert_eq!(store.max_bytes(), Some(MAX));
        // A second large entry has no room beside these segments.
        let mut later = NOW;
        for number in 0..3 {
            let large = body_of(number, LARGE);
            let key = format!("large{}", number % 2);
            let _ = bench.put_whole(&store, &key, &large).await;
            later += 1;
            store.sweep(&bench.local, later, 100).await.unwrap();
            held();
        }
        sweep_until(&bench, &store, later, SHARE).await;
        assert_eq!(bench.entry_files(), 2, "both have room now");
        put_many(&bench, &store, 300).await;
        for after in 1..5 {
            store.sweep(&bench.local, later + after, 100).await.unwrap();
        }
        assert_eq!(
            bench.segment_files().len(),
            SHARE,
            "files lacked room lately"
        );
        held();
    });
}

#[test]
fn segments_do_with_what_foreign_files_leave() {
    block_on(async {
        let bench = Bench::new();
        let foreign = bench.dir.path().join("foreign");
        std::fs::write(foreign, vec![1; 10 << 20]).unwrap();
        let store = bench.segments().await;
        // There is room for one segment, which is full then; files could give way for the next until a sweep finds none.
        for number in 0..50 {
            let body = body_of(number, 90_000);
            let _ = bench.put_whole(&store, &format!("k{number}"), &body).await;
        }
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        put_many(&bench, &store, 100).await;
        let newest = bench.body(&store, "k99").await;
        assert_eq!(newest.unwrap().unwrap(), body_of(99, 90_000));
        assert_eq!(bench.segment_files().len(), 1);
        let bytes = du(bench.dir.path());
        assert!(bytes <= MAX_SIZE_MIN, "{bytes}");
    });
}
