//! Conditions and keys of a cache that are made of the request's body or of the response, and requests that bypass it.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use super::cache::{cache, hit, server, wait_until};
use super::sick_disks::files;
use blackbox::{Answer, Origin, Server, is_nginx};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

const LASTING: &str = "Cache-Control: max-age=60\r\n";

fn post(server: &Server, path: &str, body: &str) -> blackbox::Reply {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    server.connect().send(request).reply()
}

#[test]
fn a_key_and_a_bypass_may_be_made_of_the_body() {
    let origin = Origin::start(|request| Answer::with("200 OK", LASTING, &request.body));
    let server = server(
        &origin,
        "location /key { %PASS%; proxy_cache_methods POST; proxy_cache_key $uri|$request_body; }
         location /bypass { %PASS%; proxy_cache_methods POST; proxy_cache_key $uri; proxy_cache_bypass $request_body; }",
    );
    for (path, body, status) in [
        ("/key", "one", "MISS"),
        ("/key", "two", "MISS"),
        ("/bypass", "0", "MISS"),
        ("/bypass", "1", "BYPASS"),
    ] {
        let reply = post(&server, path, body);
        assert_eq!((cache(&reply), reply.text().as_str()), (status, body));
    }
    while cache(&post(&server, "/key", "one")) != "HIT" {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(post(&server, "/key", "two").text(), "two");
}

#[test]
fn what_is_not_to_be_stored_is_known_by_the_fields_that_are_sent() {
    let origin = Origin::start(|_| {
        let fields = format!("{LASTING}Content-Type: text/private\r\n");
        Answer::with("200 OK", &fields, "x")
    });
    let server = server(
        &origin,
        "location / { %PASS%; proxy_no_cache $sent_http_content_type; }",
    );
    for _ in 0..3 {
        assert_eq!(cache(&server.get("/")), "MISS");
        std::thread::sleep(Duration::from_millis(30));
    }
}

#[test]
fn an_update_behind_a_stale_answer_is_not_stored_where_its_response_forbids_it() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let origin = Origin::start(move |_| match count.fetch_add(1, SeqCst) {
        0 => Answer::with("200 OK", "Cache-Control: max-age=1\r\n", "all"),
        _ => Answer::with(
            "200 OK",
            &format!("{LASTING}Set-Cookie: sid=me\r\n"),
            "mine",
        ),
    });
    let server = server(
        &origin,
        "location / { %PASS%; proxy_ignore_headers Set-Cookie; proxy_no_cache $upstream_cookie_sid;
             proxy_cache_use_stale updating; proxy_cache_background_update on; }",
    );
    hit(&server, "/");
    std::thread::sleep(Duration::from_millis(2200));
    for updates in 2..4 {
        let reply = server.get("/");
        assert_eq!((cache(&reply), reply.text().as_str()), ("STALE", "all"));
        wait_until(&asked, updates);
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_request_that_bypasses_the_cache_holds_up_no_other() {
    let state = Arc::new(AtomicU32::new(0));
    let held = state.clone();
    let origin = Origin::start(move |request| {
        if request.header("X-Past").is_none() {
            return Answer::with("200 OK", LASTING, "all");
        }
        wait_until(&held, 1);
        Answer::Close(Vec::new())
    });
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_key $uri; proxy_cache_lock on; proxy_cache_lock_timeout 1h; proxy_cache_bypass $http_x_past; proxy_no_cache $http_x_past; }",
    );
    std::thread::scope(|scope| {
        let past = scope.spawn(|| server.get_with("/", "X-Past: 1\r\n"));
        origin.wait(1);
        let reply = server.get("/");
        assert_eq!((cache(&reply), reply.text().as_str()), ("MISS", "all"));
        state.store(1, SeqCst);
        assert_eq!(past.join().expect("it is answered").status, 502);
    });
    assert_eq!(hit(&server, "/").text(), "all");
}

