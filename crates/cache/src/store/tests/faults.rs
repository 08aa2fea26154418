//! Damage, kills and failing disks.

use super::*;

#[test]
fn damage_is_found_and_the_entry_dropped() {
    block_on(async {
        let bench = Bench::new();
        let body = big();
        bench.put(&bench.walked().await, "k", &body).await.unwrap();
        type Damage = fn(&mut Vec<u8>);
        let damages: [(&str, Damage); 8] = [
            ("prologue", |bytes| bytes[20] ^= 4),
            ("head", |bytes| bytes[130] ^= 4),
            ("body", |bytes| bytes[300_000] ^= 4),
            ("table", |bytes| *bytes.last_mut().unwrap() ^= 4),
            ("cut", |bytes| bytes.truncate(300_000)),
            ("cut to nothing", Vec::clear),
            ("zeroed", |bytes| bytes.fill(0)),
            ("zeroed from the second page on", |bytes| {
                bytes[4096..].fill(0)
            }),
        ];
        for (what, damage) in damages {
            let (store, _) = bench.open().await;
            bench.put(&store, "k", &body).await.unwrap();
            drop(store);
            let (store, _) = bench.open().await;
            let file = bench.entry_file(&store, "k");
            let mut bytes = std::fs::read(&file).unwrap();
            damage(&mut bytes);
            std::fs::write(&file, bytes).unwrap();
            match bench.find(&store, "k").await {
                LookupOutcome::Hit(hit) => {
                    let read = bench.read(&store, &hit).await;
                    assert!(matches!(read, Err(Error::Fault(_))), "{what}: {read:?}");
                }
                LookupOutcome::Miss(missed) => assert!(missed.damage.is_some(), "{what}"),
                LookupOutcome::Failed(_) => panic!("{what}"),
            }
            assert_eq!(store.counters().damaged, 1);
            assert!(!file.exists(), "{what}");
            assert!(bench.body(&store, "k").await.is_none());
        }
    });
}

#[test]
fn a_missing_or_replaced_file_is_a_miss() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        for key in ["a", "b"] {
            bench.put(&store, key, key.as_bytes()).await.unwrap();
        }
        let (a, b) = (bench.entry_file(&store, "a"), bench.entry_file(&store, "b"));
        std::fs::remove_file(&a).unwrap();
        let used = store.space().used();
        assert!(bench.body(&store, "a").await.is_none());
        assert_eq!(store.space().used(), used - 1);
        // An entry moved to another's place.
        std::fs::rename(&b, &a).unwrap();
        bench.put(&store, "c", b"c").await.unwrap();
        std::fs::rename(bench.entry_file(&store, "c"), &b).unwrap();
        assert!(bench.body(&store, "b").await.is_none());
        assert_eq!(store.counters().damaged, 1);
        assert!(!b.exists());
    });
}

#[test]
fn tries_to_open_it_in_vain_leave_nothing_in_the_journal() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        bench.put(&store, "k", b"here").await.unwrap();
        drop(store);
        // Where the segments' directory should be.
        let folder = bench.dir.path().join(crate::segments::SEGMENTS_FOLDER);
        std::fs::write(&folder, b"a file").unwrap();
        let settings = StoreSettings {
            kind: StoreKind::Segments,
            ..bench.settings()
        };
        let count = || all_files(&bench.dir.path().join(crate::journal::FOLDER)).len();
        let (before, mut failed) = (count(), 0);
        while failed < 10 {
            match Store::open(&bench.local, settings.clone()).await {
                Err(Error::InUse) => tokio::task::yield_now().await,
                Err(Error::Disk(_)) => failed += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(count(), before);
        std::fs::remove_file(&folder).unwrap();
        let (store, recovered) = bench.open_with(settings).await;
        assert!(recovered.is_complete);
        assert_eq!(bench.body(&store, "k").await.unwrap().unwrap(), b"here");
    });
}

