//! A store whose small entries lie in segments.

mod convert;
mod copies;
pub(super) mod distrust;
mod emptying;
mod handover;
pub(super) mod places;
mod retired;
mod room;
mod walk;

use super::*;
use crate::segments::MAX_SIZE_MIN;
use crate::store::Renewal;

impl Bench {
    fn segment_settings(&self, max_bytes: Option<u64>) -> StoreSettings {
        StoreSettings {
            kind: StoreKind::Segments,
            max_bytes,
            ..self.settings()
        }
    }

    /// A store of three segments of 4 MiB each, walked.
    async fn segments(&self) -> Store {
        let settings = self.segment_settings(Some(MAX_SIZE_MIN));
        let (store, _) = self.open_with(settings).await;
        if store.is_cold() {
            self.walk(&store).await;
        }
        store
    }

    /// Stores a body of a known length.
    pub(super) async fn put_whole(
        &self,
        store: &Store,
        key: &str,
        body: &[u8],
    ) -> Result<KnownKey, Error> {
        self.put_with(store, key, body, &[]).await
    }

    async fn put_with(
        &self,
        store: &Store,
        key: &str,
        body: &[u8],
        more: &[FieldLine<'_>],
    ) -> Result<KnownKey, Error> {
        let main = Key::of(key.as_bytes());
        let description = Description {
            key_text: key.as_bytes(),
            lifetime: Lifetime {
                date: NOW,
                expires: NOW + 60,
                ..Lifetime::default()
            },
            ..plain(main)
        };
        let own: [FieldLine<'_>; 1] = [(b"X-Key", key.as_bytes(), HeaderId::Other)];
        let lines = own.into_iter().chain(more.iter().copied());
        let (len, moment) = (body.len() as u64, store.moment());
        let begun = store.begin(&self.local, &description, lines, len, NOW, moment);
        let mut writing = begun.await?;
        for piece in body.chunks(100_000) {
            let piece = Bytes::copy_from_slice(piece);
            writing.push(&self.local, piece).await?;
        }
        writing.finish(&self.local).await
    }

    pub(super) async fn hit(&self, store: &Store, key: &str) -> Hit {
        match self.find(store, key).await {
            LookupOutcome::Hit(hit) => hit,
            other => panic!("{key}: {other:?}"),
        }
    }

    fn segment_files(&self) -> Vec<PathBuf> {
        let mut files = all_files(&self.dir.path().join("segments"));
        files.sort();
        files
    }

    fn entry_files(&self) -> usize {
        // In one look: segments come and go meanwhile.
        let segments = self.dir.path().join("segments");
        let all = all_files(self.dir.path());
        let outside = all.iter().filter(|path| !path.starts_with(&segments));
        outside.count()
    }
}

/// A body that differs from all others at each place.
pub(super) fn body_of(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + number * 7) as u8).collect()
}

/// Stores bodies of these lengths, each of which is in a segment then: `k0`, `k1` …
pub(super) async fn put_lengths(
    bench: &Bench,
    store: &Store,
    lengths: &[usize],
) -> Vec<(String, Vec<u8>)> {
    let mut bodies = Vec::new();
    for (number, len) in lengths.iter().enumerate() {
        let (key, body) = (format!("k{number}"), body_of(number, *len));
        let known = bench.put_whole(store, &key, &body).await.unwrap();
        assert!(known.extent.is_in_segment(), "{key}");
        bodies.push((key, body));
    }
    bodies
}

