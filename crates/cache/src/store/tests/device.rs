//! A store whose segments lie on a device: here a file of a fixed length, opened as a device is.

use super::segments::distrust::distrust_all;
use super::segments::places::fill_anew;
use super::segments::{body_of, put_lengths, put_many};
use super::*;
use crate::segments::device::{DeviceContents, look};
use crate::store::DeviceSettings;
use disk::{DeviceUse, DirectFile, open_device};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Three segments of 4 MiB.
const DEVICE_BYTES: u64 = 16 << 20;

/// A file in the place of a device, and what stays open of it as in a master.
struct Board {
    dir: tempfile::TempDir,
    descriptor: Arc<OwnedFd>,
}

impl Board {
    /// None: the file system has no direct I/O, which is said.
    fn new() -> Option<Self> {
        // Not in /tmp, which may be in memory.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("device");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(DEVICE_BYTES).unwrap();
        match open_device(&path, DeviceUse::Alone) {
            Err(Errno::INVAL) => {
                println!("skipped: no O_DIRECT in {}", path.display());
                None
            }
            opened => Some(Self {
                dir,
                descriptor: Arc::new(opened.unwrap()),
            }),
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("device")
    }

    fn settings(&self, bench: &Bench) -> StoreSettings {
        StoreSettings {
            kind: StoreKind::Segments,
            device: Some(DeviceSettings {
                path: self.path().as_os_str().as_bytes().to_vec(),
                descriptor: Arc::clone(&self.descriptor),
                files_bytes: 64 << 20,
            }),
            ..bench.settings()
        }
    }

    /// The store, walked if that is due.
    async fn open(&self, bench: &Bench) -> Store {
        let (store, _) = bench.open_with(self.settings(bench)).await;
        if store.is_cold() {
            bench.walk(&store).await;
        }
        store
    }

    async fn refusal(&self, bench: &Bench) -> String {
        loop {
            match Store::open(&bench.local, self.settings(bench)).await {
                Err(Error::InUse) => tokio::task::yield_now().await,
                Err(Error::Device(sentence)) => return sentence,
                other => panic!("{other:?}"),
            }
        }
    }

    fn contents(&self) -> DeviceContents {
        look(&DirectFile::new(self.descriptor.as_fd())).unwrap()
    }
}

#[test]
fn entries_lie_on_the_device_and_are_found_after_a_kill_and_after_a_close() {
    block_on(async {
        let (bench, Some(board)) = (Bench::new(), Board::new()) else {
            return;
        };
        assert_eq!(board.contents(), DeviceContents::Blank);
        let store = board.open(&bench).await;
        assert!(matches!(board.contents(), DeviceContents::Segments(_)));
        let lengths = [0, 1, 4000, 4096, 60_000, 69_000, 300_000, 900_000];
        let bodies = put_lengths(&bench, &store, &lengths).await;
        let large = body_of(9, 9 << 17);
        bench.put_whole(&store, "large", &large).await.unwrap();
        assert_eq!(all_files(bench.dir.path()).len(), 1, "what is large");
        let expect = async |store: &Store| {
            // The second time, small ones are in memory.
            for (key, body) in bodies.iter().chain(&bodies) {
                let found = bench.body(store, key).await.unwrap().unwrap();
                assert_eq!(&found, body, "{key}");
            }
            let found = bench.body(store, "large").await.unwrap().unwrap();
            assert_eq!(found, large);
        };
        expect(&store).await;
        drop(store);
        let (store, recovered) = bench.open_with(board.settings(&bench)).await;
        assert!(recovered.is_complete);
        expect(&store).await;
        bench.put_whole(&store, "more", b"more").await.unwrap();
        store.close(&bench.local).await.unwrap();
        drop(store);
        let store = board.open(&bench).await;
        expect(&store).await;
        assert_eq!(bench.body(&store, "more").await.unwrap().unwrap(), b"more");
        let counts = store.segment_metrics().unwrap().counts;
        assert_eq!(counts.all, 1, "it was filled further");
        assert!(!bench.dir.path().join("segments").exists());
    });
}

#[test]
fn the_place_of_an_entry_that_was_purged_before_a_start_is_used_again_for_good() {
    block_on(async {
        let (bench, Some(board)) = (Bench::new(), Board::new()) else {
            return;
        };
        let mut store = board.open(&bench).await;
        bench.put_whole(&store, "a", b"a").await.unwrap();
        let b = bench.put_whole(&store, "b", b"b").await.unwrap();
        store.purge(&bench.local, &b.key).await.unwrap();
        store.write_dead_maps(true).await.unwrap();
        drop(store);
        store = board.open(&bench).await;
        let c = bench.put_whole(&store, "c", b"c").await.unwrap();
        assert_eq!(c.extent.offset, b.extent.offset);
        for why in ["after a close", "after a kill"] {
            if why == "after a close" {
                store.close(&bench.local).await.unwrap();
            }
            drop(store);
            store = board.open(&bench).await;
            let found = bench.body(&store, "c").await;
            assert_eq!(found.expect(why).unwrap(), b"c", "{why}");
        }
    });
}

#[test]
fn segments_are_filled_again_and_what_they_held_before_does_not_come_back() {
    block_on(async {
        let (bench, Some(board)) = (Bench::new(), Board::new()) else {
            return;
        };
        let mut store = board.open(&bench).await;
        let key = |number: usize| format!("k{number}");
        for number in 0..600 {
            let body = body_of(number, 40_000 + 500 * (number % 50));
            bench.put_whole(&store, &key(number), &body).await.unwrap();
            if number % 151 == 150 {
                // A kill.
                drop(store);
                store = board.open(&bench).await;
            }
        }
        let expect = async |store: &Store, why: &str| {
            let mut found = 0;
            for number in 0..600 {
                let Some(body) = bench.body(store, &key(number)).await else {
                    continue;
                };
                let right = body_of(number, 40_000 + 500 * (number % 50));
                assert_eq!(body.unwrap(), right, "{number} {why}");
                found += 1;
            }
            found
        };
        let found = expect(&store, "after wrapping").await;
        assert!((60..300).contains(&found), "{found}");
        let newest = bench.body(&store, &key(599)).await;
        assert!(newest.is_some(), "the last one is there");
        store.purge(&bench.local, &Key::of(b"k450")).await.unwrap();
        store.close(&bench.local).await.unwrap();
        drop(store);
        // Without the journal, the tables of full segments say what is in them, and nothing else does.
        std::fs::remove_dir_all(bench.dir.path().join(crate::journal::FOLDER)).unwrap();
        let store = board.open(&bench).await;
        let left = expect(&store, "without a journal").await;
        assert!((60..=found).contains(&left), "{left} of {found}");
        assert!(bench.body(&store, "k450").await.is_none(), "it was purged");
        bench.put_whole(&store, "new", b"new").await.unwrap();
        assert_eq!(bench.body(&store, "new").await.unwrap().unwrap(), b"new");
    });
}

#[test]
fn what_was_looked_up_before_is_not_read_where_it_is_about_to_be_written_over() {
    block_on(async {
        let (bench, Some(board)) = (Bench::new(), Board::new()) else {
            return;
        };
        let store = board.open(&bench).await;
        put_many(&bench, &store, 45).await;
        let old = store.index().peek(&Key::of(b"k40")).unwrap();
        let access = Access::new(&bench.pool);
        fill_anew(&bench, &store, &old).await;
        assert_eq!(store.index().peek(&old.key), None, "it was emptied");
        let opened = store.open_in_segment(&bench.local, &access, &old).await;
        assert!(opened.unwrap().is_none());
    });
}

#[test]
fn a_segment_that_is_read_is_not_filled_again() {
    block_on(async {
        let (bench, Some(board)) = (Bench::new(), Board::new()) else {
            return;
        };
        let store = board.open(&bench).await;
        let body = body_of(1, 300_000);
        bench.put_whole(&store, "read", &body).await.unwrap();
        let hit = bench.hit(&store, "read").await;
        for number in 0..100 {
            let key = format!("other{number}");
            // While it is read, the others may be all that there is.
            let _ = bench
                .put_whole(&store, &key, &body_of(number, 200_000))
                .await;
        }
        assert_eq!(bench.read(&store, &hit).await.unwrap(), body);
    });
}

#[test]
fn a_device_with_something_else_is_refused_and_stays_as_it_is() {
    block_on(async {
        let (bench, Some(board)) = (Bench::new(), Board::new()) else {
            return;
        };
        let mut other = vec![0; DEVICE_BYTES as usize];
        other[0x438..0x43a].copy_from_slice(b"\x53\xef");
        std::fs::write(board.path(), &other).unwrap();
        let sentence = board.refusal(&bench).await;
        assert!(sentence.contains("ext4"), "{sentence}");
        assert!(std::fs::read(board.path()).unwrap() == other, "unchanged");
        other[0x438..0x43a].copy_from_slice(&[0; 2]);
        *other.last_mut().unwrap() = 1;
        std::fs::write(board.path(), &other).unwrap();
        let sentence = board.refusal(&bench).await;
        assert!(sentence.contains("not of this program"), "{sentence}");
        assert!(std::fs::read(board.path()).unwrap() == other, "unchanged");
        crate::segments::device::format(&DirectFile::new(board.descriptor.as_fd())).unwrap();
        let store = board.open(&bench).await;
        bench.put_whole(&store, "a", b"body").await.unwrap();
    });
}

#[test]
fn a_directory_belongs_to_its_device() {
    block_on(async {
        let (bench, other) = (Bench::new(), Bench::new());
        let (Some(board), Some(next)) = (Board::new(), Board::new()) else {
            return;
        };
        let store = board.open(&bench).await;
        put_many(&bench, &store, 60).await;
        store.close(&bench.local).await.unwrap();
        drop(store);
        let store = next.open(&other).await;
        put_many(&other, &store, 3).await;
        drop(store);
        let sentence = next.refusal(&bench).await;
        assert!(
            sentence.contains("belongs to another directory"),
            "{sentence}"
        );
        // One that is blank takes the place of one that is gone.
        crate::segments::device::format(&DirectFile::new(next.descriptor.as_fd())).unwrap();
        let store = next.open(&bench).await;
        assert!(bench.body(&store, "k3").await.is_none());
        bench.put_whole(&store, "a", b"body").await.unwrap();
        assert_eq!(bench.body(&store, "a").await.unwrap().unwrap(), b"body");
        drop(store);
        let (store, _) = bench.open_with(next.settings(&bench)).await;
        assert_eq!(store.index().len(), 1, "the others are forgotten");
        assert_eq!(bench.body(&store, "a").await.unwrap().unwrap(), b"body");
    });
}

#[test]
fn limits_of_device_and_directory_are_obeyed() {
    block_on(async {
        let (bench, Some(board)) = (Bench::new(), Board::new()) else {
            return;
        };
        let mut settings = board.settings(&bench);
        settings.device.as_mut().unwrap().files_bytes = 4 << 20;
        let (store, _) = bench.open_with(settings).await;
        assert_eq!(store.max_bytes(), Some((3 + 1) * (4 << 20)));
        for number in 0..8 {
            let (key, body) = (format!("l{number}"), body_of(number, 1_100_000));
            bench.put_whole(&store, &key, &body).await.unwrap();
            assert!(du(bench.dir.path()) <= 4 << 20);
        }
        assert!(bench.body(&store, "l0").await.is_none(), "it gave way");
        assert!(bench.body(&store, "l7").await.is_some());
        store.set_files_bytes(8 << 20);
        store.set_limits(None, 0, 600);
        assert_eq!(store.max_bytes(), Some((3 + 2) * (4 << 20)));
    });
}

#[test]
fn small_files_from_before_there_was_a_device_stay_until_they_are_moved_onto_it() {
    const COUNT: usize = 60;
    block_on(async {
        let (bench, Some(board)) = (Bench::new(), Board::new()) else {
            return;
        };
        let store = bench.walked().await;
        put_many(&bench, &store, COUNT).await;
        drop(store);
        let mut settings = board.settings(&bench);
        let files_bytes = 2 << 20;
        settings.device.as_mut().unwrap().files_bytes = files_bytes;
        let (store, _) = bench.open_with(settings).await;
        let expect_all = async || {
            for number in 0..COUNT {
                let found = bench.body(&store, &format!("k{number}")).await;
                assert_eq!(found.unwrap().unwrap(), body_of(number, 90_000));
            }
        };
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        expect_all().await;
        let mut conversion = Conversion::default();
        while conversion.step(&store, &bench.local).await.unwrap() {}
        assert_eq!(conversion.moved, COUNT as u64);
        expect_all().await;
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        let blocks = files_bytes / store.space().block_bytes();
        assert_eq!(store.space().max(), Some(blocks), "nothing more is kept");
    });
}

#[test]
fn entries_are_verified_from_the_device_that_was_failing() {
    block_on(async {
        let (bench, Some(board)) = (Bench::new(), Board::new()) else {
            return;
        };
        let store = board.open(&bench).await;
        distrust_all(&bench, &store).await;
    });
}
