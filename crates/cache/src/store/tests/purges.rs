//! Purges: by key, prefix and tag; of stored responses and of those being fetched, before and after a restart.

use super::*;
use crate::purge::{RULES_MANY, RULES_MAX};
use std::future::poll_fn;
use std::task::Poll;

impl Bench {
    /// Stores a response with a `Cache-Tag`, requested at `moment`.
    async fn put_tagged(
        &self,
        store: &Store,
        key: &str,
        tags: &str,
        moment: crate::FetchMoment,
    ) -> Result<KnownKey, Error> {
        let main = Key::of(key.as_bytes());
        let description = Description {
            key_text: key.as_bytes(),
            ..plain(main)
        };
        let lines: [FieldLine<'_>; 1] = [(b"Cache-Tag", tags.as_bytes(), HeaderId::Other)];
        let lines = lines.into_iter();
        let mut writing = store
            .begin(&self.local, &description, lines, 0, NOW, moment)
            .await?;
        writing
            .push(&self.local, Bytes::copy_from_slice(key.as_bytes()))
            .await?;
        writing.finish(&self.local).await
    }

    async fn put_now(&self, store: &Store, key: &str, tags: &str) {
        self.put_tagged(store, key, tags, store.moment())
            .await
            .unwrap();
    }

    /// Those of these keys that are found, each with the right body.
    async fn found(&self, store: &Store, keys: &[&'static str]) -> Vec<&'static str> {
        let mut found = Vec::new();
        for key in keys {
            if let Some(body) = self.body(store, key).await {
                assert_eq!(body.unwrap(), key.as_bytes());
                found.push(*key);
            }
        }
        found
    }

    /// Purges as many tags, which no response has.
    async fn purge_many(&self, store: &Store, many: usize) {
        for number in 0..many {
            let tag = number.to_string();
            store.purge_tag(&self.local, tag.as_bytes()).await.unwrap();
        }
    }

    /// The directory as a process that is killed now leaves it.
    pub(super) fn killed(&self) -> Self {
        let killed = Self::new();
        let (from, to) = (self.dir.path().join("."), killed.dir.path());
        let mut copy = std::process::Command::new("cp");
        assert!(copy.arg("-a").args([&from, to]).status().unwrap().success());
        killed
    }

    pub(super) async fn sweep(&self, store: &Store) {
        while store.sweep(&self.local, NOW, 2).await.unwrap() {}
    }
}

const KEYS: [&str; 4] = [
    "http://a/x/1",
    "http://a/x/2",
    "http://a/y/1",
    "http://b/x/1",
];

async fn fill(bench: &Bench, store: &Store) {
    for (key, tags) in KEYS.iter().zip(["one, all", "two,all", "one", ""]) {
        bench.put_now(store, key, tags).await;
    }
}

#[test]
fn purged_entries_are_gone_at_once_and_their_files_after_a_sweep() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        fill(&bench, &store).await;
        store
            .purge_prefix(&bench.local, b"http://a/x")
            .await
            .unwrap();
        assert_eq!(all_files(bench.dir.path()).len(), 4);
        assert_eq!(bench.found(&store, &KEYS[1..]).await, &KEYS[2..]);
        assert_eq!(
            all_files(bench.dir.path()).len(),
            3,
            "what was asked for is deleted"
        );
        bench.sweep(&store).await;
        assert_eq!(all_files(bench.dir.path()).len(), 2);
        assert_eq!((store.purges_pending(), store.counters().purged), (0, 2));
        // Later responses are not covered.
        fill(&bench, &store).await;
        assert_eq!(bench.found(&store, &KEYS).await, KEYS);
        store.purge_tag(&bench.local, b"ONE").await.unwrap();
        assert_eq!(bench.found(&store, &KEYS).await, [KEYS[1], KEYS[3]]);
        assert!(
            store
                .purge(&bench.local, &Key::of(KEYS[1].as_bytes()))
                .await
                .unwrap()
        );
        assert!(
            !store
                .purge(&bench.local, &Key::of(KEYS[1].as_bytes()))
                .await
                .unwrap()
        );
        store.purge_prefix(&bench.local, b"").await.unwrap();
        assert!(bench.found(&store, &KEYS).await.is_empty());
        bench.sweep(&store).await;
        assert!(store.index().is_empty() && all_files(bench.dir.path()).is_empty());
    });
}

