//! The server's role: requests, bodies both ways, priorities, backpressure, the end of a connection.

use proptest::prelude::*;
use wire::http1::request_parser::HeadLimits;
use wire::http2::hpack::encode;
use wire::http2::session::{OUTPUT_MAX, PREFACE};
use wire::http2::{ErrorCode, Session, SessionConfig};

use super::peer::*;

#[test]
fn a_request_with_body_and_trailers() {
    let mut peer = Peer::server();
    let events = peer.give(
        &[
            post(1),
            frame(0, PADDED, 1, b"\x03hello\0\0\0"),
            frame(0, 0, 1, b"!"),
            frame(1, WHOLE, 1, &fields(&[("x-sum", "6")])),
        ]
        .concat(),
    );
    assert_eq!(
        events,
        ["1 POST / HTTP/2.0", "1 data 5", "1 data 1", "1 trailers 1"]
    );
    let key = peer.key(1);
    peer.session
        .interim(key, |out| encode::status(out, 103))
        .unwrap();
    peer.answer_head(1);
    assert_eq!(peer.session.data(key, b"body", false), Ok(4));
    let trailer = |out: &mut Vec<u8>| encode::field(out, b"grpc-status", b"0");
    peer.session.trailers(key, trailer).unwrap();
    let wanted = [
        "1 HEADERS :status: 103",
        "1 HEADERS :status: 200",
        "1 DATA 4",
        "1 HEADERS grpc-status: 0 end",
    ];
    assert_eq!(peer.read(), wanted);
    assert_eq!(peer.session.live(), 0);
    assert!(peer.session.data(key, b"x", false).is_err(), "it is closed");
    assert!(peer.session.respond(key, true, |_| {}).is_err());
}

#[test]
fn an_answer_before_the_end_of_the_request_resets_the_rest_a_while_later() {
    let mut peer = Peer::server();
    peer.give(&post(1));
    peer.answer(1, 413);
    assert_eq!(peer.read(), ["1 HEADERS :status: 413 end"]);
    assert_eq!(peer.session.live(), 0);
    assert!(peer.give(&frame(0, 0, 1, b"more")).is_empty());
    assert!(peer.session.has_unended());
    peer.session.age_unended();
    assert!(peer.read().is_empty());
    // The one that is answered meanwhile waits as long.
    peer.give(&post(3));
    peer.answer(3, 413);
    assert_eq!(peer.read(), ["3 HEADERS :status: 413 end"]);
    peer.session.age_unended();
    assert_eq!(peer.read(), ["1 RST_STREAM NO_ERROR"]);
    assert!(peer.session.has_unended());
    peer.session.age_unended();
    assert_eq!(peer.read(), ["3 RST_STREAM NO_ERROR"]);
    assert!(!peer.session.has_unended());
    // What is on its way is dropped, and the connection's room returned.
    for _ in 0..1000 {
        assert!(peer.give(&frame(0, 0, 1, &[0; 16_000])).is_empty());
    }
    let frames = peer.read();
    assert!(
        !frames.is_empty()
            && frames
                .iter()
                .all(|frame| frame.starts_with("0 WINDOW_UPDATE"))
    );
    assert_eq!(peer.give(&get(5)).len(), 1);
}

#[test]
fn a_request_that_ends_soon_after_its_answer_is_not_reset() {
    let ends = [
        frame(0, 1, 1, b"rest"),
        frame(0, 1, 1, b""),
        frame(1, 5, 1, &[]),
        frame(3, 0, 1, &[0, 0, 0, 8]),
    ];
    for end in ends {
        let mut peer = Peer::server();
        peer.give(&post(1));
        peer.answer(1, 200);
        assert!(peer.session.has_unended());
        assert!(peer.give(&end).is_empty(), "{end:?}");
        assert!(!peer.session.has_unended(), "{end:?}");
        assert_eq!(peer.read(), ["1 HEADERS :status: 200 end"]);
        assert_eq!(peer.give(&get(3)).len(), 1);
    }
}

