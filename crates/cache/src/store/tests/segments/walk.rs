//! Files of a directory that something else filled before, beside segments.

use super::*;

/// Puts a file of an nginx where a key's entry would have its own.
fn leave_foreign(bench: &Bench, key: &str) -> PathBuf {
    let place = Key::of(key.as_bytes()).path(bench.settings().levels);
    let place = std::ffi::OsStr::from_bytes(place.as_bytes());
    let path = bench.dir.path().join(place);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, [&b"\x05\0\0\0\0\0\0\0"[..], &[b'n'; 9000]].concat()).unwrap();
    path
}

#[test]
fn a_file_whose_key_is_in_a_segment_by_then_is_deleted_by_the_walk() {
    block_on(async {
        let bench = Bench::new();
        let [path, unused] = ["k", "unused"].map(|key| leave_foreign(&bench, key));
        let settings = bench.segment_settings(Some(MAX_SIZE_MIN));
        let (store, _) = bench.open_with(settings).await;
        let known = bench.put_whole(&store, "k", b"new").await.unwrap();
        assert!(known.extent.is_in_segment() && path.exists());
        // Not while a fill may be giving it another entry.
        let turn = store.turn(known.key, store.moment().tag()).await.unwrap();
        let (mut walk, access) = (DirectoryWalk::new(&store), Access::new(&bench.pool));
        for _ in 0..20 {
            assert!(!walk.step(&bench.local, &access, NOW).await.unwrap());
        }
        assert!(path.exists());
        drop(turn);
        while !walk.step(&bench.local, &access, NOW).await.unwrap() {}
        assert!(!path.exists());
        assert!(unused.exists() && store.has(&Key::of(b"unused")));
        assert_eq!(bench.body(&store, "k").await.unwrap().unwrap(), b"new");
        assert!(store.0.publish_order.is_empty());
    });
}

#[test]
fn entries_that_came_into_no_journal_are_not_found() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        bench.put_whole(&store, "a", b"a").await.unwrap();
        let full = (bench.local).create(b"/dev/full", disk::Create::Append, 0o600, &bench.pool);
        let log = store.0.journal.set_log(full.await.unwrap());
        let put = |key: &'static str| bench.put_whole(&store, key, b"lost");
        // In one job.
        let lost = tokio::join!(put("b"), put("c"), put("d"), put("e"));
        let lost = [lost.0, lost.1, lost.2, lost.3];
        assert!(lost.iter().all(Result::is_err), "{lost:?}");
        store.0.journal.set_log(log);
        bench.put_whole(&store, "f", b"f").await.unwrap();
        drop(store);
        std::fs::remove_dir_all(bench.dir.path().join(crate::journal::FOLDER)).unwrap();
        let store = bench.segments().await;
        for key in ["a", "f"] {
            let found = bench.body(&store, key).await.unwrap();
            assert_eq!(found.unwrap(), key.as_bytes());
        }
        for key in ["b", "c", "d", "e"] {
            assert!(bench.body(&store, key).await.is_none(), "{key}");
        }
    });
}

#[test]
fn what_a_walk_has_left_out_in_a_segment_is_not_found_by_a_later_one() {
    block_on(async {
        let bench = Bench::new();
        let folder = bench.dir.path().join(crate::journal::FOLDER);
        let store = bench.segments().await;
        bench.put_whole(&store, "k", b"k").await.unwrap();
        drop(store);
        std::fs::remove_dir_all(&folder).unwrap();
        let settings = bench.segment_settings(Some(MAX_SIZE_MIN));
        let (store, _) = bench.open_with(settings).await;
        store.0.journal.leave_out(&bench.local).await.unwrap();
        bench.put_whole(&store, "new", b"new").await.unwrap();
        bench.walk(&store).await;
        assert!(!store.0.journal.has_left_out());
        assert!(bench.body(&store, "k").await.is_none());
        assert_eq!(bench.body(&store, "new").await.unwrap().unwrap(), b"new");
        drop(store);
        std::fs::remove_dir_all(&folder).unwrap();
        let store = bench.segments().await;
        assert!(bench.body(&store, "k").await.is_none());
        assert_eq!(bench.body(&store, "new").await.unwrap().unwrap(), b"new");
    });
}
