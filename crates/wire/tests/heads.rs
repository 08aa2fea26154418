//! Requests as bytes, and what nginx makes of them.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

use message::{Framing, HeaderId, Method, RequestHead, Version};
use proptest::prelude::*;
use wire::http1::request_parser::{
    BLANK_LINES_MAX, HeadLimits, ParsedRequest, RequestParser, parse_head,
};

fn complete(text: &str) -> Box<RequestHead> {
    match parse_head(text.as_bytes(), &HeadLimits::default()) {
        ParsedRequest::Complete(head, used) => {
            assert_eq!(used, text.len(), "{text:?}");
            head
        }
        other => panic!("{text:?}: {other:?}"),
    }
}

fn refused_with(text: &[u8], limits: &HeadLimits) -> u16 {
    match parse_head(text, limits) {
        ParsedRequest::Refused(refusal) => refusal.status,
        other => panic!("{:?}: {other:?}", text.escape_ascii().to_string()),
    }
}

fn refused(text: &str) -> u16 {
    refused_with(text.as_bytes(), &HeadLimits::default())
}

#[test]
fn a_browser_is_understood() {
    let text = "GET /a/b.html?x=1 HTTP/1.1\r\nHost: Example.org:8080\r\nUser-Agent: x\r\nRange: bytes=0-1\r\nX-One: 1\r\n\r\n";
    let head = complete(text);
    assert_eq!(head.line(), b"GET /a/b.html?x=1 HTTP/1.1");
    assert_eq!((head.method, head.version), (Method::Get, Version::HTTP_11));
    assert_eq!(
        (head.uri(), head.args(), head.extension()),
        (&b"/a/b.html"[..], &b"x=1"[..], &b"html"[..])
    );
    assert_eq!(
        (head.target(), head.protocol()),
        (&b"/a/b.html?x=1"[..], &b"HTTP/1.1"[..])
    );
    assert_eq!(
        (head.host(), head.port),
        (Some(&b"example.org"[..]), Some(8080))
    );
    assert_eq!(head.get(HeaderId::Range), Some(&b"bytes=0-1"[..]));
    assert_eq!(head.get_all(b"x-one").collect::<Vec<_>>(), [b"1"]);
    assert_eq!(
        (head.framing, head.wants_keepalive()),
        (Framing::None, true)
    );
}

#[test]
fn bare_line_feeds_and_empty_lines_before() {
    let head = complete("\r\n\n\nGET / HTTP/1.0\nHost:\tlocalhost \nConnection: Keep-Alive\n\n");
    assert_eq!(
        (head.line(), head.host()),
        (&b"GET / HTTP/1.0"[..], Some(&b"localhost"[..]))
    );
    assert!(head.wants_keepalive());
    assert_eq!(refused(&"\n".repeat(BLANK_LINES_MAX + 1)), 400);
}

#[test]
fn old_protocols() {
    let head = complete("GET /a%20b\r\n");
    assert_eq!(
        (head.version, head.uri(), head.protocol()),
        (Version::HTTP_09, &b"/a b"[..], &b""[..])
    );
    assert_eq!(complete("GET / HTTP/1.0\n\n").host(), None);
    assert_eq!(refused("POST /\n"), 400);
    assert_eq!(refused("GET / HTTP/1.1\n\n"), 400);
    assert_eq!(refused("GET / HTTP/2.0\n\n"), 505);
}

#[test]
fn paths_are_normalised_and_a_refused_one_leaves_no_uri() {
    let head = complete("GET /a/%2e%2e/b//c.%74xt?d%20e#f HTTP/1.0\n\n");
    assert_eq!(
        (head.uri(), head.args(), head.extension()),
        (&b"/b/c.txt"[..], &b"d%20e"[..], &b"txt"[..])
    );
    assert_eq!(head.target(), b"/a/%2e%2e/b//c.%74xt?d%20e#f");
    for path in ["/../", "/%", "/%1", "/%00", "/%zz"] {
        let ParsedRequest::Refused(refusal) = parse_head(
            format!("GET {path} HTTP/1.0\n\n").as_bytes(),
            &HeadLimits::default(),
        ) else {
            panic!("{path}")
        };
        assert_eq!((refusal.status, refusal.head.uri()), (400, &b""[..]));
        assert_eq!(
            refusal.head.line(),
            format!("GET {path} HTTP/1.0").as_bytes()
        );
    }
    let limits = HeadLimits {
        merge_slashes: false,
        ..HeadLimits::default()
    };
    let ParsedRequest::Complete(head, _) = parse_head(b"GET /foo//../bar HTTP/1.0\n\n", &limits)
    else {
        panic!()
    };
    assert_eq!(head.uri(), b"/foo/bar");
}

