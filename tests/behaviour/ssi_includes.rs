//! What pages include: the answers to sub-requests.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::Read as _;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Condvar, Mutex, mpsc};
use std::time::Duration;

use crate::ssi::{ERROR, pages, shown};
use blackbox::{Answer, Origin, PATIENCE, Server, is_nginx};

#[test]
fn little_pieces_that_are_there_are_sent_as_one() {
    let include = "<!--#include virtual='/made?x' -->|".repeat(10);
    let server = pages(
        "location = /made { return 200 '$args'; }",
        &[("a", &include)],
    );
    let request = "GET /a.html HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let one = format!("\r\n\r\n14\r\n{}\r\n0\r\n\r\n", "x|".repeat(10));
    // Unless a turn of the loop ends in between.
    assert!((0..50).any(|_| server.raw(request).ends_with(&one)));
}

#[test]
fn answers_are_shown_where_they_belong() {
    let server = pages(
        "location = /made { return 200 '$uri $args $request_uri'; }
         location /off/ { ssi off; alias %DIR%/html/; }
         location /replaced/ { sub_filter b B; alias %DIR%/html/; }",
        &[
            (
                "a",
                "<!--#include virtual=\"/b.html\" -->-<!--#include virtual='b.html?x=$arg_x' wait='yes' -->-<!--#include file='c.html' -->!",
            ),
            (
                "b",
                "b<!--#echo var='arg_x' default='' --><!--#include virtual='/c.html' -->b",
            ),
            ("c", "c"),
            (
                "dir/d",
                "<!--#include virtual='e.html' --><!--#include virtual='$arg_e' -->",
            ),
            ("dir/e", "e"),
            ("made", "<!--#include virtual='/made?a=b&amp;c' -->"),
            ("none", "<!--#include virtual='/no/such' -->"),
            ("raw", "<!--#include virtual='/off/b.html' -->"),
            (
                "replaced",
                "abc<!--#include virtual='/replaced/c2.html' -->abc",
            ),
            ("c2", "abc"),
            (
                "big",
                "<!--#include virtual='/long.html' -->|<!--#include virtual='/long.html' -->",
            ),
            ("long", &"0123456789<b>".repeat(30_000)),
        ],
    );
    for (path, expected) in [
        ("/a.html?x=1", "bcb-b1cb-c!".to_owned()),
        ("/dir/d.html?e=e.html", "ee".into()),
        ("/made.html", "/made a=b&amp;c /made.html".into()),
        (
            "/raw.html",
            "b<!--#echo var='arg_x' default='' --><!--#include virtual='/c.html' -->b".into(),
        ),
        ("/replaced.html", "abcaBcabc".into()),
    ] {
        assert_eq!(shown(&server, path), expected, "{path}");
    }
    assert!(shown(&server, "/none.html").contains("404 Not Found"));
    let long = "0123456789<b>".repeat(30_000);
    assert!(shown(&server, "/big.html") == format!("{long}|{long}"));
}

#[test]
fn stubs_are_shown_for_what_fails_or_is_empty() {
    let server = pages(
        "location = /empty { return 200 ''; } location /covered { error_page 404 /c.html; }
         location = /closed { return 444; }",
        &[
            (
                "a",
                "<!--#block name='s' -->[<!--#echo var='uri' -->]<!--#endblock -->x<!--#include virtual='$arg_u' stub='s' -->y",
            ),
            ("c", "c"),
            ("no", "<!--#include virtual='/c.html' stub='none' -->"),
            (
                "block",
                "<!--#block name='s' -->a<!--#if expr='$arg_a' -->1<!--#else -->2<!--#endif -->b<!--#endblock -->-<!--#include virtual='/404?$args' stub='s' -->",
            ),
        ],
    );
    for (path, expected) in [
        ("/a.html?u=/c.html", "xcy".to_owned()),
        ("/a.html?u=/404.html", "x[/404.html]y".into()),
        ("/a.html?u=/404", "x[/404]y".into()),
        ("/a.html?u=/covered", "x[/covered]y".into()),
        ("/a.html?u=/empty", "x[<!--#echo var=\"uri\" -->]y".into()),
        ("/no.html", ERROR.into()),
        ("/block.html?a=1", "-a1b".into()),
        ("/block.html", "-a2b".into()),
    ] {
        assert_eq!(shown(&server, path), expected, "{path}");
    }
    server.wait_for("\"stub\"=\"none\" for \"include\" not found", "the log");
}

