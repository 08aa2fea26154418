//! Disks of caches that hang or fail in the middle of a response: the rest comes from the origin, no byte twice and none
//! of another version; where the origin has another version, the response ends.

#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use crate::cache::{cache, store};
use crate::fills::hold_pools;
use crate::sick_disks::{KEYS, cold, evict, evict_below, fault, files, metric, whole};
use blackbox::{Answer, Connection, Origin, PATIENCE, Received, Server, Site, is_nginx, until};
use nix::sys::socket::{setsockopt, sockopt};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// Bytes of a large body: more than sockets hold.
const LARGE: usize = 12 << 20;
/// Bytes of one that lies in a segment.
const SMALL: usize = 1000 << 10;
/// Bytes that the client takes before the disk fails.
const FIRST: usize = 100_000;
/// Hits of which one is not the one that verifies.
const TRIES: usize = 4;
/// Bytes that the client's socket holds, about.
const RECEIVED: usize = 32 << 10;
const DATE: &str = "Thu, 26 Nov 2020 10:00:00 GMT";

/// The body at a path in a version: no two parts of it are the same, and it is text.
fn content(path: &str, version: u8) -> Vec<u8> {
    let len = match path.ends_with("/small") {
        true => SMALL,
        false => LARGE,
    };
    let mut body = Vec::with_capacity(len + 16);
    let mut number = path.len();
    while body.len() < len {
        number += 1;
        body.extend_from_slice(format!("{}{number:x} ", char::from(b'g' + version)).as_bytes());
    }
    body.truncate(len);
    body
}

/// What an origin says of a path: its first part is the kind of its validator. Asked a second time, it has another
/// version of what begins with `/new`.
fn answer(request: &Received, is_again: bool) -> Answer {
    let path = request.target();
    let is_new = is_again && path.starts_with("/new");
    let body = content(path, u8::from(is_new));
    let kept = "Content-Type: text/html\r\nAccept-Ranges: bytes\r\nCache-Control: max-age=600\r\n";
    let tag = format!("\"v{}\"", u8::from(is_new));
    let validator = match path.split('/').nth(1) {
        Some("date" | "newdate") if is_new => {
            "Last-Modified: Fri, 27 Nov 2020 10:00:00 GMT\r\n".into()
        }
        Some("date" | "newdate") => format!("Last-Modified: {DATE}\r\n"),
        Some("none") => String::new(),
        _ => format!("ETag: {tag}\r\n"),
    };
    let headers = format!("{kept}{validator}");
    let is_range = match path.starts_with("/slice") {
        true => true,
        false => request.header("If-Range") == Some(&tag) && !path.starts_with("/whole"),
    };
    let Some(range) = request.header("Range").filter(|_| is_range) else {
        return Answer::with("200 OK", &headers, body);
    };
    let (start, end) = range["bytes=".len()..].split_once('-').expect("one range");
    let (start, end): (usize, usize) =
        (start.parse().expect("digits"), end.parse().expect("digits"));
    let headers = format!(
        "{headers}Content-Range: bytes {start}-{end}/{}\r\n",
        body.len()
    );
    Answer::with("206 Partial Content", &headers, &body[start..=end])
}

fn origin() -> Origin {
    let asked = std::sync::Mutex::new(std::collections::HashSet::new());
    Origin::start(move |request| {
        let is_first = asked
            .lock()
            .expect("no thread panics")
            .insert(request.target().to_owned());
        answer(request, !is_first)
    })
}

struct Setup {
    origin: Origin,
    server: Server,
    faults: PathBuf,
}

/// A server with a cache in which these paths are stored, none of it in memory.
fn setup(parameters: &str, more: &str, paths: &[&str]) -> Setup {
    let origin = origin();
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_DISK", "%DIR%/faults");
    let faults = site.path("faults");
    let http = format!(
        "proxy_cache_path %DIR%/one levels=1:2 keys_zone=one:1m {parameters}; \
         add_header X-Cache $upstream_cache_status always; \
         server {{ listen 127.0.0.1:%PORT% sndbuf=64k; http2 on; location / {{ proxy_cache one; {more} \
         proxy_pass http://{}; }} location = /metrics {{ metrics; }} }}",
        origin.address()
    );
    let server = Server::start_on(site, "", &http);
    for path in paths {
        assert_eq!(server.get(path).status, 200);
        until("it is stored", PATIENCE, || {
            let reply = server.request("HEAD", path, "");
            (cache(&reply) == "HIT").then_some(())
        });
    }
    evict(&server, &["one"]);
    origin.take();
    Setup {
        origin,
        server,
        faults,
    }
}

