//! The client's role: requests out, responses in, and what a server's GOAWAY leaves.

use wire::http2::hpack::encode;
use wire::http2::session::OpenRefused;
use wire::http2::{ErrorCode, Session, SessionConfig, StreamKey};

use super::peer::*;

fn open(peer: &mut Peer, method: &str, is_end: bool) -> Result<StreamKey, OpenRefused> {
    let method = method.as_bytes();
    peer.session.open(method, is_end, |out| {
        encode::field(out, b":method", method);
        encode::indexed(out, 6);
        encode::field(out, b":path", b"/");
        encode::field(out, b":authority", b"h");
    })
}

fn response(stream: u32, flags: u8, list: &[(&str, &str)]) -> Vec<u8> {
    frame(1, flags, stream, &fields(list))
}

const OK: (&str, &str) = (":status", "200");

/// The head of a response that announces two bytes.
fn short_of(stream: u32) -> Vec<u8> {
    response(stream, END_HEADERS, &[OK, ("content-length", "2")])
}

#[test]
fn a_request_and_its_response() {
    let mut peer = Peer::client_with(SessionConfig::default());
    let key = open(&mut peer, "POST", false).unwrap();
    assert_eq!(peer.session.data(key, b"body", true), Ok(4));
    let wanted = [
        "1 HEADERS :method: POST, :scheme: http, :path: /, :authority: h",
        "1 DATA 4 end",
    ];
    assert_eq!(peer.read(), wanted);
    let events = peer.give(
        &[
            response(1, END_HEADERS, &[(":status", "103"), ("link", "</a>")]),
            response(1, END_HEADERS, &[OK, ("content-length", "5")]),
            frame(0, 0, 1, b"hello"),
            response(1, WHOLE, &[("grpc-status", "0")]),
        ]
        .concat(),
    );
    assert_eq!(events, ["1 103", "1 200", "1 data 5", "1 trailers 1"]);
    assert_eq!(peer.session.live(), 0);
    assert_eq!(open(&mut peer, "GET", true).unwrap().id(), 3);
}

#[test]
fn a_response_before_the_end_of_the_request() {
    let mut peer = Peer::client_with(SessionConfig::default());
    let key = open(&mut peer, "POST", false).unwrap();
    let events = peer.give(&response(1, WHOLE, &[(":status", "413")]));
    assert_eq!(events, ["1 413 end"]);
    assert_eq!(peer.session.data(key, b"x", false), Ok(1), "half-closed");
    let reset = frame(3, 0, 1, &0u32.to_be_bytes());
    assert_eq!(peer.give(&reset), ["1 reset Peer(ErrorCode(0))"]);
}

#[test]
fn a_stream_with_room_of_its_own_waits_for_that_of_the_connection() {
    let mut peer = Peer::client_with(SessionConfig::default());
    let wide = frame(
        4,
        0,
        0,
        &[&4u16.to_be_bytes()[..], &200_000u32.to_be_bytes()].concat(),
    );
    assert!(peer.give(&wide).is_empty());
    let key = open(&mut peer, "POST", false).unwrap();
    let mut sent = 0;
    while peer.session.send_window() > 0 {
        assert!(!peer.session.waits_for_connection(key));
        sent += peer.session.data(key, &[0; 10_000], false).unwrap();
        peer.read();
    }
    assert_eq!(sent, 65_535);
    assert!(peer.session.waits_for_connection(key));
    let more = frame(8, 0, 0, &1000u32.to_be_bytes());
    assert!(peer.give(&more).is_empty());
    assert!(!peer.session.waits_for_connection(key));
    assert_eq!(peer.session.send_window(), 1000);
}

