//! Walks that leave something out, and what comes of that.

use super::*;

/// What a walk leaves out: the file of a key, in whose place is a directory when the walk comes to it.
struct Unreadable {
    file: PathBuf,
    aside: PathBuf,
}

impl Unreadable {
    fn new(bench: &Bench, store: &Store, key: &str) -> Self {
        let file = bench.entry_file(store, key);
        let aside = bench.dir.path().join(key);
        std::fs::rename(&file, &aside).unwrap();
        std::fs::create_dir(&file).unwrap();
        Self { file, aside }
    }

    fn put_back(&self) {
        std::fs::remove_dir(&self.file).unwrap();
        std::fs::rename(&self.aside, &self.file).unwrap();
    }
}

async fn walk_without(bench: &Bench, store: &Store, keys: &[&str]) -> Vec<Unreadable> {
    let (mut walk, access) = (DirectoryWalk::new(store), Access::new(&bench.pool));
    let turn = |key: &&str| store.try_turn(Key::of(key.as_bytes())).unwrap();
    let turns: Vec<_> = keys.iter().map(turn).collect();
    // It has listed them then, and waits.
    for _ in 0..50 {
        assert!(!walk.step(&bench.local, &access, NOW).await.unwrap());
    }
    let unreadable = |key: &&str| Unreadable::new(bench, store, key);
    let left_out = keys.iter().map(unreadable).collect();
    drop(turns);
    while !walk.step(&bench.local, &access, NOW).await.unwrap() {}
    left_out
}

#[test]
fn what_a_walk_has_left_out_does_not_come_back_purged() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        for key in ["k", "known"] {
            bench.put(&store, key, b"old").await.unwrap();
        }
        drop(store);
        std::fs::remove_dir_all(bench.dir.path().join(crate::journal::FOLDER)).unwrap();
        let (store, _) = bench.open().await;
        let left_out = walk_without(&bench, &store, &["k"]).await;
        assert!(!store.is_cold() && store.index().len() == 1);
        store.purge_prefix(&bench.local, b"k").await.unwrap();
        while store.purges_pending() > 0 {
            store.sweep(&bench.local, NOW, 100).await.unwrap();
        }
        let mark = purge_mark(&store.settings().directory);
        let is_marked = || std::fs::exists(std::ffi::OsStr::from_bytes(&mark)).unwrap();
        assert!(is_marked(), "another process would find it");
        bench.put(&store, "known", b"new").await.unwrap();
        left_out.iter().for_each(Unreadable::put_back);
        // The journal keeps in mind that it does not know all.
        store.close(&bench.local).await.unwrap();
        drop(store);
        for way in ["asked for", "walked over"] {
            let (store, recovered) = bench.open().await;
            assert!(!recovered.is_complete && recovered.has_left_out, "{way}");
            if way == "asked for" {
                let bytes = std::fs::read(&left_out[0].file).unwrap();
                assert!(bench.body(&store, "k").await.is_none());
                assert!(!left_out[0].file.exists());
                std::fs::write(&left_out[0].file, bytes).unwrap();
                continue;
            }
            bench.walk(&store).await;
            assert!(!left_out[0].file.exists());
            store.sweep(&bench.local, NOW, 100).await.unwrap();
            assert!(!is_marked());
        }
        let (store, recovered) = bench.open().await;
        assert!(recovered.is_complete && !recovered.has_left_out);
        assert!(bench.body(&store, "k").await.is_none());
        assert_eq!(bench.body(&store, "known").await.unwrap().unwrap(), b"new");
    });
}

#[test]
fn what_a_walk_has_left_out_comes_back_where_nothing_was_purged() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        for key in ["k", "purged"] {
            bench.put(&store, key, b"old").await.unwrap();
        }
        drop(store);
        std::fs::remove_dir_all(bench.dir.path().join(crate::journal::FOLDER)).unwrap();
        let (store, _) = bench.open().await;
        let left_out = walk_without(&bench, &store, &["k", "purged"]).await;
        left_out.iter().for_each(Unreadable::put_back);
        // By its key it is found.
        let key = Key::of(b"purged");
        assert!(store.purge(&bench.local, &key).await.unwrap());
        assert!(!left_out[1].file.exists());
        drop(store);
        let (store, recovered) = bench.open().await;
        assert!(!recovered.is_complete && !recovered.has_left_out);
        assert_eq!(bench.body(&store, "k").await.unwrap().unwrap(), b"old");
    });
}
