//! What is stored of what the origin answers, where much comes at once or the disk is behind.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use super::cache::{cache, hit, http, server, store};
use blackbox::{Answer, Origin, PATIENCE, Server, Site, is_nginx};
use nix::sys::signal::Signal::SIGUSR1;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Waits, at an origin, until something is so.
fn wait_for(is_so: &AtomicBool) {
    let begun = Instant::now();
    while !is_so.load(SeqCst) && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// An origin that answers `X-New` at once, and everything else with what is older and comes when it may.
fn old_and_new(old_may_come: &'static AtomicBool) -> Origin {
    Origin::start(|request| {
        let headers = "Cache-Control: max-age=60\r\n";
        if request.header("X-New").is_some() {
            return Answer::with("200 OK", headers, "new");
        }
        wait_for(old_may_come);
        Answer::with("200 OK", headers, "old")
    })
}

#[test]
fn an_older_answer_that_comes_later_replaces_no_newer_one() {
    if is_nginx() {
        // There, the last to come stays.
        return;
    }
    static MAY_COME: AtomicBool = AtomicBool::new(false);
    let origin = old_and_new(&MAY_COME);
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_bypass $http_x_new; }",
    );
    std::thread::scope(|scope| {
        let old = scope.spawn(|| server.get("/"));
        origin.wait(1);
        let new = server.get_with("/", "X-New: 1\r\n");
        assert_eq!((cache(&new), new.text().as_str()), ("BYPASS", "new"));
        assert_eq!(hit(&server, "/").text(), "new");
        MAY_COME.store(true, SeqCst);
        assert_eq!(old.join().expect("it is answered").text(), "old");
    });
    for _ in 0..50 {
        assert_eq!(server.get("/").text(), "new");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(origin.received().len(), 2);
}

#[test]
fn a_range_of_what_is_being_fetched_is_cut_out_as_of_what_is_stored() {
    if is_nginx() {
        return;
    }
    static MAY_COME: AtomicBool = AtomicBool::new(false);
    let origin = old_and_new(&MAY_COME);
    let directives = "location / { %PASS%; proxy_cache_lock on; proxy_cache_rfc9111 on; }";
    let server = server(&origin, directives);
    let part = || server.get_with("/", "Range: bytes=0-1\r\n");
    std::thread::scope(|scope| {
        let whole = scope.spawn(|| server.get("/"));
        origin.wait(1);
        let early = scope.spawn(part);
        // So that it follows, most of the time.
        std::thread::sleep(Duration::from_millis(50));
        MAY_COME.store(true, SeqCst);
        assert_eq!(whole.join().expect("it is answered").text(), "old");
        let early = early.join().expect("it is answered");
        assert_eq!((early.status, early.text().as_str()), (206, "ol"));
    });
    hit(&server, "/");
    assert_eq!(part().status, 206);
    assert_eq!(origin.received().len(), 1);
}

#[test]
fn a_failure_is_noted_only_where_nothing_is_stored() {
    let origin = Origin::start(|request| match request.header("X-Fail") {
        Some(_) => Answer::Close(Vec::new()),
        None => Answer::with("200 OK", "Cache-Control: max-age=60\r\n", "stored"),
    });
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_valid 502 1m; proxy_cache_bypass $arg_bypass; proxy_cache_key $uri; }",
    );
    assert_eq!(server.get_with("/noted", "X-Fail: 1\r\n").status, 502);
    assert_eq!(server.get("/noted").status, 502);
    server.get("/stored");
    hit(&server, "/stored");
    assert_eq!(
        server.get_with("/stored?bypass=1", "X-Fail: 1\r\n").status,
        502
    );
    assert_eq!(server.get("/stored").text(), "stored");
}

/// More than a fill keeps in memory.
const LARGE: usize = 3 << 20;

/// Waits until the cache is open, and reads nothing more of its directory: a read that a held pool keeps for a second
/// counts as one of a disk that is out.
fn wait_for_cache(server: &Server) {
    server.wait_for(": 0 entries known", "its cache is open");
    if server.error_log().contains("others are looked for") {
        server.wait_for("all of the directory was looked at", "nothing is read");
    }
}