#[test]
fn those_who_wait_for_a_response_that_its_own_request_keeps_out_share_the_next_one() {
    let state = Arc::new(AtomicU32::new(0));
    let held = state.clone();
    let origin = Origin::start(move |request| {
        if request.header("X-Mine").is_some() {
            wait_until(&held, 1);
        } else {
            std::thread::sleep(Duration::from_millis(300));
        }
        Answer::with("200 OK", LASTING, "all")
    });
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_lock on; proxy_no_cache $http_x_mine; }",
    );
    std::thread::scope(|scope| {
        let mine = scope.spawn(|| server.get_with("/", "X-Mine: 1\r\n"));
        origin.wait(1);
        let others: Vec<_> = (0..4).map(|_| scope.spawn(|| server.get("/"))).collect();
        std::thread::sleep(Duration::from_millis(200));
        state.store(1, SeqCst);
        for one in others.into_iter().chain([mine]) {
            assert_eq!(one.join().expect("it is answered").text(), "all");
        }
    });
    // One for the first, one for all others.
    assert_eq!(origin.received().len(), 2);
}

#[test]
fn trailers_of_a_response_that_goes_through_a_cache_are_passed_on() {
    let origin = Origin::start(|_| {
        let fields = format!("{LASTING}Trailer: X-T\r\nTransfer-Encoding: chunked");
        Answer::raw(format!(
            "HTTP/1.1 200 OK\r\n{fields}\r\n\r\n3\r\nabc\r\n0\r\nX-T: end\r\n\r\n"
        ))
    });
    let server = server(
        &origin,
        "location / { %PASS%; proxy_pass_trailers on; proxy_cache_bypass $arg_b; }",
    );
    for path in ["/", "/x?b=1"] {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close\r\n\r\n");
        let text = server.raw(request);
        assert!(text.ends_with("0\r\nX-T: end\r\n\r\n"), "{text}");
    }
}

#[test]
fn what_fetches_for_the_cache_is_no_connection_of_a_client() {
    let state = Arc::new(AtomicU32::new(0));
    let held = state.clone();
    let origin = Origin::start(move |_| {
        let held = held.clone();
        Answer::Talk(Box::new(move |mut stream| {
            use std::io::Write;
            let head = format!("HTTP/1.1 200 OK\r\n{LASTING}Content-Length: 6\r\n\r\nabc");
            let _ = stream.write_all(head.as_bytes());
            wait_until(&held, 1);
            let _ = stream.write_all(b"def");
        }))
    });
    let server = server(
        &origin,
        "location / { %PASS%; } location = /status { stub_status; }",
    );
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    origin.wait(3);
    let status = || server.get("/status").text();
    // The one that asks, too.
    let told = status();
    assert!(told.starts_with("Active connections: 4 \n"), "{told}");
    assert!(told.ends_with("Waiting: 0 \n"), "{told}");
    state.store(1, SeqCst);
    for client in &mut clients {
        assert_eq!(client.reply().text(), "abcdef");
    }
}

/// An origin that says 304 with these lines to a request with a condition.
fn renewing(first: &'static str, then: &'static str) -> Origin {
    Origin::start(move |request| match request.header("If-None-Match") {
        None => Answer::with("200 OK", &format!("ETag: \"e1\"\r\n{first}"), "body"),
        Some(_) => Answer::raw(format!("HTTP/1.1 304 Not Modified\r\n{then}\r\n")),
    })
}

#[test]
fn a_304_brings_nothing_that_is_not_for_all() {
    if is_nginx() {
        // It stores nothing that has private="…", and takes no fields of a 304.
        return;
    }
    for (first, then, lines) in [
        (
            "Cache-Control: max-age=1, private=\"X-User\"\r\nX-User: bob\r\n",
            "Cache-Control: max-age=60, private=\"X-User\"\r\nX-User: alice\r\nETag: \"e1\"\r\n",
            "",
        ),
        (
            "Cache-Control: max-age=1\r\n",
            "Cache-Control: max-age=60\r\nX-User: alice\r\nETag: \"e1\"\r\n",
            "proxy_no_cache $upstream_http_x_user;",
        ),
        (
            "Cache-Control: max-age=1\r\n",
            "Cache-Control: max-age=60\r\nX-Accel-Redirect: /elsewhere\r\nETag: \"e2\"\r\n",
            "",
        ),
    ] {
        let origin = renewing(first, then);
        let server = server(
            &origin,
            &format!("location / {{ %PASS%; proxy_cache_revalidate on; {lines} }}"),
        );
        hit(&server, "/");
        std::thread::sleep(Duration::from_millis(2200));
        for status in ["REVALIDATED", "HIT"] {
            let reply = server.get("/");
            assert_eq!((cache(&reply), reply.text().as_str()), (status, "body"));
            assert_eq!(reply.header("X-User"), None, "{then}");
            assert_eq!(reply.header("ETag"), Some("\"e1\""), "{then}");
        }
    }
}

