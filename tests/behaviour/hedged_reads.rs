//! Reads of a cache's disk that the origin races (`proxy_cache_hedge`): what is sent, what is left behind, and how many.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use crate::cache::cache;
use crate::sick_disks::{KEYS, cold, comes_back, evict, fault, metric, origin, whole};
use blackbox::{Answer, Origin, PATIENCE, is_nginx, until};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

#[test]
fn a_slow_read_is_raced_by_the_origin_within_a_budget() {
    if is_nginx() {
        return;
    }
    for (share, word, ms) in [("100%", "MISS", 300), ("off", "HIT", 100)] {
        let origin = origin();
        let (server, faults) = cold(&origin, &format!("proxy_cache_hedge {share};"));
        fault(&server, &faults, "two", &format!("slow {ms}"));
        // The budget counts the requests of this cache: the first has none yet.
        whole(&server, "/two/0");
        origin.take();
        for number in 1..4 {
            let reply = whole(&server, &format!("/two/{number}"));
            assert_eq!(cache(&reply), word, "{number}");
        }
        let asked = origin.take().len() as u64;
        let count = |outcome: &str| {
            let labels = format!("{{cache=\"two\",outcome=\"{outcome}\"}}");
            metric(&server, &format!("freewheel_cache_hedges_total{labels}"))
        };
        assert_eq!((count("begun"), count("won")), (asked, asked));
        assert_eq!(asked > 0, share == "100%");
        // Nothing is lost; the threads that read slowly are free again after a while.
        fault(&server, &faults, "two", "");
        comes_back(&server, "/two/1");
        server.forget_log();
    }
}

#[test]
fn an_answer_that_loses_the_race_leaves_nothing_at_its_request() {
    if is_nginx() {
        return;
    }
    static IS_STORED: AtomicBool = AtomicBool::new(false);
    let origin = Origin::start(|request| {
        let (status, lines) = match request.target() {
            _ if !IS_STORED.load(SeqCst) => ("200 OK", "Cache-Control: max-age=600\r\n"),
            "/two/1?a=b" => (
                "200 OK",
                "X-Accel-Redirect: /two/other?c=d\r\nX-Accel-Limit-Rate: 77\r\nSet-Cookie: a=b\r\n",
            ),
            "/two/2?a=b" => ("502 Bad Gateway", "X-Accel-Limit-Rate: 77\r\n"),
            _ => ("404 Not Found", "X-Accel-Limit-Rate: 77\r\n"),
        };
        let body = format!("{} {}", request.target(), "x".repeat(3000));
        Answer::with(status, lines, body)
    });
    let (server, faults) = cold(
        &origin,
        "proxy_cache_hedge 100%; proxy_cache_key $uri; proxy_intercept_errors on; error_page 404 = /two/none;
         add_header X-Cache $upstream_cache_status always; add_header X-Seen $limit_rate,$args,$upstream_status always;",
    );
    IS_STORED.store(true, SeqCst);
    fault(&server, &faults, "two", "slow 150");
    // The budget counts the requests of this cache: the first has none yet.
    whole(&server, "/two/0");
    origin.take();
    for number in 1..4 {
        let reply = server.get(&format!("/two/{number}?a=b"));
        let seen = (cache(&reply), reply.header("X-Seen"));
        assert_eq!(seen, ("HIT", Some("0,a=b,")), "{number}");
        assert_eq!(reply.header("Set-Cookie"), None, "{number}");
        assert!(reply.text().starts_with(&format!("/two/{number} ")));
    }
    let asked = origin.take().len() as u64;
    let labels = "{cache=\"two\",outcome=\"begun\"}";
    let begun = metric(&server, &format!("freewheel_cache_hedges_total{labels}"));
    assert_eq!(begun, asked);
    assert!(begun > 0);
    server.forget_log();
}

