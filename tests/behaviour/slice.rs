//! Large answers in slices.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::cache::SEGMENTS;
use blackbox::{Answer, Origin, PATIENCE, Received, Reply, Server, is_nginx};

const WHOLE: &str = "0123456789abcdef";

/// The slice that a request asks for, with these lines and this length of the whole.
fn slice(request: &Received, lines: &str, length: usize) -> Answer {
    let range = request.header("range").unwrap_or_default();
    let range = range.strip_prefix("bytes=").unwrap_or_default();
    let (start, last) = range.split_once('-').unwrap_or_default();
    let (Ok(start), Ok(last)) = (start.parse::<usize>(), last.parse::<usize>()) else {
        return Answer::with("200 OK", "Accept-Ranges: bytes\r\n", WHOLE);
    };
    let end = (last + 1).min(WHOLE.len());
    let range = format!(
        "Content-Range: bytes {start}-{}/{length}\r\n{lines}",
        end - 1
    );
    Answer::with("206 Partial Content", &range, &WHOLE[start..end])
}

fn good(request: &Received) -> Answer {
    slice(
        request,
        "ETag: \"a\"\r\nAccept-Ranges: bytes\r\nX-Line: kept\r\n",
        WHOLE.len(),
    )
}

fn slicing(origin: &Origin, size: u32) -> Server {
    Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%;
             location / {{ slice {size}; proxy_set_header Range $slice_range; proxy_pass http://{0}; }}
             location /named {{ error_page 404 = @named; }}
             location @named {{ slice {size}; proxy_set_header Range $slice_range; proxy_pass http://{0}; }}
             location /off {{ proxy_set_header Range $slice_range; proxy_pass http://{0}; }} }}",
        origin.address()
    ))
}

fn ranges(origin: &Origin) -> Vec<String> {
    let received = origin.received();
    let ranges = received.iter().map(|request| request.header("range"));
    ranges
        .map(|range| range.unwrap_or("-").replace("bytes=", ""))
        .collect()
}

#[test]
fn a_whole_is_put_together_from_slices() {
    let origin = Origin::start(good);
    let server = slicing(&origin, 6);
    let reply = server.get("/");
    assert_eq!((reply.status, reply.text().as_str()), (200, WHOLE));
    assert_eq!(reply.header("content-length"), Some("16"));
    assert_eq!(reply.header("content-range"), None);
    assert_eq!(reply.all("accept-ranges"), ["bytes"]);
    assert_eq!(ranges(&origin), ["0-5", "6-11", "12-17"]);
    assert_eq!(server.get("/named").text(), WHOLE);
    let reply = server.get("/off");
    assert_eq!((reply.status, reply.text().as_str()), (200, WHOLE));
    let mut kept = server.connect();
    for _ in 0..2 {
        let reply = kept.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").reply();
        assert_eq!(reply.text(), WHOLE);
    }
}

#[test]
fn the_clients_range_is_cut_out_of_the_slices_that_it_needs() {
    let origin = Origin::start(good);
    let server = slicing(&origin, 2);
    let mut seen = 0;
    for (range, content, slices) in [
        ("bytes=3-4", "34", &["2-3", "4-5"][..]),
        ("bytes=0-0", "0", &["0-1"]),
        ("bytes=13-", "def", &["12-13", "14-15"]),
        ("bytes=-3", "def", &["0-1", "12-13", "14-15"]),
        ("bytes=-15", "123456789abcdef", &[]),
    ] {
        let reply = server.get_with("/", &format!("Range: {range}\r\n"));
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (206, content),
            "{range}"
        );
        assert_eq!(reply.all("content-range").len(), 1, "{range}");
        let asked = ranges(&origin);
        if !slices.is_empty() {
            assert_eq!(asked[seen..], *slices, "{range}");
        }
        seen = asked.len();
    }
    let several = server.get_with("/", "Range: bytes=3-3,5-5\r\n");
    assert_eq!((several.status, several.text().as_str()), (200, WHOLE));
    assert_eq!(server.get_with("/", "Range: bytes=16-\r\n").status, 416);
    let none = server.get_with("/", "Range: bytes=16-\r\nIf-Range: \"a\"\r\n");
    assert_eq!((none.status, none.header("x-line")), (416, Some("kept")));
    assert_eq!(none.all("content-range"), ["bytes */16"]);
    let same = server.get_with("/", "Range: bytes=6-7\r\nIf-Range: \"a\"\r\n");
    assert_eq!((same.status, same.text().as_str()), (206, "67"));
    let other = server.get_with("/", "Range: bytes=6-7\r\nIf-Range: \"b\"\r\n");
    assert_eq!((other.status, other.text().as_str()), (200, WHOLE));
}

#[test]
fn what_is_no_slice_passes_as_it_is() {
    let origin = Origin::start(|request| match request.target() {
        "/gone" => Answer::with("404 Not Found", "", "gone"),
        _ => Answer::ok("plain"),
    });
    let server = slicing(&origin, 2);
    let gone = server.get("/gone");
    assert_eq!((gone.status, gone.text().as_str()), (404, "gone"));
    let plain: Reply = server.get("/");
    assert_eq!((plain.status, plain.text().as_str()), (200, "plain"));
}

#[test]
fn slices_that_do_not_belong_together_end_the_connection() {
    let origin = Origin::start(|request| {
        let is_first = request.header("range") == Some("bytes=0-5");
        match request.target() {
            "/status" if !is_first => Answer::ok("x"),
            "/etag" if !is_first => slice(request, "ETag: \"b\"\r\n", WHOLE.len()),
            "/none" if !is_first => slice(request, "", WHOLE.len()),
            "/length" if !is_first => slice(request, "ETag: \"a\"\r\n", 17),
            "/other" => Answer::with("206 OK", "Content-Range: bytes 1-6/16\r\n", "123456"),
            "/range" => Answer::with("206 OK", "Content-Range: bytes\r\n", "012345"),
            "/open" => Answer::with("206 OK", "Content-Range: bytes 0-5/*\r\n", "012345"),
            "/short" => Answer::with("206 OK", "Content-Range: bytes 0-5/16\r\n", "0123"),
            _ => good(request),
        }
    });
    let server = slicing(&origin, 6);
    for (path, why) in [
        ("/status", "unexpected status code 200 in slice response"),
        ("/etag", "etag mismatch in slice response"),
        ("/none", "etag mismatch in slice response"),
        (
            "/length",
            "unexpected range in slice response: 6-12, expected: 6-12",
        ),
        (
            "/other",
            "unexpected range in slice response: 1-7, expected: 0-6",
        ),
        ("/range", "invalid range in slice response"),
        ("/open", "no complete length in slice response"),
        ("/short", "missing slice response"),
    ] {
        let reply = server.raw(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(!reply.contains("67"), "{path}: {reply}");
        let is_at_once = matches!(path, "/other" | "/range" | "/open");
        // nginx holds small answers back, so that nothing of them has gone out.
        if !is_nginx() {
            assert_eq!(reply.is_empty(), is_at_once, "{path}: {reply}");
            server.wait_for(why, path);
        }
    }
    assert_eq!(server.get("/").text(), WHOLE);
    server.forget_log();
}

#[test]
fn slices_are_cached_one_by_one() {
    slices_are_cached("");
    if !is_nginx() {
        slices_are_cached(SEGMENTS);
    }
}

fn slices_are_cached(store: &str) {
    let origin = Origin::start(|request| {
        let lines = "ETag: \"a\"\r\nCache-Control: max-age=60\r\nAccept-Ranges: bytes\r\n";
        slice(request, lines, WHOLE.len())
    });
    let server = Server::start(&format!(
        "proxy_cache_path %DIR%/cache keys_zone=c:1m {store};
         server {{ listen 127.0.0.1:%PORT%;
             location / {{ slice 4; proxy_cache c; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range;
                 add_header X-Cache $upstream_cache_status always; add_header X-Slice $slice_range; proxy_pass http://{}; }} }}",
        origin.address()
    ));
    let get = |path: &str, range: &str, status: &str| {
        let reply = server.get_with(path, range);
        assert_eq!(reply.header("x-cache"), Some(status), "{path} {range}");
        (reply.status, reply.text())
    };
    let partial = |text: &str| (206, text.to_owned());
    assert_eq!(get("/", "Range: bytes=5-8\r\n", "MISS"), partial("5678"));
    assert_eq!(ranges(&origin), ["4-7", "8-11"]);
    let whole = (200, WHOLE.to_owned());
    assert_eq!(get("/", "", "MISS"), whole);
    assert_eq!(ranges(&origin)[2..], ["0-3", "12-15"]);
    // What was fetched is stored behind the answer.
    let begun = std::time::Instant::now();
    while server.get("/").header("x-cache") != Some("HIT") {
        assert!(begun.elapsed() < PATIENCE, "the first slice is stored");
    }
    for _ in 0..2 {
        assert_eq!(get("/", "", "HIT"), whole);
        assert_eq!(get("/", "Range: bytes=-3\r\n", "HIT"), partial("def"));
        assert_eq!(
            get("/", "Range: bytes=2-13\r\n", "HIT"),
            partial("23456789abcd")
        );
    }
    let shown = |range| {
        server
            .get_with("/", range)
            .header("x-slice")
            .map(str::to_owned)
    };
    assert_eq!(shown("Range: bytes=5-8\r\n").as_deref(), Some("bytes=4-7"));
    assert_eq!(shown("").as_deref(), Some("bytes=0-3"));
    assert_eq!(get("/", "If-None-Match: \"a\"\r\n", "HIT").0, 304);
    assert_eq!(get("/", "If-Match: \"b\"\r\n", "HIT").0, 412);
    assert_eq!(
        server.request("HEAD", "/", "").header("content-length"),
        Some("16")
    );
    assert_eq!(ranges(&origin).len(), 4);
}

#[test]
fn a_response_that_is_not_the_slice_asked_for_is_not_stored() {
    let faulty = Mutex::new(HashSet::new());
    let origin = Origin::start(move |request| {
        let fault = match (request.target(), request.header("range")) {
            ("/status" | "/etag" | "/gone" | "/length", Some("bytes=0-5")) => None,
            (target, _) => Some(target.to_owned()),
        };
        let is_now = |target: String| faulty.lock().unwrap().insert(target);
        let lines = "ETag: \"a\"\r\nAccept-Ranges: bytes\r\n";
        match fault.filter(|target| is_now(target.clone())).as_deref() {
            Some("/status") => Answer::ok(WHOLE),
            Some("/gone") => Answer::with("404 Not Found", "", "gone"),
            Some("/etag") => slice(request, "ETag: \"b\"\r\n", WHOLE.len()),
            Some("/length") => slice(request, lines, 17),
            Some("/short") => Answer::with("206 OK", "Content-Range: bytes 0-5/16\r\n", "0123"),
            Some("/open") => Answer::with("206 OK", "Content-Range: bytes 0-5/*\r\n", "012345"),
            Some("/other") => Answer::with("206 OK", "Content-Range: bytes 1-6/16\r\n", "123456"),
            _ => slice(request, lines, WHOLE.len()),
        }
    });
    let server = Server::start(&format!(
        "proxy_cache_path %DIR%/cache keys_zone=c:1m;
         server {{ listen 127.0.0.1:%PORT%;
             location / {{ slice 6; proxy_cache c; proxy_cache_key $uri$slice_range; proxy_cache_valid 200 206 404 1h;
                 proxy_set_header Range $slice_range; proxy_pass http://{}; }} }}",
        origin.address()
    ));
    for path in [
        "/status", "/gone", "/etag", "/length", "/short", "/open", "/other",
    ] {
        let cut = server.raw(format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        ));
        // nginx stores it.
        if is_nginx() && path == "/short" {
            continue;
        }
        // nginx takes any length of the whole.
        if !(is_nginx() && path == "/length") {
            assert!(!cut.ends_with("abcdef"), "{path}: {cut}");
        }
        let whole = server.get(path);
        assert_eq!(
            (whole.status, whole.text().as_str()),
            (200, WHOLE),
            "{path}"
        );
    }
    server.forget_log();
}

/// They cannot come sooner than the rate lets them.
#[test]
fn a_limited_rate_is_that_of_all_slices_together() {
    let server = Server::start(
        "proxy_cache_path %DIR%/cache keys_zone=c:1m;
         server { listen 127.0.0.1:%PORT1%; }
         server { listen 127.0.0.1:%PORT%; slice 200k; proxy_cache c; proxy_cache_valid any 1h; proxy_cache_key $slice_range;
             proxy_set_header Range $slice_range;
             location /fast { proxy_pass http://127.0.0.1:%PORT1%/large; }
             location /slow { proxy_pass http://127.0.0.1:%PORT1%/large; limit_rate 400k; limit_rate_after 200k; } }",
    );
    let large = vec![b'l'; 1 << 20];
    server.file("large", &large);
    for _ in 0..3 {
        assert!(server.get("/fast").body == large);
    }
    let begun = std::time::Instant::now();
    assert!(server.get("/slow").body == large);
    assert!(begun.elapsed() >= std::time::Duration::from_millis(700));
}