#[test]
fn a_304_that_names_further_fields_of_requests_renews_nothing() {
    let origin = renewing(
        "Cache-Control: max-age=1\r\n",
        "Cache-Control: max-age=60\r\nVary: X-V\r\nETag: \"e1\"\r\n",
    );
    let server = server(&origin, "location / { %PASS%; proxy_cache_revalidate on; }");
    hit(&server, "/");
    std::thread::sleep(Duration::from_millis(2200));
    for _ in 0..2 {
        let before = origin.received().len();
        assert_eq!(server.get_with("/", "X-V: 1\r\n").text(), "body");
        if !is_nginx() {
            assert_eq!(origin.received().len(), before + 1, "the origin says");
        }
    }
}

#[test]
fn a_304_lets_proxy_cache_valid_decide_where_a_stored_expires_is_over() {
    if is_nginx() {
        // It compares `Expires` with its own clock.
        return;
    }
    let origin = renewing(
        "Date: Thu, 01 Jan 2015 00:00:00 GMT\r\nExpires: Thu, 01 Jan 2015 00:00:01 GMT\r\n",
        "Date: Thu, 01 Jan 2015 00:00:10 GMT\r\nETag: \"e1\"\r\n",
    );
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_revalidate on; proxy_cache_valid 200 1h; }",
    );
    hit(&server, "/");
    std::thread::sleep(Duration::from_millis(2200));
    for status in ["REVALIDATED", "HIT"] {
        let reply = server.get("/");
        assert_eq!((cache(&reply), reply.text().as_str()), (status, "body"));
    }
}

/// A large entry that was stored before its server was started, and its body: no two parts of it that are asked for are
/// the same.
fn large_entry() -> (Origin, Server, String) {
    let letter = |at: u32| char::from(b'a' + (at / 7 % 26) as u8);
    let body: String = (0..3 << 20).map(letter).collect();
    let sent = body.clone();
    let fields = format!("{LASTING}Accept-Ranges: bytes\r\nETag: \"e1\"\r\n");
    let origin = Origin::start(move |_| Answer::with("200 OK", &fields, &sent));
    let mut server = server(&origin, "location / { %PASS%; }");
    hit(&server, "/");
    server.restart();
    (origin, server, body)
}

#[test]
fn several_ranges_of_what_was_stored_before_a_restart() {
    let (origin, server, body) = large_entry();
    let before = origin.received().len();
    let reply = server.get_with("/", "Range: bytes=2000000-2000009,5-9,1048570-1048589\r\n");
    assert_eq!((reply.status, cache(&reply)), (206, "HIT"));
    let text = reply.text();
    for range in [2_000_000..2_000_010, 5..10, 1_048_570..1_048_590] {
        let last = range.end - 1;
        let part = format!(
            "Content-Range: bytes {}-{last}/{}\r\n\r\n{}\r\n--",
            range.start,
            body.len(),
            &body[range.clone()]
        );
        assert!(text.contains(&part), "{range:?}: {text}");
    }
    assert_eq!(origin.received().len(), before, "the origin is not asked");
}

#[test]
fn a_part_of_a_damaged_entry_comes_from_the_origin() {
    if is_nginx() {
        // It has no checksums.
        return;
    }
    let (_origin, server, body) = large_entry();
    let mut all = Vec::new();
    files(&server.site().path("cache"), &mut all);
    let is_entry = |path: &PathBuf| !path.to_string_lossy().contains(".freewheel");
    let entry = all.into_iter().find(is_entry).expect("it is there");
    let mut bytes = std::fs::read(&entry).expect("it can be read");
    let begin = &body.as_bytes()[..1000];
    let start = bytes.windows(begin.len()).position(|part| part == begin);
    bytes[start.expect("the body is in it") + 2_000_003] = b'!';
    std::fs::write(&entry, bytes).expect("it can be written");
    let reply = server.get_with("/", "Range: bytes=5-9,2000000-2000009\r\n");
    assert_eq!(reply.status, 206);
    let part = format!(
        "bytes 2000000-2000009/{}\r\n\r\n{}\r\n--",
        body.len(),
        &body[2_000_000..2_000_010]
    );
    assert!(reply.text().contains(&part), "{}", reply.text());
    server.forget_log();
}

