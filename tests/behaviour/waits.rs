//! What logs tell of where an answer came from and what it waited for: `$served_from`, `$disk_wait`, `$pool_wait`, `$first_byte_time`.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use blackbox::{Answer, Origin, Server, is_nginx};
use std::sync::Mutex;
use std::sync::mpsc::channel;

/// A line of the log for each word of it.
fn lines(server: &Server, count: usize) -> Vec<Vec<String>> {
    let log = server.access_log(count);
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    log.lines().map(words).collect()
}

#[test]
fn who_follows_a_fetch_is_served_from_it_and_who_comes_later_is_not() {
    if is_nginx() {
        return;
    }
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    let origin = Origin::start(move |_| {
        let _ = held.lock().expect("nobody panics").recv();
        Answer::with("200 OK", "Cache-Control: max-age=60\r\n", "x")
    });
    let server = Server::start(&format!(
        "proxy_cache_path %DIR%/cache keys_zone=c:1m; log_format from '$arg_n $upstream_cache_status $served_from';
         server {{ listen 127.0.0.1:%PORT%; access_log logs/access.log from;
            location = /metrics {{ access_log off; metrics; }}
            location / {{ proxy_pass http://{}; proxy_cache c; proxy_cache_key $uri; proxy_cache_lock on; }} }}",
        origin.address()
    ));
    let mut clients: Vec<_> = (1..=3).map(|_| server.connect()).collect();
    for (number, client) in (1..).zip(&mut clients) {
        client.send(format!("GET /x?n={number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        if number == 1 {
            while origin.received().is_empty() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }
    // Until both follow: what they wait for is not to come before.
    let begun = std::time::Instant::now();
    while !server
        .get("/metrics")
        .text()
        .contains("freewheel_cache_followers_total{cache=\"c\"} 2\n")
    {
        assert!(begun.elapsed() < blackbox::PATIENCE, "nobody follows");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    release.send(()).expect("the origin waits");
    for client in &mut clients {
        assert_eq!(client.reply().text(), "x");
    }
    // It is stored behind its answers.
    while server
        .get("/metrics")
        .text()
        .contains("freewheel_cache_fills_running{cache=\"c\"} 1\n")
    {
        assert!(
            begun.elapsed() < blackbox::PATIENCE,
            "the fetch does not end"
        );
    }
    assert_eq!(server.get("/x?n=4").text(), "x");
    let mut lines = lines(&server, 4);
    lines.sort();
    assert_eq!(lines[0], ["1", "MISS", "fill"]);
    assert_eq!(lines[1], ["2", "HIT", "fill"]);
    assert_eq!(lines[2], ["3", "HIT", "fill"]);
    assert_eq!(lines[3][1], "HIT");
    assert_ne!(lines[3][2], "fill");
}