#[test]
fn a_small_entry_has_no_file_and_is_found_after_a_kill_and_after_a_close() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        let lengths = [0, 1, 4000, 60_000, 69_000, 300_000, 900_000, 1 << 20];
        let bodies = put_lengths(&bench, &store, &lengths).await;
        bench.put(&store, "unknown length", &big()).await.unwrap();
        bench
            .put_whole(&store, "large", &body_of(9, 9 << 17))
            .await
            .unwrap();
        assert_eq!(
            bench.entry_files(),
            2,
            "what is large or was not told has a file"
        );
        let expect = async |store: &Store| {
            for (key, body) in &bodies {
                let found = bench.body(store, key).await.unwrap().unwrap();
                assert_eq!(&found, body, "{key}");
            }
            assert_eq!(
                bench.body(store, "unknown length").await.unwrap().unwrap(),
                big()
            );
        };
        expect(&store).await;
        drop(store);
        let (store, recovered) = bench
            .open_with(bench.segment_settings(Some(MAX_SIZE_MIN)))
            .await;
        assert!(
            recovered.is_complete && recovered.unfinished.len() <= 2,
            "the files"
        );
        assert!(!bench.hit(&store, "k3").await.known.is_verified);
        expect(&store).await;
        assert!(
            bench.hit(&store, "k3").await.known.is_verified,
            "it was checked"
        );
        bench.put_whole(&store, "more", b"more").await.unwrap();
        store.close(&bench.local).await.unwrap();
        drop(store);
        let store = bench.segments().await;
        expect(&store).await;
        assert_eq!(bench.body(&store, "more").await.unwrap().unwrap(), b"more");
        let counts = store.segment_metrics().unwrap().counts;
        assert_eq!(
            (counts.all, bench.segment_files().len()),
            (1, 1),
            "it was filled further"
        );
    });
}

#[test]
fn what_is_in_segments_is_found_without_a_journal() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        // More than one segment: one is sealed, and has its table, the other is not.
        put_many(&bench, &store, 60).await;
        bench.put_whole(&store, "k0", b"newer").await.unwrap();
        store.purge(&bench.local, &Key::of(b"k7")).await.unwrap();
        store.close(&bench.local).await.unwrap();
        assert!(store.segment_metrics().unwrap().counts.all > 1);
        drop(store);
        std::fs::remove_dir_all(bench.dir.path().join(crate::journal::FOLDER)).unwrap();
        let store = bench.segments().await;
        assert_eq!(bench.body(&store, "k0").await.unwrap().unwrap(), b"newer");
        assert!(bench.body(&store, "k7").await.is_none(), "it was purged");
        for number in (1..60).filter(|number| *number != 7) {
            let found = bench.body(&store, &format!("k{number}")).await;
            assert_eq!(
                found.unwrap().unwrap(),
                body_of(number, 90_000),
                "k{number}"
            );
        }
        bench.put_whole(&store, "new", b"new").await.unwrap();
        assert_eq!(bench.body(&store, "new").await.unwrap().unwrap(), b"new");
    });
}

#[test]
fn segments_are_emptied_in_the_order_of_writing_and_what_was_used_stays() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        let max = MAX_SIZE_MIN;
        for number in 0..400 {
            let key = format!("k{number}");
            let body = body_of(number, 40_000 + 500 * (number % 50));
            bench.put_whole(&store, &key, &body).await.unwrap();
            if number >= 5 {
                let used = format!("k{}", number % 5);
                let found = bench.body(&store, &used).await;
                let number = number % 5;
                let body = body_of(number, 40_000 + 500 * number);
                assert_eq!(found.unwrap().unwrap(), body, "{used} is used, and stays");
            }
            if number % 20 == 0 {
                let bytes = du(bench.dir.path());
                assert!(bytes <= max, "{bytes} after {number}");
            }
        }
        let metrics = store.segment_metrics().unwrap();
        assert!(
            metrics.emptied > 2 && metrics.readmitted >= 5,
            "{metrics:?}"
        );
        assert!(store.counters().evicted > 100);
        assert_eq!(bench.segment_files().len(), 3);
        assert!(bench.body(&store, "k5").await.is_none(), "it was not used");
        let found = bench.body(&store, "k399").await;
        assert_eq!(found.unwrap().unwrap(), body_of(399, 40_000 + 500 * 49));
        // The index and the segments agree, also after a kill.
        let live = |store: &Store| store.segment_metrics().unwrap().counts.live_bytes;
        let before = live(&store);
        drop(store);
        let store = bench.segments().await;
        assert_eq!(live(&store), before);
        for number in 0..400 {
            let found = bench.body(&store, &format!("k{number}")).await;
            let body = body_of(number, 40_000 + 500 * (number % 50));
            assert!(
                found.is_none_or(|found| found.unwrap() == body),
                "k{number}"
            );
        }
    });
}