/// A server whose pools stand still while this file exists; its cache is open and knows what is there.
fn held(origin: &Origin, locations: &str) -> (Server, PathBuf) {
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    let hold = site.path("hold");
    // Room for all that may wait, in files of their own.
    let http = http(origin, locations).replace("max_size=64m", "max_size=640m");
    let server = Server::start_on(site, "", &http);
    wait_for_cache(&server);
    (server, hold)
}

/// Lets the pools stand still. (The next look at the file is some milliseconds away.)
pub(crate) fn hold_pools(hold: &PathBuf) {
    std::fs::write(hold, "").expect("a site's directory can be written to");
    std::thread::sleep(Duration::from_millis(100));
}

#[test]
fn a_bypass_that_fails_takes_nothing_from_what_is_on_its_way_to_the_disk() {
    if is_nginx() {
        return;
    }
    let origin = Origin::start(|request| match request.header("X-Fail") {
        Some(_) => Answer::Close(Vec::new()),
        None => Answer::with("200 OK", "Cache-Control: max-age=60\r\n", "stored"),
    });
    let (server, hold) = held(
        &origin,
        "location / { %PASS%; proxy_cache_valid 502 1m; proxy_cache_bypass $arg_bypass; proxy_cache_key $uri; }",
    );
    hold_pools(&hold);
    server.get("/");
    hit(&server, "/");
    let failed = server.get_with("/?bypass=1", "X-Fail: 1\r\n");
    assert_eq!(failed.status, 502);
    assert_eq!(server.get("/").text(), "stored");
    std::fs::remove_file(hold).expect("it was made");
    assert_eq!(hit(&server, "/").text(), "stored");
}

