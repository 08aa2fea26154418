//! Heads of HTTP/2: the same as HTTP/1 reads, and what RFC 9113 calls malformed.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

use message::{Framing, HeaderId, Method, RequestHead, Version};
use proptest::prelude::*;
use wire::http1::request_parser::{HeadLimits, HeadRefusal, ParsedRequest, parse_head};
use wire::http2::hpack::{BlockLimits, Decoder, encode};
use wire::http2::request_head::{self, DecodedRequest, RequestContext};
use wire::http2::{Priority, Reason, response_head};

type Fields<'a> = &'a [(&'a str, &'a str)];

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/a"),
    (":authority", "h.x"),
];

fn block(fields: Fields<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        // A literal with incremental indexing, so that the table is used, too.
        out.extend([0x40, name.len() as u8]);
        out.extend(name.bytes());
        encode::string(&mut out, value.as_bytes());
    }
    out
}

fn context(is_end: bool) -> RequestContext {
    RequestContext {
        limits: HeadLimits::default(),
        is_end,
        allows_protocol: true,
    }
}

fn decode_with(fields: Fields<'_>, context: &RequestContext) -> DecodedRequest {
    let block = block(fields);
    let mut decoder = Decoder::default();
    request_head::decode(&mut decoder, &block, context, &mut |_| None).unwrap()
}

fn head_of(fields: Fields<'_>, is_end: bool) -> Box<RequestHead> {
    match decode_with(fields, &context(is_end)) {
        DecodedRequest::Head(head, _) => head,
        refused => panic!("{refused:?}"),
    }
}

fn refused(fields: Fields<'_>) -> (Box<HeadRefusal>, Reason) {
    match decode_with(fields, &context(true)) {
        DecodedRequest::Refused(refusal, reason) => (refusal, reason),
        head => panic!("{fields:?}: {head:?}"),
    }
}

fn with(fields: Fields<'_>) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    GET.iter().chain(fields).map(owned).collect()
}

fn borrowed(fields: &[(String, String)]) -> Vec<(&str, &str)> {
    fields.iter().map(|(n, v)| (&n[..], &v[..])).collect()
}

/// Everything that the server reads of a head.
fn shown(head: &RequestHead) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields: Vec<_> = head
        .iter()
        .map(|(name, value, id)| (text(name), text(value), id))
        .collect();
    format!(
        "{} {:?} {} {:?} {:?} {:?} {:?} {:?} {fields:?} {:?} {}",
        text(head.method_text()),
        head.method,
        text(head.target()),
        text(head.uri()),
        text(head.args()),
        text(head.extension()),
        head.host().map(text),
        head.port,
        head.framing,
        head.is_complex,
    )
}

#[test]
fn a_request_reads_like_one_of_http_1() {
    let fields = [
        (":authority", "WWW.x.org.:8443"),
        (":path", "/a.b/c%20d.html?x=1"),
        (":method", "GET"),
        (":scheme", "https"),
        ("accept", "*/*"),
        ("cookie", "a=1"),
        ("x_y", "dropped"),
        ("cookie", "b=2; c=3"),
        ("priority", "u=1, i"),
        ("te", "trailers"),
        ("cookie", "d=4"),
    ];
    let DecodedRequest::Head(head, priority) = decode_with(&fields, &context(true)) else {
        panic!()
    };
    assert_eq!(head.line(), b"GET /a.b/c%20d.html?x=1 HTTP/2.0");
    assert_eq!(head.protocol(), b"HTTP/2.0");
    assert_eq!(head.uri(), b"/a.b/c d.html");
    assert_eq!((head.args(), head.extension()), (&b"x=1"[..], &b"html"[..]));
    assert_eq!(head.host(), Some(&b"www.x.org"[..]));
    assert_eq!((head.port, head.version), (Some(8443), Version::HTTP_2));
    assert_eq!(head.get(HeaderId::Host), Some(&b"WWW.x.org.:8443"[..]));
    let cookies: Vec<_> = head.get_each(HeaderId::Cookie).collect();
    assert_eq!(cookies, [b"a=1; b=2; c=3; d=4"]);
    assert_eq!(head.text(head.dropped[0]), b"x_y: dropped");
    let priority = priority.unwrap();
    assert_eq!((priority.urgency, priority.is_incremental), (1, true));
    let text = String::from_utf8(head.bytes.to_vec()).unwrap();
    let wanted = "GET /a.b/c%20d.html?x=1 HTTP/2.0\r\naccept: */*\r\nx_y: dropped\r\npriority: u=1, i\r\n\
        te: trailers\r\ncookie: a=1; b=2; c=3; d=4\r\nhost: WWW.x.org.:8443\r\n\r\n";
    assert_eq!(text, wanted);
    assert_eq!(head.framing, Framing::None);
}

