//! Pages with commands in them.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::io::Write as _;
use std::net::TcpListener;

use blackbox::{Answer, Origin, Server};

/// What is shown in the place of a command that failed.
pub const ERROR: &str = "[an error occurred while processing the directive]";

/// A server with pages, which are texts, by their names.
pub fn pages(more: &str, pages: &[(&str, &str)]) -> Server {
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; root %DIR%/html; ssi on; {more} }}"
    ));
    for (name, text) in pages {
        server.file(&format!("{name}.html"), text);
    }
    server
}

/// What is answered for a page.
pub fn shown(server: &Server, path: &str) -> String {
    server.get(path).text()
}

#[test]
fn variables_are_shown() {
    let server = pages(
        "location /made.html { alias %DIR%/html/made.html; }",
        &[
            ("a", "x<!--#echo var=\"arg_v\" -->y"),
            (
                "default",
                "<!--#echo var='arg_v' default='d' -->,<!--#echo var='arg_v' default='' -->.",
            ),
            (
                "encoding",
                "<!--#echo var=\"arg_v\" encoding=\"none\" --> <!--#echo var=\"arg_v\" --> <!--#echo var=\"arg_v\" encoding=\"url\" --> <!--#echo var=\"arg_v\" encoding=\"entity\" -->",
            ),
            (
                "set",
                "<!--#set var=\"A\" value=\"1${arg_v}2\" --><!--#set var=\"b\" value='$a-\\$a' --><!--#echo var=\"b\" -->",
            ),
            (
                "none",
                "<!--#echo var=\"no_such\" --> <!--#echo var=\"SCHEME\" --> <!--#echo var=\"uri\" --> <!--#echo var=\"sent_http_content_type\" --> <!--#echo var=\"status\" -->",
            ),
        ],
    );
    for (path, expected) in [
        ("/a.html?v=1", "x1y"),
        ("/a.html", "x(none)y"),
        ("/a.html?v=<\">'", "x&lt;&quot;&gt;'y"),
        ("/default.html", "d,."),
        (
            "/encoding.html?v=<a%20\"'>",
            "<a%20\"'> <a%20\"'> %3Ca%2520%22%27%3E &lt;a%20&quot;'&gt;",
        ),
        ("/set.html?v=x", "1x2-$a"),
        ("/none.html", "(none) http /none.html text/html 200"),
    ] {
        assert_eq!(shown(&server, path), expected, "{path}");
    }
}

#[test]
fn conditions_choose_what_is_shown() {
    let server = pages(
        "",
        &[
            (
                "if",
                "x<!--#if expr=\"$arg_a\" -->A<!--#elif expr=\"$arg_b = two words\" -->B<!--#elif expr=\"$arg_c != c\" -->C<!--#else -->D<!--#endif -->y",
            ),
            (
                "re",
                "<!--#if expr=\"$arg_a = /^(?P<first>.)(b)?(.)\\$/\" --><!--#echo var=\"first\" -->,<!--#echo var=\"1\" -->,<!--#echo var=\"2\" default='-' -->,<!--#echo var=\"3\" -->,<!--#echo var='4' --><!--#else -->no<!--#endif -->",
            ),
            (
                "not",
                "<!--#if expr=\"$arg_a != /x+/\" -->1<!--#else -->2<!--#endif -->",
            ),
            (
                "nested",
                "<!--#if expr=\"$arg_a\" -->1<!--#if expr=\"$arg_b\" -->2<!--#endif -->3<!--#endif -->4",
            ),
            (
                "hidden",
                "<!--#if expr=\"$no\" --><!--#echo var=\"uri\" --><!--#set var='x' value='1'--><!--#nonsense --><!--#endif --><!--#echo var='x' -->",
            ),
            (
                "slash",
                "<!--#if expr=\"$arg_a = \\/x/\" -->1<!--#endif -->2",
            ),
        ],
    );
    for (path, expected) in [
        ("/if.html?a=1", "xAy"),
        ("/if.html?b=two%20words&c=c", "xDy"),
        ("/if.html?b=x", "xCy"),
        ("/if.html?c=c", "xDy"),
        ("/re.html?a=abc", "a,a,b,c,(none)"),
        ("/re.html?a=ac", "a,a,,c,(none)"),
        ("/re.html?a=abcd", "no"),
        ("/not.html?a=axa", "2"),
        ("/not.html?a=a", "1"),
        ("/hidden.html", "(none)"),
        ("/slash.html?a=/x/", "12"),
    ] {
        assert_eq!(shown(&server, path), expected, "{path}");
    }
    // They do not nest.
    for (path, expected) in [
        ("/nested.html?a=1&b=1", format!("1{ERROR}23{ERROR}4")),
        ("/nested.html?b=1", format!("3{ERROR}4")),
    ] {
        assert_eq!(shown(&server, path), expected, "{path}");
    }
    server.wait_for("the \"if\" command inside the \"if\" command", "the log");
}