#[test]
fn what_the_disk_does_not_take_is_passed_on_and_said_once() {
    if is_nginx() {
        return;
    }
    let origin = Origin::start(|request| {
        let headers = "Cache-Control: max-age=60\r\n";
        if request.target() == "/broken" {
            let head = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: 9\r\n\r\n");
            return Answer::Close(head.into_bytes());
        }
        Answer::with("200 OK", headers, vec![b'x'; LARGE])
    });
    let (server, hold) = held(&origin, "location / { %PASS%; }");
    hold_pools(&hold);
    for path in ["/a", "/b"] {
        let reply = server.get(path);
        assert_eq!((cache(&reply), reply.body.len()), ("MISS", LARGE));
    }
    let line = "an answer is passed on and not stored: the disk is slower than the origin";
    server.wait_for(line, "the reason");
    std::fs::remove_file(hold).unwrap();
    // That is the origin's fault, and nothing that could have been stored.
    server.raw("GET /broken HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    server.signal(SIGUSR1);
    server.wait_for(" 2 passed on unstored,", "the count");
    let log = server.error_log();
    let lines: Vec<_> = log.lines().filter(|said| said.contains(line)).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(
        lines[0].contains("[warn]") && lines[0].contains("/cache\": "),
        "{log}"
    );
    hit(&server, "/a");
}

/// Asks for what the disk does not take, until too much waits for it. Given back: how many were asked for; `None`: the machine is so
/// slow that the disk counted as stalled before, and nothing can be told.
fn fill_up(
    answer: impl Fn() -> Answer + Send + Sync + 'static,
) -> Option<(Server, PathBuf, usize)> {
    let origin = Origin::start(move |_| answer());
    let (server, hold) = held(&origin, "location / { %PASS%; }");
    hold_pools(&hold);
    let mut slowest = Duration::ZERO;
    let line = "an answer is passed on and not stored: too much waits to be written already";
    for number in 0.. {
        let begun = Instant::now();
        let reply = server.get(&format!("/{number}"));
        assert_eq!((cache(&reply), reply.body.len()), ("MISS", PIECE));
        slowest = slowest.max(begun.elapsed());
        if server.error_log().contains("none of") {
            std::fs::remove_file(hold).expect("it was made");
            server.forget_log();
            return None;
        }
        // 128 MiB may wait to be written. The next one may come before the last has been counted, and the line behind the answer.
        let most = 2 + (128 << 20) / PIECE;
        assert!(number <= most, "{}", server.error_log());
        if number == most {
            server.wait_for(line, "that it is passed on");
        }
        if server.error_log().contains(line) {
            assert!(slowest >= Duration::from_millis(250), "nobody waited");
            return Some((server, hold, number));
        }
    }
    unreachable!("numbers do not end")
}

/// As much as is written at once.
const PIECE: usize = 256 << 10;

#[test]
fn a_fill_waits_a_little_for_what_came_before_and_is_then_answered_all_the_same() {
    if is_nginx() {
        return;
    }
    let headers = "Cache-Control: max-age=60\r\n";
    let filled = fill_up(|| Answer::with("200 OK", headers, vec![b'x'; PIECE]));
    let Some((server, hold, last)) = filled else {
        return;
    };
    std::fs::remove_file(hold).expect("it was made");
    server.signal(SIGUSR1);
    server.wait_for(" passed on unstored,", "the count");
    // The line comes a moment after the answer.
    let log = server.error_log();
    assert!(!log.contains(" 0 passed on unstored,"), "{log}");
    hit(&server, "/0");
    assert_eq!(cache(&server.get(&format!("/{last}"))), "MISS");
}

#[test]
fn what_waits_for_the_disk_is_bounded_also_where_no_length_was_said() {
    if is_nginx() {
        return;
    }
    let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (head, end) = (format!("{head}{PIECE:x}\r\n"), b"\r\n0\r\n\r\n");
    let whole = [head.as_bytes(), &[b'x'; PIECE], end].concat();
    if let Some((_server, hold, _)) = fill_up(move || Answer::raw(&whole)) {
        std::fs::remove_file(hold).expect("it was made");
    }
}

#[test]
fn while_the_disk_is_behind_only_one_of_several_is_written() {
    if is_nginx() {
        return;
    }
    static MAY_END: AtomicBool = AtomicBool::new(false);
    let origin = Origin::start(|request| {
        let headers = "Cache-Control: max-age=60\r\n";
        if request.target() == "/large" {
            return Answer::with("200 OK", headers, vec![b'x'; LARGE]);
        }
        wait_for(&MAY_END);
        Answer::with("200 OK", headers, "x")
    });
    let (server, hold) = held(&origin, "location / { %PASS%; }");
    hold_pools(&hold);
    assert_eq!(server.get("/large").body.len(), LARGE);
    let begun = Instant::now();
    std::fs::remove_file(hold).expect("it was made");
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| server.get("/small")))
            .collect();
        origin.wait(5);
        MAY_END.store(true, SeqCst);
        for reply in asked {
            assert_eq!(cache(&reply.join().expect("it is answered")), "MISS");
        }
    });
    hit(&server, "/small");
    if begun.elapsed() > Duration::from_secs(4) {
        // For five seconds it counts as behind: on a machine as slow as that, nothing can be told.
        return;
    }
    server.signal(SIGUSR1);
    server.wait_for(" 4 passed on unstored,", "the large one, and three");
}

#[test]
fn who_revalidates_does_not_wait_for_the_disk() {
    if is_nginx() {
        return;
    }
    let origin = Origin::start(|request| {
        let lines = "ETag: \"1\"\r\nCache-Control: max-age=1\r\n";
        let is_new = request.target() == "/new" && request.header("If-None-Match").is_some();
        let more = if is_new { "X-New: 1\r\n" } else { "" };
        let status = match request.header("If-None-Match") {
            Some(_) => "304 Not Modified",
            None => "200 OK",
        };
        let body = if status.starts_with('2') { "x" } else { "" };
        Answer::raw(format!(
            "HTTP/1.1 {status}\r\nContent-Length: 1\r\n{lines}{more}\r\n{body}"
        ))
    });
    let locations = "location / { %PASS%; proxy_cache_revalidate on; }";
    let (server, hold) = held(&origin, locations);
    for path in ["/same", "/new"] {
        server.get(path);
        hit(&server, path);
    }
    std::thread::sleep(Duration::from_millis(2100));
    hold_pools(&hold);
    for path in ["/same", "/new"] {
        let reply = server.get(path);
        assert_eq!((cache(&reply), reply.text().as_str()), ("REVALIDATED", "x"));
    }
    std::fs::remove_file(hold).expect("it was made");
}

