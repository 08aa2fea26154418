//! The checks of h2spec, by their sections and names (generic 1 to 5 are what `server.rs` does).

use wire::http2::session::PREFACE;
use wire::http2::{Session, SessionConfig};

use super::peer::*;
use wire::http2::frame::PAYLOAD_MAX;

type Case = (&'static str, Vec<u8>, &'static str);

/// Gives each input to a server of its own, which answers requests with 200 at their end, and looks for the frame.
fn check(cases: Vec<Case>) {
    for (name, bytes, wanted) in cases {
        let mut peer = Peer::server();
        for event in peer.give(&bytes) {
            let id = event.split(' ').next().unwrap().parse();
            let is_refused = event.contains("refused") || event.contains("malformed");
            if let Ok(id) = id
                && (event.ends_with("end") || is_refused)
            {
                let key = peer.key(id);
                let status = if is_refused { 400 } else { 200 };
                // The stream may have been reset meanwhile.
                let write = |out: &mut Vec<u8>| wire::http2::hpack::encode::status(out, status);
                let _gone = peer.session.respond(key, true, write);
            }
        }
        peer.session.age_unended();
        peer.session.age_unended();
        let frames = peer.read();
        let is_there = frames.iter().any(|frame| frame.ends_with(wanted));
        assert!(is_there, "{name}: {wanted} is not in {frames:?}");
        let is_broken = frames.iter().any(|frame| frame.starts_with("GOAWAY"));
        assert_eq!(peer.session.is_done(), is_broken, "{name}");
    }
}

fn pair(one: Vec<u8>, other: Vec<u8>) -> Vec<u8> {
    [one, other].concat()
}

#[test]
fn section_3_and_4_prefaces_and_frames() {
    let mut peer = Peer::new(Session::server(SessionConfig::default()));
    assert_eq!(
        peer.give(b"INVALID CONNECTION PREFACE\r\n\r\n"),
        ["closed Preface"]
    );
    assert!(peer.read().contains(&"GOAWAY 0 PROTOCOL_ERROR".to_owned()));
    let mut peer = Peer::new(Session::server(SessionConfig::default()));
    for byte in PREFACE {
        assert!(peer.give(&[*byte]).is_empty());
    }
    assert_eq!(peer.read(), ["SETTINGS", "0 WINDOW_UPDATE 8323073"]);
    #[rustfmt::skip]
    check(vec![
        ("4.1/1 a frame with unknown type", pair(frame(0x16, 0, 0, &[0; 8]), frame(6, 0, 0, &[0; 8])), "PING ACK"),
        ("4.1/2 a frame with undefined flag", frame(6, 0x16, 0, &[0; 8]), "PING ACK"),
        ("4.1/3 a frame with reserved field bit", frame(6, 0, 1 << 31, &[0; 8]), "PING ACK"),
        ("4.2/1 a DATA frame with 2^14 octets", pair(post(1), frame(0, END_STREAM, 1, &[0; 16_384])), "HEADERS :status: 200 end"),
        ("4.2/2 a large DATA frame", pair(post(1), frame(0, END_STREAM, 1, &[0; PAYLOAD_MAX + 1])), "FRAME_SIZE_ERROR"),
        ("4.2/3 a large HEADERS frame", frame(1, WHOLE, 1, &[0; PAYLOAD_MAX + 1]), "FRAME_SIZE_ERROR"),
        ("4.3/1 an invalid header block fragment", frame(1, WHOLE, 1, b"\x40"), "COMPRESSION_ERROR"),
        ("4.3/2 PRIORITY within a header block", pair(frame(1, 1, 1, &fields(&GET)), frame(2, 0, 1, &[0; 5])), "PROTOCOL_ERROR"),
        ("4.3/3 HEADERS to another stream within a header block", pair(frame(1, 1, 1, &fields(&GET)), get(3)), "PROTOCOL_ERROR"),
        ("an unknown frame within a header block", pair(frame(1, 1, 1, &fields(&GET)), frame(0x16, 0, 0, b"")), "PROTOCOL_ERROR"),
    ]);
}

