//! What HTTP/2 can say and HTTP/1 cannot, in front of an origin of HTTP/1: refused, or passed on as one clean request.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

use blackbox::{Http2Client, PATIENCE, Server, until};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

type Fields<'a> = Vec<(&'a [u8], &'a [u8])>;

/// A request that no origin may see.
const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: h.test\r\n\r\n";
const GET: [(&[u8], &[u8]); 4] = [
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":authority", b"h.test"),
    (b":path", b"/a"),
];

/// What came over a connection to the origin, and whether it has ended.
#[derive(Clone, Default)]
struct Seen {
    bytes: Vec<u8>,
    is_closed: bool,
}

/// An origin that keeps all bytes of each connection, and answers what looks like a whole request.
struct Recorder {
    address: String,
    seen: Arc<Mutex<Vec<Arc<Mutex<Seen>>>>>,
}

impl Recorder {
    fn start() -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let one = Arc::<Mutex<Seen>>::default();
                kept.lock().unwrap().push(Arc::clone(&one));
                std::thread::spawn(move || record(stream, &one));
            }
        });
        Recorder { address, seen }
    }

    /// What came over each connection since the last call.
    fn take(&self) -> Vec<String> {
        let seen = self.seen();
        self.seen.lock().unwrap().clear();
        let text = |seen: Seen| String::from_utf8_lossy(&seen.bytes).into_owned();
        seen.into_iter().map(text).collect()
    }

    fn seen(&self) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|one| one.lock().unwrap().clone()).collect()
    }

    /// Behind it, with bodies passed on at once or stored before.
    fn server(&self, buffering: &str, lines: &str) -> Server {
        Server::start(&format!(
            "server {{ listen 127.0.0.1:%PORT%; http2 on; proxy_request_buffering {buffering};
             location / {{ proxy_pass http://{}; proxy_set_header Host $host; {lines} }} }}",
            self.address
        ))
    }
}

fn record(mut stream: TcpStream, kept: &Mutex<Seen>) {
    let mut buffer = [0; 65_536];
    loop {
        let count = stream.read(&mut buffer).unwrap_or(0);
        let mut seen = kept.lock().unwrap();
        seen.bytes.extend_from_slice(&buffer[..count]);
        seen.is_closed = count == 0;
        if seen.is_closed {
            return;
        }
        if is_whole(&seen.bytes) {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
            let _ = stream.write_all(answer);
        }
    }
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.split("content-length: ").nth(1);
    match length.and_then(|rest| rest.lines().next()) {
        Some(length) => body.len() >= length.parse().unwrap(),
        None => !head.contains("transfer-encoding") || body.ends_with("0\r\n\r\n"),
    }
}

/// The fields of a GET, one of which has another value.
fn with<'a>(name: &str, value: &'a [u8]) -> Fields<'a> {
    let mut fields = GET.to_vec();
    let field = fields.iter_mut().find(|it| it.0 == name.as_bytes());
    field.unwrap().1 = value;
    fields
}

/// The fields of a POST, and more of them.
fn post<'a>(more: &[(&'a str, &'a str)]) -> Fields<'a> {
    let mut fields = with(":method", b"POST");
    fields.extend(more.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())));
    fields
}

fn connect(protocol: &[u8]) -> Fields<'_> {
    let mut fields = with(":method", b"CONNECT");
    fields.insert(1, (b":protocol", protocol));
    fields
}

fn without(name: &str) -> Fields<'static> {
    let all = GET.iter().copied();
    all.filter(|it| it.0 != name.as_bytes()).collect()
}

fn behind<'a>(mut fields: Fields<'a>, name: &'a [u8], value: &'a [u8]) -> Fields<'a> {
    fields.push((name, value));
    fields
}

/// Sends it whole, without or with a body; returns the status.
fn ask(server: &Server, fields: &Fields<'_>, body: Option<&[u8]>) -> u16 {
    let mut client = server.connect_http2();
    let stream = client.begin_raw(fields, body.is_none());
    if let Some(body) = body {
        client.body(stream, body, true);
    }
    client.reply(stream).status
}

