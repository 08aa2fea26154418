//! Purging: by key, by prefix, by tag.

use super::cache::{cache, counting, hit, http, server, store, wait_until};
use blackbox::{Answer, Origin, Server, is_nginx};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

#[test]
fn what_was_purged_is_gone() {
    if is_nginx() {
        return;
    }
    let origin = counting("Cache-Control: max-age=60\r\n");
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_key $uri; proxy_cache_purge $purge; }
         map $request_method $purge { PURGE 1; default 0; }"
            .split_once(" map")
            .map_or("", |(locations, _)| locations)
            .replace("$purge", "$http_x_purge")
            .as_str(),
    );
    let purge = |path: &str| server.get_with(path, "X-Purge: 1\r\n").status;
    for path in ["/a/1", "/a/2", "/b"] {
        server.get(path);
        hit(&server, path);
    }
    assert_eq!(purge("/b"), 204);
    assert_eq!(purge("/b"), 404);
    assert_eq!(cache(&server.get("/b")), "MISS");
    assert_eq!(purge("/a/*"), 204);
    assert_eq!(cache(&server.get("/a/1")), "MISS");
    assert_eq!(cache(&server.get("/a/2")), "MISS");
}

#[test]
fn what_has_a_tag_is_purged_by_it() {
    if is_nginx() {
        return;
    }
    let number = AtomicU32::new(0);
    let origin = Origin::start(move |_| {
        let headers = match number.fetch_add(1, SeqCst) {
            0 => "Cache-Control: max-age=60\r\nCache-Tag: news, front\r\n",
            1 => "Cache-Control: max-age=60\r\nSurrogate-Key: sport front\r\n",
            _ => "Cache-Control: max-age=60\r\n",
        };
        Answer::with("200 OK", headers, "answer")
    });
    let server = server(
        &origin,
        "location / { %PASS%; proxy_cache_key $uri; proxy_cache_purge $http_x_purge; }",
    );
    let purge = |tags: &str| {
        let fields = format!("X-Purge: 1\r\nSurrogate-Key: {tags}\r\n");
        server.get_with("/", &fields).status
    };
    for path in ["/a", "/b", "/c"] {
        server.get(path);
        hit(&server, path);
    }
    assert_eq!(purge("none other"), 204);
    assert_eq!(cache(&server.get("/a")), "HIT");
    assert_eq!(purge("none News"), 204);
    assert_eq!(cache(&server.get("/b")), "HIT");
    assert_eq!(cache(&server.get("/a")), "MISS");
    assert_eq!(purge("front"), 204);
    assert_eq!(cache(&server.get("/b")), "MISS");
    assert_eq!(cache(&server.get("/c")), "HIT");
    assert_eq!(purge(&"t ".repeat(257)), 400);
}

/// Another server, which reads the cache of the first one.
fn beside(first: &Server, origin: &Origin, locations: &str) -> Server {
    let directory = first.site().path("cache");
    let directory = directory.to_str().expect("it is text");
    let second = Server::start(&http(origin, locations).replace("%DIR%/cache", directory));
    second.wait_for("in use by another process", "the second instance");
    second
}

#[test]
fn a_purge_that_cannot_be_obeyed_now_is_not_passed_on() {
    if is_nginx() {
        return;
    }
    let origin = counting("Cache-Control: max-age=60\r\n");
    let locations = "location / { %PASS%; proxy_cache_purge $http_x_purge; }";
    let mut first = server(&origin, locations);
    first.get("/a");
    hit(&first, "/a");
    let second = beside(&first, &origin, locations);
    let asked = origin.received().len();
    let purge = || second.get_with("/a", "X-Purge: 1\r\n");
    let refused = purge();
    assert_eq!(
        (refused.status, refused.header("Retry-After")),
        (503, Some("5"))
    );
    assert_eq!(origin.received().len(), asked);
    second.wait_for(
        "it cannot be purged: another process has its directory",
        "a purge that is refused",
    );
    second.forget_log();
    assert!(first.quit().success());
    // What is stored by the second one shows that it has the directory.
    hit(&second, "/b");
    assert_eq!(purge().status, 204);
}

#[test]
fn an_instance_that_reads_the_cache_of_another_uses_nothing_while_that_one_purges() {
    if is_nginx() || !store().is_empty() {
        return;
    }
    static MAY_COME: AtomicU32 = AtomicU32::new(0);
    let number = AtomicU32::new(0);
    let origin = Origin::start(move |request| {
        if request.target() == "/slow" {
            wait_until(&MAY_COME, 1);
        }
        let number = number.fetch_add(1, SeqCst) + 1;
        let headers = "Cache-Control: max-age=60\r\n";
        Answer::with("200 OK", headers, format!("answer {number}"))
    });
    let locations = "location / { %PASS%; proxy_cache_purge $http_x_purge; proxy_cache_key $uri; }";
    let first = server(&origin, locations);
    first.get("/a");
    hit(&first, "/a");
    let second = beside(&first, &origin, locations);
    assert_eq!(hit(&second, "/a").text(), "answer 1");
    std::thread::scope(|scope| {
        // While it is on its way, no purge is ended.
        let slow = scope.spawn(|| first.get("/slow"));
        origin.wait(2);
        assert_eq!(first.get_with("/a*", "X-Purge: 1\r\n").status, 204);
        assert_eq!(second.get("/a").text(), "answer 2");
        MAY_COME.store(1, SeqCst);
        slow.join().expect("it is answered");
    });
    hit(&first, "/a");
    hit(&second, "/a");
}