/// A request for a WebSocket (RFC 8441).
const SOCKET: [(&str, &str); 6] = [
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "https"),
    (":path", "/chat"),
    (":authority", "h"),
    ("sec-websocket-version", "13"),
];

#[test]
fn bodies_and_connect() {
    let post = with(&[("content-length", "5")]);
    assert_eq!(head_of(&borrowed(&post), false).framing, Framing::Length(5));
    assert_eq!(head_of(&GET, false).framing, Framing::Chunked);
    assert_eq!(refused(&borrowed(&post)).1, Reason::LengthDiffers);
    let head = head_of(&SOCKET, false);
    assert_eq!((head.method, head.uri()), (Method::Get, &b"/chat"[..]));
    assert_eq!(head.line(), b"GET /chat HTTP/2.0");
    let text = String::from_utf8(head.bytes.to_vec()).unwrap();
    let asked = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: dGhl";
    assert!(text.contains(asked), "{text}");
    assert_eq!(head.text(head.connect_protocol), b"websocket");
    assert_eq!(head.framing, Framing::None);
    let connect = [(":method", "CONNECT"), (":authority", "h:443")];
    assert_eq!(refused(&connect).0.status, 405);
    let mut allowed = context(false);
    allowed.limits.allow_connect = true;
    let DecodedRequest::Head(head, _) = decode_with(&connect, &allowed) else {
        panic!()
    };
    assert_eq!(head.line(), b"CONNECT h:443 HTTP/2.0");
    assert_eq!((head.uri(), head.port), (&b"/"[..], Some(443)));
    assert_eq!(head.text(head.authority), b"h:443");
    for fields in [
        &[(":method", "CONNECT"), (":authority", "h")][..],
        &[(":method", "CONNECT")],
        &[
            (":method", "CONNECT"),
            (":authority", "h:1"),
            (":path", "/"),
        ],
    ] {
        let outcome = decode_with(fields, &allowed);
        assert!(matches!(outcome, DecodedRequest::Refused(..)), "{fields:?}");
    }
}

/// One protocol, one key, and no length of what is the tunnel's.
#[test]
fn websocket() {
    let mut own_key = SOCKET.to_vec();
    own_key.push(("sec-websocket-key", "own"));
    let head = head_of(&own_key, false);
    let keys: Vec<_> = head.get_all(b"sec-websocket-key").collect();
    assert_eq!(keys, [b"own"], "a key does not stand twice");
    for (protocol, is_valid) in [
        ("webtransport", true),
        ("IRC/6.9", true),
        ("websocket, h2c", false),
        ("a b", false),
        ("a/b/c", false),
        ("a/", false),
        ("/a", false),
    ] {
        let mut fields = SOCKET;
        fields[1].1 = protocol;
        let outcome = decode_with(&fields, &context(false));
        let is_refused = matches!(outcome, DecodedRequest::Refused(_, Reason::Protocol));
        assert_eq!(is_refused, !is_valid, "{protocol}");
    }
    let connect = [(":method", "CONNECT"), (":authority", "h:443")];
    let mut allowed = context(false);
    allowed.limits.allow_connect = true;
    for (fields, length) in [(&SOCKET[..], "0"), (&SOCKET, "5"), (&connect, "5")] {
        let mut fields = fields.to_vec();
        fields.push(("content-length", length));
        let outcome = decode_with(&fields, &allowed);
        let is_refused = matches!(outcome, DecodedRequest::Refused(_, Reason::ContentLength));
        assert!(is_refused, "{fields:?}");
    }
}

