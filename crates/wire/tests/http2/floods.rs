//! What a peer may do how often: the table of attacks, each at its limit.

use wire::http2::limits::{MALFORMED_MAX, PERIOD_MS};
use wire::http2::session::PREFACE;
use wire::http2::{Event, Reason, Session, SessionConfig};

use super::peer::*;

/// How many times the input is taken until the connection is closed, and why. `read`: whether the output is read.
fn times(mut peer: Peer, read: bool, mut input: impl FnMut(u32) -> Vec<u8>) -> (u32, String) {
    for count in 0..20_000 {
        let events = peer.give(&input(count));
        if let Some(event) = events.last().filter(|event| event.starts_with("closed")) {
            return (count, event.clone());
        }
        if read {
            peer.read();
        }
    }
    panic!("no limit");
}

fn closed(reason: &str) -> String {
    format!("closed {reason}")
}

#[test]
fn rapid_reset() {
    let attack = |n| [get(2 * n + 1), rst(2 * n + 1)].concat();
    let outcome = times(Peer::server(), true, attack);
    assert_eq!(outcome, (100, closed("TooManyResets")));
    let mut peer = Peer::server();
    for n in 0..1000 {
        peer.now += 101;
        assert_eq!(
            peer.give(&attack(n)).len(),
            2,
            "less than 100 in ten seconds"
        );
    }
    let mut peer = Peer::server();
    for n in 0..1000 {
        peer.give(&get(2 * n + 1));
        peer.answer_head(2 * n + 1);
        assert_eq!(peer.give(&rst(2 * n + 1)).len(), 1, "answered before");
    }
}

/// DATA without data, behind an answer: the stream is closed.
#[test]
fn empty_data_behind_the_answer() {
    let mut peer = Peer::server();
    peer.give(&post(1));
    peer.answer(1, 200);
    let outcome = times(peer, true, |_| frame(0, 0, 1, b""));
    assert_eq!(outcome.1, closed("TooManyGlitches"));
    assert!(outcome.0 <= 100, "{outcome:?}");
}

/// CVE-2025-8671: the client makes us reset its streams.
#[test]
fn made_you_reset() {
    let attacks: [fn(u32) -> Vec<u8>; 4] = [
        |id| [get(id), window_update(id, 0)].concat(),
        |id| [get(id), window_update(id, 0x7fff_ffff)].concat(),
        |id| [get(id), frame(2, 0, id, &[0; 4])].concat(),
        |id| [get(id), frame(0, 1, id, b"x")].concat(),
    ];
    for attack in attacks {
        let outcome = times(Peer::server(), true, |n| attack(2 * n + 1));
        assert_eq!(outcome, (20, closed("TooManyResets")));
    }
}

/// Those who send them get their answers, and a proxy's other clients theirs: it is the caller that takes no more requests.
#[test]
fn malformed_requests_are_counted_and_end_nothing() {
    let mut peer = Peer::server();
    let mut next = 1;
    let mut give = |peer: &mut Peer, kind: u32| {
        let id = next;
        next += 2;
        let head = || frame(1, WHOLE, id, &fields(&[("a", "b")]));
        let body = || [post_of(id, "1"), frame(0, END_STREAM, id, b"test")].concat();
        let events = peer.give(&if kind == 0 { head() } else { body() });
        assert!(!events.last().unwrap().starts_with("closed"), "{events:?}");
        peer.answer(id, 400);
        peer.read();
        peer.session.malformed_count()
    };
    for count in 1..=2 * MALFORMED_MAX {
        assert_eq!(give(&mut peer, count % 2), count);
    }
    peer.now += PERIOD_MS;
    peer.session.begin_turn(peer.now);
    assert_eq!(peer.session.malformed_count(), 0);
    assert_eq!(give(&mut peer, 0), 1, "a new period");
}

#[test]
fn refused_streams() {
    let config = SessionConfig {
        streams_max: 1,
        ..SessionConfig::default()
    };
    let outcome = times(Peer::server_with(config), true, |n| get(2 * n + 1));
    assert_eq!(outcome, (101, closed("TooManyRefused")));
}

/// 4 KB that are 28 behind the decoder.
fn large_head() -> Vec<u8> {
    let host = (":authority", "a");
    let mut block = fields(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        host,
    ]);
    // Literal with incremental indexing and a new name; the length of the value in three bytes.
    block.extend(b"\x40\x01x\x7f\xa1\x1e");
    block.extend("y".repeat(4000).as_bytes());
    [block.as_slice(), &[0xbe; 6]].concat()
}

/// CVE-2026-49975: heads that are large behind the decoder, on streams that do not end.
#[test]
fn heads_of_live_streams() {
    let mut peer = Peer::server();
    let again = large_head();
    let mut open = |n: u32| peer.give(&frame(1, WHOLE, 2 * n + 1, &again));
    let mut refused = None;
    for n in 0..100 {
        let events = open(n);
        if events[0].contains("unopened") {
            refused = Some((n, events[0].clone()));
            break;
        }
    }
    let (count, event) = refused.expect("a limit");
    // A head has at most 32 KiB, and these have 28.
    assert!((32..40).contains(&count), "{count}");
    assert_eq!(event, format!("{} unopened TooManyHeads", 2 * count + 1));
    peer.give(&rst(1));
    let small = peer.give(&get(1001));
    assert_eq!(small, ["1001 GET / HTTP/2.0 end"], "one has ended");
}