#[test]
fn purges_survive_a_restart_whatever_was_swept_before() {
    block_on(async {
        let bench = Bench::new();
        for files_max in [0, 1, 100] {
            let store = bench.walked().await;
            fill(&bench, &store).await;
            store.purge_tag(&bench.local, b"one").await.unwrap();
            store.purge_prefix(&bench.local, b"http://b").await.unwrap();
            let _ = store.sweep(&bench.local, NOW, files_max).await.unwrap();
            if files_max == 1 {
                store.close(&bench.local).await.unwrap();
            }
            drop(store);
            let (store, _) = bench.open().await;
            assert_eq!(bench.found(&store, &KEYS).await, [KEYS[1]], "{files_max}");
            fill(&bench, &store).await;
            drop(store);
            let (store, _) = bench.open().await;
            assert_eq!(bench.found(&store, &KEYS).await, KEYS);
            bench.sweep(&store).await;
            assert_eq!(
                (store.purges_pending(), all_files(bench.dir.path()).len()),
                (0, 4)
            );
        }
    });
}

#[test]
fn an_entry_whose_replacement_was_cut_off_is_purged_too() {
    block_on(async {
        for (is_purged, is_swept) in [(false, true), (true, false), (true, true)] {
            let bench = Bench::new();
            let store = bench.walked().await;
            fill(&bench, &store).await;
            let path = bench.entry_file(&store, KEYS[0]);
            let old = std::fs::read(&path).unwrap();
            if is_purged {
                store.purge_tag(&bench.local, b"one").await.unwrap();
            }
            bench.put_now(&store, KEYS[0], "one, and more tags").await;
            let used = store.space().used();
            drop(store);
            // The journal says that another came, which has not.
            std::fs::write(&path, &old).unwrap();
            let (store, recovered) = bench.open().await;
            assert!(recovered.is_complete && recovered.unfinished.len() == 1);
            assert_eq!(store.space().used(), used);
            if is_swept {
                bench.sweep(&store).await;
                assert_eq!((store.purges_pending(), path.exists()), (0, !is_purged));
            }
            let left = if is_purged { vec![] } else { vec![KEYS[0]] };
            assert_eq!(bench.found(&store, &KEYS[..1]).await, left);
            assert_eq!(store.counters().damaged, 0);
        }
    });
}

#[test]
fn an_entry_evicted_for_a_fill_stays_purged() {
    block_on(async {
        // With many purges, the fill itself no longer keeps those pending that come after it.
        for (is_purged_first, more) in [(true, 0), (false, 0), (false, RULES_MANY)] {
            let bench = Bench::new();
            bench.walked().await;
            let small = StoreSettings {
                max_bytes: Some(64 << 12),
                ..bench.settings()
            };
            let (store, _) = bench.open_with(small).await;
            let purge = || store.purge_tag(&bench.local, b"one");
            bench.put_now(&store, KEYS[0], "one").await;
            if is_purged_first {
                purge().await.unwrap();
            }
            let main = Key::of(KEYS[1].as_bytes());
            // One block more than is free.
            let body = (64 - store.space().used()) << 12;
            let moment = store.moment();
            let other = Description {
                key_text: KEYS[1].as_bytes(),
                ..plain(main)
            };
            let fields = [].into_iter();
            let begun = store.begin(&bench.local, &other, fields, body, NOW, moment);
            let writing = begun.await.unwrap();
            assert!(store.index().is_empty(), "it gave way");
            if !is_purged_first {
                purge().await.unwrap();
            }
            bench.purge_many(&store, more).await;
            bench.sweep(&store).await;
            // As if it were killed: a sweep would delete what is left.
            drop((writing, store));
            let (store, recovered) = bench.open().await;
            assert!(recovered.is_complete);
            let found = bench.found(&store, &KEYS).await;
            assert!(found.is_empty(), "{is_purged_first} {more} {found:?}");
        }
    });
}

#[test]
fn an_entry_being_deleted_stays_purged() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        fill(&bench, &store).await;
        let key = Key::of(KEYS[0].as_bytes());
        let gone = store.take_out(|index| index.remove_entry(&key, index.peek(&key)?.extent.file));
        assert_eq!(gone.known.len(), 1);
        store.purge_tag(&bench.local, b"one").await.unwrap();
        bench.sweep(&store).await;
        bench.sweep(&store).await;
        assert_eq!(store.purges_pending(), 1, "it has not gone yet");
        let killed = bench.killed();
        assert_eq!(all_files(killed.dir.path()).len(), 3, "its file is there");
        let (next, recovered) = killed.open().await;
        assert!(recovered.is_complete);
        assert_eq!(killed.found(&next, &KEYS).await, [KEYS[1], KEYS[3]]);
        store.delete(&bench.local, gone).await.unwrap();
        bench.sweep(&store).await;
        assert_eq!(store.purges_pending(), 0);
        let killed = bench.killed();
        let (next, _) = killed.open().await;
        assert_eq!(killed.found(&next, &KEYS).await, [KEYS[1], KEYS[3]]);
    });
}