#[test]
fn a_temp_file_that_cannot_be_deleted_is_left_to_a_sweep() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let (it, moment) = (plain(Key::of(b"k")), store.moment());
        let fields = std::iter::empty::<FieldLine<'_>>();
        let begun = store.begin(&bench.local, &it, fields, 0, NOW, moment);
        let mut writing = begun.await.unwrap();
        let piece = Bytes::from(big());
        writing.push(&bench.local, piece).await.unwrap();
        writing.flush(&bench.local).await.unwrap();
        drop((writing, store));
        let is_temp = |path: &PathBuf| path.extension().is_some_and(|end| end.len() == 8);
        let mut files = all_files(bench.dir.path()).into_iter();
        let temp = files.find(is_temp).unwrap();
        std::fs::remove_file(&temp).unwrap();
        std::fs::create_dir(&temp).unwrap();
        let (store, recovered) = bench.open().await;
        assert_eq!(recovered.unfinished.len(), 1);
        bench.put(&store, "other", b"other").await.unwrap();
        assert!(store.sweep(&bench.local, NOW, 100).await.is_err());
        std::fs::remove_dir(&temp).unwrap();
        std::fs::write(&temp, b"it").unwrap();
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        assert!(!temp.exists());
        drop(store);
        assert!(bench.open().await.1.unfinished.is_empty());
    });
}

#[test]
fn without_a_journal_entries_are_found_by_asking_and_by_a_walk() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        for number in 0..20 {
            bench
                .put(&store, &format!("k{number}"), &vec![number; 5_000])
                .await
                .unwrap();
        }
        let key = Key::of(b"temp");
        let temp = PathBuf::from(std::ffi::OsStr::from_bytes(&store.temp_path(&key, 5)));
        std::fs::create_dir_all(temp.parent().unwrap()).unwrap();
        std::fs::write(&temp, b"left by a process that was killed").unwrap();
        let of_nginx = bench.entry_file(&store, "of nginx");
        std::fs::create_dir_all(of_nginx.parent().unwrap()).unwrap();
        std::fs::write(&of_nginx, [5; 9_000]).unwrap();
        std::fs::write(bench.dir.path().join("foreign"), [5; 9_000]).unwrap();
        let used = store.space().used();
        drop(store);
        std::fs::remove_dir_all(bench.dir.path().join(crate::journal::FOLDER)).unwrap();
        let (store, recovered) = bench.open().await;
        assert!(!recovered.is_complete && store.is_cold() && store.index().is_empty());
        assert_eq!(
            bench.body(&store, "k7").await.unwrap().unwrap(),
            vec![7; 5_000]
        );
        assert_eq!(store.index().len(), 1, "what was found is known");
        // The walk comes when the temp file is old.
        let later = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64 + 100_000;
        let mut walk = DirectoryWalk::new(&store);
        let access = Access::new(&bench.pool);
        while !walk.step(&bench.local, &access, later).await.unwrap() {}
        assert_eq!(walk.foreign_blocks(), 3);
        assert!(!temp.exists());
        assert!(!store.is_cold());
        assert_eq!(store.index().len(), 21);
        assert!(store.space().used() >= used + 6);
        assert_eq!(
            bench.body(&store, "k9").await.unwrap().unwrap(),
            vec![9; 5_000]
        );
        // nginx's entries are evicted before those that the walk has found.
        let used = |key: &str| store.index().peek(&Key::of(key.as_bytes())).unwrap().used;
        assert!(used("of nginx") < used("k1"));
        drop((store, walk));
        assert_eq!(bench.open().await.1.entries, 21);
    });
}

#[test]
fn a_fill_that_was_cut_short_leaves_nothing_after_the_next_start() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let description = plain(Key::of(b"k"));
        let begin = async || {
            let lines = std::iter::empty();
            let mut writing = store
                .begin(&bench.local, &description, lines, 0, NOW, store.moment())
                .await
                .unwrap();
            writing
                .push(&bench.local, Bytes::from(big()))
                .await
                .unwrap();
            writing
        };
        let before = store.space().used();
        let given_up = begin().await;
        assert!(given_up.written() > 0);
        assert_eq!(all_files(bench.dir.path()).len(), 1);
        given_up.abandon(&bench.local, None).await.unwrap();
        assert!(all_files(bench.dir.path()).is_empty());
        assert!(store.space().used() <= before + 2, "two directories");
        let used = store.space().used();
        drop(begin().await);
        assert!(store.space().used() > used + 100, "the file is still there");
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        assert!(all_files(bench.dir.path()).is_empty());
        assert!(store.space().used() <= used + 2);
        let lost = begin().await;
        assert_eq!(all_files(bench.dir.path()).len(), 1);
        drop((lost, store));
        let (store, recovered) = bench.open().await;
        assert_eq!(recovered.unfinished.len(), 1);
        assert!(all_files(bench.dir.path()).is_empty());
        drop(store);
        assert!(bench.open().await.1.unfinished.is_empty());
    });
}

