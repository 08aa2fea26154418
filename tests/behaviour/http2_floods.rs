//! What a client may do over HTTP/2 how often: each attack that servers have met, at its limit, with the counter, the log
//! line and a normal request beside it.

#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::{ErrorKind, Write as _};
use std::time::Duration;

use blackbox::slow::narrow;
use blackbox::{Connection, Exposition, Server};
use wire::http2::hpack::encode;
use wire::http2::session::PREFACE;

const SERVER: &str = "listen 127.0.0.1:%PORT%; http2 on;
    location = /metrics { access_log off; metrics; }
    location /ret { return 200 ok; }
    location /body { proxy_pass http://127.0.0.1:1; }
    location / { }";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame's length");
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn block(method: &str, path: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in [
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
    ] {
        encode::field(&mut out, name.as_bytes(), value.as_bytes());
    }
    out
}

fn get(stream: u32) -> Vec<u8> {
    let flags = END_STREAM | END_HEADERS;
    frame(HEADERS, flags, stream, &block("GET", "/ret"))
}

/// A request whose body does not come.
fn open(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block("POST", "/body"))
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])
}

/// The first streams of a client, each with this input.
fn streams(count: u32, input: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    (0..count).flat_map(|n| input(2 * n + 1)).collect()
}

/// What an attacker is told.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// RST_STREAM: the stream and the code.
    Reset(u32, u32),
    /// GOAWAY: the code.
    GoAway(u32),
}

/// A client that sends what it likes.
struct Attacker(Connection);

impl Attacker {
    /// A client whose first bytes come in one piece.
    fn of(server: &Server, bytes: &[u8]) -> Attacker {
        let mut connection = server.connect();
        let settings = frame(SETTINGS, 0, 0, b"");
        connection.send([PREFACE.as_slice(), &settings, bytes].concat());
        Attacker(connection)
    }

    /// Reads to the end of an answer, before which nothing is reset.
    fn answer(&mut self, stream: u32) {
        loop {
            let header = self.0.read(9);
            assert_ne!(header[3], RST_STREAM);
            let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, it| sum << 8 | u32::from(*it));
            self.0.read(number(&header[..3]) as usize);
            let is_last = header[4] & END_STREAM != 0 && matches!(header[3], DATA | HEADERS);
            if is_last && number(&header[5..9]) == stream {
                return;
            }
        }
    }

    /// The next RST_STREAM or GOAWAY.
    fn told(&mut self) -> Told {
        std::iter::repeat_with(|| self.told_among(1))
            .find_map(|told| told)
            .expect("without an end")
    }

    /// The first RST_STREAM or GOAWAY among the next frames.
    fn told_among(&mut self, frames: usize) -> Option<Told> {
        for _ in 0..frames {
            let header = self.0.read(9);
            let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, it| sum << 8 | u32::from(*it));
            let payload = self.0.read(number(&header[..3]) as usize);
            match header[3] {
                RST_STREAM => {
                    let (stream, code) = (number(&header[5..9]), number(&payload));
                    return Some(Told::Reset(stream, code));
                }
                GOAWAY => return Some(Told::GoAway(number(&payload[4..8]))),
                _ => {}
            }
        }
        None
    }
}

fn figure(server: &Server, name: &str) -> f64 {
    let page = Exposition::read(&server.get("/metrics").text(), false);
    page.get(name).unwrap_or_default()
}

fn goaways(server: &Server, reason: &str) -> f64 {
    let name = format!("freewheel_http2_goaways_total{{reason=\"{reason}\"}}");
    figure(server, &name)
}

fn resets(server: &Server, by: &str) -> f64 {
    figure(
        server,
        &format!("freewheel_http2_resets_total{{by=\"{by}\"}}"),
    )
}

/// An attack that ends its connection: the bytes, the code that it is told, the reason in the figures, and in the log.
struct Attack {
    bytes: Vec<u8>,
    code: u32,
    reason: &'static str,
    log: &'static str,
}