#[test]
fn a_silent_origin_that_loses_the_race_is_left_at_once() {
    if is_nginx() {
        return;
    }
    static IS_STORED: AtomicBool = AtomicBool::new(false);
    static LEFT: AtomicU64 = AtomicU64::new(0);
    let origin = Origin::start(|request| {
        let target = request.target().to_owned();
        if !IS_STORED.load(SeqCst) {
            let body = format!("{target} {}", "x".repeat(3000));
            return Answer::with("200 OK", "Cache-Control: max-age=600\r\n", body);
        }
        Answer::Talk(Box::new(move |mut stream| {
            if target != "/two/1" {
                let hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
                stream.write_all(hints).expect("it was just asked");
            }
            // Until it is closed.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
            LEFT.fetch_add(1, SeqCst);
        }))
    });
    let (server, faults) = cold(&origin, "proxy_cache_hedge 100%; early_hints 1;");
    IS_STORED.store(true, SeqCst);
    fault(&server, &faults, "two", "slow 150");
    // The budget counts the requests of this cache: the first has none yet.
    whole(&server, "/two/0");
    for number in 1..4 {
        let head = format!("GET /two/{number} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let reply = server.raw(head);
        assert!(reply.starts_with("HTTP/1.1 200 "), "no hints: {reply}");
        assert!(reply.contains("X-Cache: HIT"), "{reply}");
    }
    let labels = "{cache=\"two\",outcome=\"begun\"}";
    let begun = metric(&server, &format!("freewheel_cache_hedges_total{labels}"));
    assert!(begun > 0);
    until("the origin is left", PATIENCE, || {
        (LEFT.load(SeqCst) == begun).then_some(())
    });
    server.forget_log();
}

#[test]
fn the_first_slow_read_is_raced_for_the_requests_before_it() {
    if is_nginx() {
        return;
    }
    let origin = origin();
    let (server, faults) = cold(&origin, "proxy_cache_hedge 20%;");
    for number in 0..10 {
        assert_eq!(cache(&whole(&server, &format!("/two/{number}"))), "HIT");
    }
    fault(&server, &faults, "two", "slow 300");
    assert_eq!(cache(&whole(&server, "/two/11")), "MISS");
    let labels = "{cache=\"two\",outcome=\"won\"}";
    assert_eq!(
        metric(&server, &format!("freewheel_cache_hedges_total{labels}")),
        1
    );
    server.forget_log();
}

/// The look-up finds it in memory, and the origin says that it is unchanged, or is asked behind it: its body is on the disk.
#[test]
fn a_body_that_was_just_revalidated_or_is_updated_behind_is_raced() {
    if is_nginx() {
        return;
    }
    let behind = "proxy_cache_use_stale updating; proxy_cache_background_update on;";
    for more in ["", behind] {
        let last = format!("/two/{}", KEYS - 1);
        let fresh = [last.clone(), last.replace("two", "one")];
        let origin = Origin::start(move |request| {
            let target = request.target();
            let age_s = match fresh.iter().any(|fresh| fresh == target) {
                true => 600,
                false => 1,
            };
            let lines = format!("Cache-Control: max-age={age_s}\r\nETag: \"a\"\r\n");
            match request.header("if-none-match") {
                Some(_) => Answer::with("304 Not Modified", &lines, ""),
                None => {
                    let body = format!("{target} {}", "x".repeat(400_000));
                    Answer::with("200 OK", &lines, body)
                }
            }
        });
        let caching = format!("proxy_cache_hedge 100%; proxy_cache_revalidate on; {more}");
        let (server, faults) = cold(&origin, &caching);
        // From now on the loop has it open, and knows its head; the budget counts the requests of this cache.
        for _ in 0..3 {
            server.raw("HEAD /two/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        }
        evict(&server, &["two"]);
        // It expires.
        std::thread::sleep(Duration::from_millis(2200));
        origin.take();
        fault(&server, &faults, "two", "slow 1000");
        assert_eq!(cache(&whole(&server, "/two/1")), "MISS", "{more}");
        let mut asked: Vec<_> = (origin.take().iter())
            .map(|request| request.header("if-none-match").is_some())
            .collect();
        asked.sort_unstable();
        let labels = "{cache=\"two\",outcome=\"won\"}";
        let won = metric(&server, &format!("freewheel_cache_hedges_total{labels}"));
        assert_eq!((&asked[..], won), (&[false, true][..], 1), "{more}");
        server.forget_log();
    }
}