#[test]
fn many_requests_without_an_end_are_reset_at_once() {
    let mut peer = Peer::server();
    for id in 0..65 {
        peer.give(&post(2 * id + 1));
        peer.answer(2 * id + 1, 200);
    }
    let resets = peer
        .read()
        .into_iter()
        .filter(|frame| frame.contains("RST_STREAM"));
    assert_eq!(resets.count(), 64);
}

#[test]
fn a_malformed_body_is_answered_and_reset_a_while_later() {
    let mut peer = Peer::server();
    let events = peer.give(&[post_of(1, "3"), frame(0, 0, 1, b"four")].concat());
    assert_eq!(events, ["1 POST / HTTP/2.0", "1 malformed LengthDiffers"]);
    assert!(peer.give(&frame(0, 1, 1, b"more")).is_empty());
    peer.answer(1, 400);
    assert_eq!(peer.read(), ["1 HEADERS :status: 400 end"]);
    peer.session.age_unended();
    peer.session.age_unended();
    assert_eq!(peer.read(), ["1 RST_STREAM PROTOCOL_ERROR"]);
    // With a head sent, only the reset is left.
    peer.give(&post_of(3, "3"));
    peer.answer_head(3);
    let events = peer.give(&frame(0, 1, 3, b"four"));
    assert_eq!(events, ["3 reset Fault(LengthDiffers)"]);
    assert_eq!(peer.read()[1], "3 RST_STREAM PROTOCOL_ERROR");
}

#[test]
fn room_is_given_when_data_is_taken() {
    let mut peer = Peer::server();
    peer.takes = false;
    peer.give(&post(1));
    for _ in 0..4 {
        assert_eq!(peer.give(&frame(0, 0, 1, &[0; 16_384])).len(), 1);
    }
    assert!(peer.read().is_empty(), "nothing was taken");
    let key = peer.key(1);
    peer.session.consume(key, 32_767);
    assert!(peer.read().is_empty());
    peer.session.consume(key, 1);
    assert_eq!(peer.read(), ["1 WINDOW_UPDATE 32768"]);
    peer.give(&post(3));
    let events = peer.give(&frame(0, 0, 3, &[0; 16_384]));
    assert_eq!(
        events,
        ["3 data 16384"],
        "a full stream holds back no other"
    );
    peer.session.widen(key, 1 << 20);
    let frames = peer.read();
    assert_eq!(frames[0], format!("1 WINDOW_UPDATE {}", (1 << 20) - 65_536));
    peer.session.reset(key, ErrorCode::CANCEL);
    assert_eq!(peer.read(), ["1 RST_STREAM CANCEL"]);
    peer.give(&post(5));
    for _ in 0..4 {
        peer.give(&frame(0, 0, 5, &[0; 16_384]));
    }
    let events = peer.give(&frame(0, 0, 5, b"x"));
    assert_eq!(events, ["5 reset Fault(WindowExceeded)"]);
}

#[test]
fn what_was_widened_before_the_acknowledgement_is_as_wide_behind_it() {
    let mut peer = Peer::new(Session::server(SessionConfig {
        stream_window: 0,
        ..SessionConfig::default()
    }));
    peer.give(&[PREFACE.to_vec(), frame(4, 0, 0, b""), post(1)].concat());
    peer.read();
    let key = peer.key(1);
    peer.session.widen(key, 10);
    assert!(peer.read().is_empty(), "it has more");
    peer.give(&frame(4, ACK, 0, b""));
    assert_eq!(peer.read(), ["1 WINDOW_UPDATE 10"]);
}

#[test]
fn a_small_window_holds_from_its_acknowledgement_on() {
    let config = SessionConfig {
        stream_window: 10,
        ..SessionConfig::default()
    };
    let mut peer = Peer::server_with(config);
    peer.give(&post(1));
    assert_eq!(peer.give(&frame(0, 0, 1, &[0; 10])), ["1 data 10"]);
    let events = peer.give(&frame(0, 0, 1, &[0; 11]));
    assert_eq!(events, ["1 reset Fault(WindowExceeded)"]);
}