#[test]
fn section_5_1_stream_states() {
    let ended = get(1);
    let continuation = frame(9, END_HEADERS, 1, &fields(&GET));
    #[rustfmt::skip]
    check(vec![
        ("5.1/1 idle: DATA", frame(0, END_STREAM, 1, b"test"), "GOAWAY 0 PROTOCOL_ERROR"),
        ("5.1/2 idle: RST_STREAM", rst(1), "PROTOCOL_ERROR"),
        ("5.1/3 idle: WINDOW_UPDATE", window_update(1, 100), "PROTOCOL_ERROR"),
        ("5.1/4 idle: CONTINUATION", continuation.clone(), "PROTOCOL_ERROR"),
        ("5.1/5 half closed (remote): DATA", pair(ended.clone(), frame(0, END_STREAM, 1, b"test")), "RST_STREAM STREAM_CLOSED"),
        ("5.1/6 half closed (remote): HEADERS", pair(ended.clone(), get(1)), "RST_STREAM STREAM_CLOSED"),
        ("5.1/7 half closed (remote): CONTINUATION", pair(ended.clone(), continuation.clone()), "PROTOCOL_ERROR"),
        ("5.1/8 closed: DATA after RST_STREAM", [post(1), rst(1), frame(0, 1, 1, b"t")].concat(), "1 RST_STREAM STREAM_CLOSED"),
        ("5.1/9 closed: HEADERS after RST_STREAM", [post(1), rst(1), get(1)].concat(), "GOAWAY 1 STREAM_CLOSED"),
        ("5.1/10 closed: CONTINUATION after RST_STREAM", [post(1), rst(1), continuation].concat(), "PROTOCOL_ERROR"),
        ("5.1.1/1 even-numbered stream identifier", get(2), "PROTOCOL_ERROR"),
        ("5.1.1/2 numerically smaller stream identifier", pair(get(5), get(3)), "PROTOCOL_ERROR"),
        ("5.3.1/1 HEADERS that depends on itself", frame(1, WHOLE | PRIORITY, 1, &[&[0, 0, 0, 1, 255][..], &fields(&GET)].concat()), "PROTOCOL_ERROR"),
        ("5.3.1/2 PRIORITY that depends on itself", frame(2, 0, 2, &[0, 0, 0, 2, 0]), "PROTOCOL_ERROR"),
        ("5.4.1/1 an invalid frame closes the connection", frame(6, 0, 3, &[0; 8]), "GOAWAY 0 PROTOCOL_ERROR"),
    ]);
    let mut peer = Peer::server();
    peer.give(&get(1));
    peer.answer(1, 200);
    assert_eq!(peer.give(&frame(0, 1, 1, b"x")), Vec::<String>::new());
    assert_eq!(peer.read()[1], "1 RST_STREAM STREAM_CLOSED", "5.1/11");
    assert_eq!(peer.give(&get(3)), ["3 GET / HTTP/2.0 end"]);
    peer.answer(3, 200);
    assert_eq!(peer.give(&get(3)), ["closed ClosedStream"], "5.1/12");
}

#[test]
fn section_5_1_2_concurrent_streams() {
    let mut peer = Peer::server();
    for id in 0..128 {
        assert_eq!(peer.give(&get(2 * id + 1)).len(), 1);
    }
    assert_eq!(peer.give(&get(257)), ["257 unopened TooManyStreams"]);
    assert_eq!(peer.read(), ["257 RST_STREAM REFUSED_STREAM"]);
    peer.answer(1, 200);
    assert_eq!(peer.give(&get(259)), ["259 GET / HTTP/2.0 end"]);
}

