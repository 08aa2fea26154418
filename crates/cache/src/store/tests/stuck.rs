//! Files that cannot be deleted, directories that cannot be listed, jobs that come late.

use super::*;

/// Puts a directory in the place of a file, which then cannot be deleted as one.
fn make_stuck(file: &Path) {
    std::fs::remove_file(file).unwrap();
    std::fs::create_dir(file).unwrap();
}

#[test]
fn a_file_that_cannot_be_deleted_holds_up_neither_others_nor_purges_for_ever() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        for key in ["stuck", "b", "c", "d"] {
            bench.put(&store, key, b"x").await.unwrap();
        }
        let stuck = bench.entry_file(&store, "stuck");
        make_stuck(&stuck);
        // All of them go in one job.
        let swept = store.sweep(&bench.local, NOW + 601, 100).await;
        assert!(matches!(swept, Err(Error::Disk(_))), "{swept:?}");
        bench.put(&store, "tagged", b"x").await.unwrap();
        store.purge_prefix(&bench.local, b"tagged").await.unwrap();
        let swept = store.sweep(&bench.local, NOW, 100).await;
        assert!(matches!(swept, Err(Error::Disk(_))), "{swept:?}");
        assert!(all_files(bench.dir.path()).is_empty());
        assert_eq!(store.purges_pending(), 1, "it may be found by a start");
        for _ in 0..20 {
            let _ = store.sweep(&bench.local, NOW, 100).await;
        }
        assert_eq!(store.purges_pending(), 0);
        drop(store);
        let (store, _) = bench.open().await;
        assert!(store.index().is_empty(), "the journal has forgotten it");
    });
}

#[test]
fn a_walk_ends_where_a_directory_is_gone_or_cannot_be_listed() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let keys: Vec<_> = (0..60).map(|number| number.to_string()).collect();
        for key in &keys {
            bench.put(&store, key, b"x").await.unwrap();
        }
        let top = |key: &str| {
            let file = bench.entry_file(&store, key);
            file.parent().unwrap().parent().unwrap().to_owned()
        };
        let gone = top(&keys[0]);
        let loops = keys.iter().map(|key| top(key)).find(|top| *top != gone);
        let loops = loops.unwrap();
        let is_left = |key: &&String| ![&gone, &loops].contains(&&top(key));
        let left = keys.iter().filter(is_left).count();
        for is_listable in [true, false] {
            let other = bench.killed();
            // As another program's copy would be.
            std::fs::remove_dir_all(other.dir.path().join(crate::journal::FOLDER)).unwrap();
            let (store, _) = other.open().await;
            let mut walk = DirectoryWalk::new(&store);
            let access = Access::new(&other.pool);
            assert!(!walk.step(&other.local, &access, NOW).await.unwrap());
            let of = |path: &Path| other.dir.path().join(path.file_name().unwrap());
            std::fs::remove_dir_all(of(&gone)).unwrap();
            std::fs::remove_dir_all(of(&loops)).unwrap();
            if !is_listable {
                std::os::unix::fs::symlink(of(&loops), of(&loops)).unwrap();
            }
            let (mut errors, mut steps) = (0, 0);
            loop {
                match walk.step(&other.local, &access, NOW).await {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(_) => errors += 1,
                }
                steps += 1;
                assert!(steps < 1000, "it does not end");
            }
            assert_eq!(errors > 0, !is_listable);
            assert_eq!((store.index().len(), store.is_cold()), (left, false));
            drop((walk, store));
            let (_, recovered) = other.open().await;
            assert_eq!(recovered.is_complete, is_listable, "walked again");
        }
    });
}

#[test]
fn a_deletion_whose_caller_has_left_keeps_its_turn_until_it_is_done() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        bench.put(&store, "k", b"old").await.unwrap();
        let key = Key::of(b"k");
        let hold = bench.pool.hold();
        let known = store.index().peek(&key).unwrap();
        let mut purge = Box::pin(store.drop_purged(&bench.local, &known));
        publish_order::begin(purge.as_mut()).await;
        drop(purge);
        assert!(store.try_turn(key).is_none(), "its job waits");
        let mut put = Box::pin(bench.put(&store, "k", b"new"));
        publish_order::begin(put.as_mut()).await;
        drop(hold);
        put.await.unwrap();
        assert_eq!(bench.body(&store, "k").await.unwrap().unwrap(), b"new");
        while store.sweep(&bench.local, NOW, 100).await.unwrap() {}
        assert_eq!(bench.body(&store, "k").await.unwrap().unwrap(), b"new");
    });
}