#[test]
fn times_are_shown_as_the_page_says() {
    let server = pages(
        "add_header X-Gmt $date_gmt;",
        &[(
            "a",
            "<!--#config timefmt=\"%%Y is %Y\" --><!--#echo var=\"date_gmt\" -->|<!--#config timefmt=\"%Z\" --><!--#echo var=\"date_gmt\" -->|<!--#config timefmt=\"%s\" --><!--#echo var=\"date_local\" -->",
        )],
    );
    let reply = server.get("/a.html");
    let text = reply.text();
    let [year, zone, second] = text.split('|').collect::<Vec<_>>()[..] else {
        panic!("{text}");
    };
    assert!(year.starts_with("%Y is 20") && year.len() == 10, "{year}");
    assert_eq!(zone, "GMT");
    assert!(
        second
            .parse::<u64>()
            .is_ok_and(|second| second > 1_700_000_000),
        "{second}"
    );
    // As in "Sunday, 22-Nov-2026 05:00:00 GMT".
    let date = reply.header("x-gmt").expect("it is there");
    assert!(date.contains("day, ") && date.ends_with(" GMT"), "{date}");
}

#[test]
fn what_is_wrong_is_shown_and_logged() {
    let server = pages(
        "location /silent/ { ssi_silent_errors on; alias %DIR%/html/; }
         location /short/ { ssi_value_length 4; alias %DIR%/html/; }",
        &[
            ("unknown", "a<!--#nonsense -->b"),
            ("syntax", "a<!--#echo var -->b"),
            ("message", "<!--#config errmsg=\"oops\" --><!--#include -->"),
            ("context", "<!--#else -->a"),
            ("missing", "<!--#echo -->"),
            (
                "value",
                "<!--#set var='a' value='12345' --><!--#echo var='a' -->",
            ),
            (
                "variable",
                "<!--#set var='a' value='$' --><!--#set var='a' value='${x' -->",
            ),
            ("both", "<!--#include virtual='/a' file='b' -->"),
            ("unsafe", "<!--#include virtual='/../a' -->"),
            ("open", "a<!--#echo var='uri'"),
            ("comment", "<!-- a --><!--<!--#echo var='arg_a' -->-><"),
        ],
    );
    for (path, expected) in [
        ("/unknown.html", format!("a{ERROR}b")),
        ("/silent/unknown.html", "ab".into()),
        ("/syntax.html", format!("a{ERROR}b")),
        ("/message.html", "oops".into()),
        ("/context.html", format!("{ERROR}a")),
        ("/missing.html", ERROR.into()),
        ("/value.html", "12345".into()),
        ("/short/value.html", format!("{ERROR}(none)")),
        ("/variable.html", format!("{ERROR}{ERROR}")),
        ("/both.html", ERROR.into()),
        ("/unsafe.html", ERROR.into()),
        ("/open.html", "a".into()),
    ] {
        assert_eq!(shown(&server, path), expected, "{path}");
    }
    assert!(shown(&server, "/comment.html?a=1").starts_with("<!-- a --><!--1->"));
    for sentence in [
        "invalid SSI command: \"nonsense\"",
        "unexpected \"-\" symbol after \"var\" parameter in \"echo\" SSI command",
        "no parameter in \"include\" SSI command",
        "invalid context of SSI command: \"else\"",
        "mandatory \"var\" parameter is absent in \"echo\" SSI command",
        "too long \"12345...\" value of \"value\" parameter in \"set\" SSI command",
        "invalid variable name in \"$\"",
        "the closing bracket in \"x\" variable is missing",
        "inclusion may be either virtual=\"/a\" or file=\"b\"",
        "unsafe URI \"/../a\" was detected",
    ] {
        server.wait_for(sentence, "the log");
    }
}

