//! Segments whose last owner still reads from them.

use super::*;

#[test]
fn the_next_owner_clears_nothing_that_the_last_one_reads() {
    block_on(async {
        let bench = Bench::new();
        let old = bench.segments().await;
        let body = body_of(1, 200_000);
        bench.put_whole(&old, "held", &body).await.unwrap();
        let hit = bench.hit(&old, "held").await;
        old.give_up(&bench.local).await.unwrap();
        assert!(matches!(
            bench.put_whole(&old, "late", b"late").await,
            Err(Error::InUse)
        ));
        let new = bench.segments().await;
        assert_eq!(bench.body(&new, "held").await.unwrap().unwrap(), body);
        let mut shed = 0;
        for number in 0..200 {
            let key = format!("k{number}");
            let put = bench.put_whole(&new, &key, &body_of(number, 90_000)).await;
            shed += usize::from(put.is_err());
        }
        assert!(shed < 200);
        assert_eq!(bench.read(&old, &hit).await.unwrap(), body);
        drop((hit, old));
        new.sweep(&bench.local, NOW, 100).await.unwrap();
        bench.put_whole(&new, "more", b"more").await.unwrap();
    });
}

#[test]
fn the_next_owner_fills_no_segment_further_that_the_last_one_reads() {
    block_on(async {
        let bench = Bench::new();
        let old = bench.segments().await;
        let (first, gone) = (body_of(1, 50_000), body_of(2, 200_000));
        bench.put_whole(&old, "first", &first).await.unwrap();
        bench.put_whole(&old, "gone", &gone).await.unwrap();
        let hit = bench.hit(&old, "gone").await;
        // It is the last one in the segment, and in no index any more.
        old.purge(&bench.local, &Key::of(b"gone")).await.unwrap();
        old.give_up(&bench.local).await.unwrap();
        let new = bench.segments().await;
        let other = body_of(3, 200_000);
        bench.put_whole(&new, "other", &other).await.unwrap();
        assert!(bench.read(&old, &hit).await.unwrap() == gone);
        for (key, body) in [("first", &first), ("other", &other)] {
            let found = bench.body(&new, key).await.unwrap().unwrap();
            assert!(found == *body, "{key}");
        }
        assert!(bench.body(&new, "gone").await.is_none());
        // Nor is it found where there is no journal.
        drop((hit, old));
        new.close(&bench.local).await.unwrap();
        drop(new);
        std::fs::remove_dir_all(bench.dir.path().join(crate::journal::FOLDER)).unwrap();
        let new = bench.segments().await;
        assert!(bench.body(&new, "gone").await.is_none());
        let found = bench.body(&new, "first").await.unwrap().unwrap();
        assert!(found == first);
    });
}

#[test]
fn the_next_owner_cuts_no_segment_that_the_last_one_reads() {
    block_on(async {
        let bench = Bench::new();
        let settings = bench.segment_settings(Some(400 << 20));
        let (old, _) = bench.open_with(settings).await;
        bench.walk(&old).await;
        put_many(&bench, &old, 60).await;
        let body = body_of(59, 90_000);
        let hit = bench.hit(&old, "k59").await;
        old.give_up(&bench.local).await.unwrap();
        // Segments are shorter now.
        let new = bench.segments().await;
        bench.put_whole(&new, "new", b"new").await.unwrap();
        assert!(bench.read(&old, &hit).await.unwrap() == body);
        assert_eq!(bench.body(&new, "new").await.unwrap().unwrap(), b"new");
    });
}

#[test]
fn entries_that_are_asked_for_while_segments_are_given_up_are_not_lost() {
    block_on(async {
        let bench = Bench::new();
        let old = bench.segments().await;
        bench.put_whole(&old, "late", b"late").await.unwrap();
        old.close_segments().await;
        // By a request that came before.
        assert!(bench.body(&old, "late").await.is_none());
        old.give_up(&bench.local).await.unwrap();
        let new = bench.segments().await;
        assert_eq!(bench.body(&new, "late").await.unwrap().unwrap(), b"late");
    });
}