/// Each is refused by both ways of passing a body on, and the origin sees no byte of it.
fn each_is_refused(cases: &[(Fields<'_>, Option<&[u8]>)]) {
    let origin = Recorder::start();
    for buffering in ["on", "off"] {
        let server = origin.server(buffering, "");
        for (fields, body) in cases {
            let text = || -> Vec<_> {
                let pairs = fields.iter().map(|(name, value)| [*name, value]);
                pairs
                    .map(|it| it.map(|part| part.escape_ascii().to_string()))
                    .collect()
            };
            assert_eq!(ask(&server, fields, *body), 400, "{:?} {body:?}", text());
            let seen = origin.take();
            assert!(seen.is_empty(), "{:?} {body:?}: {seen:?}", text());
        }
    }
}

#[test]
fn line_ends_and_nul_are_refused_wherever_they_stand() {
    let bytes: [&[u8]; 5] = [
        b"\r",
        b"\n",
        b"\0",
        b"\r\nx: y",
        b" HTTP/1.1\r\nx: y\r\n\r\n",
    ];
    let texts: Vec<_> = bytes.iter().map(|it| [b"/a", *it, b"b"].concat()).collect();
    let mut cases = Vec::new();
    for (bytes, text) in bytes.iter().zip(&texts) {
        let text = text.as_slice();
        for (name, _) in GET {
            cases.push((with(std::str::from_utf8(name).unwrap(), text), None));
        }
        cases.push((behind(GET.to_vec(), text, b"1"), None));
        cases.push((behind(GET.to_vec(), b"x", text), None));
        cases.push((behind(GET.to_vec(), b"x", bytes), None));
        cases.push((behind(GET.to_vec(), b"cookie", text), None));
        cases.push((behind(without(":authority"), b"host", text), None));
        cases.push((connect(text), Some(SMUGGLED)));
    }
    each_is_refused(&cases);
}

#[test]
fn framing_of_http_1_is_refused() {
    let mut cases: Vec<(Fields<'_>, Option<&[u8]>)> = Vec::new();
    #[rustfmt::skip]
    let names = ["transfer-encoding ", " transfer-encoding", "transfer-encoding:", "Transfer-Encoding", "transfer-encoding\t", "content-length\u{b}", "", ":", "a b"];
    for name in names {
        cases.push((post(&[(name, "chunked")]), Some(SMUGGLED)));
    }
    for coding in ["chunked", "identity", "", "gzip, chunked", "\u{b}chunked"] {
        cases.push((post(&[("transfer-encoding", coding)]), Some(b"0\r\n\r\n")));
    }
    #[rustfmt::skip]
    let hop = [("connection", "close"), ("connection", "x"), ("connection", ""), ("keep-alive", "1"), ("proxy-connection", "close"),
        ("upgrade", "h2c"), ("upgrade", "websocket"), ("te", "gzip"), ("te", "trailers, deflate"), ("te", "")];
    for field in hop {
        cases.push((post(&[field]), None));
    }
    #[rustfmt::skip]
    let lengths: [(&str, &[u8]); 13] = [("5", b""), ("5", b"hell"), ("5", b"hello!"), ("0", b"x"), ("-1", b"x"), ("+1", b"x"), ("1 ", b"x"), ("0x1", b"x"),
        ("1,1", b"x"), ("1, 1", b"x"), ("", b"x"), ("18446744073709551617", b"x"), ("1\u{b}", b"x")];
    for (length, body) in lengths {
        cases.push((post(&[("content-length", length)]), Some(body)));
    }
    cases.push((post(&[("content-length", "5")]), None));
    for length in [b"0", b"5"] {
        let tunnel = behind(connect(b"websocket"), b"content-length", length);
        cases.push((tunnel, Some(SMUGGLED)));
    }
    for second in ["1", "2", ""] {
        let both = [("content-length", "1"), ("content-length", second)];
        cases.push((post(&both), Some(b"x")));
    }
    each_is_refused(&cases);
}

#[test]
fn targets_and_hosts_that_http_1_reads_otherwise_are_refused() {
    let mut cases: Vec<(Fields<'_>, Option<&[u8]>)> = Vec::new();
    #[rustfmt::skip]
    let values: [(&str, &[&[u8]]); 4] = [
        (":path", &[b"", b"a", b"*", b"/a b", b"/a HTTP/1.1", b"/a\t", b"http://e.test/a", b"/../a", b"?q", b"#f", b"/\x7f", b"/%00"]),
        (":authority", &[b"", b"u@h.test", b"u:p@h.test", b"h.test:x", b"h.test/x", b"h.test?x", b"h.test#x", b"h.test, e.test", b"h test", b"[::1", b"h.test:80@e.test", b"h.test:99999"]),
        (":method", &[b"", b"get", b"G T", b"GET ", b"GET:", b"GET /x"]),
        (":scheme", &[b"", b"http:", b"http://e.test/x?", b"1", b"a b"]),
    ];
    for (name, values) in values {
        cases.extend(values.iter().map(|value| (with(name, value), None)));
    }
    for (name, value) in GET {
        cases.push((behind(GET.to_vec(), name, value), None));
        let name = std::str::from_utf8(name).unwrap();
        cases.push((without(name), None));
        let late = behind(without(name), b"x", b"y");
        cases.push((behind(late, name.as_bytes(), value), None));
    }
    for name in [
        ":status",
        ":test",
        ":",
        ":Path",
        ":host",
        "::path",
        ":protocol",
    ] {
        cases.push((behind(GET.to_vec(), name.as_bytes(), b"200"), None));
    }
    for host in ["e.test", "H.test", "h.test:80", ""] {
        cases.push((behind(GET.to_vec(), b"host", host.as_bytes()), None));
    }
    for first in [GET.to_vec(), without(":authority")] {
        let twice = behind(behind(first, b"host", b"h.test"), b"host", b"h.test");
        cases.push((twice, None));
    }
    for protocol in ["", "websocket, h2c", "a b", "web;socket"] {
        cases.push((connect(protocol.as_bytes()), Some(SMUGGLED)));
    }
    each_is_refused(&cases);
}

#[test]
fn what_is_passed_on_is_one_clean_request() {
    let origin = Recorder::start();
    let server = origin.server("on", "");
    #[rustfmt::skip]
    let cases: Vec<(Fields<'_>, Option<&[u8]>, &str)> = vec![
        (behind(GET.to_vec(), b"host", b"h.test"), None, "GET /a HTTP/1.1\r\nHost: h.test\r\n\r\n"),
        (behind(without(":authority"), b"host", b"H.TEST:80"), None, "GET /a HTTP/1.1\r\nHost: h.test\r\n\r\n"),
        (behind(behind(GET.to_vec(), b"cookie", b"a=1"), b"cookie", b"b=2; c=3"), None, "GET /a HTTP/1.1\r\nHost: h.test\r\ncookie: a=1; b=2; c=3\r\n\r\n"),
        (behind(GET.to_vec(), b"te", b"trailers"), None, "GET /a HTTP/1.1\r\nHost: h.test\r\n\r\n"),
        (with(":path", b"/%0d%0aX:%20y"), None, "GET /%0d%0aX:%20y HTTP/1.1\r\nHost: h.test\r\n\r\n"),
        (post(&[("x(a)", "1"), ("transfer_encoding", "chunked")]), Some(b"0\r\n\r\n"), "POST /a HTTP/1.1\r\nHost: h.test\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
        (behind(behind(GET.to_vec(), b"x", b" y\t"), b"\xe9", b"z"), None, "GET /a HTTP/1.1\r\nHost: h.test\r\nx: y\r\n\r\n"),
        (post(&[("content-length", "005")]), Some(b"hello"), "POST /a HTTP/1.1\r\nHost: h.test\r\nContent-Length: 5\r\n\r\nhello"),
    ];
    for (fields, body, expected) in cases {
        assert_eq!(ask(&server, &fields, body), 200, "{expected:?}");
        assert_eq!(origin.take(), [expected]);
    }
}

#[test]
fn trailers_that_no_request_has_refuse_it() {
    let origin = Recorder::start();
    for buffering in ["on", "off"] {
        let server = origin.server(buffering, "");
        #[rustfmt::skip]
        let refused = [(":path", "/x"), (":status", "200"), (":test", "x"), ("transfer-encoding", "chunked"), ("connection", "close"), ("te", "gzip"),
            ("A", "b"), ("", "b"), ("a b", "c"), ("a\r\nb", "c"), ("a", "b\r\nc: d"), ("a", "\0")];
        for (name, value) in refused {
            let mut client = server.connect_http2();
            let stream = client.begin_raw(&post(&[]), false);
            client.body(stream, b"hello", false);
            client.trailers(stream, name, value);
            let reply = client.reply(stream);
            assert_eq!(reply.status, 400, "{name:?}: {value:?}");
            let seen = origin.take();
            let is_broken_off = |it: &String| !it.ends_with("0\r\n\r\n") && !it.contains("smug");
            assert!(seen.iter().all(is_broken_off), "{name:?}: {seen:?}");
        }
    }
}

#[test]
fn other_trailers_are_left_out() {
    let origin = Recorder::start();
    for buffering in ["on", "off"] {
        let server = origin.server(buffering, "");
        for (name, value) in [("host", "e.test"), ("content-length", "9"), ("x", "y")] {
            let mut client = server.connect_http2();
            let stream = client.begin_raw(&post(&[("content-length", "5")]), false);
            client.body(stream, b"hello", false);
            client.trailers(stream, name, value);
            assert_eq!(client.reply(stream).status, 200, "{name:?}");
            let head = "POST /a HTTP/1.1\r\nHost: h.test\r\nContent-Length: 5\r\n\r\nhello";
            assert_eq!(origin.take(), [head], "they are not passed on");
        }
    }
}

/// A fault behind the part of a body that was passed on: the origin never has a whole request, and its connection ends.
#[test]
fn a_streamed_body_that_is_refused_is_not_ended() {
    type End<'a> = &'a dyn Fn(&mut Http2Client, u32);
    type Case<'a> = (&'a [(&'a str, &'a str)], End<'a>, &'a str);
    let long = [b"lo", SMUGGLED].concat();
    let ends: [Case<'_>; 6] = [
        (
            &[("content-length", "5")],
            &|it, stream| it.body(stream, b"", true),
            "hel",
        ),
        (
            &[("content-length", "5")],
            &|it, stream| it.body(stream, &long, true),
            "hel",
        ),
        (
            &[("content-length", "5")],
            &|it, stream| it.trailers(stream, "a", "b"),
            "hel",
        ),
        (
            &[],
            &|it, stream| it.trailers(stream, ":path", "/b"),
            "3\r\nhel\r\n",
        ),
        (
            &[],
            &|it, stream| it.trailers(stream, "a\r\nb", "c"),
            "3\r\nhel\r\n",
        ),
        (&[], &|it, stream| it.cancel(stream), "3\r\nhel\r\n"),
    ];
    let origin = Recorder::start();
    let server = origin.server("off", "");
    for (at, (fields, end, expected)) in ends.into_iter().enumerate() {
        let mut client = server.connect_http2();
        let stream = client.begin_raw(&post(fields), false);
        client.body(stream, b"hel", false);
        let has_come = || {
            let seen = origin.seen();
            seen.iter()
                .any(|it| it.bytes.ends_with(expected.as_bytes()))
                .then_some(())
        };
        until("the first bytes", PATIENCE, has_come);
        end(&mut client, stream);
        let is_closed = || origin.seen()[0].is_closed.then_some(());
        until("the connection's end", PATIENCE, is_closed);
        let other = client.begin_raw(&GET, true);
        assert_eq!(client.reply(other).status, 200, "{at}: another goes on");
        let seen = origin.take();
        assert_eq!(seen.len(), 2, "{at}: over another connection");
        let body = seen[0].split("\r\n\r\n").nth(1);
        assert_eq!(body.map(str::trim_end), Some(expected.trim_end()), "{at}");
    }
}

/// Without a 101 what follows an extended CONNECT is no part of the request that asks for the upgrade.
#[test]
fn what_was_meant_for_a_tunnel_is_not_passed_on_without_one() {
    let origin = Recorder::start();
    let lines = "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;";
    for buffering in ["on", "off"] {
        let server = origin.server(buffering, lines);
        for key in [None, Some("own")] {
            let mut fields = connect(b"websocket");
            fields.extend(key.map(|key| (b"sec-websocket-key".as_slice(), key.as_bytes())));
            assert_eq!(ask(&server, &fields, Some(SMUGGLED)), 501);
            let seen = origin.take();
            assert_eq!(seen.len(), 1);
            assert!(seen[0].ends_with("\r\n\r\n") && !seen[0].contains("smuggled"));
            assert_eq!(
                seen[0].matches("sec-websocket-key: ").count(),
                1,
                "{seen:?}"
            );
            assert_eq!(
                seen[0].matches("Upgrade: websocket\r\n").count(),
                1,
                "{seen:?}"
            );
        }
    }
}