/// RFC 9113, 8.2 and 8.3; h2spec http2/8.1.2 to 8.1.2.6.
#[test]
fn malformed_requests() {
    #[rustfmt::skip]
    let behind: Vec<(Fields<'_>, Reason)> = vec![
        (&[("X-Upper", "a")], Reason::FieldName), (&[("a:b", "c")], Reason::FieldName), (&[("", "c")], Reason::FieldName),
        (&[("a b", "c")], Reason::FieldName), (&[("a\r\nb", "c")], Reason::FieldName), (&[("a", "b\r\nc: d")], Reason::FieldValue),
        (&[("a", "b\0")], Reason::FieldValue), (&[("a", " b\r")], Reason::FieldValue), (&[("a\x7f", "b")], Reason::FieldName),
        (&[("content-length", " 0")], Reason::FieldValue), (&[("host", "h.x ")], Reason::FieldValue),
        (&[(":path", "/b")], Reason::PseudoDuplicate), (&[(":method", "GET")], Reason::PseudoDuplicate),
        (&[(":status", "200")], Reason::PseudoUnknown), (&[(":test", "x")], Reason::PseudoUnknown),
        (&[(":protocol", "websocket")], Reason::PseudoConnect), (&[("a", "b"), (":protocol", "x")], Reason::PseudoOrder),
        (&[("connection", "keep-alive")], Reason::ConnectionField), (&[("keep-alive", "1")], Reason::ConnectionField),
        (&[("proxy-connection", "close")], Reason::ConnectionField), (&[("upgrade", "h2c")], Reason::ConnectionField),
        (&[("transfer-encoding", "chunked")], Reason::ConnectionField), (&[("te", "gzip")], Reason::Te),
        (&[("te", "trailers"), ("te", "trailers")], Reason::Te), (&[("content-length", "x")], Reason::ContentLength),
        (&[("content-length", "-1")], Reason::ContentLength), (&[("content-length", "")], Reason::ContentLength),
        (&[("content-length", "0"), ("content-length", "1")], Reason::FieldDuplicate), (&[("host", "other")], Reason::HostDiffers),
        (&[("host", "h.x"), ("host", "h.x")], Reason::FieldDuplicate), (&[("if-range", "a"), ("if-range", "b")], Reason::FieldDuplicate),
    ];
    for (fields, reason) in behind {
        let fields = with(fields);
        let (refusal, found) = refused(&borrowed(&fields));
        assert_eq!((found, refusal.status), (reason, 400), "{fields:?}");
        assert!(reason.is_malformed(), "{reason:?}");
        assert!(refusal.why.starts_with("client sent "), "{}", refusal.why);
    }
    #[rustfmt::skip]
    let alone: Vec<(Fields<'_>, Reason)> = vec![
        (&[], Reason::PseudoMissing), (&GET[1..], Reason::PseudoMissing), (&[GET[0], GET[2], GET[3]], Reason::PseudoMissing),
        (&[GET[0], GET[1], GET[3]], Reason::PseudoMissing), (&GET[..3], Reason::HostMissing),
        (&[GET[0], ("a", "b"), GET[1], GET[2], GET[3]], Reason::PseudoMissing),
        (&[GET[0], GET[1], GET[2], ("a", "b"), GET[3]], Reason::PseudoOrder), (&[(":path", "")], Reason::PseudoEmpty),
        (&[("host", "h"), GET[0], GET[1], GET[2]], Reason::PseudoMissing),
        (&[GET[0], GET[1], GET[2], (":authority", "a@b")], Reason::Authority),
        (&[GET[0], GET[1], GET[2], (":authority", "a/b")], Reason::Authority), (&[GET[0], GET[1], GET[2], ("host", "a b")], Reason::Host),
        (&[(":method", "get"), GET[1], GET[2], GET[3]], Reason::Method), (&[(":method", "G T"), GET[1], GET[2], GET[3]], Reason::Method),
        (&[GET[0], (":scheme", "1x"), GET[2], GET[3]], Reason::Scheme), (&[GET[0], GET[1], (":path", "*"), GET[3]], Reason::Path),
        (&[GET[0], GET[1], (":path", "/a b"), GET[3]], Reason::Path), (&[GET[0], GET[1], (":path", "/a\x01"), GET[3]], Reason::Path),
        (&[GET[0], GET[1], (":path", "http://h/"), GET[3]], Reason::Path), (&[GET[0], GET[1], (":path", "/../"), GET[3]], Reason::Path),
        (&[GET[0], GET[1], (":path", "/a HTTP/1.1\r\nX: y"), GET[3]], Reason::FieldValue),
    ];
    for (fields, reason) in alone {
        let (refusal, found) = refused(fields);
        assert_eq!((found, refusal.status), (reason, 400), "{fields:?}");
    }
    let trace = [(":method", "TRACE"), GET[1], GET[2], GET[3]];
    let (refusal, reason) = refused(&trace);
    assert_eq!((refusal.status, reason.is_malformed()), (405, false));
    assert_eq!(refusal.head.line(), b"TRACE /a HTTP/2.0");
}