/// As from nginx, which gives a body room once it has seen its request (grpc_request_buffering.t counts on that).
#[test]
fn what_comes_together_with_its_request_may_exceed_the_window() {
    let config = SessionConfig {
        stream_window: 10,
        ..SessionConfig::default()
    };
    let mut peer = Peer::server_with(config);
    peer.takes = false;
    let events = peer.give(&[post(1), frame(0, 0, 1, &[0; 30])].concat());
    assert_eq!(events.last().map(String::as_str), Some("1 data 30"));
    let key = peer.key(1);
    peer.session.consume(key, 29);
    assert_eq!(peer.read(), ["1 WINDOW_UPDATE 29"]);
    let events = peer.give(&frame(0, 0, 1, &[0; 10]));
    assert_eq!(events, ["1 reset Fault(WindowExceeded)"]);
}

#[test]
fn answers_share_the_connection_by_priority() {
    let mut peer = Peer::server();
    let request = |id, priority| {
        let list = [&GET[..], &[("priority", priority)]].concat();
        frame(1, WHOLE, id, &fields(&list))
    };
    peer.give(&frame(16, 0, 0, b"\0\0\0\x05u=0"));
    for (id, priority) in [(1, "u=3"), (3, "u=2, i"), (5, "u=7"), (7, "u=2, i")] {
        peer.give(&request(id, priority));
        let key = peer.answer_head(id);
        peer.session.set_ready(key, true);
    }
    let mut order = Vec::new();
    for _ in 0..8 {
        let Some(key) = peer.session.next_sender() else {
            break;
        };
        let is_end = key.id() == 5 || order.contains(&key.id());
        let filled = peer.session.fill_data(key, |out, max| {
            out.resize(out.len() + max.min(100), b'x');
            is_end
        });
        assert_eq!(filled, Ok(100));
        order.push(key.id());
    }
    assert_eq!(order, [5, 3, 7, 3, 7, 1, 1], "urgent, in turn, in order");
    assert_eq!(peer.session.live(), 0);
    peer.give(&frame(16, 0, 0, b"\0\0\0\x09u=0"));
    assert!(!peer.read().is_empty());
}

#[test]
fn answers_share_in_turn_until_the_client_gives_a_priority() {
    let mut peer = Peer::server();
    for id in [1, 3] {
        peer.give(&get(id));
        let key = peer.answer_head(id);
        peer.session.set_ready(key, true);
    }
    let order = |peer: &mut Peer| {
        [(); 4].map(|()| {
            let key = peer.session.next_sender().unwrap();
            peer.session.data(key, &[0; 1000], false).unwrap();
            key.id()
        })
    };
    assert_eq!(order(&mut peer), [1, 3, 1, 3]);
    peer.give(&frame(16, 0, 0, b"\0\0\0\x09u=5"));
    assert_eq!(order(&mut peer), [1; 4]);
}

#[test]
fn output_is_limited_and_frames_are_filled_in_place() {
    let mut peer = Peer::server();
    peer.give(&[setting(4, 1 << 20), window_update(0, 1 << 20), get(1)].concat());
    let key = peer.answer_head(1);
    peer.session.set_ready(key, true);
    let mut filled = 0;
    while peer.session.next_sender() == Some(key) {
        let count = peer.session.fill_data(key, |out, max| {
            out.resize(out.len() + max, 7);
            false
        });
        filled += count.unwrap();
    }
    let unsent = peer.session.output().len();
    assert!((OUTPUT_MAX..OUTPUT_MAX + 100).contains(&unsent), "{unsent}");
    assert_eq!(peer.session.sendable(key), 0);
    assert_eq!(peer.session.fill_data(key, |_, _| true), Ok(0));
    assert_eq!(
        peer.session.data(key, b"", true),
        Ok(0),
        "an empty end always fits"
    );
    let frames = peer.read();
    assert_eq!(frames.last().unwrap(), "1 DATA 0 end");
    let sizes = frames
        .iter()
        .filter_map(|frame| frame.strip_prefix("1 DATA "));
    let sum: usize = sizes
        .map(|size| size.trim_end_matches(" end").parse::<usize>().unwrap())
        .sum();
    assert_eq!(sum, filled);
    peer.session.release_buffers();
    assert_eq!(peer.session.live(), 0);
}