/// Runs attacks, with a client beside them that notices nothing.
fn run(attacks: Vec<Attack>, directives: &str) {
    let server = Server::start(&format!("server {{ {SERVER} {directives} }}"));
    let mut normal = server.connect_http2();
    for attack in attacks {
        let before = goaways(&server, attack.reason);
        let mut attacker = Attacker::of(&server, &attack.bytes);
        let beside = normal.get("/ret");
        assert_eq!(normal.reply(beside).text(), "ok", "{}", attack.reason);
        let told =
            std::iter::repeat_with(|| attacker.told()).find(|told| matches!(told, Told::GoAway(_)));
        assert_eq!(told, Some(Told::GoAway(attack.code)), "{}", attack.reason);
        server.wait_for(attack.log, attack.reason);
        let after = goaways(&server, attack.reason);
        assert_eq!(after - before, 1.0, "{}", attack.reason);
        let behind = normal.get("/ret");
        assert_eq!(normal.reply(behind).text(), "ok", "{}", attack.reason);
    }
}

/// RFC 9113, 10.5: ENHANCE_YOUR_CALM.
const CALM: u32 = 11;

#[test]
fn streams_that_are_reset() {
    let attack = |bytes| Attack {
        bytes,
        code: CALM,
        reason: "TooManyResets",
        log: "client had too many streams reset while processing HTTP/2 connection",
    };
    let by_fault =
        |frame: fn(u32) -> Vec<u8>| attack(streams(101, |id| [open(id), frame(id)].concat()));
    run(
        vec![
            // CVE-2023-44487. Those between whose frames a turn ends are answered before.
            attack(streams(120, |id| [get(id), reset(id)].concat())),
            // CVE-2025-8671.
            by_fault(|id| frame(WINDOW_UPDATE, 0, id, &[0; 4])),
            by_fault(|id| frame(WINDOW_UPDATE, 0, id, &[0x7f, 0xff, 0xff, 0xff])),
            by_fault(|id| frame(PRIORITY, 0, id, &[0; 4])),
        ],
        "",
    );
}

fn malformed(stream: u32) -> Vec<u8> {
    let flags = END_STREAM | END_HEADERS;
    frame(HEADERS, flags, stream, &block("GET", "nothing"))
}

#[test]
fn malformed_requests() {
    let attack = Attack {
        bytes: streams(101, malformed),
        code: 0,
        reason: "TooManyMalformed",
        log: "client sent too many malformed requests while processing HTTP/2 connection",
    };
    run(vec![attack], "");
}

/// It does not read that no more are taken.
#[test]
fn a_flood_of_malformed_requests_gets_few_answers() {
    let server = Server::start(&format!(
        "server {{ {SERVER} keepalive_requests 1000000; access_log logs/access.log; }}"
    ));
    let bytes = streams(5000, malformed);
    let mut attacker = Attacker::of(&server, &bytes);
    while attacker.told() != Told::GoAway(0) {}
    attacker.0.rest();
    let answers = server.access_log(101).lines().count();
    assert!(answers < 300, "{answers}");
}

/// curl (7.88) drops an answer that it reads together with a reset.
#[test]
fn a_malformed_request_is_reset_a_while_after_its_answer() {
    let server = Server::start(&format!("server {{ {SERVER} }}"));
    let mut client = Attacker::of(&server, &malformed(1));
    client.answer(1);
    client.0.send(get(3));
    client.answer(3);
    assert_eq!(client.told(), Told::Reset(1, 1));
}

/// What its client still sends is read for a while, so that it sees why, and not for as long as it likes.
#[test]
fn a_flood_that_goes_on_is_cut_off() {
    let server = Server::start(&format!("server {{ {SERVER} }}"));
    let attacker = Attacker::of(&server, b"");
    let mut stream = attacker.0.stream();
    let useless = frame(SETTINGS, ACK, 0, b"").repeat(100_000);
    let mut sent = 0;
    let end = loop {
        match stream.write(&useless) {
            Ok(count) => sent += count,
            Err(error) => break error.kind(),
        }
        assert!(sent < 256 << 20, "it goes on");
    };
    let cut_off = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(cut_off.contains(&end), "{end}");
    assert_eq!(goaways(&server, "TooManyGlitches"), 1.0);
}