impl Setup {
    /// Starts the server anew: nothing that is stored was verified.
    fn restarted(mut self) -> Self {
        self.server.restart();
        self.server.wait_for("/one\": ", "its cache is open");
        evict(&self.server, &["one"]);
        self
    }

    fn fail(&self, kind: &str) {
        fault(&self.server, &self.faults, "one", kind);
        evict(&self.server, &["one"]);
    }

    /// Asks for a path, and stops after the first bytes of the body; those.
    fn begin(&self, path: &str, headers: &str) -> (Connection, String, Vec<u8>) {
        let mut client = self.server.connect();
        setsockopt(client.stream(), sockopt::RcvBuf, &RECEIVED).expect("it is a socket");
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n"
        ));
        let head = client.until("\r\n\r\n");
        assert!(head.contains("X-Cache: HIT"), "{path}: {head}");
        let first = client.read(FIRST);
        (client, head, first)
    }

    /// The body at a path whose disk fails in this way after its first bytes.
    fn body(&self, path: &str, headers: &str, kind: &str) -> Vec<u8> {
        let (mut client, _, mut body) = self.begin(path, headers);
        self.fail(kind);
        body.extend(client.rest());
        body
    }

    /// The same where it follows its own fetch, which stores it.
    fn followed(&self, path: &str, kind: &str) -> Vec<u8> {
        let mut client = self.server.connect();
        setsockopt(client.stream(), sockopt::RcvBuf, &RECEIVED).expect("it is a socket");
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        ));
        assert!(client.until("\r\n\r\n").contains("X-Cache: MISS"));
        let mut body = client.read(FIRST);
        // The fetch goes on without its client, which has to read the file from here on.
        until("it is stored", PATIENCE, || {
            (cache(&self.server.request("HEAD", path, "")) == "HIT").then_some(())
        });
        self.fail(kind);
        body.extend(client.rest());
        body
    }

    fn takeovers(&self) -> (u64, u64) {
        let count = |outcome: &str| {
            let labels = format!("{{cache=\"one\",outcome=\"{outcome}\"}}");
            metric(
                &self.server,
                &format!("freewheel_cache_takeovers_total{labels}"),
            )
        };
        (count("origin"), count("refused"))
    }

    /// The origin gave the rest, of one part of the response at least.
    #[track_caller]
    fn took_over(&self) {
        let (taken, refused) = self.takeovers();
        assert!(taken > 0 && refused == 0, "{taken} {refused}");
    }

    /// The disk is well again; the server has said that it was not.
    fn end(&self) {
        self.fail("");
        self.server.forget_log();
    }
}

#[track_caller]
fn same(got: &[u8], wanted: &[u8]) {
    let first = got.iter().zip(wanted).position(|(a, b)| a != b);
    assert_eq!(
        (got.len(), first),
        (wanted.len(), None),
        "bytes, and the first wrong one"
    );
}

#[test]
fn the_origin_gives_the_rest_of_a_hit_whose_disk_fails_or_hangs() {
    if is_nginx() {
        return;
    }
    for (kind, more) in [
        ("fail 1", "sendfile on;"),
        ("stall", "sendfile on;"),
        ("fail 1", ""),
    ] {
        for path in ["/tag/1", "/whole/1", "/date/1"] {
            let setup = setup("", more, &[path]);
            same(&setup.body(path, "", kind), &content(path, 0));
            let asked = setup.origin.take();
            assert_eq!(asked.len(), 1, "{path}");
            let (range, condition) = (asked[0].header("Range"), asked[0].header("If-Range"));
            match path.starts_with("/date") {
                true => assert_eq!((range, condition), (None, None)),
                false => {
                    let end = format!("-{}", LARGE - 1);
                    assert!(
                        range.is_some_and(|range| range.ends_with(&end)),
                        "{range:?}"
                    );
                    assert_eq!(condition, Some("\"v0\""));
                }
            }
            assert_eq!(setup.takeovers(), (1, 0));
            let line = "the origin gives the rest of an answer: ";
            setup.server.wait_for(line, "a line");
            setup.end();
        }
    }
}