#[test]
fn a_segment_that_is_read_is_not_written_again() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        let body = body_of(1, 200_000);
        bench.put_whole(&store, "held", &body).await.unwrap();
        let hit = bench.hit(&store, "held").await;
        put_many(&bench, &store, 200).await;
        let counts = store.segment_metrics().unwrap().counts;
        assert!(store.segment_metrics().unwrap().emptied > 1, "{counts:?}");
        assert_eq!(bench.read(&store, &hit).await.unwrap(), body);
        drop(hit);
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        bench.put_whole(&store, "more", b"more").await.unwrap();
    });
}

#[test]
fn purges_reach_into_segments() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        let tag: [FieldLine<'_>; 1] = [(b"Cache-Tag", b"news", HeaderId::Other)];
        for number in 0..20 {
            let more = if number % 2 == 0 { &tag[..] } else { &[] };
            let key = format!("a/{number}");
            bench.put_with(&store, &key, b"body", more).await.unwrap();
        }
        bench.put_whole(&store, "b/1", b"body").await.unwrap();
        assert!(store.purge(&bench.local, &Key::of(b"a/1")).await.unwrap());
        assert!(bench.body(&store, "a/1").await.is_none());
        store.purge_tag(&bench.local, b"news").await.unwrap();
        assert!(bench.body(&store, "a/2").await.is_none());
        assert!(bench.body(&store, "a/3").await.is_some());
        store.purge_prefix(&bench.local, b"a/").await.unwrap();
        while store.purges_pending() > 0 {
            store.sweep(&bench.local, NOW, 100).await.unwrap();
        }
        assert!(bench.body(&store, "a/3").await.is_none());
        assert_eq!(bench.body(&store, "b/1").await.unwrap().unwrap(), b"body");
        assert_eq!(store.index().len(), 1);
        // What no journal knows any more is not found in the segments either.
        drop(store);
        std::fs::remove_dir_all(bench.dir.path().join(crate::journal::FOLDER)).unwrap();
        let store = bench.segments().await;
        assert_eq!(store.index().len(), 1);
        assert_eq!(bench.body(&store, "b/1").await.unwrap().unwrap(), b"body");
    });
}

#[test]
fn an_entry_moves_between_a_segment_and_a_file() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        let large = body_of(3, 2 << 20);
        for _ in 0..2 {
            bench.put_whole(&store, "k", b"small").await.unwrap();
            assert_eq!(bench.body(&store, "k").await.unwrap().unwrap(), b"small");
            assert_eq!(bench.entry_files(), 0, "the file is gone");
            bench.put_whole(&store, "k", &large).await.unwrap();
            assert_eq!(bench.body(&store, "k").await.unwrap().unwrap(), large);
            assert_eq!(bench.entry_files(), 1);
        }
        assert_eq!(store.segment_metrics().unwrap().counts.live_bytes, 0);
        // Not used for long: it leaves, whatever it lies in.
        bench.put_whole(&store, "other", b"small").await.unwrap();
        store.sweep(&bench.local, NOW + 10_000, 100).await.unwrap();
        assert_eq!((bench.entry_files(), store.index().len()), (0, 0));
        assert_eq!(store.segment_metrics().unwrap().counts.live_bytes, 0);
    });
}

#[test]
fn a_renewed_head_is_a_new_entry_with_the_same_body() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        let body = body_of(1, 100_000);
        bench.put_whole(&store, "k", &body).await.unwrap();
        let hit = bench.hit(&store, "k").await;
        let lifetime = Lifetime {
            date: NOW + 50,
            expires: NOW + 500,
            ..Lifetime::default()
        };
        let access = Access::new(&bench.pool);
        let renewal = Renewal {
            lifetime,
            fields: vec![(b"X-New", b"1", HeaderId::Other)],
            moment: store.moment(),
        };
        let known = store
            .rewrite(&bench.local, &access, &hit, renewal)
            .await
            .unwrap();
        assert!(known.extent.is_in_segment() && known.extent != hit.known.extent);
        let found = bench.hit(&store, "k").await;
        assert_eq!(found.entry.head().get_all(b"x-new").next(), Some(&b"1"[..]));
        assert_eq!(bench.read(&store, &found).await.unwrap(), body);
        assert_eq!(
            bench.read(&store, &hit).await.unwrap(),
            body,
            "the old one is still read"
        );
        store
            .renew(&bench.local, &known, Lifetime::default())
            .await
            .unwrap();
        assert_eq!(
            bench.hit(&store, "k").await.known.lifetime,
            Lifetime::default()
        );
    });
}

