//! Entries of a disk that was failing, or is.

use super::*;
use disk::COPY_USES;
use std::os::unix::fs::FileExt;

const LENGTHS: [usize; 5] = [1000, 19_000, 40_000, 64 << 10, 300_000];

/// Entries of all sizes, used so often that small ones are in memory, of some size in copies.
async fn used(bench: &Bench, store: &Store) -> Vec<(String, Vec<u8>)> {
    let bodies = put_lengths(bench, store, &LENGTHS).await;
    for _ in 0..=COPY_USES + 1 {
        expect(bench, store, &bodies).await;
    }
    bodies
}

async fn expect(bench: &Bench, store: &Store, bodies: &[(String, Vec<u8>)]) {
    for (key, body) in bodies {
        let found = bench.body(store, key).await.expect(key).unwrap();
        assert!(found == *body, "{key}");
    }
}

/// Looks a key up as a request does that had to wait for the disk.
async fn find_counted(bench: &Bench, store: &Store, key: &str) -> Hit {
    let access = Access::new(&bench.pool);
    let text = (Key::of(key.as_bytes()), key.as_bytes());
    let none = std::iter::empty();
    let found = store.find(&bench.local, &access, text, none, NOW, Uses::Counted);
    match found.await.unwrap() {
        LookupOutcome::Hit(hit) => hit,
        other => panic!("{other:?}"),
    }
}

/// Distrusts a store with entries of all sizes, which are as they should be.
pub(in super::super) async fn distrust_all(bench: &Bench, store: &Store) {
    let bodies = used(bench, store).await;
    store.distrust().await;
    for (key, _) in &bodies {
        assert!(!bench.hit(store, key).await.known.is_verified, "{key}");
    }
    expect(bench, store, &bodies).await;
    for (key, _) in &bodies {
        assert!(bench.hit(store, key).await.known.is_verified, "{key}");
    }
    expect(bench, store, &bodies).await;
    // Opened while the disk was failing: what is in memory says nothing of it.
    store.trust(false);
    let mut hits = Vec::new();
    for (key, _) in &bodies {
        hits.push(find_counted(bench, store, key).await);
    }
    store.distrust().await;
    store.trust(true);
    for (hit, (key, body)) in hits.iter().zip(&bodies) {
        assert!(!hit.known.is_verified, "{key}");
        assert!(bench.read(store, hit).await.unwrap() == *body, "{key}");
    }
    expect(bench, store, &bodies).await;
    assert_eq!(store.counters().damaged, 0);
}

#[test]
fn entries_of_all_sizes_are_verified_from_the_disk_that_was_failing() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        distrust_all(&bench, &store).await;
    });
}

#[test]
fn what_was_opened_while_the_disk_was_failing_proves_nothing_later() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        let (key, body) = used(&bench, &store).await.remove(0);
        store.trust(false);
        let hit = find_counted(&bench, &store, &key).await;
        store.distrust().await;
        store.trust(true);
        assert!(bench.read(&store, &hit).await.unwrap() == body);
        assert!(!bench.hit(&store, &key).await.known.is_verified);
    });
}

#[test]
fn what_the_disk_has_lost_is_not_sent_from_memory_for_ever() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        let bodies = used(&bench, &store).await;
        for (key, _) in &bodies {
            let hit = bench.hit(&store, key).await;
            let (number, page) = {
                let offset = hit.known.extent.offset;
                (offset / 1024, offset % 1024)
            };
            let path = bench.dir.path().join("segments").join(number.to_string());
            let file = std::fs::File::options().write(true).open(path).unwrap();
            let middle = hit.entry.body().start + hit.entry.body_len() / 2;
            let at = (u64::from(page) << 12) + middle;
            file.write_all_at(&[0; 64], at).unwrap();
        }
        store.distrust().await;
        for (key, _) in &bodies {
            let found = bench.body(&store, key).await;
            assert!(!matches!(found, Some(Ok(_))), "{key}");
            assert!(bench.body(&store, key).await.is_none(), "{key}");
        }
    });
}

#[test]
fn what_has_to_be_read_from_a_failing_disk_is_verified() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        bench
            .put(&store, "file", &body_of(1, 90_000))
            .await
            .unwrap();
        bench
            .put_whole(&store, "small", &body_of(2, 90_000))
            .await
            .unwrap();
        store.trust(false);
        for key in ["file", "small"] {
            let hit = find_counted(&bench, &store, key).await;
            assert!(!hit.known.is_verified, "{key}");
            bench.read(&store, &hit).await.unwrap();
            let hit = find_counted(&bench, &store, key).await;
            assert!(!hit.known.is_verified, "{key}: each time");
        }
        store.trust(true);
        assert!(find_counted(&bench, &store, "file").await.known.is_verified);
    });
}