#[test]
fn a_range_and_an_entry_that_is_verified_on_the_way_go_on_as_well() {
    if is_nginx() {
        return;
    }
    let setup = setup("", "sendfile on;", &["/tag/1", "/date/1"]);
    let (from, to) = (1 << 20, 11 << 20);
    for path in ["/tag/1", "/date/1"] {
        let body = setup.body(path, &format!("Range: bytes={from}-{to}\r\n"), "fail 1");
        same(&body, &content(path, 0)[from..=to]);
        setup.fail("");
    }
    let setup = setup.restarted();
    for path in ["/tag/1", "/date/1"] {
        same(&setup.body(path, "", "fail 1"), &content(path, 0));
        setup.fail("");
    }
    let (taken, refused) = setup.takeovers();
    // A part that was verified and not yet sent is a case of its own.
    assert!(taken >= 2 && refused == 0, "{taken} {refused}");
    setup.end();
}

#[test]
fn an_entry_in_a_segment_goes_on() {
    if is_nginx() {
        return;
    }
    for kind in ["fail 1", "stall"] {
        let more = "sendfile on;";
        let setup = setup("max_size=64m store=segments", more, &["/tag/small"]);
        // A hit that verifies the entry has read all of it, and needs the disk no more.
        for _ in 0..TRIES {
            let body = setup.body("/tag/small", "", kind);
            same(&body, &content("/tag/small", 0));
            if setup.takeovers() != (0, 0) {
                break;
            }
            setup.fail("");
        }
        assert_eq!(setup.takeovers(), (1, 0));
        setup.end();
    }
}

#[test]
fn a_stream_of_http2_goes_on() {
    if is_nginx() {
        return;
    }
    for kind in ["fail 1", "stall"] {
        for path in ["/tag/1", "/date/1"] {
            let setup = setup("", "", &[path]);
            let mut client = setup.server.connect_http2();
            client.consumes = false;
            let stream = client.get(path);
            client.read_until(stream, 60_000);
            setup.fail(kind);
            client.consumes = true;
            client.catch_up(stream);
            let reply = client.reply(stream);
            assert!(reply.is_whole, "{path} {kind}: {:?}", reply.reset);
            same(&reply.body, &content(path, 0));
            assert_eq!(setup.takeovers(), (1, 0));
            setup.end();
        }
    }
}

#[test]
fn a_body_behind_a_filter_goes_on() {
    if is_nginx() {
        return;
    }
    let more = "sub_filter 'nothing of this' 'that'; sub_filter_last_modified on;";
    for kind in ["fail 1", "stall"] {
        let setup = setup("", more, &["/date/1"]);
        let (mut client, head, mut body) = setup.begin("/date/1", "TE: none\r\n");
        assert!(head.contains("chunked"), "{head}");
        setup.fail(kind);
        body.extend(client.rest());
        same(&unchunked(&body), &content("/date/1", 0));
        assert_eq!(setup.takeovers(), (1, 0));
        setup.end();
    }
}

#[test]
fn a_response_that_follows_its_own_fetch_goes_on() {
    if is_nginx() {
        return;
    }
    for kind in ["fail 1", "stall"] {
        let setup = setup("", "", &[]);
        same(&setup.followed("/tag/1", kind), &content("/tag/1", 0));
        assert_eq!(setup.takeovers(), (1, 0));
        setup.end();
    }
}

/// Slices of a cache's entry: two make the whole.
const SLICES: &str =
    "slice 6m; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range;";

#[test]
fn the_first_slice_of_a_response_goes_on() {
    if is_nginx() {
        return;
    }
    for kind in ["fail 1", "stall"] {
        let setup = setup("", SLICES, &["/slice/1"]);
        same(&setup.body("/slice/1", "", kind), &content("/slice/1", 0));
        let asked = setup.origin.take();
        assert_eq!(asked[0].header("Range"), Some("bytes=0-6291455"));
        setup.took_over();
        setup.end();
    }
    let setup = setup("", SLICES, &[]);
    let body = setup.followed("/slice/1", "fail 1");
    same(&body, &content("/slice/1", 0));
    setup.took_over();
    setup.end();
}

