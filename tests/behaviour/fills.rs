//! What is stored of what the origin answers, where much comes at once or the disk is behind.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use crate::cache::{cache, hit, server};
use blackbox::{Answer, Origin, PATIENCE, is_nginx};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Waits, at an origin, until something is so.
fn wait_for(is_so: &AtomicBool) {
    let begun = Instant::now();
    while !is_so.load(SeqCst) && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_older_answer_that_comes_later_replaces_no_newer_one() {
    if is_nginx() {
        // There, the last to come stays.
        return;
    }
    static MAY_COME: AtomicBool = AtomicBool::new(false);
    let origin = Origin::start(|request| {
        let headers = "Cache-Control: max-age=60\r\n";
        if request.header("X-New").is_some() {
            return Answer::with("200 OK", headers, "new");
        }
        wait_for(&MAY_COME);
        Answer::with("200 OK", headers, "old")
    });
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