#[test]
fn damage_is_found_and_no_wrong_byte_is_read() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        let bodies: Vec<_> = (0..30).map(|number| body_of(number, 70_000)).collect();
        for (number, body) in bodies.iter().enumerate() {
            bench
                .put_whole(&store, &format!("k{number}"), body)
                .await
                .unwrap();
        }
        drop(store);
        let file = bench.segment_files().remove(0);
        let whole = std::fs::read(&file).unwrap();
        let mut random = 12345u64;
        for turn in 0..40 {
            let mut bytes = whole.clone();
            for _ in 0..8 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let at = (random >> 33) as usize % 2_400_000;
                bytes[at] ^= 1 << (random % 8);
            }
            match turn {
                37 => bytes.truncate(1_000_000),
                38 => bytes[..1_000_000].fill(0),
                39 => bytes.clear(),
                _ => {}
            }
            std::fs::write(&file, bytes).unwrap();
            if turn % 2 == 1 {
                std::fs::remove_dir_all(bench.dir.path().join(crate::journal::FOLDER)).unwrap();
            }
            let store = bench.segments().await;
            let mut whole = 0;
            for (number, body) in bodies.iter().enumerate() {
                match bench.body(&store, &format!("k{number}")).await {
                    Some(Ok(found)) => {
                        assert_eq!(&found, body, "k{number} in turn {turn}");
                        whole += 1;
                    }
                    Some(Err(Error::Fault(_))) | None => {
                        bench
                            .put_whole(&store, &format!("k{number}"), body)
                            .await
                            .unwrap();
                    }
                    Some(Err(error)) => panic!("{error}"),
                }
            }
            assert!(turn == 0 || whole > 0 || turn > 30, "turn {turn}");
            drop(store);
        }
    });
}

#[test]
fn other_kinds_and_limits_of_a_directory_are_obeyed() {
    block_on(async {
        let bench = Bench::new();
        let (store, _) = bench
            .open_with(bench.segment_settings(Some(2 * MAX_SIZE_MIN)))
            .await;
        bench.walk(&store).await;
        put_many(&bench, &store, 250).await;
        assert!(bench.segment_files().len() > 3);
        // Less room, at run time: segments that are too many are removed.
        store.set_limits(Some(MAX_SIZE_MIN), 0, 600);
        for turn in 0.. {
            store.sweep(&bench.local, NOW, 100).await.unwrap();
            if bench.segment_files().len() <= 3 {
                break;
            }
            assert!(turn < 10_000, "{:?}", store.segment_metrics());
            tokio::task::yield_now().await;
        }
        let found = bench.body(&store, "k249").await;
        assert_eq!(found.unwrap().unwrap(), body_of(249, 90_000));
        drop(store);
        // Files alone: what lies in segments stays, and is moved while the store is in use.
        let (store, _) = bench.open_with(bench.settings()).await;
        let found = bench.body(&store, "k249").await;
        assert_eq!(found.unwrap().unwrap(), body_of(249, 90_000));
        let (mut conversion, before) = (Conversion::default(), bench.entry_files() as u64);
        while conversion.step(&store, &bench.local).await.unwrap() {}
        assert!(conversion.moved > 20, "{}", conversion.moved);
        assert_eq!(bench.entry_files() as u64 - before, conversion.moved);
        let entry = bench.find(&store, "k249").await;
        assert!(matches!(entry, LookupOutcome::Hit(hit) if !hit.known.extent.is_in_segment()));
        until_empty(&store, &bench).await;
        drop(store);
        let (store, _) = bench.open_with(bench.settings()).await;
        let found = bench.body(&store, "k249").await;
        assert_eq!(found.unwrap().unwrap(), body_of(249, 90_000));
        for number in 0..250 {
            let key = Key::of(format!("k{number}").as_bytes());
            let _ = store.purge(&bench.local, &key).await;
        }
        bench.put_whole(&store, "file", b"file").await.unwrap();
        bench
            .put_whole(&store, "large", &body_of(1, 2 << 20))
            .await
            .unwrap();
        let mut conversion = Conversion::default();
        drop(store);
        let store = bench.segments().await;
        assert_eq!(bench.body(&store, "file").await.unwrap().unwrap(), b"file");
        assert_eq!(bench.entry_files(), 2);
        // Moved while the store is in use.
        while conversion.step(&store, &bench.local).await.unwrap() {}
        assert_eq!((conversion.moved, bench.entry_files()), (1, 1));
        assert!(bench.hit(&store, "file").await.known.extent.is_in_segment());
        assert_eq!(bench.body(&store, "file").await.unwrap().unwrap(), b"file");
        drop(store);
        let store = bench.segments().await;
        assert_eq!(bench.body(&store, "file").await.unwrap().unwrap(), b"file");
        assert_eq!(
            bench.body(&store, "large").await.unwrap().unwrap(),
            body_of(1, 2 << 20)
        );
    });
}