#[test]
fn a_long_head_is_continued() {
    let mut peer = Peer::server();
    peer.give(&get(1));
    let key = peer.key(1);
    let long = vec![1; 40_000];
    let write = |out: &mut Vec<u8>| {
        encode::status(out, 200);
        encode::field(out, b"x", &long);
    };
    peer.session.respond(key, true, write).unwrap();
    let frames = peer.read();
    let kinds = [
        "1 HEADERS 16384… end",
        "1 CONTINUATION 16384",
        "1 CONTINUATION 7240",
    ];
    assert_eq!(frames, kinds);
    // Unless the peer takes longer frames.
    peer.give(&[setting(5, 32_768), get(3)].concat());
    let key = peer.key(3);
    peer.session.respond(key, true, write).unwrap();
    let kinds = [
        "SETTINGS ACK",
        "3 HEADERS 32768… end",
        "3 CONTINUATION 7240",
    ];
    assert_eq!(peer.read(), kinds);
}

#[test]
fn a_graceful_end_takes_what_is_on_its_way() {
    let mut peer = Peer::server();
    peer.give(&get(1));
    peer.session.goaway();
    peer.session.goaway();
    assert_eq!(peer.read(), ["GOAWAY 2147483647 NO_ERROR", "PING"]);
    assert_eq!(peer.give(&get(3)), ["3 GET / HTTP/2.0 end"]);
    peer.give(&frame(6, ACK, 0, b"\0goaway\0"));
    assert_eq!(peer.read(), ["GOAWAY 3 NO_ERROR"]);
    let late = [
        post(5),
        frame(0, 1, 5, b"late"),
        frame(6, ACK, 0, b"\0goaway\0"),
    ]
    .concat();
    assert!(
        peer.give(&late).is_empty(),
        "a stream behind the end is ignored"
    );
    assert!(!peer.session.is_done());
    peer.answer(1, 200);
    peer.answer(3, 200);
    assert!(peer.session.is_done());
    peer.give(&frame(6, 0, 1, b"12345678"));
    assert_eq!(
        peer.read().last().unwrap(),
        "GOAWAY 3 PROTOCOL_ERROR",
        "never a higher stream"
    );
}

#[test]
fn settings_of_the_peer_are_kept() {
    let mut peer = Peer::server();
    peer.give(&[setting(1, 0), setting(3, 7), get(1)].concat());
    assert_eq!(peer.session.peer().streams_max, 7);
    peer.answer_head(1);
    let head = peer.session.output();
    let block = &head[head.len() - 2..];
    assert_eq!(block, [0x20, 0x88], "the table's size is acknowledged");
}

#[test]
fn limits_of_heads() {
    let limits = HeadLimits {
        large_buffers: 1,
        large_buffer_size: 300,
        max_headers: 3,
        ..HeadLimits::default()
    };
    let config = SessionConfig {
        limits,
        ..SessionConfig::default()
    };
    let with = |count: usize, name, value: &str| {
        let list = [&GET[..], &vec![(name, value); count]].concat();
        frame(1, WHOLE, 1, &fields(&list))
    };
    let events = |bytes: &[u8]| Peer::server_with(config).give(bytes);
    assert_eq!(
        events(&with(1, "a", &"X".repeat(301))),
        ["closed FieldTooLarge"]
    );
    assert_eq!(
        events(&with(1, "a", &"X".repeat(290))),
        ["closed BlockTooLarge"]
    );
    assert_eq!(events(&with(5, "a", "b")), ["1 refused 494 FieldCount"]);
}

/// HEADERS and CONTINUATION that share these bytes.
fn long_head(block: &[u8], first: usize) -> Vec<u8> {
    let padded = [&[5, 0, 0, 0, 0, 1][..], &block[..first], &[0; 5]].concat();
    [
        frame(1, END_STREAM | PADDED | PRIORITY, 1, &padded),
        frame(9, END_HEADERS, 1, &block[first..]),
    ]
    .concat()
}

/// A server whose clients may send 100 000 bytes of a body at once, and lines of 20 000 bytes.
fn long_peer() -> Peer {
    let limits = HeadLimits {
        large_buffer_size: 20_000,
        ..HeadLimits::default()
    };
    Peer::server_with(SessionConfig {
        stream_window: 100_000,
        limits,
        ..SessionConfig::default()
    })
}