#[test]
fn malformed_responses() {
    let cases: [(&str, Vec<u8>, &str); 10] = [
        ("GET", response(1, WHOLE, &[(":status", "99")]), "Status"),
        ("GET", response(1, WHOLE, &[("a", "b")]), "PseudoMissing"),
        (
            "GET",
            response(1, WHOLE, &[(":status", "100")]),
            "InterimEnd",
        ),
        (
            "GET",
            response(1, WHOLE, &[OK, ("content-length", "1")]),
            "LengthDiffers",
        ),
        (
            "GET",
            [short_of(1), frame(0, 0, 1, b"x"), frame(0, 1, 1, b"")].concat(),
            "LengthDiffers",
        ),
        (
            "GET",
            [short_of(1), frame(0, 0, 1, b"x"), response(1, WHOLE, &[])].concat(),
            "LengthDiffers",
        ),
        ("GET", frame(0, 1, 1, b"x"), "UnexpectedData"),
        (
            "HEAD",
            [
                response(1, END_HEADERS, &[OK, ("content-length", "1")]),
                frame(0, 1, 1, b"x"),
            ]
            .concat(),
            "LengthDiffers",
        ),
        (
            "GET",
            [
                response(1, END_HEADERS, &[(":status", "304")]),
                frame(0, 1, 1, b"x"),
            ]
            .concat(),
            "LengthDiffers",
        ),
        (
            "GET",
            [
                response(1, END_HEADERS, &[OK]),
                response(1, END_HEADERS, &[("a", "b")]),
            ]
            .concat(),
            "TrailersOpen",
        ),
    ];
    for (method, bytes, reason) in cases {
        let mut peer = Peer::client_with(SessionConfig::default());
        open(&mut peer, method, true).unwrap();
        let events = peer.give(&bytes);
        assert_eq!(*events.last().unwrap(), format!("1 reset Fault({reason})"));
        assert!(
            peer.read().last().unwrap().contains("RST_STREAM"),
            "{reason}"
        );
    }
    let mut peer = Peer::client_with(SessionConfig::default());
    open(&mut peer, "HEAD", true).unwrap();
    let events = peer.give(&response(1, WHOLE, &[OK, ("content-length", "1")]));
    assert_eq!(events, ["1 200 end"], "the length is that of GET");
}

/// More of what a server may do than a client's connection may, in a period.
const MANY: u32 = 300;

#[test]
fn responses_before_the_end_of_requests_and_their_resets_are_no_flood() {
    let mut peer = Peer::client_with(SessionConfig::default());
    for at in 0..MANY {
        let key = open(&mut peer, "POST", false).unwrap();
        assert_eq!(peer.session.data(key, b"x", true), Ok(1));
        peer.read();
        let id = key.id();
        let reset = frame(3, 0, id, &0u32.to_be_bytes());
        let answer = [response(id, WHOLE, &[(":status", "403")]), reset].concat();
        assert_eq!(peer.give(&answer), [format!("{id} 403 end")], "{at}");
    }
}

#[test]
fn responses_to_requests_that_were_given_up_are_no_flood() {
    let mut peer = Peer::client_with(SessionConfig::default());
    for at in 0..MANY {
        let key = open(&mut peer, "GET", true).unwrap();
        peer.session.reset(key, ErrorCode::CANCEL);
        peer.read();
        let id = key.id();
        let late = [
            response(id, END_HEADERS, &[OK]),
            frame(0, 0, id, b""),
            frame(0, 1, id, b"x"),
        ];
        assert!(peer.give(&late.concat()).is_empty(), "{at}");
    }
}

#[test]
fn malformed_responses_end_no_other_one() {
    let mut peer = Peer::client_with(SessionConfig::default());
    for at in 0..MANY {
        let id = open(&mut peer, "GET", true).unwrap().id();
        let wanted = format!("{id} reset Fault(PseudoMissing)");
        assert_eq!(
            peer.give(&response(id, WHOLE, &[("a", "b")])),
            [wanted],
            "{at}"
        );
        peer.read();
    }
}

/// What is above the limit is dropped, up to a limit of its own: a block may name the same long line often.
#[test]
fn a_response_far_above_the_limit_ends_the_connection() {
    let long = "x".repeat(4000);
    let first = [b"\x88\x40".as_slice(), &fields(&[("a", &long)])[1..]].concat();
    for (count, said) in [
        (50, "1 reset Fault(BlockTooLarge)"),
        (300, "closed BlockTooLarge"),
    ] {
        let mut peer = Peer::client_with(SessionConfig::default());
        open(&mut peer, "GET", true).unwrap();
        let block = [&first[..], &vec![0x80 | 62; count]].concat();
        let events = peer.give(&frame(1, WHOLE, 1, &block));
        assert_eq!(events, [said]);
    }
}