#[test]
fn section_6_frames() {
    let open = || post(1);
    #[rustfmt::skip]
    check(vec![
        ("6.1/1 DATA with stream 0", frame(0, END_STREAM, 0, b"test"), "PROTOCOL_ERROR"),
        ("6.1/2 DATA on a stream that is not open", pair(get(1), frame(0, END_STREAM, 1, b"test")), "STREAM_CLOSED"),
        ("6.1/3 DATA with invalid pad length", pair(open(), frame(0, PADDED | 1, 1, b"\x05test")), "PROTOCOL_ERROR"),
        ("6.2/1 HEADERS without END_HEADERS, then PRIORITY", pair(frame(1, 1, 1, &fields(&GET)), frame(2, 0, 1, &[0; 5])), "PROTOCOL_ERROR"),
        ("6.2/3 HEADERS with stream 0", get(0), "PROTOCOL_ERROR"),
        ("6.2/4 HEADERS with invalid pad length", frame(1, WHOLE | PADDED, 1, b"\x04\x82\x86"), "PROTOCOL_ERROR"),
        ("6.3/1 PRIORITY with stream 0", frame(2, 0, 0, &[0; 5]), "PROTOCOL_ERROR"),
        ("6.3/2 PRIORITY with a length other than 5", pair(open(), frame(2, 0, 1, &[0; 4])), "RST_STREAM FRAME_SIZE_ERROR"),
        ("6.4/1 RST_STREAM with stream 0", rst(0), "PROTOCOL_ERROR"),
        ("6.4/2 RST_STREAM on an idle stream", rst(1), "PROTOCOL_ERROR"),
        ("6.4/3 RST_STREAM with a length other than 4", pair(open(), frame(3, 0, 1, &[0; 3])), "FRAME_SIZE_ERROR"),
        ("6.5/1 SETTINGS with ACK and payload", frame(4, ACK, 0, &[0; 6]), "FRAME_SIZE_ERROR"),
        ("6.5/2 SETTINGS with a stream", frame(4, 0, 1, b""), "PROTOCOL_ERROR"),
        ("6.5/3 SETTINGS with a length that is no multiple of 6", frame(4, 0, 0, &[0; 3]), "FRAME_SIZE_ERROR"),
        ("6.5.2/1 ENABLE_PUSH other than 0 or 1", setting(2, 2), "PROTOCOL_ERROR"),
        ("6.5.2/2 INITIAL_WINDOW_SIZE above the maximum", setting(4, 1 << 31), "FLOW_CONTROL_ERROR"),
        ("6.5.2/3 MAX_FRAME_SIZE below the initial value", setting(5, 16_383), "PROTOCOL_ERROR"),
        ("6.5.2/4 MAX_FRAME_SIZE above the maximum", setting(5, 1 << 24), "PROTOCOL_ERROR"),
        ("6.5.2/5 an unknown identifier", pair(setting(0xff, 0), frame(6, 0, 0, &[0; 8])), "PING ACK"),
        ("6.5.3/2 the acknowledgement", setting(3, 100), "SETTINGS ACK"),
        ("6.6 PUSH_PROMISE of a client", pair(open(), frame(5, END_HEADERS, 1, &[0, 0, 0, 2, 0x82])), "PROTOCOL_ERROR"),
        ("6.7/1 PING", frame(6, 0, 0, b"h2spec\0\0"), "PING ACK"),
        ("6.7/2 PING with ACK", pair(frame(6, ACK, 0, &[9; 8]), frame(6, 0, 0, &[0; 8])), "PING ACK"),
        ("6.7/3 PING with a stream", frame(6, 0, 1, &[0; 8]), "PROTOCOL_ERROR"),
        ("6.7/4 PING with a length other than 8", frame(6, 0, 0, &[0; 6]), "FRAME_SIZE_ERROR"),
        ("6.8/1 GOAWAY with a stream", frame(7, 0, 1, &[0; 8]), "PROTOCOL_ERROR"),
        ("6.9/1 WINDOW_UPDATE with an increment of 0", window_update(0, 0), "GOAWAY 0 PROTOCOL_ERROR"),
        ("6.9/2 the same on a stream", pair(open(), window_update(1, 0)), "1 RST_STREAM PROTOCOL_ERROR"),
        ("6.9/3 WINDOW_UPDATE with a length other than 4", frame(8, 0, 0, &[0; 3]), "FRAME_SIZE_ERROR"),
        ("6.9.1/2 the connection's window above 2^31-1", pair(window_update(0, 0x7fff_ffff), window_update(0, 1)), "GOAWAY 0 FLOW_CONTROL_ERROR"),
        ("6.9.1/3 a stream's window above 2^31-1", pair(open(), window_update(1, 0x7fff_ffff)), "1 RST_STREAM FLOW_CONTROL_ERROR"),
        ("6.9.2/3 a stream's window above it by SETTINGS", [open(), window_update(1, 1), setting(4, 0x7fff_ffff)].concat(), "FLOW_CONTROL_ERROR"),
        ("6.10/1 several CONTINUATION frames", [frame(1, 1, 1, &fields(&GET[..1])), frame(9, 0, 1, &fields(&GET[1..2])),
            frame(9, END_HEADERS, 1, &fields(&GET[2..]))].concat(), "1 HEADERS :status: 200 end"),
        ("6.10/2 CONTINUATION, then another frame", [frame(1, 1, 1, b""), frame(9, 0, 1, b""), frame(0, 0, 1, b"")].concat(), "PROTOCOL_ERROR"),
        ("6.10/3 CONTINUATION with stream 0", pair(frame(1, 1, 1, &fields(&GET)), frame(9, 0, 0, b"")), "PROTOCOL_ERROR"),
        ("6.10/4 CONTINUATION after END_HEADERS", pair(open(), frame(9, END_HEADERS, 1, b"")), "PROTOCOL_ERROR"),
        ("6.10/6 CONTINUATION after DATA", [open(), frame(0, 0, 1, b"x"), frame(9, 4, 1, b"")].concat(), "PROTOCOL_ERROR"),
    ]);
}

