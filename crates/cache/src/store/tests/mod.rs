//! A store on a real directory.

mod device;
mod faults;
mod fills;
mod handover;
mod left_out;
mod publish_order;
mod purges;
mod room;
mod segments;
mod stuck;

use super::*;
use crate::entry::Description;
use crate::freshness::FieldLine;
use crate::lifetime::Lifetime;
use crate::vary::variant;
use bytes::Bytes;
use disk::{Access, Disk};
use message::HeaderId;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::runtime::Builder;

const NOW: Seconds = 1_700_000_000;

fn block_on<F: Future>(future: F) -> F::Output {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(Default::default());
    runtime.unwrap().block_on(future)
}

/// A 200 that does not vary, of a key whose text is `k`.
fn plain(main: Key) -> Description<'static> {
    Description {
        key: main,
        main,
        variant: main,
        tag: 0,
        key_text: b"k",
        vary: b"",
        status: 200,
        status_line: b"200 OK",
        lifetime: Lifetime::default(),
    }
}

/// A loop, its pool, and a directory.
struct Bench {
    local: Local,
    pool: Pool,
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        let disk = Disk::new(Disk::prepare());
        let pool = disk.define_pool("test", 4, 1000);
        Self {
            local: Local::new(&disk),
            pool,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn settings(&self) -> StoreSettings {
        StoreSettings {
            directory: self.dir.path().as_os_str().as_bytes().to_vec(),
            levels: Levels::parse("1:2").unwrap(),
            zone_bytes: 1 << 20,
            max_bytes: None,
            min_free_bytes: 0,
            inactive: 600,
            kind: StoreKind::Files,
            device: None,
            pool: self.pool.clone(),
        }
    }

    async fn open_with(&self, settings: StoreSettings) -> (Store, Recovered) {
        loop {
            match Store::open(&self.local, settings.clone()).await {
                // The last owner's lock is released in a job of its own.
                Err(Error::InUse) => tokio::task::yield_now().await,
                other => return other.unwrap(),
            }
        }
    }

    async fn open(&self) -> (Store, Recovered) {
        self.open_with(self.settings()).await
    }

    /// A store on a directory that was walked, so that its index is complete.
    async fn walked(&self) -> Store {
        let (store, _) = self.open().await;
        self.walk(&store).await;
        store
    }

    async fn walk(&self, store: &Store) -> u64 {
        let mut walk = DirectoryWalk::new(store);
        let access = Access::new(&self.pool);
        while !walk.step(&self.local, &access, NOW).await.unwrap() {}
        walk.foreign_blocks()
    }

    async fn put(&self, store: &Store, key: &str, body: &[u8]) -> Result<KnownKey, Error> {
        self.put_variant(store, key, body, "", Key::of(key.as_bytes()), None)
            .await
    }

    async fn put_variant(
        &self,
        store: &Store,
        key: &str,
        body: &[u8],
        vary: &str,
        variant: Key,
        looked_for: Option<Key>,
    ) -> Result<KnownKey, Error> {
        let main = Key::of(key.as_bytes());
        let own = (!vary.is_empty()).then_some(variant);
        let description = Description {
            key: Store::key_for(main, looked_for, own),
            main,
            variant,
            tag: 0,
            key_text: key.as_bytes(),
            vary: vary.as_bytes(),
            status: 200,
            status_line: b"200 OK",
            lifetime: Lifetime {
                date: NOW,
                expires: NOW + 60,
                ..Lifetime::default()
            },
        };
        let lines: [FieldLine<'_>; 1] = [(b"X-Key", key.as_bytes(), HeaderId::Other)];
        let mut writing = store
            .begin(
                &self.local,
                &description,
                lines.into_iter(),
                0,
                NOW,
                store.moment(),
            )
            .await?;
        for piece in body.chunks(100_000) {
            if let Err(error) = writing
                .push(&self.local, Bytes::copy_from_slice(piece))
                .await
            {
                writing.abandon(&self.local, Some(&error)).await.unwrap();
                return Err(error);
            }
        }
        writing.finish(&self.local).await
    }

    async fn find(&self, store: &Store, key: &str) -> LookupOutcome {
        self.find_with(store, key, &[]).await
    }

    async fn find_with(&self, store: &Store, key: &str, fields: &[(&str, &str)]) -> LookupOutcome {
        let access = Access::new(&self.pool);
        let fields = fields
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let key = (Key::of(key.as_bytes()), key.as_bytes());
        store
            .find(&self.local, &access, key, fields, NOW, Uses::Count)
            .await
            .unwrap()
    }

    /// The body of an entry, every block verified; None if there is no entry.
    async fn body(&self, store: &Store, key: &str) -> Option<Result<Vec<u8>, Error>> {
        match self.find(store, key).await {
            LookupOutcome::Hit(hit) => Some(self.read(store, &hit).await),
            _ => None,
        }
    }

    async fn read(&self, store: &Store, hit: &Hit) -> Result<Vec<u8>, Error> {
        let access = Access::new(&self.pool);
        let mut checks = Checks::of(hit);
        let all = 0..hit.entry.body_len();
        store
            .verify(&self.local, &access, hit, &mut checks, &all)
            .await?;
        assert!(checks.is_done());
        let bytes = super::verify::read(&self.local, &access, hit, hit.entry.body()).await?;
        Ok(bytes.to_vec())
    }

    fn entry_file(&self, store: &Store, key: &str) -> PathBuf {
        let path = store.path(&Key::of(key.as_bytes()));
        PathBuf::from(std::ffi::OsStr::from_bytes(&path))
    }
}

fn all_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with(crate::journal::FOLDER) {
            files.extend(all_files(&path));
        } else if path.is_file() {
            files.push(path);
        }
    }
    files
}