/// Stores so many entries of 90 KB: `k0`, `k1` …
pub(super) async fn put_many(bench: &Bench, store: &Store, count: usize) {
    for number in 0..count {
        let key = format!("k{number}");
        bench
            .put_whole(store, &key, &body_of(number, 90_000))
            .await
            .unwrap();
    }
}

/// Sweeps until there is no segment.
async fn until_empty(store: &Store, bench: &Bench) {
    for _ in 0..10_000 {
        if bench.segment_files().is_empty() {
            return;
        }
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        tokio::task::yield_now().await;
    }
    panic!("{:?}", store.segment_metrics());
}

#[test]
fn a_segment_that_cannot_be_read_is_retired_until_it_is_proven() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        put_many(&bench, &store, 70).await;
        // Without their views of the segments, which are not tried while they are read.
        let bad = bench.hit(&store, "k0").await.known;
        let good = bench.hit(&store, "k69").await.known;
        let unread = |known| store.note_unread(known, &disk_fails());
        let counts = || store.segment_metrics().unwrap().counts;
        // Where all segments fail, it is the disk.
        for known in [&bad, &good] {
            (0..4).for_each(|_| unread(known));
        }
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        assert_eq!(counts().retired, 0);
        store.distrust().await;
        (0..3).for_each(|_| unread(&bad));
        until(&store, &bench, || counts().retired == 1).await;
        assert!(bench.body(&store, "k0").await.is_none());
        assert_eq!(
            bench.body(&store, "k69").await.unwrap().unwrap(),
            body_of(69, 90_000)
        );
        let place = |offset| offset / (4 << 20 >> 12);
        assert_ne!(place(bad.extent.offset), place(good.extent.offset));
        bench
            .put_whole(&store, "k0", &body_of(0, 90_000))
            .await
            .unwrap();
        let again = bench.hit(&store, "k0").await.known.extent;
        assert_ne!(place(again.offset), place(bad.extent.offset));
        until(&store, &bench, || counts().retired == 0).await;
        assert_eq!(
            bench.body(&store, "k0").await.unwrap().unwrap(),
            body_of(0, 90_000)
        );
        // Its errors say nothing of another.
        (0..3).for_each(|_| unread(&good));
        bench.put_whole(&store, "more", b"more").await.unwrap();
        until(&store, &bench, || counts().retired == 1).await;
        assert!(bench.body(&store, "k69").await.is_none());
    });
}

fn disk_fails() -> Error {
    let (call, errno) = ("read()", disk::Errno::IO);
    Error::Disk(disk::Error::System { call, errno })
}

/// Sweeps until something is so.
async fn until(store: &Store, bench: &Bench, is_so: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        store.sweep(&bench.local, NOW, 100).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{:?}", store.segment_metrics());
}