#[test]
fn a_small_entry_that_was_cut_short_is_gone_at_the_next_start() {
    const WHOLE: u64 = 9_000;
    block_on(async {
        for len in [0, 10, 130, 4_096, WHOLE, u64::MAX] {
            let bench = Bench::new();
            let store = bench.walked().await;
            bench.put(&store, "before", b"x").await.unwrap();
            bench.put(&store, "k", &[7; WHOLE as usize]).await.unwrap();
            let path = bench.entry_file(&store, "k");
            drop(store);
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            let whole = file.metadata().unwrap().len();
            file.set_len(len.min(whole)).unwrap();
            let (store, recovered) = bench.open().await;
            assert!(recovered.is_complete && recovered.unfinished.len() == 1);
            assert_eq!(path.exists(), len > whole, "{len} bytes");
            assert_eq!(store.index().len(), 1 + usize::from(path.exists()));
            assert!(bench.body(&store, "before").await.is_some());
            assert_eq!(bench.body(&store, "k").await.is_some(), path.exists());
            assert_eq!(store.counters().damaged, 0);
        }
    });
}

#[test]
fn a_disk_that_fails_is_no_doubt_about_the_rest() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        bench.put(&store, "good", b"x").await.unwrap();
        let used = store.space().used();
        // A file stands where the directory should be.
        let directory = bench.entry_file(&store, "bad");
        let directory = directory.parent().unwrap().parent().unwrap();
        std::fs::write(directory, b"").unwrap();
        for body in [vec![1; 10], big()] {
            let failed = bench.put(&store, "bad", &body).await;
            assert!(matches!(failed, Err(Error::Disk(_))), "{failed:?}");
        }
        assert_eq!(store.space().used(), used, "the room is given back");
        assert_eq!(store.counters().shed, 2);
        drop(store);
        let (store, recovered) = bench.open().await;
        assert!(recovered.is_complete, "{recovered:?}");
        assert!(bench.body(&store, "good").await.is_some());
    });
}

#[test]
fn foreign_files_are_left_alone_and_nginx_entries_overwritten() {
    block_on(async {
        let bench = Bench::new();
        let keys = ["one", "two", "three"];
        let store = bench.open().await.0;
        let files = keys.map(|key| bench.entry_file(&store, key));
        drop(store);
        for file in &files {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, [5; 9_000]).unwrap();
            let temp = format!("{}.0000000017", file.display());
            std::fs::write(&temp, b"left by an nginx that was killed").unwrap();
        }
        let foreign = bench.dir.path().join("lost+found/deep");
        std::fs::create_dir_all(&foreign).unwrap();
        std::fs::write(foreign.join("theirs"), [5; 100_000]).unwrap();
        std::fs::write(files[0].with_file_name("theirs"), [5; 5_000]).unwrap();
        // In another's place, so it is not nginx's.
        std::fs::write(bench.dir.path().join(files[0].file_name().unwrap()), b"").unwrap();
        let (store, _) = bench.open().await;
        let mut walk = DirectoryWalk::new(&store);
        let access = Access::new(&bench.pool);
        while !walk.step(&bench.local, &access, i64::MAX).await.unwrap() {}
        assert_eq!(walk.foreign_blocks(), 2 + 25 + 2 + 1);
        assert_eq!((store.index().len(), store.counters().damaged), (3, 0));
        assert_eq!(
            all_files(bench.dir.path()).len(),
            3 + 3,
            "temp files are gone"
        );
        let LookupOutcome::Miss(missed) = bench.find(&store, "one").await else {
            panic!("it is nginx's");
        };
        assert!(missed.damage.is_none() && files[0].exists());
        let used = store.space().used();
        bench.put(&store, "one", b"ours").await.unwrap();
        assert_eq!(store.space().used(), used - 2);
        assert_eq!(bench.body(&store, "one").await.unwrap().unwrap(), b"ours");
        drop((store, walk));
        let (store, recovered) = bench.open().await;
        assert!(recovered.is_complete);
        assert_eq!(
            (recovered.foreign_blocks, foreign.join("theirs").exists()),
            (30, true)
        );
        assert!(store.space().used() >= 30 + 1 + 6 + 3);
    });
}