/// Bytes as `du` counts them.
fn du(path: &Path) -> u64 {
    let own = std::fs::symlink_metadata(path).map_or(0, |meta| meta.blocks() * 512);
    let Ok(entries) = std::fs::read_dir(path) else {
        return own;
    };
    own + entries
        .flatten()
        .map(|entry| du(&entry.path()))
        .sum::<u64>()
}

fn big() -> Vec<u8> {
    (0..700_001u32).map(|at| (at % 251) as u8).collect()
}

#[test]
fn a_stored_response_is_found_after_a_kill_and_after_a_close() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let bodies = [
            ("empty", Vec::new()),
            ("small", b"hello".to_vec()),
            ("big", big()),
        ];
        for (key, body) in &bodies {
            assert!(matches!(
                bench.find(&store, key).await,
                LookupOutcome::Miss(_)
            ));
            bench.put(&store, key, body).await.unwrap();
        }
        let expect = async |store: &Store| {
            for (key, body) in &bodies {
                assert_eq!(
                    &bench.body(store, key).await.unwrap().unwrap(),
                    body,
                    "{key}"
                );
            }
        };
        expect(&store).await;
        assert_eq!(all_files(bench.dir.path()).len(), 3, "no temp file is left");
        let used = store.space().used();
        drop(store);
        let (store, recovered) = bench.open().await;
        assert!(recovered.is_complete && !store.is_cold());
        expect(&store).await;
        // The journal of the second start is a little longer.
        assert!(
            store.space().used().abs_diff(used) <= 2,
            "{} {used}",
            store.space().used()
        );
        let LookupOutcome::Hit(hit) = bench.find(&store, "big").await else {
            panic!("it is there");
        };
        assert!(hit.known.is_verified, "all of it was checked");
        assert_eq!(hit.entry.head().get_all(b"x-key").next(), Some(&b"big"[..]));
        store.close(&bench.local).await.unwrap();
        drop((store, hit));
        let (store, recovered) = bench.open().await;
        assert!(recovered.is_clean && recovered.is_complete);
        expect(&store).await;
    });
}

#[test]
fn variants_are_told_apart() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let fields = |value: &'static str| [("Accept", value)];
        let variant_of = |value: &'static str| {
            let fields = [(&b"accept"[..], value.as_bytes())];
            variant(Key::of(b"k"), b"accept", fields.into_iter())
        };
        let (a, b) = (variant_of("a"), variant_of("b"));
        bench
            .put_variant(&store, "k", b"A", "accept", a, None)
            .await
            .unwrap();
        let LookupOutcome::Miss(missed) = bench.find_with(&store, "k", &fields("b")).await else {
            panic!("another variant");
        };
        assert_eq!(missed.variant, Some(b));
        bench
            .put_variant(&store, "k", b"B", "accept", b, missed.variant)
            .await
            .unwrap();
        let expect = async |store: &Store| {
            for (value, body) in [("a", b"A"), ("b", b"B")] {
                let LookupOutcome::Hit(hit) = bench.find_with(store, "k", &fields(value)).await
                else {
                    panic!("{value}");
                };
                assert_eq!(bench.read(store, &hit).await.unwrap(), body);
            }
            assert!(matches!(
                bench.find_with(store, "k", &[]).await,
                LookupOutcome::Miss(_)
            ));
        };
        expect(&store).await;
        drop(store);
        expect(&bench.open().await.0).await;
        std::fs::remove_dir_all(bench.dir.path().join(crate::journal::FOLDER)).unwrap();
        expect(&bench.open().await.0).await;
    });
}