#[test]
fn answers_become_values() {
    let server = pages(
        "location /long/ { subrequest_output_buffer_size 5; alias %DIR%/html/; }
         location /made { return 404 failed; }",
        &[
            (
                "a",
                "<!--#include virtual='$arg_u' set='x' -->-<!--#echo var='x' default='none' encoding='none' -->-",
            ),
            ("five", "12345"),
            ("six", "123456"),
            ("page", "<<!--#echo var='uri' -->>"),
            ("nested", "<!--#include virtual='/page.html' -->!"),
        ],
    );
    for (path, expected) in [
        ("/a.html?u=/six.html", "-123456-".to_owned()),
        ("/a.html?u=/page.html", "-</page.html>-".into()),
        ("/a.html?u=/long/five.html", "-12345-".into()),
        ("/a.html?u=/made", "--".into()),
    ] {
        assert_eq!(shown(&server, path), expected, "{path}");
    }
    // Too long for its location: the answer ends before it has begun.
    let raw = server.raw("GET /a.html?u=/long/six.html HTTP/1.0\r\n\r\n");
    assert_eq!(raw, "");
    server.wait_for("too big subrequest response", "the log");
    server.raw("GET /a.html?u=/nested.html HTTP/1.0\r\n\r\n");
    server.wait_for("nested in-memory subrequest \"/page.html\"", "the log");
}

#[test]
fn depth_is_bounded() {
    let server = pages("", &[("a", "a<!--#include virtual='/a.html' -->")]);
    let text = shown(&server, "/a.html");
    assert_eq!(text, format!("{}{ERROR}", "a".repeat(52)));
    server.wait_for("subrequests cycle while processing \"/a.html\"", "the log");
}

/// Answers only when as many requests wait for it as there are to be.
fn meeting(count: usize) -> Origin {
    let met = Arc::new((Mutex::new(0), Condvar::new()));
    Origin::start(move |request| {
        let (lock, all) = &*met;
        let mut here = lock.lock().expect("no panics");
        *here += 1;
        all.notify_all();
        let waited = all.wait_timeout_while(here, PATIENCE, |here| *here < count);
        let has_timed_out = waited.expect("no panics").1.timed_out();
        let text = if has_timed_out { "alone" } else { "met" };
        Answer::ok(format!("{text}:{}", request.target()))
    })
}

#[test]
fn answers_are_asked_for_at_once_and_shown_in_order() {
    let origin = meeting(3);
    let server = pages(
        &format!("location /p/ {{ proxy_pass http://{}; }}", origin.address()),
        &[
            (
                "a",
                "<!--#include virtual='/p/1' -->,<!--#include virtual='/b.html' -->,<!--#include virtual='/p/3' -->",
            ),
            ("b", "<!--#include virtual='/p/2' -->"),
        ],
    );
    assert_eq!(shown(&server, "/a.html"), "met:/p/1,met:/p/2,met:/p/3");
}

#[test]
fn what_waits_is_asked_for_later() {
    let origin = Origin::start(|request| {
        if request.target() == "/p/1" {
            std::thread::sleep(Duration::from_millis(100));
        }
        Answer::ok(request.target())
    });
    let server = pages(
        &format!("location /p/ {{ proxy_pass http://{}; }}", origin.address()),
        &[(
            "a",
            "<!--#include virtual='/p/1' wait='yes' -->,<!--#include virtual='/p/2' -->",
        )],
    );
    assert_eq!(shown(&server, "/a.html"), "/p/1,/p/2");
    let targets: Vec<String> = origin
        .received()
        .iter()
        .map(|request| request.target().to_owned())
        .collect();
    assert_eq!(targets, ["/p/1", "/p/2"]);
}

#[test]
fn many_answers_are_shown_in_order() {
    let origin = Origin::start(|request| Answer::ok(format!("{};", request.target())));
    let page: String = (0..300)
        .map(|n| format!("<!--#include virtual='/p/{n}' -->."))
        .collect();
    let server = pages(
        &format!("location /p/ {{ proxy_pass http://{}; }}", origin.address()),
        &[("a", &page)],
    );
    let expected: String = (0..300).map(|n| format!("/p/{n};.")).collect();
    assert!(shown(&server, "/a.html") == expected);
}

