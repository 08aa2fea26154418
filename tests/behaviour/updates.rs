//! Updates that run behind a stale answer, and when its client's connection is closed.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use super::cache::{cache, hit, server, wait_until};
use blackbox::{Answer, Origin, is_nginx};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

#[test]
fn a_connection_that_is_not_kept_is_closed_when_the_update_behind_its_answer_has_ended() {
    let state = std::sync::Arc::new(AtomicU32::new(0));
    let held = state.clone();
    let origin = Origin::start(move |_| match held.load(SeqCst) {
        0 => Answer::with("200 OK", "Cache-Control: max-age=1\r\n", "old"),
        _ => {
            wait_until(&held, 2);
            Answer::with("200 OK", "Cache-Control: max-age=60\r\n", "new")
        }
    });
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_use_stale updating; proxy_cache_background_update on; }",
    );
    for path in ["/closed", "/kept", "/left"] {
        hit(&server, path);
    }
    std::thread::sleep(Duration::from_millis(2200));
    state.store(1, SeqCst);
    let mut closed = server.connect();
    let stale = closed.send("GET /closed HTTP/1.0\r\n\r\n").reply();
    assert_eq!((cache(&stale), stale.text().as_str()), ("STALE", "old"));
    // Who leaves is let go.
    let left = server.connect().send("GET /left HTTP/1.0\r\n\r\n").reply();
    assert_eq!(cache(&left), "STALE");
    // It goes on at once where it is kept; nginx lets the next request wait.
    if !is_nginx() {
        let mut kept = server.connect();
        for word in ["STALE", "UPDATING"] {
            let reply = kept.send("GET /kept HTTP/1.1\r\nHost: a\r\n\r\n").reply();
            assert_eq!(cache(&reply), word);
        }
    }
    closed
        .stream()
        .set_nonblocking(true)
        .expect("a socket takes that");
    let is_open = closed.stream().peek(&mut [0]);
    assert_eq!(
        is_open.expect_err("nothing more comes").kind(),
        std::io::ErrorKind::WouldBlock
    );
    closed
        .stream()
        .set_nonblocking(false)
        .expect("a socket takes that");
    state.store(2, SeqCst);
    assert!(closed.is_closed());
    let reply = server.get("/closed");
    assert_eq!((cache(&reply), reply.text().as_str()), ("HIT", "new"));
}

#[test]
fn where_the_answers_end_is_its_closing_it_does_not_wait_for_the_update() {
    if is_nginx() {
        // It waits.
        return;
    }
    let state = std::sync::Arc::new(AtomicU32::new(1));
    let held = state.clone();
    let origin = Origin::start(move |_| {
        wait_until(&held, 1);
        Answer::with(
            "200 OK",
            "Cache-Control: max-age=1\r\nContent-Type: text/html\r\n",
            "old",
        )
    });
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_use_stale updating; proxy_cache_background_update on; sub_filter old OLD; }",
    );
    hit(&server, "/");
    std::thread::sleep(Duration::from_millis(2200));
    state.store(0, SeqCst);
    let answer = server.raw("GET / HTTP/1.0\r\n\r\n");
    assert!(
        answer.contains("STALE") && answer.ends_with("OLD"),
        "{answer}"
    );
    state.store(1, SeqCst);
}