#[test]
fn max_size_holds_at_every_moment() {
    block_on(async {
        let bench = Bench::new();
        let max = 3 << 20;
        let (store, _) = bench
            .open_with(StoreSettings {
                max_bytes: Some(max),
                levels: Levels::default(),
                ..bench.settings()
            })
            .await;
        let fill = async |thread: usize| {
            for number in 0..40 {
                let key = format!("{thread}-{number}");
                bench
                    .put(&store, &key, &vec![7; 60_000 + number * 5_000])
                    .await
                    .unwrap();
                assert!(store.space().used() * 4096 <= max);
                let size = du(bench.dir.path());
                assert!(size <= max, "{size}");
            }
        };
        tokio::join!(fill(1), fill(2), fill(3));
        let counters = store.counters();
        assert_eq!(counters.stored, 120);
        assert!(counters.evicted > 50, "{counters:?}");
        assert_eq!(store.index().len(), all_files(bench.dir.path()).len());
        // A response that can never fit is refused, and nothing of it stays.
        let huge = bench.put(&store, "huge", &vec![1; 4 << 20]).await;
        assert!(matches!(huge, Err(Error::NoRoom(_))), "{huge:?}");
        assert!(all_files(bench.dir.path()).is_empty());
        assert_eq!(store.counters().shed, 1);
    });
}

#[test]
fn max_size_holds_without_sweeps() {
    block_on(async {
        let bench = Bench::new();
        let max = 2 << 20;
        let small = StoreSettings {
            max_bytes: Some(max),
            levels: Levels::parse("1").unwrap(),
            ..bench.settings()
        };
        let (store, _) = bench.open_with(small).await;
        for number in 0..2_000 {
            let key = number.to_string();
            bench.put(&store, &key, b"x").await.unwrap();
            if number % 100 == 0 {
                let size = du(bench.dir.path());
                assert!(size <= max, "{number}: {size}");
            }
        }
        assert!(store.counters().evicted > 1_000);
        bench.sweep(&store).await;
        assert!(du(bench.dir.path()) <= max && store.space().used() <= max / 4096);
    });
}

#[test]
fn overhead_is_reserved_before_it_is_written() {
    // Directories come with new keys, and the journal grows with each; sweeps count it.
    for (levels, puts_per_sweep) in [("1:2", usize::MAX), ("1:2", 3), ("1", 7)] {
        block_on(async {
            let bench = Bench::new();
            let small = StoreSettings {
                max_bytes: Some(8 << 20),
                levels: Levels::parse(levels).unwrap(),
                ..bench.settings()
            };
            let (store, _) = bench.open_with(small).await;
            let max = store.space().max().unwrap();
            // Many directories, and entries that are files of their own while they are written.
            let large = vec![1; WRITE_BYTES + 1];
            for number in 0..1_200 {
                let len = if number % 50 == 0 {
                    large.len()
                } else {
                    10_000
                };
                let (key, body) = (number.to_string(), &large[..len]);
                bench.put(&store, &key, body).await.unwrap();
                let used = store.space().used();
                assert!(used <= max, "{levels}, put {number}: {used}");
                if number % puts_per_sweep == 0 {
                    bench.sweep(&store).await;
                    let used = store.space().used();
                    assert!(used <= max, "{levels}, swept {number}: {used}");
                }
            }
            assert!(store.counters().evicted > 500);
            assert!(du(bench.dir.path()) <= max << 12);
        });
    }
}

#[test]
fn a_304_renews_the_lifetime_or_writes_the_entry_anew() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let body = big();
        let known = bench.put(&store, "k", &body).await.unwrap();
        let lifetime = Lifetime {
            date: NOW + 100,
            expires: NOW + 200,
            ..Lifetime::default()
        };
        store.renew(&bench.local, &known, lifetime).await.unwrap();
        drop(store);
        let (store, _) = bench.open().await;
        let LookupOutcome::Hit(hit) = bench.find(&store, "k").await else {
            panic!("it is there");
        };
        assert_eq!(
            (hit.known.lifetime, hit.entry.lifetime().expires),
            (lifetime, NOW + 60)
        );
        let access = Access::new(&bench.pool);
        let lines: [FieldLine<'_>; 1] = [(b"X-New", b"1", HeaderId::Other)];
        let renewal = Renewal {
            lifetime,
            fields: lines.into(),
            moment: store.moment(),
        };
        let rewritten = store.rewrite(&bench.local, &access, &hit, renewal).await;
        assert_ne!(rewritten.unwrap().extent.file, hit.known.extent.file);
        assert_eq!(
            bench.read(&store, &hit).await.unwrap(),
            body,
            "who reads the old one goes on"
        );
        let LookupOutcome::Hit(new) = bench.find(&store, "k").await else {
            panic!("it is there");
        };
        assert_eq!(new.entry.head().get_all(b"x-new").count(), 1);
        assert_eq!(new.entry.lifetime(), &lifetime);
        assert_eq!(bench.read(&store, &new).await.unwrap(), body);
        assert_eq!(all_files(bench.dir.path()).len(), 1);
    });
}

