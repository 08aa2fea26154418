//! Measures the pure parts of one keep-alive request: `cargo run --release -p freewheel-wire --example speed`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use message::{ETag, HeaderId, Response, conditional, date, uri};
use wire::http1::request_parser::{HeadLimits, ParsedRequest, parse_head};
use wire::http1::response_writer::{self, ConnectionHeader, HeadContext};
use wire::{Timer, Wheel};

const ROUNDS: u32 = 2_000_000;
const CURL: &[u8] = b"GET /images/logo.png HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n";
const BROWSER: &[u8] = b"GET /assets/app.4f3a2b.js?v=12 HTTP/1.1\r\nHost: www.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\nAccept: */*\r\n\
    Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nReferer: https://www.example.org/\r\n\
    Connection: keep-alive\r\nCookie: session=0123456789abcdef; theme=dark\r\nSec-Fetch-Dest: script\r\n\
    Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Site: same-origin\r\nCache-Control: no-cache\r\n\r\n";

fn measure(name: &str, mut work: impl FnMut()) {
    (0..ROUNDS / 10).for_each(|_| work());
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| work());
    println!(
        "{name:<42}{:>8.1} ns",
        start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    );
}

fn parse(text: &[u8]) -> Box<message::RequestHead> {
    match parse_head(text, &HeadLimits::default()) {
        ParsedRequest::Complete(head, _) => head,
        other => panic!("{other:?}"),
    }
}

fn file() -> Response<()> {
    let mut response = Response::new(200);
    response.content_type = bytes::Bytes::from_static(b"image/png");
    response.content_length = Some(1024);
    response.last_modified = Some(1_700_000_000);
    response.etag = Some(ETag::of_file(1_700_000_000, 1024));
    response.accept_ranges = true;
    response
}

fn main() {
    measure("head of curl, read and dropped", || {
        drop(black_box(parse(black_box(CURL))))
    });
    measure("head of a browser, read and dropped", || {
        drop(black_box(parse(black_box(BROWSER))))
    });
    let head = parse(BROWSER);
    measure("look-up of a header that is there", || {
        black_box(black_box(&head).get(HeaderId::CacheControl));
    });
    measure("look-up of a header that is not", || {
        black_box(black_box(&head).get(HeaderId::Range));
    });
    let (tag, text) = (
        ETag::of_file(1_700_000_000, 1024),
        date::format(1_700_000_000),
    );
    measure("conditions of a request without any", || {
        black_box(conditional::judge(
            black_box(&head),
            Some(1_700_000_000),
            Some(&tag),
            Default::default(),
        ));
    });
    measure("date, read", || {
        black_box(date::parse(black_box(&text)));
    });
    measure("path with an escape, normalised", || {
        black_box(uri::normalise(black_box(b"/a%20b/../c.html?x"), true).is_ok());
    });
    measure("response of a file, made and dropped", || {
        drop(black_box(file()))
    });
    let (response, now) = (file(), date::format(1_700_000_001));
    let mut out = Vec::with_capacity(4096);
    measure("head of a file's response, written", || {
        out.clear();
        let context = HeadContext {
            server_line: b"Server: freewheel\r\n",
            date: &now,
            connection: ConnectionHeader::KeepAlive(None),
            is_chunked: false,
        };
        response_writer::head(&mut out, black_box(&response), &context);
        black_box(&out);
    });
    let wheel = Wheel::new();
    let mut timers: Vec<Timer> = (0..1000).map(|_| wheel.timer()).collect();
    let mut next = 0;
    measure("timeout armed again, clock read included", || {
        timers[next % 1000].arm(Duration::from_secs(65));
        next += 1;
    });
    measure("clock", || {
        black_box(wire::loop_clock::monotonic_ms());
    });
}