/// RFC 9113, 8.2.1 calls them malformed; nginx serves them.
#[test]
fn blanks_around_values_and_names_beyond_ascii_are_served() {
    let fields = with(&[
        ("a", " b\t"),
        ("c", "\t "),
        ("h\u{e9}", "x"),
        ("cookie", " d=1 "),
        ("te", " trailers"),
    ]);
    let head = head_of(&borrowed(&fields), true);
    let found: Vec<_> = head.iter().map(|(name, value, _)| (name, value)).collect();
    let expected = [
        (&b"a"[..], &b"b"[..]),
        (b"c", b""),
        (b"te", b"trailers"),
        (b"cookie", b"d=1"),
        (b"host", b"h.x"),
    ];
    assert_eq!(found, expected);
    assert_eq!(head.text(head.dropped[0]), "h\u{e9}: x".as_bytes());
    for name in [":path", ":authority"] {
        let mut fields = GET;
        let field = fields.iter_mut().find(|it| it.0 == name).unwrap();
        field.1 = "/a ";
        assert_eq!(refused(&fields).1, Reason::FieldValue, "{name}");
    }
}

#[test]
fn the_tables_stay_the_same_behind_a_refusal() {
    let mut decoder = Decoder::default();
    let bad = with(&[("A", "b"), ("c", "d"), ("e", "f")]);
    let bad = block(&borrowed(&bad));
    let good = [0xc4, 0xc3, 0xc2, 0xc1, 0xbf, 0xbe];
    let mut decode = |bytes: &[u8]| {
        request_head::decode(&mut decoder, bytes, &context(true), &mut |_| None).unwrap()
    };
    assert!(matches!(
        decode(&bad),
        DecodedRequest::Refused(_, Reason::FieldName)
    ));
    let DecodedRequest::Head(head, _) = decode(&good) else {
        panic!()
    };
    let fields: Vec<_> = head.iter().map(|(n, v, _)| [n, v].concat()).collect();
    assert_eq!(fields, [&b"cd"[..], b"ef", b"hosth.x"]);
}

#[test]
fn limits_are_those_of_the_chosen_server() {
    let fields = with(&[("a", "1"), ("b_c", "2"), ("d", "3")]);
    let block = block(&borrowed(&fields));
    let mut asked = Vec::new();
    let mut choose = |host: &[u8]| {
        asked.push(host.to_vec());
        Some(HeadLimits {
            max_headers: 2,
            underscores_in_headers: true,
            ..HeadLimits::default()
        })
    };
    let mut decoder = Decoder::default();
    let outcome = request_head::decode(&mut decoder, &block, &context(true), &mut choose);
    let DecodedRequest::Refused(refusal, reason) = outcome.unwrap() else {
        panic!()
    };
    assert_eq!(asked, [b"h.x"]);
    assert_eq!((refusal.status, reason), (494, Reason::FieldCount));
    assert_eq!(refusal.head.get_all(b"b_c").count(), 1);
}

