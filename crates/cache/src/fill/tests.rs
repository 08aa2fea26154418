//! Fills and followers, polled by hand and by tasks.

use super::*;
use futures_of::{is_pending, now};
use message::{Field, HeaderId, Span};
use proptest::prelude::*;
use tokio::runtime::Builder;

/// Futures that are polled once.
mod futures_of {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    pub(super) fn now<F: Future>(future: F) -> Option<F::Output> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(future).poll(&mut context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    pub(super) fn is_pending<F: Future>(future: F) -> bool {
        now(future).is_none()
    }
}

fn key() -> Key {
    Key::of(b"k")
}

fn fill_key() -> FillKey {
    variant_of("k", "k")
}

/// A fill of the key `text`, found by the key of `variant`.
fn variant_of(text: &'static str, variant: &str) -> FillKey {
    FillKey {
        key: Key::of(variant.as_bytes()),
        main: Key::of(text.as_bytes()),
        text: Bytes::from_static(text.as_bytes()),
    }
}

fn head() -> ResponseHead {
    ResponseHead::new(Bytes::from_static(b"HTTP/1.1 200 OK\r\n\r\n"))
}

fn push(filler: &Filler, bytes: &'static [u8]) -> Option<Result<(), Unwanted>> {
    now(filler.push(Bytes::from_static(bytes)))
}

fn bytes(text: &'static [u8]) -> Option<NextPiece> {
    Some(NextPiece::Bytes(Bytes::from_static(text)))
}

#[test]
fn followers_get_everything_at_their_own_speed() {
    let filler = Filler::alone(fill_key(), 10_000);
    let requester = filler.requester().unwrap();
    let slow = filler.fill().follow().unwrap();
    assert!(is_pending(requester.head()));
    filler.set_head(head(), Sharing::Shared);
    assert!(now(requester.head()).unwrap().is_some() && now(slow.head()).unwrap().is_some());
    push(&filler, b"one").unwrap().unwrap();
    assert_eq!(now(requester.next()), bytes(b"one"));
    assert!(is_pending(requester.next()));
    push(&filler, b"two").unwrap().unwrap();
    assert_eq!(now(requester.next()), bytes(b"two"));
    let fill = filler.fill().clone();
    filler.finish();
    assert_eq!(now(requester.next()), Some(NextPiece::End));
    for next in [bytes(b"one"), bytes(b"two"), Some(NextPiece::End)] {
        assert_eq!(now(slow.next()), next);
    }
    // A late follower gets it too, as long as it is in memory.
    assert_eq!(now(fill.follow().unwrap().next()), bytes(b"one"));
}

#[test]
fn a_lost_origin_is_told() {
    let filler = Filler::alone(fill_key(), 10_000);
    let requester = filler.requester().unwrap();
    let early = filler.fill().follow().unwrap();
    push(&filler, b"half").unwrap().unwrap();
    assert_eq!(now(requester.next()), bytes(b"half"));
    let fill = filler.fill().clone();
    drop(filler);
    assert_eq!(now(requester.next()), Some(NextPiece::Broken));
    assert!(now(early.head()).unwrap().is_none());
    assert!(fill.follow().is_none());
}

#[test]
fn a_private_response_is_the_requesters() {
    let fills = Fills::default();
    let Role::Fill(filler) = fills.join(fill_key(), 10_000) else {
        panic!("nobody fills");
    };
    let requester = filler.requester().unwrap();
    let Role::Follow(fill) = fills.join(fill_key(), 10_000) else {
        panic!("somebody fills");
    };
    let guest = fill.follow().unwrap();
    filler.set_head(head(), Sharing::Private);
    push(&filler, b"secret").unwrap().unwrap();
    assert!(now(guest.head()).unwrap().is_none());
    assert_eq!(now(guest.next()), Some(NextPiece::Alone));
    assert!(fill.follow().is_none());
    assert_eq!(now(requester.next()), bytes(b"secret"));
    assert!(fills.is_empty(), "the next one asks for himself");
}

#[test]
fn without_a_file_the_slowest_follower_holds_the_origin() {
    let filler = Filler::alone(fill_key(), 2 * (4 + PIECE_COST));
    let (fast, slow) = (filler.requester().unwrap(), filler.fill().follow().unwrap());
    assert!(push(&filler, b"aaaa").is_some() && push(&filler, b"bbbb").is_some());
    assert_eq!(
        (now(fast.next()), now(fast.next())),
        (bytes(b"aaaa"), bytes(b"bbbb"))
    );
    assert_eq!(push(&filler, b"cccc"), None, "the slow one has nothing yet");
    assert!(!filler.is_held_by_disk());
    assert_eq!(now(slow.next()), bytes(b"aaaa"));
    assert_eq!(push(&filler, b"cccc"), Some(Ok(())));
    assert!(filler.fill().follow().is_none(), "the beginning is gone");
    assert_eq!(push(&filler, b"dddd"), None);
    drop(slow);
    assert_eq!(push(&filler, b"dddd"), Some(Ok(())));
    drop(fast);
    assert_eq!(push(&filler, b"eeee"), Some(Err(Unwanted)));
}

#[test]
fn a_filler_that_waits_for_bytes_is_told_that_the_rest_is_not_needed() {
    let filler = Filler::alone(fill_key(), 10_000);
    let (requester, writer) = (filler.requester().unwrap(), filler.writer().unwrap());
    drop(requester);
    assert!(is_pending(filler.unwanted()), "it is stored");
    let runtime = Builder::new_current_thread().build().unwrap();
    let left = async { drop(writer) };
    let told = runtime.block_on(async { tokio::join!(filler.unwanted(), left).0 });
    assert_eq!(told, Unwanted);
}

#[test]
fn a_request_joins_a_fill_whose_writer_holds_more_than_the_window() {
    let filler = Filler::alone(fill_key(), 2 * (4 + PIECE_COST));
    let (writer, fast) = (filler.writer().unwrap(), filler.requester().unwrap());
    let body: [&[u8]; 5] = [b"aaaa", b"bbbb", b"cccc", b"dddd", b"eeee"];
    for piece in body {
        assert_eq!(push(&filler, piece), Some(Ok(())));
        assert_eq!(
            (now(writer.next()), now(fast.next())),
            (bytes(piece), bytes(piece))
        );
    }
    let late = filler.fill().follow().unwrap();
    assert_eq!(now(late.next()), bytes(b"aaaa"));
    assert_eq!(
        push(&filler, b"ffff"),
        None,
        "the window is not longer for it"
    );
    // What is in the file is not kept in memory.
    writer.written(8);
    assert_eq!(now(late.next()), Some(NextPiece::Written(4..8)));
    late.advance(4);
    // Nor what the others have, once there is to be no file.
    filler.stop_storing();
    assert_eq!(push(&filler, b"ffff"), None, "it has not all");
    assert!(filler.fill().follow().is_none(), "the beginning is gone");
    for piece in &body[2..] {
        assert_eq!(now(late.next()), bytes(piece));
    }
    assert_eq!(push(&filler, b"ffff"), Some(Ok(())));
    assert_eq!(
        (now(late.next()), now(fast.next())),
        (bytes(b"ffff"), bytes(b"ffff"))
    );
}

#[test]
fn with_a_file_a_slow_follower_does_not_hold_the_origin() {
    let filler = Filler::alone(fill_key(), 2 * (4 + PIECE_COST));
    let (writer, slow) = (filler.writer().unwrap(), filler.requester().unwrap());
    assert!(push(&filler, b"aaaa").is_some() && push(&filler, b"bbbb").is_some());
    assert_eq!(
        (now(writer.next()), now(writer.next())),
        (bytes(b"aaaa"), bytes(b"bbbb"))
    );
    assert_eq!(push(&filler, b"cccc"), None, "not on the disk yet");
    assert_eq!(now(writer.next()), Some(NextPiece::Flush));
    writer.written(8);
    assert!(push(&filler, b"cccc").is_some() && push(&filler, b"dddd").is_some());
    assert!(filler.fill().is_file_needed());
    assert_eq!(now(slow.next()), Some(NextPiece::Written(0..8)));
    slow.advance(3);
    assert_eq!(now(slow.next()), Some(NextPiece::Written(3..8)));
    let late = filler.fill().follow().unwrap();
    assert_eq!(now(late.next()), Some(NextPiece::Written(0..8)));
    slow.advance(5);
    assert_eq!(now(slow.next()), bytes(b"cccc"));
    drop(late);
    assert!(!filler.fill().is_file_needed());
    // All followers have left: it goes on, for the file.
    drop(slow);
    assert_eq!(now(writer.next()), bytes(b"cccc"));
    writer.written(12);
    assert_eq!(push(&filler, b"eeee"), Some(Ok(())));
}

#[test]
fn a_disk_that_does_not_keep_up_can_be_left_behind() {
    let filler = Filler::alone(fill_key(), 2 * (4 + PIECE_COST));
    let (writer, requester) = (filler.writer().unwrap(), filler.requester().unwrap());
    assert!(push(&filler, b"aaaa").is_some());
    assert_eq!(now(writer.next()), bytes(b"aaaa"));
    writer.written(4);
    assert!(push(&filler, b"bbbb").is_some() && push(&filler, b"cccc").is_some());
    for _ in 0..3 {
        let next = now(requester.next()).unwrap();
        if let NextPiece::Written(range) = next {
            requester.advance(range.end - range.start);
        }
    }
    assert_eq!(push(&filler, b"dddd"), None);
    assert!(filler.is_held_by_disk());
    filler.stop_storing();
    assert_eq!(now(writer.next()), Some(NextPiece::Alone));
    assert_eq!(push(&filler, b"dddd"), Some(Ok(())));
    assert_eq!(now(requester.next()), bytes(b"dddd"));
}

#[test]
fn a_writer_that_leaves_stops_storing() {
    let filler = Filler::alone(fill_key(), 10_000);
    let (writer, requester) = (filler.writer().unwrap(), filler.requester().unwrap());
    drop(writer);
    assert_eq!(push(&filler, b"a"), Some(Ok(())));
    drop(requester);
    assert_eq!(push(&filler, b"b"), Some(Err(Unwanted)));
}

#[test]
fn one_fill_for_a_key_until_it_ends_or_is_taken_over() {
    let fills = Fills::default();
    let Role::Fill(first) = fills.join(fill_key(), 100) else {
        panic!("nobody fills");
    };
    assert!(matches!(fills.join(fill_key(), 100), Role::Follow(fill) if fill.is(first.fill())));
    let second = fills.take_over(fill_key(), 100);
    first.finish();
    assert!(fills.running(&key()).unwrap().is(second.fill()));
    drop(second);
    assert!(fills.is_empty());
    assert!(matches!(fills.join(fill_key(), 100), Role::Fill(_)));
}

#[test]
fn a_fill_whose_first_bytes_are_gone_leaves_the_key_to_the_next_request() {
    let fills = Fills::default();
    let begin = || match fills.join(fill_key(), 200) {
        Role::Fill(filler) => filler,
        Role::Follow(_) => panic!("another one runs"),
    };
    let first = begin();
    let requester = first.requester().unwrap();
    let writer = first.writer().unwrap();
    first.set_head(head(), Sharing::Shared);
    push(&first, b"1234567890").unwrap().unwrap();
    first.stop_storing();
    drop(writer);
    assert!(matches!(fills.join(fill_key(), 200), Role::Follow(_)));
    for _ in 0..10 {
        assert_eq!(now(requester.next()), bytes(b"1234567890"));
        push(&first, b"1234567890").unwrap().unwrap();
    }
    let next = begin();
    assert!(!next.fill().is(first.fill()));
    next.set_head(head(), Sharing::Shared);
    // The first one's end changes nothing.
    first.finish();
    assert!(matches!(fills.join(fill_key(), 200), Role::Follow(fill) if fill.is(next.fill())));
}

#[test]
fn a_stored_fill_is_listed_until_its_writer_leaves() {
    let fills = Fills::default();
    let Role::Fill(filler) = fills.join(fill_key(), 10_000) else {
        panic!("nobody fills");
    };
    let writer = filler.writer().unwrap();
    push(&filler, b"a").unwrap().unwrap();
    filler.finish();
    assert_eq!(now(writer.next()), bytes(b"a"));
    assert_eq!(now(writer.next()), Some(NextPiece::End));
    // The index does not know the entry yet: a request that comes now follows.
    let late = fills.running(&key()).unwrap().follow().unwrap();
    drop(writer);
    assert!(fills.is_empty());
    assert_eq!(now(late.next()), bytes(b"a"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Followers of all speeds, some with a file behind them: each gets the whole body in order, and memory stays
    /// bounded.
    #[test]
    fn the_body_arrives_complete(
        pieces in proptest::collection::vec(1usize..5_000, 1..60),
        delays in proptest::collection::vec(0usize..8, 1..6),
        saves in any::<bool>(), is_eager in any::<bool>(), window in 1usize..20_000,
    ) {
        let runtime = Builder::new_current_thread().build_local(Default::default()).unwrap();
        runtime.block_on(async {
            let body: Bytes = (0..pieces.iter().sum::<usize>()).map(|at| (at % 253) as u8).collect::<Vec<_>>().into();
            let filler = Filler::alone(fill_key(), window);
            let writer = filler.writer().filter(|_| saves);
            let readers: Vec<_> = delays.iter().map(|delay| {
                let (follower, body) = (filler.fill().follow().unwrap(), body.clone());
                tokio::task::spawn_local(read(follower, body, *delay))
            }).collect();
            let writer = writer.map(|writer| tokio::task::spawn_local(async move {
                loop {
                    match writer.next().await {
                        NextPiece::Bytes(_) if is_eager => writer.written(writer.at()),
                        NextPiece::Bytes(_) => {}
                        NextPiece::Flush => writer.written(writer.at()),
                        NextPiece::End => break,
                        other => panic!("{other:?}"),
                    }
                    tokio::task::yield_now().await;
                }
            }));
            let mut at = 0;
            for len in &pieces {
                filler.push(body.slice(at..at + len)).await.unwrap();
                at += len;
                let cost = filler.fill().0.state.lock().cost.bytes();
                assert!(cost <= window.max(len + PIECE_COST), "{cost}");
            }
            filler.finish();
            for reader in readers {
                assert_eq!(reader.await.unwrap(), body);
            }
            if let Some(writer) = writer {
                writer.await.unwrap();
            }
        });
    }
}

async fn read(follower: Follower, body: Bytes, delay: usize) -> Bytes {
    let mut got = Vec::new();
    loop {
        match follower.next().await {
            NextPiece::Bytes(bytes) => got.extend_from_slice(&bytes),
            NextPiece::Written(range) => {
                got.extend_from_slice(&body[range.start as usize..range.end as usize]);
                follower.advance(range.end - range.start);
            }
            NextPiece::End => return got.into(),
            other => panic!("{other:?}"),
        }
        for _ in 0..delay {
            tokio::task::yield_now().await;
        }
    }
}

#[test]
fn a_complete_response_is_followed_until_it_is_indexed() {
    let fills = Fills::default();
    for body in [&b"whole"[..], b""] {
        for is_storing in [true, false] {
            let Role::Fill(filler) = fills.join(fill_key(), 10_000) else {
                panic!("nobody fills");
            };
            let (requester, fill) = (filler.requester().unwrap(), filler.fill().clone());
            assert!(is_pending(requester.head()));
            let unindexed = filler.finish_with(head().into(), Bytes::from_static(body), is_storing);
            assert_eq!(
                (unindexed.is_some(), fills.has_complete()),
                (is_storing, is_storing)
            );
            assert_eq!(fills.running(&key()).is_some(), is_storing);
            let late = fill.follow().unwrap();
            for follower in [&requester, &late] {
                assert!(now(follower.head()).unwrap().is_some());
                if !body.is_empty() {
                    assert_eq!(now(follower.next()), bytes(body));
                }
                assert_eq!(now(follower.next()), Some(NextPiece::End));
            }
            drop(unindexed);
            assert!(fills.is_empty() && !fills.has_complete() && !fill.is_file_needed());
        }
    }
    // From then on, requests join one that was alone.
    let alone = fills.alone(fill_key(), 10_000);
    let fill = alone.fill().clone();
    let unindexed = alone.finish_with(head().into(), Bytes::from_static(b"a"), true);
    assert!(fills.running(&key()).is_some_and(|other| other.is(&fill)));
    drop(unindexed);
    assert!(fills.is_empty() && !fills.has_complete());
}

#[test]
fn a_fill_that_was_alone_is_joined_once_complete_unless_a_newer_one_is() {
    let fills = Fills::default();
    let Role::Fill(first) = fills.join(fill_key(), 1000) else {
        panic!("nobody fills");
    };
    let alone = || {
        let filler = fills.alone(fill_key(), 1000);
        let (fill, writer) = (filler.fill().clone(), filler.writer().unwrap());
        (filler, fill, writer)
    };
    let is_joined = |fill: &Fill| fills.running(&key()).is_some_and(|other| other.is(fill));
    let (second, _, second_writer) = alone();
    let (third, third_fill, third_writer) = alone();
    assert!(third.is_alone() && is_joined(first.fill()));
    third.finish();
    assert!(is_joined(&third_fill) && fills.has_complete());
    second.finish();
    first.finish();
    assert!(is_joined(&third_fill), "it is the newest");
    drop((second_writer, third_writer));
    assert!(fills.is_empty() && !fills.has_complete());
    let (fourth, _, _writer) = alone();
    fills.forget_key(&key());
    fourth.finish();
    assert!(fills.is_empty(), "it was purged");
    let (fifth, _, writer) = alone();
    drop(writer);
    fifth.finish();
    assert!(fills.is_empty(), "nobody will find it");
}

#[test]
fn a_purge_closes_the_fills_that_it_covers_and_no_others() {
    let listed = |purge: &dyn Fn(&Fills)| {
        let fills = Fills::default();
        let keys = [
            ("a/1", "a/1"),
            ("a/1", "a variant of it"),
            ("a/2", "a/2"),
            ("b/1", "b/1"),
        ];
        let _fillers = keys.map(|(text, variant)| fills.join(variant_of(text, variant), 100));
        purge(&fills);
        keys.map(|(_, variant)| fills.running(&Key::of(variant.as_bytes())).is_some())
    };
    assert_eq!(
        listed(&|fills| fills.forget_key(&Key::of(b"a/1"))),
        [false, false, true, true]
    );
    assert_eq!(
        listed(&|fills| fills.forget_prefix(b"a/")),
        [false, false, false, true]
    );
}

#[test]
fn a_purge_by_tag_keeps_a_response_without_that_tag_joinable() {
    let fills = Fills::default();
    let complete = |text, line: &'static str| {
        let Role::Fill(filler) = fills.join(variant_of(text, text), 100) else {
            panic!("nobody fills");
        };
        let mut head = ResponseHead::new(Bytes::from_static(line.as_bytes()));
        let colon = line.find(':').expect("it is a line");
        head.push(Field {
            name: Span::new(0, colon),
            value: Span::new(colon + 1, line.len()),
            id: HeaderId::Other,
        });
        filler.finish_with(head.into(), Bytes::from_static(b"body"), true)
    };
    let _unindexed = [
        complete("a", "Cache-Tag: News, front"),
        complete("b", "Surrogate-Key: sport front"),
        complete("c", "X-Tag: news"),
    ];
    let Role::Fill(_without_head) = fills.join(variant_of("d", "d"), 100) else {
        panic!("nobody fills");
    };
    let listed =
        || ["a", "b", "c", "d"].map(|text| fills.running(&Key::of(text.as_bytes())).is_some());
    assert_eq!(listed(), [true; 4]);
    fills.forget_tags(&[b"other".to_vec(), b"nEWS".to_vec()]);
    assert_eq!(listed(), [false, true, true, false]);
    assert!(fills.has_complete());
}