#[test]
fn frames_of_no_use() {
    let attack = |bytes: Vec<u8>| Attack {
        bytes,
        code: CALM,
        reason: "TooManyGlitches",
        log: "client sent too many frames without use while processing HTTP/2 connection",
    };
    let empty = frame(DATA, 0, 1, b"").repeat(101);
    run(
        vec![
            attack(frame(SETTINGS, 0, 0, b"").repeat(101)),
            attack(frame(PRIORITY, 0, 5, &[0, 0, 0, 0, 1]).repeat(101)),
            attack(frame(0x77, 0, 0, b"anything").repeat(101)),
            // The first acknowledges our settings.
            attack(frame(SETTINGS, ACK, 0, b"").repeat(102)),
            attack(frame(PING, ACK, 0, b"abcdefgh").repeat(101)),
            attack(frame(GOAWAY, 0, 0, &[0; 8]).repeat(102)),
            attack([open(1), empty].concat()),
            attack([get(1), reset(1), reset(1).repeat(101)].concat()),
        ],
        "",
    );
}

#[test]
fn frames_that_are_counted_by_themselves() {
    run(
        vec![
            Attack {
                bytes: frame(PING, 0, 0, b"abcdefgh").repeat(70_000),
                code: CALM,
                reason: "TooManyAnswers",
                log: "client asked for control frames without reading them",
            },
            Attack {
                bytes: frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(101),
                code: CALM,
                reason: "TooManyUpdates",
                log: "client sent too many WINDOW_UPDATE frames",
            },
        ],
        "",
    );
}

/// What no other limit covers: PINGs whose answers are read.
#[test]
fn bytes_without_payload() {
    let server = Server::start(&format!("server {{ {SERVER} }}"));
    let mut attacker = Attacker::of(&server, b"");
    let pings = frame(PING, 0, 0, b"abcdefgh").repeat(900);
    let mut told = None;
    for _ in 0..600 {
        attacker.0.send(&pings);
        told = attacker.told_among(900);
        if told.is_some() {
            break;
        }
    }
    assert_eq!(told, Some(Told::GoAway(0)));
    server.wait_for("http2 flood detected", "the log");
    assert_eq!(goaways(&server, "Flood"), 1.0);
    let mut normal = server.connect_http2();
    let beside = normal.get("/ret");
    assert_eq!(normal.reply(beside).text(), "ok");
}

/// A field that takes 4000 bytes of the dynamic table, and `count` bytes that each repeat it (CVE-2026-49975).
fn bomb(count: usize) -> Vec<u8> {
    let mut out = block("GET", "/ret");
    // Literal with incremental indexing and a new name; the length of the value in three bytes.
    out.extend(b"\x40\x01x\x7f\xa1\x1e");
    out.extend([b'y'; 4000]);
    out.extend(vec![0xbe; count]);
    out
}

#[test]
fn header_blocks() {
    let attack = |bytes, reason, log| Attack {
        bytes,
        code: CALM,
        reason,
        log,
    };
    let begun = frame(HEADERS, END_STREAM, 1, b"");
    let whole = |block: &[u8]| frame(HEADERS, END_STREAM | END_HEADERS, 1, block);
    let mut large = block("GET", "/ret");
    encode::field(&mut large, b"x", &[b'&'; 9000]);
    run(
        vec![
            attack(
                [begun.clone(), frame(CONTINUATION, 0, 1, b"").repeat(65)].concat(),
                "TooManyContinuations",
                "client sent too many CONTINUATION frames",
            ),
            attack(
                [begun, frame(CONTINUATION, 0, 1, &[0; 8192]).repeat(5)].concat(),
                "BlockTooLarge",
                "client sent a too large header block",
            ),
            attack(
                whole(&bomb(20)),
                "BlockTooLarge",
                "client sent a too large header block",
            ),
            attack(
                whole(&large),
                "FieldTooLarge",
                "client sent a too large header field",
            ),
        ],
        "",
    );
}

#[test]
fn many_fields_are_refused_with_their_request() {
    let server = Server::start(&format!("server {{ {SERVER} max_headers 10; }}"));
    let fields = [("a", "b"); 12];
    let mut client = server.connect_http2();
    let many = client.begin("GET", "/ret", &fields, true);
    assert_eq!(client.reply(many).status, 400);
    server.wait_for("client sent too many header lines", "the fields");
    let few = client.begin("GET", "/ret", &fields[..5], true);
    assert_eq!(client.reply(few).text(), "ok");
}