#[test]
fn long_frames_of_a_client_are_taken_in_pieces() {
    let value = "X".repeat(7000);
    let list = [&GET[..], &[("a", &*value), ("b", &value), ("c", &value)]].concat();
    let block = fields(&list);
    for head in [
        frame(1, WHOLE, 1, &block),
        long_head(&block, 10),
        long_head(&block, block.len() - 1),
    ] {
        for step in [1000, head.len()] {
            let mut peer = long_peer();
            let mut events = head.chunks(step).flat_map(|piece| {
                let events = peer.give(piece);
                assert_eq!(peer.session.is_in_block(), events.is_empty());
                events
            });
            assert_eq!(events.next().unwrap(), "1 GET / HTTP/2.0 end");
            assert_eq!(events.next(), None);
        }
    }
    let mut peer = long_peer();
    let unknown = frame(0xbe, 0, 0, &[0; 100_000]);
    let data = frame(0, END_STREAM, 1, &[0; 65_535]);
    let events = peer.give(&[unknown, post(1), data, get(3)].concat());
    let wanted = [
        "1 POST / HTTP/2.0",
        "1 data 65535 end",
        "3 GET / HTTP/2.0 end",
    ];
    assert_eq!(events, wanted);
    let long = frame(0, END_STREAM, 1, &[0; 100_001]);
    let events = long_peer().give(&[post(1), long].concat());
    assert_eq!(events, ["1 POST / HTTP/2.0", "closed FrameTooLarge"]);
    // What is not taken in pieces has to fit into the buffer of its reader, and a block into its own limit.
    for (bytes, reason) in [
        (frame(4, 0, 0, &[0; 16_386]), "FrameTooLarge"),
        (frame(7, 0, 0, &[0; 16_385]), "FrameTooLarge"),
        (frame(1, WHOLE, 5, &[0; 100_000]), "BlockTooLarge"),
    ] {
        let events = long_peer().give(&bytes);
        assert_eq!(events, [format!("closed {reason}")]);
    }
}

/// What `give` says, whole pieces of data joined.
fn joined(events: Vec<String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut sum = (String::new(), 0);
    for event in events {
        let words: Vec<&str> = event.split(' ').collect();
        if let [id, "data", len, ..] = words[..] {
            if sum.0 != id {
                sum = (id.to_owned(), 0);
            }
            sum.1 += len.parse::<usize>().unwrap();
            if event.ends_with("end") {
                out.push(format!("{id} data {}", sum.1));
            }
        } else {
            out.push(event);
        }
    }
    out
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![Just(0u32), Just(1), Just(3), Just(5)];
    prop_oneof![
        stream.clone().prop_map(get),
        stream.clone().prop_map(post),
        stream.clone().prop_map(|id| post_of(id, "4")),
        stream.clone().prop_map(rst),
        (
            stream.clone(),
            0u8..16,
            prop::collection::vec(any::<u8>(), 0..8)
        )
            .prop_map(|(id, flags, data)| frame(0, flags & 9, id, &data)),
        (stream.clone(), 0u8..64).prop_map(|(id, flags)| frame(
            1,
            flags,
            id,
            &fields(&[("a", "b")])
        )),
        (stream.clone(), any::<u32>()).prop_map(|(id, by)| window_update(id, by)),
        (0u16..10, any::<u32>()).prop_map(|(id, value)| setting(id, value)),
        (
            0u8..20,
            any::<u8>(),
            stream,
            prop::collection::vec(any::<u8>(), 0..20)
        )
            .prop_map(|(kind, flags, id, payload)| frame(kind, flags, id, &payload)),
    ]
}

proptest! {
    /// However the input is cut, the events and the output are the same; and nothing panics.
    #[test]
    fn pieces_do_not_matter(frames in prop::collection::vec(any_frame(), 0..12), step in 1usize..30) {
        let bytes = frames.concat();
        let mut whole = Peer::server();
        let wanted = joined(whole.give(&bytes));
        let mut pieces = Peer::server();
        let events = bytes.chunks(step).flat_map(|piece| pieces.give(piece)).collect();
        prop_assert_eq!(joined(events), wanted);
        prop_assert_eq!(pieces.read(), whole.read());
    }
}