#[test]
fn what_gzip_proxied_leaves_plain_is_plain_however_often_it_is_used() {
    let fields = format!(
        "{LASTING}Content-Type: text/html\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n"
    );
    let origin = Origin::start(move |_| Answer::with("200 OK", &fields, "x".repeat(4096)));
    let server = server(
        &origin,
        "location / { %PASS%; gzip on; gzip_proxied no_last_modified no_etag; }",
    );
    hit(&server, "/");
    for number in 0..60 {
        let reply = server.get_with("/", "Via: 1.1 x\r\nAccept-Encoding: gzip\r\n");
        assert_eq!(reply.header("Content-Encoding"), None, "use {number}");
    }
}

#[test]
fn a_refused_reload_leaves_caches_and_pools_as_they_are() {
    let origin = Origin::start(|_| Answer::with("200 OK", LASTING, "x".repeat(4000)));
    let text = |first: &str, second: &str, threads: u32| {
        format!(
            "daemon off; pid nginx.pid; error_log logs/error.log notice; thread_pool default threads={threads}; events {{ }}
             http {{ access_log off; proxy_cache_path %DIR%/one keys_zone=one:1m {first}; proxy_cache_path %DIR%/two keys_zone=two:1m {second};
             server {{ listen 127.0.0.1:%PORT%; location = /metrics {{ metrics; }}
               location / {{ proxy_pass http://{}; proxy_cache one; add_header X-Cache $upstream_cache_status; }} }} }}",
            origin.address()
        )
    };
    let mut server = Server::try_start(&text("max_size=100m", "levels=1:2", 3)).unwrap();
    for number in 0..4 {
        hit(&server, &format!("/{number}"));
    }
    server.reload_file(&text("max_size=1k", "levels=2:2", 1));
    server.wait_for("\"two\" had previously different levels", "the refusal");
    std::thread::sleep(Duration::from_millis(300));
    for number in 0..4 {
        assert_eq!(cache(&server.get(&format!("/{number}"))), "HIT");
    }
    if !is_nginx() {
        let metrics = server.get("/metrics").text();
        let threads = "freewheel_pool_threads{pool=\"default\",state=\"max\"} 3";
        assert!(metrics.contains(threads), "{metrics}");
    }
    server.quit();
    server.forget_log();
}

/// `proxy_cache_valid any` is for what an origin says, or does not say.
#[test]
fn a_fault_of_this_server_is_not_remembered() {
    let origin = Origin::start(|_| Answer::ok("x"));
    let server = server(
        &origin,
        "location / { %PASS%; proxy_bind $arg_from; proxy_cache_key $uri; proxy_cache_valid any 1m; }",
    );
    // An address of documentation (RFC 5737) is no machine's.
    assert_eq!(server.get("/a?from=192.0.2.1").status, 500);
    let reply = server.get("/a");
    assert_eq!((reply.status, cache(&reply)), (200, "MISS"));
    server.wait_for("bind(192.0.2.1", "why");
    server.forget_log();
}

#[test]
fn a_cache_that_does_not_exist_fails_only_requests_that_would_use_it() {
    let origin = Origin::start(|request| Answer::ok(&request.body));
    let server = server(
        &origin,
        &format!(
            "location / {{ proxy_pass http://{}; proxy_cache $arg_zone; }}",
            origin.address()
        ),
    );
    let reply = post(&server, "/?zone=none", "taken");
    assert_eq!((reply.status, reply.text().as_str()), (200, "taken"));
    assert_eq!(server.request("OPTIONS", "/?zone=none", "").status, 200);
    assert!(!server.error_log().contains("not found"));
    assert_eq!(server.get("/?zone=none").status, 500);
    server.wait_for("cache \"none\" not found", "why");
    server.forget_log();
}

#[test]
fn a_stored_head_has_no_length_that_the_origin_did_not_give() {
    let origin = Origin::start(|_| {
        let lines = "Transfer-Encoding: chunked\r\nAccept-Ranges: bytes\r\n";
        Answer::raw(format!("HTTP/1.1 200 OK\r\n{LASTING}{lines}\r\n"))
    });
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_convert_head off; proxy_cache_key $request_method$uri; }",
    );
    let ask = |lines: &str| server.request("HEAD", "/", lines);
    while cache(&ask("")) != "HIT" {
        std::thread::sleep(Duration::from_millis(5));
    }
    for lines in ["", "Range: bytes=5-\r\n"] {
        let reply = ask(lines);
        assert_eq!((cache(&reply), reply.status), ("HIT", 200), "{lines}");
        assert_eq!(reply.header("content-length"), None, "{lines}");
    }
}

#[test]
fn each_variant_is_stored_when_it_was_asked_for_often_enough() {
    let origin = Origin::start(|_| {
        let lines = format!("{LASTING}Vary: X-Variant\r\n");
        Answer::with("200 OK", &lines, "x")
    });
    let server = server(&origin, "location / { %PASS%; proxy_cache_min_uses 3; }");
    for variant in ["1", "2", "3"] {
        let lines = format!("X-Variant: {variant}\r\n");
        let asked = origin.received().len();
        for _ in 0..3 {
            let reply = server.get_with("/", &lines);
            let cached = cache(&reply);
            // The first entry is used before it is written, and until then nothing says that there are variants.
            assert!(cached == "MISS" || variant == "2", "{variant}: {cached}");
        }
        while cache(&server.get_with("/", &lines)) != "HIT" {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(origin.received().len() >= asked + if variant == "2" { 1 } else { 3 });
    }
}

/// What the origin says of access from other sites holds for a range that is not there, too.
#[test]
fn a_range_that_is_not_there_leaves_the_origins_lines() {
    let origin = Origin::start(|_| {
        let lines = "Accept-Ranges: bytes\r\nAccess-Control-Allow-Origin: *\r\nX-Line: one\r\nX-Line: two\r\n\
             ETag: \"a\"\r\nSet-Cookie: a=b\r\nLast-Modified: Thu, 01 Jan 1970 00:00:01 GMT\r\n";
        Answer::with("200 OK", &format!("{lines}{LASTING}"), "x")
    });
    let server = server(
        &origin,
        "proxy_ignore_headers Set-Cookie; proxy_force_ranges on;
         location / { %PASS%; proxy_hide_header Set-Cookie; add_header X-Always 1 always; }
         location /cookie { %PASS%; add_header X-Cache $upstream_cache_status always; add_header X-Added 1; }
         location /off { proxy_pass http://%ORIGIN%; }"
            .replace("%ORIGIN%", &origin.address())
            .as_str(),
    );
    let check = |method: &str, path: &str| {
        let reply = server.request(method, path, "Range: bytes=5-\r\n");
        assert_eq!(reply.status, 416, "{path}");
        assert_eq!(reply.all("content-range"), ["bytes */1"], "{path}");
        assert_eq!(reply.all("access-control-allow-origin"), ["*"], "{path}");
        assert_eq!(reply.all("cache-control"), ["max-age=60"], "{path}");
        assert_eq!(reply.all("x-line"), ["one", "two"], "{path}");
        for name in ["etag", "last-modified", "accept-ranges", "x-added"] {
            assert_eq!(reply.header(name), None, "{path}");
        }
        reply
    };
    for method in ["GET", "HEAD"] {
        assert_eq!(check(method, "/off").all("set-cookie"), ["a=b"]);
    }
    // From the origin, from the disk, and from memory.
    check("GET", "/");
    hit(&server, "/cookie");
    for _ in 0..4 {
        server.get("/");
        assert_eq!(check("GET", "/").all("x-always"), ["1"]);
        let reply = check("GET", "/cookie");
        assert_eq!(cache(&reply), "HIT");
        assert_eq!(reply.all("set-cookie"), ["a=b"]);
    }
}