#[test]
fn a_host_in_the_target_comes_first() {
    let head = complete("GET http://A.x:81/p HTTP/1.1\nHost: other\n\n");
    assert_eq!(
        (head.host(), head.port, head.uri()),
        (Some(&b"a.x"[..]), Some(81), &b"/p"[..])
    );
    assert_eq!(head.text(head.scheme), b"http");
    let head = complete("GET http://h?x=1 HTTP/1.1\nHost: h\n\n");
    assert_eq!(
        (head.uri(), head.args(), head.is_path_empty),
        (&b"/"[..], &b"x=1"[..], true)
    );
    assert_eq!(refused("GET http://h/ HTTP/1.1\n\n"), 400);
    assert_eq!(refused("GET http://h/ HTTP/1.1\nHost: a..b\n\n"), 400);
    assert_eq!(refused("GET http://h:99999/ HTTP/1.1\nHost: h\n\n"), 400);
    assert_eq!(refused("GET http:/// HTTP/1.1\nHost: h\n\n"), 400);
}

#[test]
fn invalid_hosts_are_refused() {
    for host in [
        "", ".", "a..b", "a/b", "a b", "h:1:2", "h:65536", "[::1", "x[::1]", "h\x7f",
    ] {
        assert_eq!(
            refused(&format!("GET / HTTP/1.1\nHost: {host}\n\n")),
            400,
            "{host:?}"
        );
    }
    assert_eq!(refused("GET / HTTP/1.1\nHost: a\nHost: a\n\n"), 400);
}