#[test]
fn a_file_that_cannot_be_deleted_does_not_keep_the_others() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        for key in ["stays", "a", "b"] {
            bench.put(&store, key, b"x").await.unwrap();
        }
        // A directory, which cannot be deleted as a file.
        let stays = bench.entry_file(&store, "stays");
        std::fs::remove_file(&stays).unwrap();
        std::fs::create_dir(&stays).unwrap();
        let used = store.space().used();
        let purged = store.purge(&bench.local, &Key::of(b"stays")).await;
        assert!(matches!(purged, Err(Error::Disk(_))), "{purged:?}");
        assert_eq!(
            (store.space().used(), store.counters().undeleted),
            (used, 1)
        );
        let swept = store.sweep(&bench.local, NOW + 601, 100).await;
        assert!(matches!(swept, Err(Error::Disk(_))), "{swept:?}");
        assert_eq!((store.index().len(), store.space().used()), (0, used - 2));
        assert_eq!(store.purges_pending(), 1);
        std::fs::remove_dir(&stays).unwrap();
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        assert_eq!(
            (store.space().used(), store.purges_pending()),
            (used - 3, 0)
        );
    });
}

#[test]
fn files_that_cannot_be_deleted_at_once_are_deleted_later() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let keys: Vec<_> = (0..=DELETE_MAX).map(|number| number.to_string()).collect();
        for key in &keys {
            bench.put(&store, key, b"x").await.unwrap();
        }
        let used = store.space().used();
        let stays = bench.entry_file(&store, &keys[0]);
        std::fs::remove_file(&stays).unwrap();
        std::fs::create_dir(&stays).unwrap();
        // More than one job.
        let swept = store.sweep(&bench.local, NOW + 601, 100).await;
        assert!(matches!(swept, Err(Error::Disk(_))), "{swept:?}");
        assert!(store.index().is_empty());
        std::fs::remove_dir(&stays).unwrap();
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        assert!(all_files(bench.dir.path()).is_empty());
        // The journal may have grown.
        assert!(store.space().used() <= used - DELETE_MAX as u64);
    });
}

#[test]
fn a_late_lookup_leaves_an_entry_that_is_being_written() {
    block_on(async {
        for is_cold in [true, false] {
            let bench = Bench::new();
            let store = match is_cold {
                true => bench.open().await.0,
                false => bench.walked().await,
            };
            let path = bench.entry_file(&store, "k");
            if !is_cold {
                bench.put(&store, "k", b"x").await.unwrap();
            }
            // The first call on this file system waits for the pool.
            let late = Local::new(&Disk::new(Disk::prepare()));
            let access = Access::new(&bench.pool);
            let none = std::iter::empty();
            let key = (Key::of(b"k"), &b"k"[..]);
            let mut find = Box::pin(store.find(&late, &access, key, none, NOW, Uses::Count));
            let hold = bench.pool.hold();
            publish_order::begin(find.as_mut()).await;
            // A walk ends, or the entry is evicted; a fill begins.
            store.0.is_cold.store(false, Relaxed);
            drop(store.victims(1));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, [0; 50]).unwrap();
            drop(hold);
            let found = find.await.unwrap();
            let LookupOutcome::Miss(missed) = found else {
                panic!("{found:?}");
            };
            assert_eq!((missed.damage, store.counters().damaged), (None, 0));
            assert!(path.exists(), "{is_cold}");
        }
    });
}

#[test]
fn a_lookup_that_has_to_wait_for_the_disk_counts_one_use() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.open().await.0;
        let key = Key::of(b"k");
        store.0.index.count(key, NOW);
        // Nothing is known of this file system.
        let late = Local::new(&Disk::new(Disk::prepare()));
        let access = Access::new(&bench.pool);
        let wanted = (key, &b"k"[..]);
        let none = std::iter::empty();
        let refused = store
            .find(
                &late,
                &access.in_memory(),
                wanted,
                none.clone(),
                NOW,
                Uses::Count,
            )
            .await;
        let refused = refused.err();
        assert!(
            matches!(refused, Some(Error::Disk(disk::Error::NotInMemory(_)))),
            "{refused:?}"
        );
        let found = store
            .find(&late, &access, wanted, none, NOW, Uses::Counted)
            .await;
        assert!(matches!(found, Ok(LookupOutcome::Miss(_))), "{found:?}");
        assert_eq!(store.0.index.peek(&key).map(|known| known.uses), Some(2));
    });
}