#[test]
fn heads_are_those_of_another_body() {
    let server = pages(
        "location /kept/ { ssi_last_modified on; alias %DIR%/html/; }
         location /typed/ { ssi_types text/plain; alias %DIR%/html/; }",
        &[("a", "a<!--#echo var='arg_a' -->"), ("empty", "")],
    );
    server.file("a.txt", "<!--#echo var='arg_a' -->");
    let reply = server.get("/a.html?a=1");
    assert_eq!(reply.text(), "a1");
    for name in ["content-length", "last-modified", "etag", "accept-ranges"] {
        assert_eq!(reply.header(name), None, "{name}");
    }
    let kept = server.get("/kept/a.html");
    assert!(kept.header("etag").is_some_and(|tag| tag.starts_with("W/")));
    assert!(kept.header("last-modified").is_some());
    assert_eq!(
        server.get("/empty.html").header("content-length"),
        Some("0")
    );
    assert_eq!(shown(&server, "/a.txt?a=1"), "<!--#echo var='arg_a' -->");
    assert_eq!(shown(&server, "/typed/a.txt?a=1"), "1");
    let head = server.request("HEAD", "/a.html", "");
    assert_eq!((head.status, head.header("content-length")), (200, None));
    let old = server.raw("GET /a.html?a=2 HTTP/1.0\r\n\r\n");
    assert!(old.ends_with("\r\n\r\na2"), "{old}");
}

#[test]
fn pages_of_other_servers_come_in_pieces() {
    let origin = Origin::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n";
        Answer::Talk(Box::new(move |mut stream| {
            use std::io::Write as _;
            for piece in [
                head,
                "a<",
                "!--",
                "#ec",
                "ho var='ar",
                "g_a' -",
                "->b<!",
                "-",
                "- c -->",
            ] {
                let _ = stream.write_all(piece.as_bytes());
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }))
    });
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; ssi on; location / {{ proxy_pass http://{}; }} }}",
        origin.address()
    ));
    assert_eq!(shown(&server, "/?a=1"), "a1b<!-- c -->");
}

#[test]
fn what_came_before_the_cut_is_shown() {
    let origin = Origin::start(|request| {
        let body = match request.target() {
            "/page" => "A<!--#include virtual=\"/part\"-->B".to_owned(),
            "/part" => "inner<!".to_owned(),
            _ => "t".repeat(6000),
        };
        let lines = match request.target() {
            "/page" => format!("Content-Length: {}", body.len()),
            _ => format!("Content-Length: {}", body.len() + 9),
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{lines}\r\n\r\n");
        Answer::Close([head, body].concat().into())
    });
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; ssi on; location / {{ proxy_pass http://{}; }} }}",
        origin.address()
    ));
    let page = server.raw("GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(page.contains("inner"), "{page}");
    for _ in 0..20 {
        let cut = server.raw("GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(cut.matches('t').count() >= 6000, "{} bytes", cut.len());
        assert!(!cut.ends_with("0\r\n\r\n"), "it is not whole");
    }
    server.forget_log();
}

#[test]
fn the_head_of_a_stream_that_is_no_page_is_sent_at_once() {
    let origin = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = origin.local_addr().expect("it is bound");
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; ssi on; location / {{ proxy_pass http://{at}; proxy_buffering off; }} }}"
    ));
    let mut client = server.connect();
    client.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    let (mut stream, _) = origin.accept().expect("a request");
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        .expect("a head");
    client.until("\r\n\r\n");
    stream.write_all(b"data: 1\n\n").expect("an event");
    client.until("data: 1\n\n");
}