#[test]
fn the_limit_of_subrequests_at_once_is_that_of_all_pages() {
    if is_nginx() {
        return;
    }
    let most = Arc::new(AtomicUsize::new(0));
    let (seen, now, all) = (Arc::clone(&most), AtomicUsize::new(0), Barrier::new(64));
    let origin = Origin::start(move |request| {
        if request.target() == "/p/page" {
            // Each has begun before a page in one of them can.
            all.wait();
            let page = "<!--#include virtual='/inner.html' -->";
            return Answer::with("200 OK", "Content-Type: text/html\r\n", page);
        }
        seen.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        now.fetch_sub(1, SeqCst);
        Answer::ok("x")
    });
    let server = pages(
        &format!("location /p/ {{ proxy_pass http://{}; }}", origin.address()),
        &[
            ("a", &"<!--#include virtual='/p/page' -->".repeat(64)),
            ("inner", "<!--#include virtual='/p/x' -->"),
        ],
    );
    assert_eq!(shown(&server, "/a.html"), "x".repeat(64));
    // Of 64 that run, each of these has two pages above it; and one is shown.
    let most = most.load(SeqCst);
    assert!(most <= 64 / 3 + 1, "{most}");
}

#[test]
fn an_answer_that_breaks_off_is_shown_as_far_as_it_came() {
    let origin = Origin::start(|request| match request.target() {
        "/p/short" => Answer::Close(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort".to_vec()),
        _ => Answer::Close(Vec::new()),
    });
    let server = pages(
        &format!("location /p/ {{ proxy_pass http://{}; }}", origin.address()),
        &[
            ("a", "a<!--#include virtual='/p/short' -->b"),
            ("b", "a<!--#include virtual='/p/none' -->b"),
        ],
    );
    assert_eq!(shown(&server, "/a.html"), "ashortb");
    assert!(shown(&server, "/b.html").contains("502 Bad Gateway"));
}

#[test]
fn the_clients_body_goes_along() {
    let origin = Origin::start(|request| match request.target() {
        "/page" => Answer::with(
            "200 OK",
            "Content-Type: text/html\r\n",
            "<!--#include virtual='/p/x' -->",
        ),
        _ => Answer::ok(&request.body),
    });
    let server = pages(
        &format!(
            "location / {{ proxy_pass http://{0}; }} location /p/ {{ proxy_pass http://{0}; }}",
            origin.address()
        ),
        &[],
    );
    let reply = server.raw(
        "POST /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
    );
    assert!(reply.contains("hello"), "{reply}");
    assert_eq!(origin.last().line(), "GET /p/x HTTP/1.1");
}

#[test]
fn subrequests_are_logged_where_it_is_said() {
    let server = pages(
        "location /c.html { log_subrequest on; }",
        &[
            (
                "a",
                "<!--#include virtual='/c.html' --><!--#include virtual='/b.html' -->",
            ),
            ("b", "b"),
            ("c", "c"),
        ],
    );
    assert_eq!(shown(&server, "/a.html"), "cb");
    let log = server.access_log(2);
    assert_eq!(log.lines().count(), 2, "{log}");
}

#[test]
fn charsets_of_parts_become_that_of_the_whole() {
    let server = Server::start(
        "charset_map koi8-r utf-8 { C1 D0B0; }
         server { listen 127.0.0.1:%PORT%; root %DIR%/html; ssi on; charset utf-8;
             location /koi/ { source_charset koi8-r; alias %DIR%/html/; } }",
    );
    server.file("a.html", "x<!--#include virtual='/koi/b.html' -->");
    server.file("b.html", b"b\xc1");
    let reply = server.get("/a.html");
    assert_eq!(
        reply.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(reply.body, "xbа".as_bytes());
}

#[test]
fn what_is_asked_of_others_ends_with_the_client() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let origin = Origin::start(move |request| {
        let tell = tell.lock().expect("no panics").clone();
        let target = request.target().to_owned();
        Answer::Talk(Box::new(move |mut stream| {
            let _ = tell.send(format!("asked {target}"));
            // Until the other side closes.
            let _ = stream.read(&mut [0]);
            let _ = tell.send(format!("left {target}"));
        }))
    });
    let server = pages(
        &format!("location /p/ {{ proxy_pass http://{}; }}", origin.address()),
        &[("a", "text<!--#include virtual='/p/1' -->")],
    );
    let mut client = server.connect();
    client.send("GET /a.html HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok("asked /p/1"));
    drop(client);
    assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok("left /p/1"));
}
