//! Several responses for one key.

use super::*;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// A complete response that was requested at a moment.
async fn came(bench: &Bench, store: &Store, moment: FetchMoment, body: &[u8]) -> EntryWriter {
    let lines = std::iter::empty();
    let mut writing = store
        .begin(&bench.local, &plain(Key::of(b"k")), lines, 0, NOW, moment)
        .await
        .unwrap();
    let body = Bytes::copy_from_slice(body);
    writing.push(&bench.local, body).await.unwrap();
    writing
}

/// Polls as far as possible without waiting.
pub(super) async fn begin<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Pending => Poll::Ready(()),
        Poll::Ready(_) => panic!("a pool was not waited for"),
    })
    .await;
}

#[test]
fn the_response_requested_last_stays() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        // The large one has a temp file by then.
        for body in [b"old".to_vec(), big()] {
            let (old, new) = (store.moment(), store.moment());
            let old = came(&bench, &store, old, &body).await;
            let new = came(&bench, &store, new, b"new").await;
            new.finish(&bench.local).await.unwrap();
            let late = old.finish(&bench.local).await;
            assert!(matches!(late, Err(Error::Superseded)), "{late:?}");
            assert_eq!(bench.body(&store, "k").await.unwrap().unwrap(), b"new");
            assert_eq!(all_files(bench.dir.path()).len(), 1);
            assert!(store.purge(&bench.local, &Key::of(b"k")).await.unwrap());
        }
        // After another start too, whatever the tags of the last one were.
        bench.put(&store, "k", b"before").await.unwrap();
        drop(store);
        let (store, _) = bench.open().await;
        bench.put(&store, "k", b"after").await.unwrap();
        assert_eq!(bench.body(&store, "k").await.unwrap().unwrap(), b"after");
    });
}

#[test]
fn responses_that_come_at_once_are_stored_in_the_order_of_their_requests() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let asked = [(); 5].map(|()| store.moment());
        let mut answers = Vec::new();
        for (number, moment) in asked.into_iter().enumerate() {
            answers.push(came(&bench, &store, moment, number.to_string().as_bytes()).await);
        }
        let mut answers = answers
            .into_iter()
            .map(|answer| answer.finish(&bench.local));
        let mut next = || answers.next().unwrap();
        let (mut zeroth, mut first) = (Box::pin(next()), Box::pin(next()));
        let second = pin!(next());
        let (mut third, mut fourth) = (Box::pin(next()), Box::pin(next()));
        let hold = bench.pool.hold();
        begin(first.as_mut()).await;
        begin(third.as_mut()).await;
        // Newer ones wait already.
        assert!(matches!(second.await, Err(Error::Superseded)));
        assert!(matches!(zeroth.as_mut().await, Err(Error::Superseded)));
        begin(fourth.as_mut()).await;
        drop(hold);
        let (first, third, fourth) = tokio::join!(first, third, fourth);
        assert!(first.is_ok() && fourth.is_ok(), "{first:?} {fourth:?}");
        assert!(matches!(third, Err(Error::Superseded)), "{third:?}");
        assert_eq!(bench.body(&store, "k").await.unwrap().unwrap(), b"4");
        assert_eq!(all_files(bench.dir.path()).len(), 1);
    });
}

#[test]
fn a_dropped_response_does_not_block_the_next() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let hold = bench.pool.hold();
        let mut running = Box::pin(bench.put(&store, "k", b"first"));
        begin(running.as_mut()).await;
        let mut waiting = Box::pin(bench.put(&store, "k", b"second"));
        begin(waiting.as_mut()).await;
        drop(hold);
        // It gets its turn, and is dropped before it notices.
        running.await.unwrap();
        drop(waiting);
        bench.put(&store, "k", b"third").await.unwrap();
        assert_eq!(bench.body(&store, "k").await.unwrap().unwrap(), b"third");
        assert!(store.0.publish_order.is_empty());
    });
}