#[test]
fn an_nginx_that_comes_back_finds_its_entries_for_half_of_inactive() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.open().await.0;
        let file = bench.entry_file(&store, "one");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, [5; 9_000]).unwrap();
        let other = bench.entry_file(&store, "other");
        std::fs::create_dir_all(other.parent().unwrap()).unwrap();
        std::fs::write(&other, [5; 9_000]).unwrap();
        bench.put(&store, "ours", b"x").await.unwrap();
        let mut walk = DirectoryWalk::new(&store);
        let access = Access::new(&bench.pool);
        while !walk.step(&bench.local, &access, NOW).await.unwrap() {}
        // Where room is wanted, they go before what is used here.
        let oldest = store.victims(1).known[0].key;
        assert!(
            [&b"one"[..], b"other"]
                .iter()
                .any(|key| oldest == Key::of(key))
        );
        let file = match oldest == Key::of(b"one") {
            true => other,
            false => file,
        };
        // `inactive` is ten minutes.
        for (seconds, is_there) in [(290, true), (310, false)] {
            while store.sweep(&bench.local, NOW + seconds, 10).await.unwrap() {}
            assert_eq!(file.exists(), is_there, "after {seconds} s");
        }
    });
}

#[test]
fn what_cannot_be_written_for_purges_does_not_keep_old_entries() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        bench.put(&store, "old", b"old").await.unwrap();
        // In the place of the mark.
        let folder = bench.dir.path().join(crate::journal::FOLDER);
        std::fs::create_dir_all(folder.join("purging/full")).unwrap();
        let purged = store.purge_prefix(&bench.local, b"x").await;
        assert!(purged.is_err(), "{purged:?}");
        let swept = store.sweep(&bench.local, NOW + 601, 100).await;
        assert!(matches!(swept, Err(Error::Disk(_))), "{swept:?}");
        assert!(store.index().is_empty());
        assert_eq!(store.purges_pending(), 1);
    });
}

#[test]
fn a_renewal_of_what_is_gone_takes_no_record_of_another_along() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        for key in ["a", "b"] {
            bench.put(&store, key, b"x").await.unwrap();
        }
        let b = bench.hit(&store, "b").await.known;
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        store.purge(&bench.local, &b.key).await.unwrap();
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        std::fs::remove_file(bench.entry_file(&store, "a")).unwrap();
        assert!(bench.body(&store, "a").await.is_none());
        store.renew(&bench.local, &b, b.lifetime).await.unwrap();
        bench.put(&store, "c", b"c").await.unwrap();
        drop(store);
        let (store, _) = bench.open().await;
        assert_eq!(store.index().len(), 1);
    });
}

#[test]
fn deferred_records_are_not_lost_with_a_change_that_fails() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        for key in ["gone", "other", "purged"] {
            bench.put(&store, key, b"here").await.unwrap();
        }
        store.0.journal.write_rest(&bench.local).await.unwrap();
        let gone = store.index().peek(&Key::of(b"gone")).unwrap();
        store.0.journal.gone(gone.key, gone.extent.file);
        let full = (bench.local).create(b"/dev/full", disk::Create::Append, 0o600, &bench.pool);
        let log = store.0.journal.set_log(full.await.unwrap());
        // A fill of a small entry, one of a large entry, a deletion, the end of a purge.
        assert!(bench.put(&store, "new", b"small").await.is_err());
        assert!(bench.put(&store, "new", &big()).await.is_err());
        let out = store.take_out(|index| index.remove(&Key::of(b"other")));
        assert!(store.delete(&bench.local, out).await.is_err());
        assert!(store.0.journal.purged(&bench.local, 0).await.is_err());
        store.0.journal.set_log(log);
        store.0.journal.write_rest(&bench.local).await.unwrap();
        drop(store);
        let (store, _) = bench.open().await;
        assert_eq!(store.index().peek(&gone.key), None);
        assert!(store.has(&Key::of(b"purged")));
    });
}