#[test]
fn section_7_8_and_hpack_messages() {
    let with = |list: &[(&str, &str)]| frame(1, WHOLE, 1, &fields(&[&GET[..], list].concat()));
    let raw = |block: &[u8]| frame(1, WHOLE, 1, &[&fields(&GET), block].concat());
    let trailers = |flags, list: &[(&str, &str)]| frame(1, flags, 1, &fields(list));
    let reset = "1 RST_STREAM PROTOCOL_ERROR";
    #[rustfmt::skip]
    check(vec![
        ("7/1 GOAWAY with an unknown code", pair(frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0xff]), frame(6, 0, 0, &[0; 8])), "PING ACK"),
        ("7/2 RST_STREAM with an unknown code", [post(1), frame(3, 0, 1, &[0, 0, 0, 0xff]), frame(6, 0, 0, &[0; 8])].concat(), "PING ACK"),
        ("8.1/1 a second HEADERS without END_STREAM", pair(post(1), trailers(END_HEADERS, &[("a", "b")])), reset),
        ("8.1.2/1 upper-case names", with(&[("X-TEST", "ok")]), reset),
        ("8.1.2.1/1 an unknown pseudo-header", with(&[(":test", "ok")]), reset),
        ("8.1.2.1/2 a response's pseudo-header", with(&[(":status", "200")]), reset),
        ("8.1.2.1/3 a pseudo-header as trailer", pair(post(1), trailers(WHOLE, &[(":method", "200")])), reset),
        ("8.1.2.1/4 a pseudo-header behind a field", frame(1, WHOLE, 1, &fields(&[GET[0], GET[1], GET[2], ("a", "b"), GET[3]])), reset),
        ("8.1.2.2/1 connection-specific", with(&[("connection", "keep-alive")]), reset),
        ("8.1.2.2/2 TE other than trailers", with(&[("trailers", "test"), ("te", "trailers, deflate")]), reset),
        ("8.1.2.3/1 an empty :path", frame(1, WHOLE, 1, &fields(&[GET[0], GET[1], (":path", ""), GET[3]])), reset),
        ("8.1.2.3/2 no :method", frame(1, WHOLE, 1, &fields(&GET[1..])), reset),
        ("8.1.2.3/3 no :scheme", frame(1, WHOLE, 1, &fields(&[GET[0], GET[2], GET[3]])), reset),
        ("8.1.2.3/4 no :path", frame(1, WHOLE, 1, &fields(&[GET[0], GET[1], GET[3]])), reset),
        ("8.1.2.3/5 two :method", with(&[GET[0]]), reset),
        ("8.1.2.6/1 content-length that is not that of DATA", pair(post_of(1, "1"), frame(0, 1, 1, b"test")), reset),
        ("8.1.2.6/2 that is not the sum of several", [post_of(1, "1"), frame(0, 0, 1, b"te"), frame(0, 1, 1, b"st")].concat(), reset),
        ("a body that is too short", [post_of(1, "5"), frame(0, 1, 1, b"test")].concat(), reset),
        ("no body where one was announced", with(&[("content-length", "1")]), reset),
        ("hpack 2.3.3/1 an index of no entry", raw(b"\xc6"), "COMPRESSION_ERROR"),
        ("hpack 4.2/1 a size update at the end", raw(b"\x20"), "COMPRESSION_ERROR"),
        ("hpack 5.2/1 padding above 7 bits", raw(b"\x00\x01x\x82\x1f\xff"), "COMPRESSION_ERROR"),
        ("hpack 5.2/2 padding with zeros", raw(b"\x00\x01x\x81\x18"), "COMPRESSION_ERROR"),
        ("hpack 5.2/3 EOS", raw(b"\x00\x01x\x84\xff\xff\xff\xff"), "COMPRESSION_ERROR"),
        ("hpack 6.1/1 index 0", raw(b"\x80"), "COMPRESSION_ERROR"),
        ("hpack 6.3/1 a size above the limit", frame(1, WHOLE, 1, b"\x3f\xe2\x1f\x82"), "COMPRESSION_ERROR"),
    ]);
}

/// 6.9.1/1, 6.9.2/1 and 6.9.2/2.
#[test]
fn section_6_9_windows() {
    let mut peer = Peer::server();
    peer.give(&pair(setting(4, 1), get(1)));
    let key = peer.answer_head(1);
    assert_eq!(peer.session.data(key, b"abc", true), Ok(1));
    peer.give(&setting(4, 3));
    assert_eq!(peer.session.data(key, b"bc", true), Ok(2));
    let frames = peer.read();
    assert_eq!(
        frames[frames.len() - 3..],
        ["1 DATA 1", "SETTINGS ACK", "1 DATA 2 end"]
    );
    peer.give(&pair(setting(4, 3), get(3)));
    let key = peer.answer_head(3);
    assert_eq!(peer.session.data(key, b"abcdef", true), Ok(3));
    peer.give(&setting(4, 2));
    peer.give(&window_update(3, 1));
    assert_eq!(peer.session.data(key, b"def", true), Ok(0), "-1 and 1");
    peer.give(&window_update(3, 1));
    assert_eq!(peer.session.data(key, b"def", true), Ok(1));
}