#[test]
fn empty_data_of_many_responses_is_no_flood() {
    let mut peer = Peer::client_with(SessionConfig::default());
    let id = open(&mut peer, "GET", true).unwrap().id();
    assert_eq!(
        peer.give(&response(id, END_HEADERS, &[OK])),
        [format!("{id} 200")]
    );
    for at in 0..MANY {
        assert!(peer.give(&frame(0, 0, id, b"")).is_empty(), "{at}");
    }
    let last = peer.give(&frame(0, 1, id, b"x"));
    assert_eq!(last, [format!("{id} data 1 end")]);
}

#[test]
fn what_a_server_must_not_send() {
    for (bytes, reason) in [
        (response(2, WHOLE, &[OK]), "IdleStream"),
        (response(3, WHOLE, &[OK]), "IdleStream"),
        (frame(5, END_HEADERS, 1, &[0, 0, 0, 2, 0x88]), "Push"),
        (setting(2, 1), "SettingsPush"),
        (frame(16, 0, 0, b"\0\0\0\x01u=1"), "StreamIdentifier"),
    ] {
        let mut peer = Peer::client_with(SessionConfig::default());
        open(&mut peer, "GET", true).unwrap();
        assert_eq!(peer.give(&bytes), [format!("closed {reason}")]);
        assert_eq!(open(&mut peer, "GET", true), Err(OpenRefused::GoingAway));
    }
    let mut early = Peer::new(Session::client(SessionConfig::default()));
    assert_eq!(early.give(&frame(6, 0, 0, &[0; 8])), ["closed FirstFrame"]);
}

#[test]
fn streams_are_opened_as_the_server_allows() {
    let mut peer = Peer::client_with(SessionConfig::default());
    peer.give(&setting(3, 2));
    assert_eq!(peer.session.openable(), 2);
    for _ in 0..2 {
        open(&mut peer, "GET", true).unwrap();
    }
    assert_eq!(open(&mut peer, "GET", true), Err(OpenRefused::Full));
    peer.give(&response(1, WHOLE, &[OK]));
    assert_eq!(open(&mut peer, "GET", true).unwrap().id(), 5);
}

#[test]
fn goaway_says_which_requests_may_be_repeated() {
    let mut peer = Peer::client_with(SessionConfig::default());
    for _ in 0..3 {
        open(&mut peer, "POST", true).unwrap();
    }
    let refused = frame(3, 0, 1, &7u32.to_be_bytes());
    let goaway = frame(7, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]);
    let events = peer.give(&[refused, goaway].concat());
    let wanted = [
        "1 reset Peer(ErrorCode(7))",
        "goaway 3 NO_ERROR",
        "5 reset Unprocessed",
    ];
    assert_eq!(events, wanted);
    assert!(wire::http2::ResetCause::Unprocessed.may_repeat());
    assert!(wire::http2::ResetCause::Peer(ErrorCode::REFUSED_STREAM).may_repeat());
    assert!(!wire::http2::ResetCause::Peer(ErrorCode::CANCEL).may_repeat());
    assert_eq!(open(&mut peer, "GET", true), Err(OpenRefused::GoingAway));
    assert!(!peer.session.is_done());
    assert_eq!(peer.give(&response(3, WHOLE, &[OK])), ["3 200 end"]);
    assert!(peer.session.is_done());
}

#[test]
fn an_idle_connection_is_asked() {
    let mut peer = Peer::client_with(SessionConfig::default());
    peer.session.ping([1; 8]);
    assert_eq!(peer.read(), ["PING"]);
    assert_eq!(peer.give(&frame(6, ACK, 0, &[1; 8])), ["pong"]);
    peer.session.goaway();
    assert_eq!(peer.read(), ["GOAWAY 0 NO_ERROR"]);
    assert!(peer.session.is_done());
}
