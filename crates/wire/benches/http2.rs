//! What one request costs the HTTP/2 codec: a browser's header block of 15 fields decoded into a head, a response head of 7
//! fields encoded, and both through a connection with a body of 1 KiB.
//!
//! `cargo bench -p freewheel-wire --bench http2`. For instructions: `valgrind --tool=callgrind`, or `perf stat`, on the same program
//! with `--profile-time`. On 23 November 2026 (2 busy virtual cores, AMD EPYC; callgrind on a program of the same steps):
//! decode, indexed 6 730 instructions, 0.7 µs; decode, literals 25 500, 3.3 µs; encode 2 950, 0.23 µs; a request through a
//! connection, with its body, 10 640, 1.1 µs.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use message::{ETag, Response};
use wire::http1::request_parser::HeadLimits;
use wire::http2::frame::{FrameHeader, FrameType, flags, write_header};
use wire::http2::head_writer::{self, FieldContext};
use wire::http2::hpack::{Decoder, encode};
use wire::http2::request_head::{self, RequestContext};
use wire::http2::session::PREFACE;
use wire::http2::{Event, Session, SessionConfig};

/// The fields of a browser's request.
const FIELDS: [(&str, &str); 15] = [
    (":method", "GET"),
    (":authority", "www.example.com"),
    (":scheme", "https"),
    (":path", "/assets/images/logo-2x.png?v=1732346746"),
    (
        "sec-ch-ua",
        "\"Chromium\";v=\"142\", \"Not_A Brand\";v=\"99\"",
    ),
    ("sec-ch-ua-mobile", "?0"),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    ),
    ("sec-ch-ua-platform", "\"Linux\""),
    (
        "accept",
        "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8",
    ),
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-mode", "no-cors"),
    ("referer", "https://www.example.com/articles/index.html"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-GB,en;q=0.9,de;q=0.8"),
    (
        "cookie",
        "session=0f8fad5bd9cb469fa16570867728950e; theme=dark",
    ),
];

/// The first block of a connection, whose fields enter the table, and a later one, as a browser writes them: all is
/// indexed but the path.
fn blocks() -> (Vec<u8>, Vec<u8>) {
    let mut first = Vec::new();
    let mut places = Vec::new();
    for (place, (name, value)) in FIELDS.iter().enumerate() {
        if let Some(index) = whole(place) {
            encode::indexed(&mut first, index);
        } else {
            first.push(0x40);
            encode::string(&mut first, name.as_bytes());
            encode::string(&mut first, value.as_bytes());
            places.push(place);
        }
    }
    let mut later = Vec::new();
    for (place, (name, value)) in FIELDS.iter().enumerate() {
        let age = places.iter().rev().position(|entry| *entry == place);
        match (whole(place), age) {
            _ if *name == ":path" => encode::field(&mut later, b":path", value.as_bytes()),
            (Some(index), _) => encode::indexed(&mut later, index),
            (None, age) => encode::indexed(&mut later, 62 + age.expect("it was entered")),
        }
    }
    (first, later)
}

/// The static index of a field with its value.
fn whole(place: usize) -> Option<usize> {
    match FIELDS[place] {
        (":method", "GET") => Some(2),
        (":scheme", "https") => Some(7),
        _ => None,
    }
}

/// The first block as a browser would write it to a server that it has not met: literals in Huffman's code.
fn literals() -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in FIELDS {
        encode::field(&mut out, name.as_bytes(), value.as_bytes());
    }
    out
}

fn response() -> Response<()> {
    let mut response = Response::new(200);
    response.content_type = "image/png".into();
    response.content_length = Some(1024);
    response.last_modified = Some(1_700_000_000);
    response.etag = Some(ETag::of_file(1_700_000_000, 1024));
    response.accept_ranges = true;
    response
}

fn kept_fields() -> (Vec<u8>, Vec<u8>) {
    let (mut server, mut date) = (Vec::new(), Vec::new());
    encode::field(&mut server, b"server", b"freewheel");
    encode::field(&mut date, b"date", b"Mon, 23 Nov 2026 09:25:46 GMT");
    (server, date)
}

fn decode(bench: &mut Criterion) {
    let (first, later) = blocks();
    let context = RequestContext {
        limits: HeadLimits::default(),
        is_end: true,
        allows_protocol: false,
    };
    for (name, block) in [("decode, indexed", later), ("decode, literals", literals())] {
        let mut decoder = Decoder::default();
        let mut one = |block: &[u8]| {
            let head = request_head::decode(&mut decoder, block, &context, &mut |_| None);
            black_box(head.expect("it was encoded by us"));
        };
        one(&first);
        bench.bench_function(name, |bench| bench.iter(|| one(&block)));
    }
}

fn encode_head(bench: &mut Criterion) {
    let response = response();
    let (server, date) = kept_fields();
    let context = FieldContext {
        server: &server,
        date: &date,
    };
    let mut out = Vec::new();
    bench.bench_function("encode", |bench| {
        bench.iter(|| {
            out.clear();
            head_writer::response(&mut out, black_box(&response), &context);
        });
    });
}

/// Turns of 32 requests; the figure is of one request.
fn connection(bench: &mut Criterion) {
    const TURN: u32 = 32;
    let (first, later) = blocks();
    let response = response();
    let (server, date) = kept_fields();
    let context = FieldContext {
        server: &server,
        date: &date,
    };
    let body = [b'x'; 1024];
    let mut session = Session::server(SessionConfig::default());
    let mut input = PREFACE.to_vec();
    let mut next = 1;
    let mut request = |input: &mut Vec<u8>, block: &[u8]| {
        let header = FrameHeader {
            len: block.len(),
            kind: FrameType::HEADERS,
            flags: flags::END_STREAM | flags::END_HEADERS,
            stream: next,
        };
        next += 2;
        write_header(input, &header);
        input.extend_from_slice(block);
    };
    request(&mut input, &first);
    let mut turn = |input: &[u8]| {
        let mut at = 0;
        session.begin_read();
        session.begin_turn(0);
        loop {
            let (used, event) = session.receive(&input[at..], 0, &mut |_| None);
            at += used;
            let Event::Request(key, head, _) = event else {
                break;
            };
            black_box(&head);
            let write = |out: &mut Vec<u8>| head_writer::response(out, &response, &context);
            session.respond(key, false, write).expect("it is open");
            let sent = session.data(key, &body, true);
            assert_eq!(sent, Ok(body.len()));
        }
        // The peer reads, and gives the room back.
        let len = session.output().len();
        session.sent(len);
        let mut update = Vec::new();
        wire::http2::frame::write_window_update(&mut update, 0, TURN * 1024);
        session.begin_turn(0);
        session.receive(&update, 0, &mut |_| None);
    };
    turn(&input);
    bench.bench_function("connection, a turn of 32", |bench| {
        bench.iter_batched(
            || {
                let mut input = Vec::new();
                (0..TURN).for_each(|_| request(&mut input, &later));
                input
            },
            |input| turn(&input),
            criterion::BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, decode, encode_head, connection);
criterion_main!(benches);