/// Bytes of anonymous memory of the worker, read by a request to it.
fn resident(pid: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.expect("it lives");
    let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:"));
    let kib = line.and_then(|it| it.split_whitespace().next()?.parse::<usize>().ok());
    kib.expect("RssAnon in KiB") << 10
}

/// A stream that waits for its window holds no buffer of its file.
#[test]
fn files_on_streams_whose_windows_stay_closed() {
    let pid = "location = /pid { return 200 $pid; }";
    let server = Server::start(&format!("server {{ {SERVER} {pid} }}"));
    server.file("large", vec![1; 1 << 20]);
    let pid = server.get("/pid").text();
    let flags = END_STREAM | END_HEADERS;
    let large = |id| frame(HEADERS, flags, id, &block("GET", "/large"));
    // SETTINGS_INITIAL_WINDOW_SIZE.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]);
    let bytes = [settings, streams(100, large)].concat();
    let mut begun = Attacker::of(&server, &bytes);
    begun.0.read(4096);
    let before = resident(&pid);
    let attackers: Vec<_> = (0..10)
        .map(|_| {
            let mut attacker = Attacker::of(&server, &bytes);
            // Heads, and a byte of each.
            attacker.0.read(4096);
            attacker
        })
        .collect();
    let mut normal = server.connect_http2();
    let beside = normal.get("/ret");
    assert_eq!(normal.reply(beside).text(), "ok");
    let each = resident(&pid).saturating_sub(before) / 1000;
    assert!(each < 20_000, "{each} bytes for each stream");
    drop(attackers);
}

/// Heads that are large behind the decoder are kept by a window that stays closed: as many as 32 of the largest.
#[test]
fn large_heads_of_streams_that_stay() {
    let server = Server::start(&format!("server {{ {SERVER} send_timeout 1s; }}"));
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let flags = END_STREAM | END_HEADERS;
    // The second field is repeated, and was told with the first request.
    let again = |id| frame(HEADERS, flags, id, &bomb(6));
    let mut attacker = Attacker::of(&server, &[settings, streams(50, again)].concat());
    let Told::Reset(first, 7) = attacker.told() else {
        panic!("a stream that was refused");
    };
    assert!((65..85).contains(&first), "{first}");
    server.wait_for(
        "client sent too large headers on concurrent streams, stream",
        "the log",
    );
    assert!(resets(&server, "refused") >= 1.0);
    let mut normal = server.connect_http2();
    let beside = normal.get("/ret");
    assert_eq!(normal.reply(beside).text(), "ok");
    let answered =
        std::iter::repeat_with(|| attacker.told()).find(|told| *told == Told::Reset(1, 1));
    assert!(
        answered.is_some(),
        "the window stays closed for send_timeout"
    );
    attacker.0.send(get(1001));
    server.wait_for("while sending", "the log");
}

/// Neither a half block nor a half frame is waited for longer than for a head.
#[test]
fn frames_without_an_end() {
    let attack = |bytes| Attack {
        bytes,
        code: 1,
        reason: "TimedOut",
        log: "client timed out (110: Connection timed out) while processing HTTP/2 connection",
    };
    run(
        vec![
            attack(frame(HEADERS, END_STREAM, 1, &block("GET", "/ret"))),
            attack(get(1)[..20].to_vec()),
            attack([open(1), frame(HEADERS, END_STREAM, 3, b"")].concat()),
        ],
        "client_header_timeout 700ms; keepalive_timeout 1h;",
    );
}

