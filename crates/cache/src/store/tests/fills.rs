//! Fills and a store together, as a proxy uses them.

use super::*;
use crate::fill::{FillKey, Filler, Fills, Follower, NextPiece, Role, Sharing};
use message::ResponseHead;

/// Writes the bytes of a fill.
async fn store_fill(local: Local, writer: Follower, mut writing: EntryWriter) -> KnownKey {
    loop {
        match writer.next().await {
            NextPiece::Bytes(bytes) => {
                writing.push(&local, bytes).await.unwrap();
                writer.written(writing.written());
            }
            NextPiece::Flush => {
                writing.flush(&local).await.unwrap();
                writer.written(writing.written());
            }
            NextPiece::End => return writing.finish(&local).await.unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

/// Reads a fill, from the window and from the file.
async fn read(
    local: Local,
    pool: Pool,
    store: Store,
    follower: Follower,
    written_body: WrittenBody,
) -> (Vec<u8>, u64) {
    let access = Access::new(&pool);
    let (mut body, mut from_file) = (Vec::new(), 0);
    let mut file = None;
    loop {
        match follower.next().await {
            NextPiece::Bytes(bytes) => body.extend_from_slice(&bytes),
            NextPiece::Written(range) => {
                let bytes = store
                    .read_written(&local, &access, &written_body, &mut file, &range)
                    .await
                    .unwrap();
                follower.advance(bytes.len() as u64);
                from_file += bytes.len() as u64;
                body.extend_from_slice(&bytes);
            }
            NextPiece::End => return (body, from_file),
            other => panic!("{other:?}"),
        }
    }
}

async fn begin(bench: &Bench, store: &Store) -> EntryWriter {
    let description = plain(Key::of(b"k"));
    let lines = std::iter::empty();
    store
        .begin(&bench.local, &description, lines, 0, NOW, store.moment())
        .await
        .unwrap()
}

#[test]
fn a_fill_is_read_from_memory_and_from_the_file_whatever_becomes_of_its_name() {
    // The smaller window holds less than one write.
    for window in [300_000, 50_000] {
        fill_and_follow(window);
    }
}

fn fill_and_follow(window: usize) {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let fills = Fills::default();
        let key = FillKey {
            key: Key::of(b"k"),
            main: Key::of(b"k"),
            text: Bytes::from_static(b"k"),
        };
        let Role::Fill(filler) = fills.join(key, window) else {
            panic!("nobody fills");
        };
        let writing = begin(&bench, &store).await;
        let written_body = writing.written_body();
        let (owner, writer) = (filler.requester().unwrap(), filler.writer().unwrap());
        let late = filler.fill().follow().unwrap();
        let (local, pool) = (&bench.local, &bench.pool);
        let reader = |follower| {
            tokio::task::spawn_local(read(
                local.clone(),
                pool.clone(),
                store.clone(),
                follower,
                written_body.clone(),
            ))
        };
        let owner = reader(owner);
        let writer = tokio::task::spawn_local(store_fill(local.clone(), writer, writing));
        filler.set_head(ResponseHead::new(Bytes::new()), Sharing::Shared);
        let body = push_all(&filler).await;
        filler.finish();
        assert_eq!(owner.await.unwrap().0, body);
        writer.await.unwrap();
        assert!(fills.is_empty());
        // The late follower finds the beginning in the file, whose name belongs to another by now.
        bench.put(&store, "k", b"another").await.unwrap();
        let (got, from_file) = reader(late).await.unwrap();
        assert_eq!(got, body);
        assert!(from_file > 400_000, "{from_file}");
        assert_eq!(bench.body(&store, "k").await.unwrap().unwrap(), b"another");
    });
}

async fn push_all(filler: &Filler) -> Vec<u8> {
    let body = big();
    for piece in body.chunks(20_000) {
        filler.push(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    body
}

#[test]
fn a_small_response_is_one_job_that_makes_its_directories() {
    block_on(async {
        let bench = Bench::new();
        let store = bench.walked().await;
        let jobs = || bench.local.counts()[disk::Operation::Other as usize].offloaded;
        let put = async |body: &[u8]| {
            let before = jobs();
            bench.put(&store, "k", body).await.unwrap();
            assert_eq!(bench.body(&store, "k").await.unwrap().unwrap(), body);
            jobs() - before
        };
        let used = store.space().used();
        assert_eq!(put(b"first").await, 1);
        assert_eq!(
            store.space().used(),
            used + 2 + 1,
            "two directories, one entry"
        );
        assert_eq!(put(b"second").await, 1);
        assert_eq!(store.space().used(), used + 2 + 1);
        // They are deleted from outside: the write fails, they are made, the write is repeated.
        let file = bench.entry_file(&store, "k");
        let directory = file.parent().unwrap().parent().unwrap();
        std::fs::remove_dir_all(directory).unwrap();
        assert_eq!(put(b"third").await, 3);
        assert_eq!(store.space().used(), used + 2 + 1);
    });
}
