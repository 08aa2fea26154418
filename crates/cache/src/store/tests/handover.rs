//! A directory that is given up while its owner lives on.

use super::*;

#[test]
fn the_next_owner_knows_every_entry_and_the_last_one_changes_nothing() {
    block_on(async {
        let bench = Bench::new();
        let old = bench.walked().await;
        for number in 0..200 {
            let key = format!("k{number}");
            bench.put(&old, &key, key.as_bytes()).await.unwrap();
        }
        assert!(matches!(
            Store::open(&bench.local, bench.settings()).await,
            Err(Error::InUse)
        ));
        old.give_up(&bench.local).await.unwrap();
        let (new, recovered) = bench.open().await;
        assert_eq!((recovered.entries, recovered.is_complete), (200, true));
        // What was found can be read further; nothing is written.
        let LookupOutcome::Hit(hit) = bench.find(&old, "k7").await else {
            panic!("it is there");
        };
        assert_eq!(bench.read(&old, &hit).await.unwrap(), b"k7");
        let refused = bench.put(&old, "late", b"late").await;
        assert!(matches!(refused, Err(Error::InUse)));
        let refused = bench.put(&old, "late", &vec![b'x'; 600_000]).await;
        assert!(matches!(refused, Err(Error::InUse)));
        let swept = old.sweep(&bench.local, NOW + 10_000, 100).await;
        assert!(swept.is_err(), "what is due is the new owner's to delete");
        assert!(matches!(
            bench.find(&new, "late").await,
            LookupOutcome::Miss(_)
        ));
        bench.put(&new, "late", b"new").await.unwrap();
        for number in 0..200 {
            let found = bench.find(&new, &format!("k{number}")).await;
            assert!(matches!(found, LookupOutcome::Hit(_)), "k{number}");
        }
        drop(old);
        drop(new);
        let (_, recovered) = bench.open().await;
        assert_eq!((recovered.entries, recovered.is_complete), (201, true));
    });
}

#[test]
fn what_is_being_written_is_stored_or_leaves_nothing() {
    block_on(async {
        let bench = Bench::new();
        let old = bench.walked().await;
        let (local, store) = (bench.local.clone(), old.clone());
        let mut writes = Vec::new();
        for number in 0..40 {
            let (local, store) = (local.clone(), store.clone());
            writes.push(tokio::task::spawn_local(async move {
                let text = format!("w{number}");
                let key = Key::of(text.as_bytes());
                let description = Description {
                    key_text: text.as_bytes(),
                    ..plain(key)
                };
                let len = if number % 2 == 0 { 100 } else { 400_000 };
                let body = Bytes::from(vec![b'y'; len]);
                let moment = store.moment();
                let fields = std::iter::empty::<FieldLine<'_>>();
                let mut writing = store
                    .begin(&local, &description, fields, len as u64, NOW, moment)
                    .await?;
                writing.push(&local, body).await?;
                writing.finish(&local).await
            }));
        }
        tokio::task::yield_now().await;
        old.give_up(&bench.local).await.unwrap();
        let (new, recovered) = bench.open().await;
        let mut stored = 0;
        for (number, write) in writes.into_iter().enumerate() {
            let is_stored = write.await.unwrap().is_ok();
            stored += usize::from(is_stored);
            let found = bench.find(&new, &format!("w{number}")).await;
            assert_eq!(
                matches!(found, LookupOutcome::Hit(_)),
                is_stored,
                "w{number}"
            );
        }
        assert_eq!(recovered.entries, stored);
        assert!(recovered.is_complete);
    });
}