#[test]
fn streams_above_the_limit_are_refused() {
    let server = Server::start(&format!("server {{ {SERVER} }}"));
    let mut normal = server.connect_http2();
    let mut attacker = Attacker::of(&server, &streams(128, open));
    attacker.0.send(open(257));
    assert_eq!(attacker.told(), Told::Reset(257, 7));
    server.wait_for(
        "client exceeded the number of concurrent streams, stream 257 is refused",
        "the log",
    );
    assert_eq!(resets(&server, "refused"), 1.0);
    attacker.0.send(
        (130..300)
            .flat_map(|n| open(2 * n + 1))
            .collect::<Vec<u8>>(),
    );
    let told =
        std::iter::repeat_with(|| attacker.told()).find(|told| matches!(told, Told::GoAway(_)));
    assert_eq!(told, Some(Told::GoAway(0)));
    server.wait_for("client sent too many refused streams", "the log");
    assert_eq!(goaways(&server, "TooManyRefused"), 1.0);
    assert_eq!(
        resets(&server, "refused"),
        128.0,
        "the last one ends the connection"
    );
    let beside = normal.get("/ret");
    assert_eq!(normal.reply(beside).text(), "ok");
}

#[test]
fn streams_of_one_read_are_twice_the_limit() {
    let server = Server::start(&format!(
        "server {{ {SERVER} http2_max_concurrent_streams 4; }}"
    ));
    let mut attacker = Attacker::of(&server, &streams(20, open));
    for n in 4..20 {
        assert_eq!(attacker.told(), Told::Reset(2 * n + 1, 7));
    }
    server.wait_for(
        "client exceeded the number of concurrent streams, stream 9 ",
        "the fifth",
    );
    server.wait_for(
        "client sent too many streams at once, stream 17 ",
        "the ninth",
    );
    assert_eq!(resets(&server, "refused"), 16.0);
    let mut normal = server.connect_http2();
    let beside = normal.get("/ret");
    assert_eq!(normal.reply(beside).text(), "ok");
}

/// The client keeps the window closed behind which a response waits.
#[test]
fn a_response_that_is_not_taken() {
    let server = Server::start(&format!("server {{ {SERVER} send_timeout 500ms; }}"));
    server.file("large", vec![0; 1 << 20]);
    // SETTINGS_INITIAL_WINDOW_SIZE.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let flags = END_STREAM | END_HEADERS;
    let large = frame(HEADERS, flags, 1, &block("GET", "/large"));
    let mut attacker = Attacker::of(&server, &[settings, large].concat());
    let mut other = server.connect_http2();
    other.consumes = false;
    let held = other.get("/large");
    assert_eq!(attacker.told(), Told::Reset(1, 1));
    assert_eq!(other.reply(held).reset, Some(1), "the connection's window");
    server.wait_for(
        "client timed out (110: Connection timed out) while sending",
        "the log",
    );
    assert_eq!(resets(&server, "timeout"), 2.0);
    attacker.0.send(get(3));
    let small = other.get("/ret");
    assert_eq!(other.reply(small).status, 200);
}

/// Of a connection with much that waits for its client, nothing more is read until that is taken.
#[test]
fn a_client_that_takes_what_waited_is_heard_again() {
    const REQUESTS: u32 = 100;
    let field = "x".repeat(4000);
    let server = Server::start(&format!(
        "keepalive_timeout 1h; server {{ {SERVER} location = /heads {{ add_header X-0 {field}; add_header X-1 {field}; return 204; }} }}"
    ));
    let flags = END_STREAM | END_HEADERS;
    let heads = |stream| frame(HEADERS, flags, stream, &block("GET", "/heads"));
    let settings = frame(SETTINGS, 0, 0, b"");
    let mut client = Attacker(narrow(&server));
    let begun = [PREFACE.as_slice(), &settings, &streams(REQUESTS, heads)].concat();
    client.0.send(begun);
    std::thread::sleep(Duration::from_millis(300));
    let next = 2 * REQUESTS + 1;
    client.0.send(get(next));
    std::thread::sleep(Duration::from_millis(300));
    client.answer(next);
}

/// curl (7.88) drops an answer that it reads together with a reset.
#[test]
fn a_request_is_reset_only_if_it_does_not_end_soon_after_its_answer() {
    let server = Server::start(&format!("server {{ {SERVER} }}"));
    let post = |stream| frame(HEADERS, END_HEADERS, stream, &block("POST", "/ret"));
    let mut client = Attacker::of(&server, &post(1));
    client.answer(1);
    client.0.send(frame(DATA, END_STREAM, 1, b"a=b"));
    client.0.send(post(3));
    client.answer(3);
    assert_eq!(client.told(), Told::Reset(3, 0));
}