#[test]
fn who_is_only_counted_does_not_wait_for_the_disk() {
    if is_nginx() {
        return;
    }
    let origin = Origin::start(|_| Answer::with("200 OK", "Cache-Control: max-age=60\r\n", "x"));
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    let hold = site.path("hold");
    let locations = "location / { %PASS%; } location /rare { %PASS%; proxy_cache_min_uses 2; }";
    // Room for 128 keys.
    let http = http(&origin, locations).replace("keys_zone=c:1m", "keys_zone=c:16k");
    let server = Server::start_on(site, "", &http);
    wait_for_cache(&server);
    for number in 0..128 {
        server.get(&format!("/{number}"));
        hit(&server, &format!("/{number}"));
    }
    hold_pools(&hold);
    // Another key gives way, whose file cannot be deleted now.
    assert_eq!(cache(&server.get("/rare")), "MISS");
    std::fs::remove_file(hold).expect("it was made");
    // Its file is deleted behind the answer: asked for until it is told.
    let begun = Instant::now();
    while !server.error_log().contains(" 1 evicted,") {
        assert!(
            begun.elapsed() < PATIENCE,
            "none gave way: {}",
            server.error_log()
        );
        server.signal(SIGUSR1);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_is_stale_is_used_where_it_cannot_even_be_asked_for_anew() {
    if is_nginx() {
        // It asks for the port before it looks, also where what is stored is fresh.
        return;
    }
    let origin = Origin::start(|_| Answer::with("200 OK", "Cache-Control: max-age=1\r\n", "old"));
    let locations = "location / { proxy_cache c; proxy_pass http://127.0.0.1:$http_x_port; proxy_cache_key $uri; \
         proxy_cache_use_stale updating; proxy_cache_background_update on; }";
    let server = server(&origin, locations);
    let port = format!("X-Port: {}\r\n", origin.port());
    assert_eq!(server.get_with("/", &port).text(), "old");
    let begun = Instant::now();
    let last = loop {
        let reply = server.get_with("/", "X-Port: none\r\n");
        assert_eq!(reply.text(), "old", "{}", server.error_log());
        if cache(&reply) != "HIT" {
            break reply;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not get old");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(cache(&last), "STALE");
    server.wait_for("invalid port", "why it was not fetched anew");
}

#[test]
fn without_a_lock_what_is_whole_is_used_though_an_older_fetch_still_runs() {
    if is_nginx() {
        return;
    }
    static MAY_COME: AtomicBool = AtomicBool::new(false);
    let origin = old_and_new(&MAY_COME);
    let (server, hold) = held(&origin, "location / { %PASS%; }");
    hold_pools(&hold);
    std::thread::scope(|scope| {
        let old = scope.spawn(|| server.get("/"));
        origin.wait(1);
        let new = server.get_with("/", "X-New: 1\r\n");
        assert_eq!((cache(&new), new.text().as_str()), ("MISS", "new"));
        let next = server.get("/");
        assert_eq!((cache(&next), next.text().as_str()), ("HIT", "new"));
        MAY_COME.store(true, SeqCst);
        assert_eq!(old.join().expect("it is answered").text(), "old");
    });
    assert_eq!(server.get("/").text(), "new");
    std::fs::remove_file(hold).expect("it was made");
    assert_eq!(server.get("/").text(), "new");
    assert_eq!(origin.received().len(), 2);
}

#[test]
fn an_early_hint_does_not_wait_for_the_head_where_the_request_decides_what_is_stored() {
    static HAS_HINT: AtomicBool = AtomicBool::new(false);
    let origin = Origin::start(|request| {
        let status = match request.header("Range") {
            Some(_) => "206 Partial Content\r\nContent-Range: bytes 0-3/4",
            None => "200 OK",
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\nConnection: close\r\n\r\n"
        );
        Answer::Talk(Box::new(move |mut stream| {
            let mut write = |text: &str| drop(stream.write_all(text.as_bytes()));
            write("HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n");
            wait_for(&HAS_HINT);
            write(&head);
            write(match HAS_HINT.load(SeqCst) {
                true => "soon",
                false => "late",
            });
        }))
    });
    let server = server(
        &origin,
        "early_hints 1; location /asked { %PASS%; proxy_no_cache $http_x; }
         location /slice { slice 4; proxy_set_header Range $slice_range; %PASS%; proxy_cache_key $uri$slice_range; }",
    );
    for path in ["/asked", "/slice"] {
        HAS_HINT.store(false, SeqCst);
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let hint = client.reply();
        assert_eq!(hint.status, 103, "{path}");
        HAS_HINT.store(true, SeqCst);
        assert_eq!(client.reply().text(), "soon", "{path}");
        assert_eq!(hit(&server, path).text(), "soon", "{path}");
    }
}

#[test]
fn a_client_that_leaves_takes_along_what_is_not_stored() {
    let (left, has_left) = std::sync::mpsc::channel();
    let left = std::sync::Mutex::new(left);
    let origin = Origin::start(move |request| {
        let lifetime = match request.target() {
            "/no-cache" => "no-cache",
            _ => "max-age=60",
        };
        let left = left.lock().unwrap().clone();
        Answer::Talk(Box::new(move |mut stream| {
            let begun = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: {lifetime}\r\nContent-Length: 10\r\n\r\nbegun"
            );
            let _ = stream.write_all(begun.as_bytes());
            let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
            let _ = left.send(());
        }))
    });
    let server = server(
        &origin,
        "location / { %PASS%; }
         location /seldom { %PASS%; proxy_cache_min_uses 9; }
         location /kept-out { %PASS%; proxy_no_cache 1; }",
    );
    for path in ["/no-cache", "/seldom", "/kept-out"] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.read(1), b"H", "{path}");
        drop(client);
        let left = has_left.recv_timeout(PATIENCE);
        left.unwrap_or_else(|_| panic!("{path}: the origin is waited for"));
    }
}

#[test]
fn a_response_to_head_that_is_stored_as_such_takes_no_room_for_a_body() {
    let origin = Origin::start(|_| {
        let lines = "Cache-Control: max-age=60\r\nContent-Length: 100000000\r\n";
        Answer::raw(format!("HTTP/1.1 200 OK\r\n{lines}\r\n"))
    });
    let path = match store() {
        "" => "max_size=1m",
        segments => segments,
    };
    let server = Server::start(&format!(
        "proxy_cache_path %DIR%/cache {path} keys_zone=c:1m; add_header X-Cache $upstream_cache_status always; \
         server {{ listen 127.0.0.1:%PORT%; proxy_cache_convert_head off; proxy_cache_key $request_method$uri; \
         location / {{ proxy_pass http://{}; proxy_cache c; }} }}",
        origin.address()
    ));
    blackbox::until("it is stored", PATIENCE, || {
        let head = server.request("HEAD", "/large", "");
        assert_eq!(head.header("Content-Length"), Some("100000000"));
        (cache(&head) == "HIT").then_some(())
    });
}

#[test]
fn a_request_whose_response_is_not_stored_leads_no_others() {
    if is_nginx() {
        return;
    }
    const OTHERS: usize = 5;
    static MAY_COME: AtomicBool = AtomicBool::new(false);
    let origin = Origin::start(|request| {
        if request.header("X-Wait").is_some() {
            wait_for(&MAY_COME);
        }
        Answer::with("200 OK", "Accept-Ranges: bytes\r\n", "body")
    });
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_lock on; proxy_cache_lock_timeout 60s; proxy_cache_lock_age 60s;
           proxy_cache_valid 1s; proxy_cache_max_range_offset 1; }",
    );
    server.get("/");
    hit(&server, "/");
    let asked = origin.received().len();
    // So that it expires.
    std::thread::sleep(Duration::from_millis(2_100));
    let ask = |fields: &'static str| server.get_with("/", fields);
    std::thread::scope(|scope| {
        let far = scope.spawn(move || ask("X-Wait: 1\r\nRange: bytes=2-\r\n"));
        origin.wait(asked + 1);
        let others: Vec<_> = (0..OTHERS)
            .map(|_| scope.spawn(move || ask("X-Wait: 1\r\n")))
            .collect();
        // One of them leads the others, whatever becomes of the first.
        origin.wait(asked + 2);
        std::thread::sleep(Duration::from_millis(50));
        MAY_COME.store(true, SeqCst);
        assert_eq!(far.join().expect("it is answered").text(), "body");
        for other in others {
            assert_eq!(other.join().expect("it is answered").text(), "body");
        }
    });
    assert_eq!(origin.received().len(), asked + 2);
}