/// RFC 9113, 8.1 and 8.3.2.
#[test]
fn responses_and_trailers() {
    let limits = BlockLimits::default();
    let decode = |fields| {
        let mut decoder = Decoder::default();
        response_head::decode(&mut decoder, &block(fields), &limits).unwrap()
    };
    let head = decode(&[
        (":status", "404"),
        ("content-length", "7"),
        ("x_a", "1"),
        ("b(", "2"),
    ])
    .unwrap();
    assert_eq!((head.status, head.version), (404, Version::HTTP_2));
    assert_eq!(head.framing, message::ResponseFraming::Length(7));
    assert_eq!(head.iter().count(), 2, "a name that is no token is dropped");
    let open = decode(&[(":status", "200")]).unwrap();
    assert_eq!(open.framing, message::ResponseFraming::Chunked);
    #[rustfmt::skip]
    let cases: [(Fields<'_>, Reason); 10] = [
        (&[], Reason::PseudoMissing), (&[("a", "b"), (":status", "200")], Reason::PseudoMissing), (&[(":status", "20")], Reason::Status),
        (&[(":status", "101")], Reason::Status), (&[(":status", "2000")], Reason::Status),
        (&[(":status", "200"), (":status", "200")], Reason::PseudoDuplicate), (&[(":path", "/")], Reason::PseudoUnknown),
        (&[(":status", "200"), ("connection", "close")], Reason::ConnectionField), (&[(":status", "200"), ("A", "b")], Reason::FieldName),
        (&[(":status", "200"), ("content-length", "1"), ("content-length", "1")], Reason::FieldDuplicate),
    ];
    for (fields, reason) in cases {
        assert_eq!(decode(fields).unwrap_err(), reason, "{fields:?}");
    }
    let trailers = |fields| {
        let mut decoder = Decoder::default();
        response_head::decode_trailers(&mut decoder, &block(fields), &limits).unwrap()
    };
    let found = trailers(&[("grpc-status", "0"), ("b(", "x"), ("b", "")]).unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|line| (&line.name[..], &line.value[..]))
        .collect();
    assert_eq!(found, [(&b"grpc-status"[..], &b"0"[..]), (b"b", b"")]);
    assert_eq!(
        trailers(&[("a", "b"), (":status", "1")]),
        Err(Reason::PseudoOrder)
    );
    assert_eq!(trailers(&[("upgrade", "b")]), Err(Reason::ConnectionField));
    assert_eq!(trailers(&[("a", "b\n")]), Err(Reason::FieldValue));
}

#[test]
fn a_priority_is_kept_apart() {
    let DecodedRequest::Head(_, priority) = decode_with(&GET, &context(true)) else {
        panic!()
    };
    assert_eq!(priority, None::<Priority>);
}

proptest! {
    /// What HTTP/1 reads from the same request as text, HTTP/2 reads from fields; what one refuses, the other refuses with
    /// the same status.
    #[test]
    fn as_http_1(
        method in "GET|POST|HEAD|TRACE|XX-Y|get|P T",
        path in "[/a.%2e?#&=~ *\u{1}é-]{0,12}|/[a-z./]{0,12}(\\?[a-z=]{0,5})?",
        host in "[aA.:1%\\[\\]@_-]{1,8}|[a-z]{1,5}(:[0-9]{1,5})?",
        fields in prop::collection::vec(("accept|range|x-a|x_b|x\\.c|if-match|referer", "[a-z0-9=]{0,8}"), 0..5),
    ) {
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in &fields {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("host: {host}\r\n\r\n");
        let mut all = vec![(":method", &method[..]), (":scheme", "http"), (":path", &path[..]), (":authority", &host[..])];
        all.extend(fields.iter().map(|(name, value)| (&name[..], &value[..])));
        let decoded = decode_with(&all, &context(true));
        match (parse_head(text.as_bytes(), &HeadLimits::default()), decoded) {
            (ParsedRequest::Complete(one, _), DecodedRequest::Head(two, _)) => prop_assert_eq!(shown(&one), shown(&two)),
            // HTTP/1 skips more than one space, and reads what follows a blank as the version: another path.
            _ if path.contains(' ') || path.is_empty() => {}
            (ParsedRequest::Refused(one), DecodedRequest::Refused(two, _)) => prop_assert_eq!(one.status, two.status),
            (one, two) => prop_assert!(false, "{one:?} {two:?}"),
        }
    }
}
