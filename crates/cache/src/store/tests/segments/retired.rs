//! Segments that could not be read, while they are tried.

use super::*;
use disk::SegmentFile;
use std::sync::Arc;
use std::time::Duration;

type Proof = (u32, Arc<SegmentFile>, Duration);

/// Fills segments, retires the first, and takes the proof that is due then.
async fn retire(bench: &Bench, store: &Store) -> Proof {
    put_many(bench, store, 70).await;
    let bad = store.index().peek(&Key::of(b"k0")).unwrap();
    let set = &store.0.segments.as_ref().unwrap().set;
    (0..3).for_each(|_| store.note_unread(&bad, &disk_fails()));
    let counts = || store.segment_metrics().unwrap().counts;
    until(store, bench, || counts().retired == 1).await;
    loop {
        // No sweep has the writer look meanwhile.
        match set.next_proof() {
            Some(proof) => return proof,
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

#[test]
fn nothing_waits_for_the_proof_of_a_segment() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        let (number, file, pause) = retire(&bench, &store).await;
        let set = &store.0.segments.as_ref().unwrap().set;
        // It is tried by one job at a time, and what is stored goes elsewhere.
        assert!(set.next_proof().is_none());
        bench.put_whole(&store, "more", b"more").await.unwrap();
        assert_eq!(bench.body(&store, "more").await.unwrap().unwrap(), b"more");
        // In vain: it is tried again.
        set.try_again(number, Duration::ZERO);
        assert_eq!(set.next_proof().unwrap().0, number);
        store.prove(number, &file, pause);
        assert_eq!(store.segment_metrics().unwrap().counts.retired, 0);
    });
}

/// A file of which nothing can be read or written: EIO.
fn broken(bench: &Bench) -> SegmentFile {
    SegmentFile::open(bench.local.disk(), b"/proc/self/mem", 0, &bench.pool).unwrap()
}

#[test]
fn a_segment_whose_first_page_cannot_be_written_is_retired() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        put_many(&bench, &store, 70).await;
        let segments = store.0.segments.as_ref().unwrap();
        let counts = || store.segment_metrics().unwrap().counts;
        let bad = store.index().peek(&Key::of(b"k0")).unwrap();
        let (number, _) = segments.set.place(bad.extent.offset);
        segments.set.set_file(number, broken(&bench));
        store.purge(&bench.local, &bad.key).await.unwrap();
        for _ in 0..2_000 {
            if counts().retired == 1 {
                break;
            }
            // The map cannot be written.
            let _ = store.sweep(&bench.local, NOW, 100).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(counts().retired, 1);
        // A start may find its entries.
        assert!(store.0.may_leave_out.load(Relaxed));
    });
}

#[test]
fn a_segment_that_cannot_be_begun_is_retired() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.segments().await;
        let (number, file, pause) = retire(&bench, &store).await;
        store.prove(number, &file, pause);
        let set = &store.0.segments.as_ref().unwrap().set;
        set.set_file(number, broken(&bench));
        let counts = || store.segment_metrics().unwrap().counts;
        for more in 0..200 {
            let key = format!("more{more}");
            let put = bench.put_whole(&store, &key, &body_of(more, 90_000)).await;
            if put.is_err() {
                break;
            }
        }
        assert_eq!(counts().retired, 1);
        bench.put_whole(&store, "after", b"after").await.unwrap();
    });
}