#[test]
fn a_body_that_is_a_part_of_one_behind_a_filter_goes_on() {
    if is_nginx() {
        return;
    }
    let replacing = "sub_filter 'nothing of this' 'that';";
    let setup = setup("", &format!("{SLICES} {replacing}"), &["/slice/1"]);
    let body = setup.body("/slice/1", "", "fail 1");
    same(&unchunked(&body), &content("/slice/1", 0));
    setup.took_over();
    setup.end();
    let more = "add_after_body /tag/small; gzip on; gzip_comp_level 1;";
    let setup = self::setup("", more, &["/tag/1"]);
    let headers = "Accept-Encoding: gzip\r\n";
    let body = setup.body("/tag/1", headers, "fail 1");
    let mut text = Vec::new();
    let coded = unchunked(&body);
    flate2::read::GzDecoder::new(&coded[..])
        .read_to_end(&mut text)
        .expect("it is whole");
    let parts = [content("/tag/1", 0), content("/tag/small", 0)];
    same(&text, &parts.concat());
    setup.took_over();
    setup.end();
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = bytes
            .windows(2)
            .position(|two| two == b"\r\n")
            .expect("a chunk's head");
        let len = std::str::from_utf8(&bytes[..line]).expect("digits");
        let len = usize::from_str_radix(len, 16).expect("digits");
        if len == 0 {
            return body;
        }
        body.extend_from_slice(&bytes[line + 2..line + 2 + len]);
        bytes = &bytes[line + 4 + len..];
    }
}

#[test]
fn where_the_origin_has_another_version_the_response_ends() {
    if is_nginx() {
        return;
    }
    for path in ["/new/1", "/newdate/1", "/none/1"] {
        let setup = setup("", "sendfile on;", &[path]);
        let body = setup.body(path, "", "fail 1");
        assert!(body.len() >= FIRST && body.len() < LARGE, "{}", body.len());
        same(&body, &content(path, 0)[..body.len()]);
        assert_eq!(setup.takeovers(), (0, 1));
        setup
            .server
            .wait_for("the origin cannot give the rest of an answer (", "a line");
        // The entry's file, and not what the root has for the URI.
        let named = "while sending response to client: \"%DIR%/one/";
        let named = setup.server.site().fill(named);
        setup.server.wait_for(&named, "the file");
        setup.end();
    }
}

#[test]
fn a_body_that_cannot_be_read_back_from_its_file_is_503() {
    if is_nginx() {
        return;
    }
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    let (hold, bodies) = (site.path("hold"), site.path("bodies"));
    let held = hold.clone();
    // The body is in no memory when the second server is to get it, and its disk hangs.
    let first = Origin::start(move |_| {
        evict_below(&bodies);
        hold_pools(&held);
        Answer::with("503 Service Unavailable", "", "")
    });
    let second = Origin::start(|_| Answer::ok("second"));
    let http = format!(
        "client_body_temp_path %DIR%/bodies; client_body_in_file_only clean; disk_timeout 300ms;
         upstream app {{ server {}; server {}; }}
         server {{ listen 127.0.0.1:%PORT%;
             location / {{ proxy_pass http://app; proxy_next_upstream http_503 non_idempotent; }} }}",
        first.address(),
        second.address()
    );
    let server = Server::start_on(site, "", &http);
    let mut client = server.connect();
    let body = "x".repeat(4000);
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000\r\n\r\n{body}"
    ));
    let late = client.reply();
    assert_eq!((late.status, late.header("retry-after")), (503, Some("5")));
    server.wait_for(
        "the disk has not answered within 300ms while reading a request body from a temporary file",
        "why",
    );
    std::fs::remove_file(hold).expect("it was made");
    server.forget_log();
}

/// A file system drops what it cannot write: then there are holes where a response was.
#[test]
fn what_a_failing_disk_has_lost_is_not_sent() {
    if is_nginx() || !store().is_empty() {
        return;
    }
    const LEN: usize = 300_000;
    let body = |target: &str| format!("{target} {}", "x".repeat(LEN));
    let origin = Origin::start(move |request| {
        let body = body(request.target());
        Answer::with(
            "200 OK",
            "Cache-Control: max-age=600\r\nETag: \"1\"\r\n",
            body,
        )
    });
    let (server, faults) = cold(&origin, "");
    let all_are_right = || {
        for number in 0..KEYS {
            let path = format!("/one/{number}");
            assert!(whole(&server, &path).text() == body(&path), "{path}");
        }
    };
    all_are_right();
    fault(&server, &faults, "one", "fail 4");
    until("some reads fail", PATIENCE, || {
        evict(&server, &["one"]);
        all_are_right();
        let log = server.error_log();
        log.contains("/one\": its disk is failing").then_some(())
    });
    let mut found = Vec::new();
    files(&server.site().path("one"), &mut found);
    let is_entry = |path: &&PathBuf| path.metadata().is_ok_and(|meta| meta.len() > LEN as u64);
    for path in found.iter().filter(is_entry) {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&[0; 1000], LEN as u64 / 2).unwrap();
    }
    all_are_right();
    fault(&server, &faults, "one", "");
    all_are_right();
    server.forget_log();
}
