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

/// 42 segments: what is over in one of them, and what stays free, is little.
const MAX: u64 = 170 << 20;
/// Lengths of bodies, which take turns.
const LENGTHS: [usize; 4] = [700, 40_000, 90_000, 120_000];
/// Steps of a conversion that one takes at most here.
const STEPS_MAX: usize = 10_000;

/// A cache of one kind, with as many directories as have a block each.
async fn of_kind(bench: &Bench, kind: StoreKind) -> Store {
    let settings = StoreSettings {
        kind,
        levels: Levels::parse("2").unwrap(),
        max_bytes: Some(MAX),
        ..bench.settings()
    };
    let (store, _) = bench.open_with(settings).await;
    if store.is_cold() {
        bench.walk(&store).await;
    }
    store
}

fn nth_body(number: usize) -> Vec<u8> {
    vec![number as u8; LENGTHS[number % LENGTHS.len()]]
}

/// Bytes of the bodies that are found, of so many; some are read.
async fn bytes_found(bench: &Bench, store: &Store, count: usize) -> u64 {
    let mut bytes = 0;
    for number in 0..count {
        let LookupOutcome::Hit(hit) = bench.find(store, &format!("k{number}")).await else {
            continue;
        };
        bytes += hit.entry.body_len();
        if number % 64 == 0 {
            assert_eq!(bench.read(store, &hit).await.unwrap(), nth_body(number));
        }
    }
    bytes
}

/// Moves all that can be moved, with sweeps meanwhile, as a server does.
async fn convert(bench: &Bench, store: &Store) {
    let mut conversion = Conversion::default();
    for step in 0..STEPS_MAX {
        let has_room = match conversion.step(store, &bench.local).await {
            Ok(false) => return,
            Ok(true) => true,
            Err(Error::NoRoom(_)) => false,
            Err(error) => panic!("{error}"),
        };
        if step % 8 == 0 || !has_room {
            store.sweep(&bench.local, NOW, 100).await.unwrap();
            let bytes = du(bench.dir.path());
            assert!(bytes <= MAX, "{bytes} after step {step}");
        }
    }
    panic!("{:?}", store.segment_metrics());
}

#[test]
fn a_full_cache_has_nearly_all_of_its_bytes_after_a_conversion_and_after_one_back() {
    block_on(async {
        let bench = Bench::new();
        let store = of_kind(&bench, StoreKind::Files).await;
        let mut count = 0;
        while store.counters().evicted == 0 {
            let key = format!("k{count}");
            bench
                .put_whole(&store, &key, &nth_body(count))
                .await
                .unwrap();
            count += 1;
        }
        let all = bytes_found(&bench, &store, count).await;
        assert!(all > MAX * 8 / 10, "{all}");
        drop(store);
        // The room of no more than the next segment is taken from files that are used.
        let store = of_kind(&bench, StoreKind::Segments).await;
        for _ in 0..20 {
            store.sweep(&bench.local, NOW, 100).await.unwrap();
        }
        let kept = bytes_found(&bench, &store, count).await;
        assert!(kept * 100 >= all * 95, "{kept} of {all}");
        convert(&bench, &store).await;
        assert_eq!(bench.entry_files(), 0);
        // Nor does a reload take anything.
        store.set_limits(Some(MAX), 0, 600);
        let is_settled = || {
            let segments = store.0.segments.as_ref();
            segments.is_some_and(|segments| !segments.set.is_emptying_due())
        };
        until(&store, &bench, is_settled).await;
        let moved = bytes_found(&bench, &store, count).await;
        assert!(moved * 100 >= all * 85, "{moved} of {all}");
        drop(store);
        let store = of_kind(&bench, StoreKind::Files).await;
        convert(&bench, &store).await;
        until_empty(&store, &bench).await;
        let back = bytes_found(&bench, &store, count).await;
        assert!(back * 100 >= moved * 97, "{back} of {moved}");
    });
}