#[test]
fn a_file_is_not_deleted_where_another_entry_is_getting_its_name() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        fill(&bench, &store).await;
        let used = store.space().used();
        let key = Key::of(KEYS[0].as_bytes());
        let turn = store.turn(key, store.moment().tag()).await.unwrap();
        assert!(store.purge(&bench.local, &key).await.unwrap());
        let file = bench.entry_file(&store, KEYS[0]);
        assert!(file.exists(), "another one has the turn");
        assert_eq!(store.space().used(), used, "so that it counts");
        drop(turn);
        bench
            .put_tagged(&store, KEYS[0], "one", store.moment())
            .await
            .unwrap();
        bench.sweep(&store).await;
        assert!(file.exists(), "it is that of the new entry");
        assert_eq!(store.space().used(), used);
        let turn = store.turn(key, store.moment().tag()).await.unwrap();
        assert!(store.purge(&bench.local, &key).await.unwrap());
        drop(turn);
        bench.sweep(&store).await;
        assert!(!file.exists(), "nothing has come in its place");
        assert!(store.space().used() < used);
    });
}

#[test]
fn an_entry_published_during_many_purges_is_purged() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let key = Key::of(KEYS[0].as_bytes());
        // Another response of the same key gets its name first.
        let turn = store.turn(key, store.moment().tag()).await.unwrap();
        let mut late = Box::pin(bench.put_tagged(&store, KEYS[0], "one", store.moment()));
        publish_order::begin(late.as_mut()).await;
        store.purge_tag(&bench.local, b"one").await.unwrap();
        bench.purge_many(&store, RULES_MANY).await;
        bench.sweep(&store).await;
        drop(turn);
        while !bench.entry_file(&store, KEYS[0]).exists() {
            if store.index().peek(&key).is_none() {
                publish_order::begin(late.as_mut()).await;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let killed = bench.killed();
        let (next, recovered) = killed.open().await;
        assert!(recovered.is_complete);
        assert!(killed.found(&next, &KEYS).await.is_empty());
        let late = late.await;
        assert!(matches!(late, Err(Error::Purged)), "{late:?}");
        bench.sweep(&store).await;
        assert_eq!(store.purges_pending(), 0);
    });
}

#[test]
fn entries_unknown_to_the_index_are_purged_too() {
    block_on(async {
        let bench = Bench::new();
        fill(&bench, &bench.walked().await).await;
        std::fs::remove_dir_all(bench.dir.path().join(crate::journal::FOLDER)).unwrap();
        let (store, _) = bench.open().await;
        store.purge_tag(&bench.local, b"all").await.unwrap();
        assert!(
            store
                .purge(&bench.local, &Key::of(KEYS[3].as_bytes()))
                .await
                .unwrap()
        );
        bench.sweep(&store).await;
        assert_eq!(store.purges_pending(), 2, "the walk may find more");
        assert_eq!(bench.found(&store, &KEYS).await, [KEYS[2]]);
        bench.walk(&store).await;
        bench.sweep(&store).await;
        assert_eq!(
            (store.purges_pending(), all_files(bench.dir.path()).len()),
            (0, 1)
        );
    });
}

#[test]
fn a_response_requested_before_a_purge_is_covered_when_it_comes() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let before = store.moment();
        store.purge_tag(&bench.local, b"all").await.unwrap();
        bench.sweep(&store).await;
        assert_eq!(store.purges_pending(), 1, "something is on its way");
        for (key, tags) in [(KEYS[0], "all"), (KEYS[2], "one")] {
            bench
                .put_tagged(&store, key, tags, before.clone())
                .await
                .unwrap();
        }
        assert_eq!(bench.found(&store, &KEYS).await, [KEYS[2]]);
        let key = Key::of(KEYS[3].as_bytes());
        assert!(!store.purge(&bench.local, &key).await.unwrap());
        let late = bench.put_tagged(&store, KEYS[3], "", before.clone());
        late.await.unwrap();
        let again = store.purge(&bench.local, &key).await.unwrap();
        assert!(!again, "it was purged before it came");
        // If too many purges come meanwhile, it is not stored at all.
        bench.purge_many(&store, RULES_MANY + 1).await;
        bench.sweep(&store).await;
        assert_eq!(store.purges_pending(), 0);
        let late = bench.put_tagged(&store, KEYS[0], "", before).await;
        assert!(matches!(late, Err(Error::Purged)), "{late:?}");
        assert!(bench.found(&store, &KEYS[..1]).await.is_empty());
    });
}