#[test]
fn header_lines_that_fit_are_written_in_place() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let body = big();
        bench.put(&store, "k", &body).await.unwrap();
        let file = bench.entry_file(&store, "k");
        let ino = || std::fs::metadata(&file).unwrap().ino();
        let (first, used, access) = (ino(), store.space().used(), Access::new(&bench.pool));
        for (times, filler) in [(1, 5), (2, 60), (3, 1), (4, 500), (5, 540)] {
            let LookupOutcome::Hit(hit) = bench.find(&store, "k").await else {
                panic!("it is there");
            };
            let (tag, filler) = (format!("t{times}"), "x".repeat(filler));
            let lines: [FieldLine<'_>; 2] = [
                (b"Cache-Tag", tag.as_bytes(), HeaderId::Other),
                (b"X-Filler", filler.as_bytes(), HeaderId::Other),
            ];
            let lifetime = Lifetime {
                expires: NOW + times,
                ..Lifetime::default()
            };
            let renewal = || Renewal {
                lifetime,
                fields: lines.into(),
                moment: store.moment(),
            };
            let rewrite = || store.rewrite(&bench.local, &access, &hit, renewal());
            rewrite().await.unwrap();
            let after = ino();
            // Another request brings the same 304.
            rewrite().await.unwrap();
            assert_eq!((after == first, ino()), (times < 4, after), "{times}");
            assert_eq!(bench.read(&store, &hit).await.unwrap(), body);
            let LookupOutcome::Hit(new) = bench.find(&store, "k").await else {
                panic!("it is there");
            };
            assert_eq!(
                new.entry.head().get_all(b"cache-tag").next(),
                Some(tag.as_bytes())
            );
            assert_eq!(
                (new.entry.lifetime(), new.known.lifetime),
                (&lifetime, lifetime)
            );
            assert_eq!(bench.read(&store, &new).await.unwrap(), body);
        }
        assert!(store.space().used() <= used + 1);
        assert_eq!(store.counters().damaged, 0);
        store.purge_tag(&bench.local, b"t3").await.unwrap();
        assert!(bench.body(&store, "k").await.is_some());
        store.purge_tag(&bench.local, b"t5").await.unwrap();
        assert!(bench.body(&store, "k").await.is_none());
    });
}

#[test]
fn sweeps_and_purges_delete() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        for number in 0..10 {
            bench
                .put(&store, &format!("k{number}"), b"x")
                .await
                .unwrap();
        }
        assert!(store.purge(&bench.local, &Key::of(b"k3")).await.unwrap());
        assert!(!store.purge(&bench.local, &Key::of(b"k3")).await.unwrap());
        assert_eq!(all_files(bench.dir.path()).len(), 9);
        assert!(!store.sweep(&bench.local, NOW + 600, 100).await.unwrap());
        assert_eq!(all_files(bench.dir.path()).len(), 9, "not yet inactive");
        assert!(
            store.sweep(&bench.local, NOW + 601, 4).await.unwrap(),
            "there is more"
        );
        assert_eq!(all_files(bench.dir.path()).len(), 5);
        assert!(!store.sweep(&bench.local, NOW + 601, 100).await.unwrap());
        assert!(all_files(bench.dir.path()).is_empty());
        drop(store);
        assert_eq!(bench.open().await.1.entries, 0);
    });
}

#[test]
fn a_full_zone_evicts_and_never_fails() {
    block_on(async {
        let bench = Bench::new();
        let (store, _) = bench
            .open_with(StoreSettings {
                zone_bytes: 0,
                ..bench.settings()
            })
            .await;
        bench.walk(&store).await;
        for number in 0..100 {
            bench
                .put(&store, &format!("k{number}"), b"x")
                .await
                .unwrap();
        }
        assert_eq!(store.index().len(), 32);
        assert_eq!(all_files(bench.dir.path()).len(), 32);
        assert!(bench.body(&store, "k99").await.is_some());
        // A reload makes it larger, and smaller again.
        store.set_zone_bytes(1 << 20);
        for number in 100..140 {
            bench
                .put(&store, &format!("k{number}"), b"x")
                .await
                .unwrap();
        }
        assert_eq!(store.index().len(), 72);
        store.set_zone_bytes(0);
        while store.sweep(&bench.local, 0, 10).await.unwrap() {}
        assert_eq!(store.index().len(), 32);
        assert_eq!(all_files(bench.dir.path()).len(), 32);
        assert!(bench.body(&store, "k139").await.is_some());
    });
}