/// So many of these requests in one input: how many were opened at the end of each turn, and in all.
fn turns(count: u32, request: impl Fn(u32) -> Vec<u8>) -> (Vec<u32>, u32) {
    let mut session = Session::server(SessionConfig::default());
    let input = (0..count).fold(PREFACE.to_vec(), |bytes, n| {
        [bytes, request(2 * n + 1)].concat()
    });
    let (mut at, mut requests, mut turns) = (0, 0, Vec::new());
    loop {
        let (used, event) = session.receive(&input[at..], 0, &mut |_| None);
        at += used;
        match event {
            Event::Request(..) => requests += 1,
            Event::TurnEnds => {
                turns.push(requests);
                session.begin_turn(0);
            }
            _ => return (turns, requests),
        }
    }
}

#[test]
fn streams_in_one_turn_and_in_one_read() {
    assert_eq!(turns(80, get), (vec![32, 64], 80));
    let large = |stream| frame(1, WHOLE, stream, &large_head());
    assert_eq!(turns(7, large), (vec![3, 6], 7));
    let config = SessionConfig {
        streams_max: 2,
        ..SessionConfig::default()
    };
    let mut peer = Peer::server_with(config);
    let input = (0..6).fold(Vec::new(), |bytes, n| {
        [bytes, get(2 * n + 1), rst(2 * n + 1)].concat()
    });
    let events = peer.give(&input);
    assert_eq!(events.len(), 10, "four requests and their resets");
    assert_eq!(events[8], "9 unopened TooManyAtOnce");
    assert_eq!(
        peer.read(),
        [
            "9 RST_STREAM REFUSED_STREAM",
            "11 RST_STREAM REFUSED_STREAM"
        ]
    );
    assert_eq!(peer.give(&get(13)).len(), 1, "another read");
}

#[test]
fn frames_of_no_use() {
    let cases: [fn() -> Vec<u8>; 5] = [
        || frame(2, 0, 5, &[0; 5]),
        || frame(0, 0, 1, b""),
        || frame(0x77, 0, 0, b""),
        || setting(3, 1),
        || frame(16, 0, 0, b"\0\0\0\x00"),
    ];
    for (at, case) in cases.into_iter().enumerate() {
        let mut peer = Peer::server();
        peer.give(&post(1));
        let (count, reason) = times(peer, true, |_| case());
        let wanted = if at == 4 {
            "StreamIdentifier"
        } else {
            "TooManyGlitches"
        };
        assert_eq!(reason, closed(wanted));
        assert!(at == 4 || (99..=100).contains(&count), "{count}");
    }
}

#[test]
fn answers_that_are_not_read() {
    let ping = |_| frame(6, 0, 0, &[0; 8]);
    let outcome = times(Peer::server(), false, ping);
    assert_eq!(outcome, (1000, closed("TooManyAnswers")));
    let mut peer = Peer::server();
    for _ in 0..5000 {
        peer.give(&ping(0));
        assert_eq!(peer.read().len(), 1);
    }
}

#[test]
fn continuations() {
    let mut peer = Peer::server();
    peer.give(&frame(1, 1, 1, b""));
    let outcome = times(peer, true, |_| frame(9, 0, 1, b""));
    assert_eq!(outcome, (64, closed("TooManyContinuations")));
    let mut peer = Peer::server();
    peer.give(&frame(1, 1, 1, b""));
    let outcome = times(peer, true, |_| frame(9, 0, 1, &[0; 8192]));
    assert_eq!(outcome, (4, closed("BlockTooLarge")));
}

#[test]
fn answers_to_nothing() {
    for (answer, most) in [
        (frame(4, ACK, 0, b""), 99),
        (frame(6, ACK, 0, &[0; 8]), 99),
        // A client may say twice that it goes.
        (frame(7, 0, 0, &[0; 8]), 100),
    ] {
        // The client's SETTINGS count, too.
        let outcome = times(Peer::server(), true, |_| answer.clone());
        assert_eq!(outcome, (most, closed("TooManyGlitches")));
    }
}

#[test]
fn window_updates() {
    let outcome = times(Peer::server(), true, |_| window_update(0, 1));
    assert_eq!(outcome, (100, closed("TooManyUpdates")));
}

#[test]
fn bytes_without_payload() {
    let mut peer = Peer::server();
    peer.now = 0;
    // A PING is answered, read, and no glitch.
    let mut pings = Vec::new();
    (0..1000).for_each(|_| pings.extend(frame(6, 0, 0, &[0; 8])));
    let (count, reason) = times(peer, true, |_| pings.clone());
    assert_eq!(reason, closed("Flood"));
    assert_eq!(u64::from(count), (8 << 20) / 17_000);
}

#[test]
fn a_window_that_stays_closed() {
    let mut peer = Peer::server();
    peer.give(&[setting(4, 0), get(1)].concat());
    let key = peer.answer_head(1);
    peer.session.set_ready(key, true);
    assert_eq!(peer.session.next_sender(), None);
    assert!(peer.session.is_stalled(key, 60_000, 60_000));
    // The stream's window is open, that of the connection is not.
    peer.give(&setting(4, 100_000));
    let sent = peer.session.data(key, &[0; 70_000], false);
    assert_eq!(sent, Ok(65_535));
    assert!(!peer.session.is_stalled(key, 59_999, 60_000));
    assert!(peer.session.is_stalled(key, 60_000, 60_000));
    peer.give(&window_update(0, 1));
    assert!(
        !peer.session.is_stalled(key, 60_000, 60_000),
        "others go before"
    );
}

#[test]
fn a_block_without_an_end() {
    let mut peer = Peer::server();
    assert!(!peer.session.is_in_block());
    peer.give(&frame(1, 1, 1, b""));
    assert!(peer.session.is_in_block());
    peer.session.end(Reason::TimedOut);
    assert_eq!(peer.read(), ["GOAWAY 0 PROTOCOL_ERROR"]);
    assert!(peer.session.is_done());
}