#[test]
fn a_response_that_comes_while_its_key_is_purged_again_was_purged_before() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let key = Key::of(KEYS[0].as_bytes());
        let before = store.moment();
        bench.put_now(&store, KEYS[0], "").await;
        assert!(store.purge(&bench.local, &key).await.unwrap());
        for _ in 0..1000 {
            let mut again = std::pin::pin!(store.purge(&bench.local, &key));
            let first = poll_fn(|context| Poll::Ready(again.as_mut().poll(context))).await;
            if let Poll::Ready(done) = first {
                // The rule was recorded before any response could come.
                assert!(!done.unwrap());
                continue;
            }
            let late = bench.put_tagged(&store, KEYS[0], "", before).await;
            late.unwrap();
            assert!(!again.await.unwrap());
            break;
        }
        bench.put_now(&store, KEYS[0], "").await;
        assert!(store.purge(&bench.local, &key).await.unwrap());
    });
}

#[test]
fn a_key_is_purged_in_all_its_variants() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let main = Key::of(b"k");
        let variant_of = |value: &'static str| {
            variant(
                main,
                b"accept",
                [(&b"accept"[..], value.as_bytes())].into_iter(),
            )
        };
        let (a, b) = (variant_of("a"), variant_of("b"));
        let put = async |own: Key, looked_for| {
            let put = bench.put_variant(&store, "k", b"x", "accept", own, looked_for);
            put.await.unwrap();
        };
        put(a, None).await;
        put(b, Some(b)).await;
        assert!(store.purge(&bench.local, &main).await.unwrap());
        put(a, None).await;
        let find = bench.find_with(&store, "k", &[("Accept", "b")]);
        assert!(
            matches!(find.await, LookupOutcome::Miss(_)),
            "it was stored before"
        );
        let find = bench.find_with(&store, "k", &[("Accept", "a")]);
        assert!(
            matches!(find.await, LookupOutcome::Hit(_)),
            "it was stored behind"
        );
    });
}

#[test]
fn invalidations_leave_room_for_purges_and_hold_without_it() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        fill(&bench, &store).await;
        for number in 0..RULES_MAX {
            let key = Key::of(number.to_string().as_bytes());
            store.invalidate(&bench.local, &key).await.unwrap();
        }
        store.purge_tag(&bench.local, b"nothing").await.unwrap();
        let before = store.moment();
        let key = Key::of(KEYS[0].as_bytes());
        store.invalidate(&bench.local, &key).await.unwrap();
        assert!(bench.found(&store, &KEYS[..1]).await.is_empty());
        let late = bench.put_tagged(&store, KEYS[0], "", before).await;
        assert!(matches!(late, Err(Error::Purged)), "{late:?}");
        bench.put_now(&store, KEYS[0], "").await;
        assert_eq!(bench.found(&store, &KEYS).await, KEYS);
        assert_eq!(store.counters().purged, 1);
        bench.sweep(&store).await;
        assert_eq!(store.purges_pending(), 0);
    });
}

#[test]
fn a_file_tells_other_processes_that_purges_are_pending() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        fill(&bench, &store).await;
        let mark = purge_mark(&store.settings().directory);
        let is_marked = || std::fs::exists(std::ffi::OsStr::from_bytes(&mark)).unwrap();
        assert!(!is_marked());
        let running = store.moment();
        store.purge_tag(&bench.local, b"one").await.unwrap();
        bench.sweep(&store).await;
        assert!(is_marked(), "something is on its way");
        drop((running, store));
        std::fs::remove_file(std::ffi::OsStr::from_bytes(&mark)).unwrap();
        let (store, _) = bench.open().await;
        assert!(is_marked());
        bench.sweep(&store).await;
        assert_eq!((store.purges_pending(), is_marked()), (0, false));
    });
}

#[test]
fn too_many_purges_are_refused_until_a_sweep() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        fill(&bench, &store).await;
        bench.purge_many(&store, RULES_MAX).await;
        let more = store.purge_tag(&bench.local, b"one").await;
        assert!(matches!(more, Err(Error::TooManyPurges(_))), "{more:?}");
        assert_eq!(bench.found(&store, &KEYS).await, KEYS);
        bench.sweep(&store).await;
        store.purge_tag(&bench.local, b"one").await.unwrap();
        assert_eq!(bench.found(&store, &KEYS).await, [KEYS[1], KEYS[3]]);
        let long = vec![b'x'; crate::purge::RULE_TEXT_MAX + 1];
        assert!(store.purge_prefix(&bench.local, &long).await.is_err());
    });
}
