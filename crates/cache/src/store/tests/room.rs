//! What gives way for what is written.

use super::*;

/// A store of 600 blocks, full of entries of one block.
async fn full(bench: &Bench) -> (Store, usize) {
    bench.walked().await;
    let small = StoreSettings {
        max_bytes: Some(600 << 12),
        // Directories take room, too.
        levels: Levels::parse("1").unwrap(),
        ..bench.settings()
    };
    let (store, _) = bench.open_with(small).await;
    let mut number = 0;
    while store.counters().evicted == 0 {
        bench
            .put(&store, &format!("small {number}"), b"x")
            .await
            .unwrap();
        number += 1;
    }
    (store, number)
}

/// Blocks that are counted beside those of the entries in the index.
fn others(store: &Store) -> u64 {
    let (mut cursor, mut sum) = (Cursor::default(), 0);
    loop {
        let step = store.index().scan(&mut cursor, crate::index::STEP_MAX);
        if step.is_empty() {
            return store.space().used() - sum;
        }
        let blocks = step.iter().map(|known| u64::from(known.extent.blocks));
        sum += blocks.sum::<u64>();
    }
}

#[test]
fn a_large_response_takes_the_room_of_small_ones_while_they_come() {
    block_on(async {
        let bench = Bench::new();
        let (store, mut number) = full(&bench).await;
        let before = others(&store);
        let body = Bytes::from(vec![7; 350 << 12]);
        let description = Description {
            key_text: b"large",
            ..plain(Key::of(b"large"))
        };
        let (fields, expected) = (std::iter::empty(), body.len() as u64);
        let begun = store.begin(
            &bench.local,
            &description,
            fields,
            expected,
            NOW,
            store.moment(),
        );
        let mut writing = begun.await.unwrap();
        for at in (0..body.len()).step_by(100_000) {
            let piece = body.slice(at..body.len().min(at + 100_000));
            writing.push(&bench.local, piece).await.unwrap();
            let small = format!("small {number}");
            bench.put(&store, &small, b"x").await.unwrap();
            number += 1;
        }
        writing.finish(&bench.local).await.unwrap();
        assert_eq!(bench.body(&store, "large").await.unwrap().unwrap(), body);
        assert_eq!(all_files(bench.dir.path()).len(), store.index().len());
        // The journal has grown, and is counted ahead.
        assert!(others(&store) <= before + 40, "{} {before}", others(&store));
    });
}

#[test]
fn room_for_the_journal_is_made_of_any_number_of_entries() {
    block_on(async {
        let bench = Bench::new();
        let (store, _) = full(&bench).await;
        let (before, entries) = (others(&store), store.index().len());
        let mut room = store.space().reserve(0).unwrap();
        let grown = store.grow(&bench.local, &mut room, 400 << 12).await;
        grown.unwrap();
        assert_eq!((room.blocks(), store.space().excess()), (400, 0));
        assert!(store.index().len() + 390 <= entries);
        drop(room);
        assert_eq!(all_files(bench.dir.path()).len(), store.index().len());
        assert_eq!(others(&store), before);
        // What can have no room takes nothing.
        let left = store.index().len();
        let mut room = store.space().reserve(0).unwrap();
        let grown = store.grow(&bench.local, &mut room, 601 << 12).await;
        assert!(matches!(grown, Err(Error::NoRoom(_))), "{grown:?}");
        assert_eq!(store.index().len(), left);
    });
}

#[test]
fn limits_hold_while_entries_are_compared_with_purges() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        for number in 0..40 {
            bench.put(&store, &number.to_string(), b"x").await.unwrap();
        }
        // Every head is read, and none is covered.
        store.purge_prefix(&bench.local, b"none").await.unwrap();
        store.set_limits(Some((store.space().used() - 20) << 12), 0, 600);
        assert!(store.sweep(&bench.local, NOW, 10).await.unwrap());
        assert_eq!(store.purges_pending(), 1, "the pass is under way");
        assert!(store.counters().evicted > 0);
    });
}