#[test]
fn header_names() {
    let text = b"GET / HTTP/1.0\nX_A: 1\nX.B: 2\nX-C: 3\n\n";
    let names = |limits: HeadLimits| match parse_head(text, &limits) {
        ParsedRequest::Complete(head, _) => head
            .iter()
            .map(|(name, ..)| String::from_utf8_lossy(name).into_owned())
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(names(HeadLimits::default()), ["X-C"]);
    assert_eq!(
        names(HeadLimits {
            underscores_in_headers: true,
            ..HeadLimits::default()
        }),
        ["X_A", "X-C"]
    );
    assert_eq!(
        names(HeadLimits {
            ignore_invalid_headers: false,
            ..HeadLimits::default()
        }),
        ["X_A", "X.B", "X-C"]
    );
    for line in [
        ": x", " X: x", "\tX: x", "X : x", "X\x01: x", "X: a\0b", "X: a\rb",
    ] {
        assert_eq!(
            refused(&format!("GET / HTTP/1.0\n{line}\n\n")),
            400,
            "{line:?}"
        );
    }
}

#[test]
fn framing() {
    let framing = |lines: &str| complete(&format!("POST / HTTP/1.1\nHost: h\n{lines}\n")).framing;
    assert_eq!(framing("Content-Length: 005\n"), Framing::Length(5));
    assert_eq!(framing("Content-Length: 0\n"), Framing::Length(0));
    assert_eq!(framing("Transfer-Encoding: Chunked\n"), Framing::Chunked);
    for (lines, status) in [
        ("Content-Length: \n", 400),
        ("Content-Length: -1\n", 400),
        ("Content-Length: +1\n", 400),
        ("Content-Length: 1,1\n", 400),
        ("Content-Length: 0x1\n", 400),
        ("Content-Length: 9223372036854775808\n", 400),
        ("Content-Length: 18446744073709551617\n", 400),
        ("Content-Length: 1\nContent-Length: 1\n", 400),
        ("Transfer-Encoding: chunked\nContent-Length: 1\n", 400),
        ("Content-Length: 1\nTransfer-Encoding: chunked\n", 400),
        (
            "Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n",
            400,
        ),
        ("Transfer-Encoding: identity\n", 501),
        ("Transfer-Encoding: chunked, chunked\n", 501),
        ("Transfer-Encoding: gzip, chunked\n", 501),
        ("Transfer-Encoding: \n", 501),
        ("Transfer-Encoding: chunked,\n", 501),
        ("Transfer-Encoding: \u{b}chunked\n", 501),
    ] {
        assert_eq!(
            refused(&format!("POST / HTTP/1.1\nHost: h\n{lines}\n")),
            status,
            "{lines:?}"
        );
    }
    assert_eq!(
        refused("POST / HTTP/1.0\nTransfer-Encoding: chunked\n\n"),
        400
    );
}

#[test]
fn methods() {
    assert_eq!(complete("BREW-IT_ / HTTP/1.0\n\n").method, Method::Other);
    assert_eq!(refused("TRACE / HTTP/1.1\nHost: h\n\n"), 405);
    assert_eq!(refused("CONNECT h:1 HTTP/1.1\nHost: h\n\n"), 405);
    assert_eq!(refused("CONNECT h HTTP/1.1\nHost: h\n\n"), 400);
    assert_eq!(refused("CONNECT / HTTP/1.1\nHost: h\n\n"), 400);
    let limits = HeadLimits {
        allow_connect: true,
        ..HeadLimits::default()
    };
    let ParsedRequest::Complete(head, _) =
        parse_head(b"CONNECT a:1 HTTP/1.1\nHost: h\n\n", &limits)
    else {
        panic!()
    };
    assert_eq!(
        (head.host(), head.port, head.uri(), head.target()),
        (Some(&b"a"[..]), Some(1), &b"/"[..], &b"/"[..])
    );
    assert_eq!(
        refused_with(
            b"CONNECT a:1 HTTP/1.1\nHost: h\nContent-Length: 1\n\n",
            &limits
        ),
        400
    );
}

#[test]
fn garbage_is_refused_at_once() {
    assert_eq!(refused("\x16\x03\x01"), 400);
    assert_eq!(refused("get"), 400);
    assert_eq!(refused("GET / HTTP/1.1\n :"), 400);
    assert_eq!(refused("GET / HTTP/3"), 505);
}

#[test]
fn buffers_bound_lines_and_heads() {
    let limits = HeadLimits {
        client_header_buffer_size: 64,
        large_buffers: 2,
        large_buffer_size: 128,
        ..HeadLimits::default()
    };
    let line = |len: usize| format!("GET /{} HTTP/1.0\n", "a".repeat(len - 15));
    let field = |len: usize| format!("X: {}\n", "b".repeat(len - 4));
    let status = |text: String| match parse_head(text.as_bytes(), &limits) {
        ParsedRequest::Complete(..) => 200,
        ParsedRequest::Partial => 0,
        ParsedRequest::Refused(refusal) => refusal.status,
    };
    assert_eq!(status(line(64) + "\n"), 200);
    assert_eq!(status(line(128) + "\n"), 200);
    assert_eq!(status(line(129) + "\n"), 414);
    assert_eq!(status("GET /".to_string() + &"a".repeat(122)), 0);
    assert_eq!(status("GET /".to_string() + &"a".repeat(123)), 414);
    assert_eq!(status(line(64) + &field(128) + "\n"), 200);
    assert_eq!(status(line(64) + &field(129) + "\n"), 494);
    assert_eq!(status(line(64) + &field(128) + &field(127) + "\n"), 200);
    assert_eq!(status(line(64) + &field(128) + &field(128) + "\n"), 494);
    assert_eq!(
        status(line(64) + &field(100) + &field(100) + &field(20) + "\n"),
        200
    );
    assert_eq!(
        status(line(64) + &field(100) + &field(100) + &field(29) + "\n"),
        494
    );
    // A fault in the part that fits comes first.
    assert_eq!(status(line(64) + "A B" + &field(129) + "\n"), 400);
    assert_eq!(status(line(64) + "A: " + &field(129) + "\n"), 494);
    let limits = HeadLimits {
        max_headers: 2,
        ..HeadLimits::default()
    };
    assert_eq!(
        refused_with(b"GET / HTTP/1.0\nA: 1\nB: 2\nC: 3\n\n", &limits),
        494
    );
    assert!(matches!(
        parse_head(b"GET / HTTP/1.0\nA: 1\nB.: 2\nC: 3\n\n", &limits),
        ParsedRequest::Complete(..)
    ));
}

#[test]
fn the_server_chosen_by_the_host_sets_the_limits() {
    let strict = HeadLimits {
        max_headers: 1,
        ..HeadLimits::default()
    };
    let mut seen = Vec::new();
    let parsed = RequestParser::new(&HeadLimits::default()).advance(
        b"GET / HTTP/1.1\nHost: STRICT:80\nA: 1\n\n",
        &mut |host| {
            seen.push(host.to_vec());
            Some(strict)
        },
    );
    assert!(
        matches!(parsed, ParsedRequest::Refused(refusal) if refusal.status == 494 && refusal.must_linger)
    );
    assert_eq!(seen, [b"strict"]);
}

#[test]
fn what_follows_a_head_is_not_touched() {
    let text = b"GET /a HTTP/1.0\n\nGET /b HTTP/1.0\n\n";
    let ParsedRequest::Complete(head, used) = parse_head(text, &HeadLimits::default()) else {
        panic!()
    };
    assert_eq!(
        (head.uri(), &text[used..used + 6]),
        (&b"/a"[..], &b"GET /b"[..])
    );
}

/// The relevant parts of a result.
fn summary(parsed: ParsedRequest) -> Option<(u16, Vec<u8>, Vec<u8>, usize)> {
    match parsed {
        ParsedRequest::Partial => None,
        ParsedRequest::Complete(head, used) => Some((
            200,
            head.uri().to_vec(),
            head.host().unwrap_or_default().to_vec(),
            used + head.fields.len(),
        )),
        ParsedRequest::Refused(refusal) => {
            Some((refusal.status, refusal.head.uri().to_vec(), Vec::new(), 0))
        }
    }
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let line = "[\r\n]{0,2}(GET|POST|CONNECT|brew) {1,2}(/[a-z./%2e?#]{0,12}|http://[A-Z:8]{1,4}/?|h:1)( HTTP/(1\\.[01]|2\\.0))?\r?\n";
    let field = "(Host: [A-z.:0]{1,5}|Content-Length: [0-9]{1,2}|Transfer-Encoding: (chunked|x)|X[-_. ]A:? [a-z\t ]{0,9})\r{0,2}\n";
    (
        line,
        proptest::collection::vec(field, 0..4),
        "(\r?\n)?",
        "[A-Z \n]{0,5}",
    )
        .prop_map(|(line, fields, end, more)| (line + &fields.concat() + &end + &more).into_bytes())
}

proptest! {
    #[test]
    fn the_cut_of_the_bytes_does_not_matter(text in request(), step in 1usize..40) {
        let limits = HeadLimits { client_header_buffer_size: 40, large_buffers: 1, large_buffer_size: 60, ..HeadLimits::default() };
        let whole = summary(parse_head(&text, &limits));
        let mut parser = RequestParser::new(&limits);
        let mut found = None;
        let mut end = 0;
        while found.is_none() && end < text.len() {
            end = (end + step).min(text.len());
            found = summary(parser.advance(&text[..end], &mut |_| None));
        }
        if found.is_none() && whole.is_some() {
            // The start of a line is looked at whenever it has doubled, and at its end.
            let ended = [&text[..], b"\n"].concat();
            found = summary(parser.advance(&ended, &mut |_| None));
        }
        prop_assert_eq!(found.map(|found| found.0), whole.as_ref().map(|whole| whole.0));
        if whole.as_ref().is_some_and(|whole| whole.0 == 200) {
            let mut parser = RequestParser::new(&limits);
            let again = (0..=text.len()).find_map(|end| summary(parser.advance(&text[..end], &mut |_| None)));
            prop_assert_eq!(again, whole);
        }
    }

    #[test]
    fn any_bytes_do_not_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_head(&text, &HeadLimits::default());
        let line = [&b"GET / HTTP/1.1\n"[..], &text].concat();
        let _ = parse_head(&line, &HeadLimits::default());
    }
}
