//! Responses of upstreams as bytes, and what nginx 1.31.5 made of the same bytes.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

use message::{HeaderId, ResponseHead, Version};
use proptest::prelude::*;
use wire::answer::Event;
use wire::exchange::{AnswerReader, INTERIM_HEADS_MAX, RequestKind};

const HEAD_MAX: usize = 4096;

/// The result of a response: the codes of its heads, its body, how it ended, and whether the connection is reusable.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    statuses: Vec<u16>,
    is_http09: bool,
    body: Vec<u8>,
    trailers: String,
    fault: Option<String>,
    is_ended: bool,
    is_reusable: bool,
    unused: usize,
}

/// Reads the pieces in order; if `is_closed`, the connection then ends.
fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    asked: RequestKind,
    is_closed: bool,
) -> Outcome {
    let mut reader = AnswerReader::new(asked, HEAD_MAX);
    let mut outcome = Outcome::default();
    let mut unused = Vec::new();
    for piece in pieces {
        unused.extend_from_slice(piece);
        if let Err(fault) = turn(&mut reader, &mut unused, &mut outcome) {
            outcome.fault = Some(fault);
            return outcome;
        }
    }
    if is_closed && !reader.is_ended() {
        outcome.fault = reader.close().err().map(|fault| fault.to_string());
    }
    outcome.is_ended = reader.is_ended();
    outcome.is_reusable = reader.is_reusable(unused.len());
    outcome.unused = unused.len();
    for trailer in reader.trailers() {
        outcome.trailers += &format!("{trailer:?}");
    }
    outcome
}

fn turn(
    reader: &mut AnswerReader,
    unused: &mut Vec<u8>,
    outcome: &mut Outcome,
) -> Result<(), String> {
    loop {
        let (used, event) = reader.advance(unused).map_err(|fault| fault.to_string())?;
        match event {
            Event::Data(range) => {
                assert!(!range.is_empty() && range.end <= used);
                outcome.body.extend_from_slice(&unused[range]);
            }
            Event::Interim(head) => outcome.statuses.push(head.status),
            Event::Head(head) => {
                check(&head);
                outcome.statuses.push(head.status);
                outcome.is_http09 = head.version == Version::HTTP_09;
            }
            Event::Partial | Event::End => {
                unused.drain(..used);
                return Ok(());
            }
        }
        unused.drain(..used);
    }
}

fn check(head: &ResponseHead) {
    for (name, value, _) in head.iter() {
        assert!(!name.is_empty() && !value.iter().any(|byte| b"\0\r\n".contains(byte)));
    }
    assert!(head.get_each(HeaderId::ContentLength).count() <= 1);
}

/// Reads whole, in pieces of one size, and in two pieces split at every byte: the result must be the same.
fn answer(text: &[u8], asked: RequestKind, is_closed: bool) -> Outcome {
    let whole = read([text], asked, is_closed);
    let shown = text.escape_ascii();
    for step in [1, 2, 3, 7] {
        let found = read(text.chunks(step), asked, is_closed);
        assert_eq!(whole, found, "{shown} by {step}");
    }
    for cut in 1..text.len().min(400) {
        let found = read([&text[..cut], &text[cut..]], asked, is_closed);
        assert_eq!(whole, found, "{shown} cut at {cut}");
    }
    whole
}

fn ok(lines: &str, rest: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{lines}\r\n{rest}").into_bytes()
}

#[test]
fn responses_that_nginx_passes_on() {
    let chunks = "2\r\nab\r\n0\r\n\r\n";
    #[rustfmt::skip]
    let cases: &[(Vec<u8>, &[u16], &str, bool)] = &[
        (ok("Content-Length: 2\r\n", "ab"), &[200], "ab", true),
        (ok("odd\r\nContent-Length: 2\r\n", "ab"), &[200], "ab", true),
        (ok("X: a\r\r\nContent-Length: 2\r\n", "ab"), &[200], "ab", true),
        (ok("X\u{80}: a\r\nContent-Length: 2\r\n", "ab"), &[200], "ab", true),
        (ok("Transfer-Encoding: Chunked\r\n", chunks), &[200], "ab", true),
        (ok("Transfer-Encoding: chunked \r\nConnection: x, Close\r\n", chunks), &[200], "ab", false),
        (ok("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", "ab"), &[200], "ab", true),
        (ok("Content-Length: 0\r\n", ""), &[200], "", true),
        (ok("", "ab"), &[200], "ab", false),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n".into(), &[200], "ab", false),
        (b"HTTP/1.0 200 OK\r\n\r\nab".into(), &[200], "ab", false),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nab".into(), &[200], "ab", false),
        (b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nab".into(), &[200], "ab", true),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nab".into(), &[200], "ab", true),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nab".into(), &[200], "ab", true),
        (b"HTTP/1.1  404   x \r\nContent-Length: 2\r\n\r\nab".into(), &[404], "ab", true),
        (b"HTTP/1.1 403.7 Forbidden\r\nContent-Length: 2\r\n\r\nab".into(), &[403], "ab", true),
        (b"HTTP/1.1 999 OK\r\nContent-Length: 2\r\n\r\nab".into(), &[999], "ab", true),
        (b"HTTP/1.1 304 No\r\nContent-Length: 2\r\n\r\n".into(), &[304], "", true),
        (b"HTTP/1.1 103 Early\r\nLink: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab".into(),
            &[103, 200], "ab", true),
        // nginx takes these as the response, and what follows as its body.
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab".into(),
            &[100, 102, 200], "ab", true),
    ];
    for (text, statuses, body, is_reusable) in cases {
        let found = answer(text, RequestKind::Plain, !is_reusable);
        let shown = text.escape_ascii();
        assert_eq!(
            (&found.statuses[..], &found.body[..]),
            (*statuses, body.as_bytes()),
            "{shown}"
        );
        assert_eq!(
            (found.fault.as_deref(), found.is_ended),
            (None, true),
            "{shown}"
        );
        assert_eq!(found.is_reusable, *is_reusable, "{shown}");
    }
}

#[test]
fn responses_that_nginx_refuses() {
    #[rustfmt::skip]
    let cases: &[(Vec<u8>, &str)] = &[
        (ok("Content-Length\r\n", "ab"), r#"upstream sent invalid "Content-Length" header: "Content-Length: ""#),
        (ok("Transfer-Encoding\r\n", "ab"), r#"upstream sent unknown "Transfer-Encoding": """#),
        (ok("X: a\rb\r\n", "ab"), r#"upstream sent invalid header: "X: a\x0d...""#),
        (ok("X: a\0b\r\n", "ab"), r#"upstream sent invalid header: "X: a\x00...""#),
        (ok("X : a\r\n", "ab"), r#"upstream sent invalid header: "X\x20...""#),
        (ok(": a\r\n", "ab"), r#"upstream sent invalid header: "\x3a...""#),
        (ok("X: a\r\n folded\r\n", "ab"), r#"upstream sent invalid header: "\x20...""#),
        (ok("\tX: a\r\n", "ab"), r#"upstream sent invalid header: "\x09...""#),
        (ok("\rX: a\r\n", "ab"), r#"upstream sent invalid header: "\x0d...""#),
        (ok("Content-Length: 2\r\nContent-Length: 2\r\n", "ab"),
            r#"upstream sent duplicate header line: "Content-Length: 2", previous value: "Content-Length: 2""#),
        (ok("Transfer-Encoding: chunked\r\ntransfer-encoding: chunked\r\n", ""),
            r#"upstream sent duplicate header line: "transfer-encoding: chunked", previous value: "Transfer-Encoding: chunked""#),
        (ok("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "ab"),
            r#"upstream sent "Content-Length" and "Transfer-Encoding" headers at the same time"#),
        (ok("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", "ab"),
            r#"upstream sent "Content-Length" and "Transfer-Encoding" headers at the same time"#),
        (ok("Content-Length: +2\r\n", "ab"), r#"upstream sent invalid "Content-Length" header: "Content-Length: +2""#),
        (ok("Content-Length: 2, 2\r\n", "ab"), r#"upstream sent invalid "Content-Length" header: "Content-Length: 2, 2""#),
        (ok("Content-Length: 99999999999999999999\r\n", "ab"),
            r#"upstream sent invalid "Content-Length" header: "Content-Length: 99999999999999999999""#),
        (ok("Content-Length: \r\n", "ab"), r#"upstream sent invalid "Content-Length" header: "Content-Length: ""#),
        (ok("Transfer-Encoding: gzip\r\n", "ab"), r#"upstream sent unknown "Transfer-Encoding": "gzip""#),
        (ok("Transfer-Encoding: gzip, chunked\r\n", "ab"), r#"upstream sent unknown "Transfer-Encoding": "gzip, chunked""#),
        (ok("Transfer-Encoding: chunked\r\n", "2\nab\n0\n\n"), "upstream sent invalid chunked response"),
        (ok("Transfer-Encoding: chunked\r\n", "zz\r\nab\r\n0\r\n\r\n"), "upstream sent invalid chunked response"),
        (ok("Transfer-Encoding: chunked\r\n", "2\r\nab"), "upstream prematurely closed connection"),
        (ok("Content-Length: 5\r\n", "ab"), "upstream prematurely closed connection"),
        (b"".into(), "upstream prematurely closed connection"),
        (b"HTTP/1.1 200 OK\r\nX: a".into(), "upstream prematurely closed connection"),
        (b"HTTP/1.1 100 Continue\r\n\r\n".into(), "upstream prematurely closed connection"),
        (b"HTTP/1.0 103 Early\r\n\r\n".into(), "upstream sent HTTP/1.0 response with early hints"),
        (ok(&format!("X: {}\r\n", "a".repeat(5000)), "ab"), "upstream sent too big header"),
        (format!("HTTP/1.1 200 {}\r\n\r\n", "a".repeat(5000)).into_bytes(), "upstream sent too big header"),
        // nginx passes it on.
        (b"HTTP/1.1 101 Switching\r\n\r\nab".into(), "upstream sent 101 that was not asked for"),
        ("HTTP/1.1 102 x\r\n\r\n".repeat(INTERIM_HEADS_MAX + 1).into_bytes(), "upstream sent too many interim responses"),
    ];
    for (text, why) in cases {
        let found = answer(text, RequestKind::Plain, true);
        let shown = text.escape_ascii();
        assert_eq!(found.fault.as_deref(), Some(*why), "{shown}");
        assert!(!found.is_reusable, "{shown}");
    }
}

#[test]
fn bytes_that_do_not_begin_as_http_are_a_body() {
    for text in [
        &b"ab"[..],
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/0.9 200 OK\r\n\r\nab",
        b"HTTP/1.1 99 OK\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200\rOK\r\n\r\nab",
        b"HTTP/1.1200 OK\r\n\r\n",
        // Found by fuzzing: its first line does not fit into a head's buffer.
        &[&[b'x'; HEAD_MAX + 1][..], b"\nab"].concat(),
    ] {
        let found = answer(text, RequestKind::Plain, true);
        let shown = text.escape_ascii();
        assert!(found.is_http09 && !found.is_reusable, "{shown}");
        assert_eq!(
            (&found.statuses[..], &found.body[..]),
            (&[200][..], text),
            "{shown}"
        );
    }
}

#[test]
fn a_head_may_fill_its_buffer_and_no_more() {
    let head = |len: usize| {
        let mut text = ok("Content-Length: 0\r\nX: \r\n", "");
        let room = len - text.len();
        let at = text.len() - 4;
        text.splice(at..at, std::iter::repeat_n(b'a', room));
        text
    };
    assert_eq!(
        answer(&head(HEAD_MAX), RequestKind::Plain, false).fault,
        None
    );
    let fault = answer(&head(HEAD_MAX + 1), RequestKind::Plain, false).fault;
    assert_eq!(fault.as_deref(), Some("upstream sent too big header"));
}

#[test]
fn answers_without_a_body_leave_the_connection_usable() {
    for lines in [
        "",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
    ] {
        let found = answer(&ok(lines, ""), RequestKind::Head, false);
        assert!(found.is_ended && found.is_reusable, "{lines:?}");
        for status in ["204 No Content", "304 Not Modified"] {
            let text = format!("HTTP/1.1 {status}\r\n{lines}\r\n");
            assert!(
                answer(text.as_bytes(), RequestKind::Plain, false).is_reusable,
                "{text:?}"
            );
        }
    }
    // Unsolicited bytes.
    for (text, asked, unused) in [
        (ok("Content-Length: 2\r\n", "abcd"), RequestKind::Plain, 2),
        (ok("Content-Length: 2\r\n", "ab"), RequestKind::Head, 2),
        (
            ok("Transfer-Encoding: chunked\r\n", "0\r\n\r\nHTTP/1.1"),
            RequestKind::Plain,
            8,
        ),
        (
            b"HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\nab".into(),
            RequestKind::Plain,
            2,
        ),
    ] {
        let found = answer(&text, asked, false);
        let shown = text.escape_ascii();
        assert_eq!(
            (found.is_ended, found.is_reusable, found.unused),
            (true, false, unused),
            "{shown}"
        );
    }
}

#[test]
fn trailers_and_tunnels() {
    let found = answer(
        &ok(
            "Transfer-Encoding: chunked\r\n",
            "1\r\na\r\n0\r\nX: y\r\n\r\n",
        ),
        RequestKind::Plain,
        false,
    );
    assert!(
        found.trailers.contains("\"X\"") && found.is_reusable,
        "{}",
        found.trailers
    );
    let text =
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nContent-Length: 1\r\n\r\nraw bytes";
    let found = answer(text, RequestKind::Upgrade, true);
    assert_eq!(
        (&found.statuses[..], &found.body[..]),
        (&[101][..], &b"raw bytes"[..])
    );
    assert!(found.is_ended && !found.is_reusable);
}

proptest! {
    #[test]
    fn any_cut_gives_the_same(
        text in "(HTTP/1\\.[01] (100|200|204|304)( OK)?\r?\n((Content-Length|Transfer-Encoding|Connection|X)(: ?)(2|chunked|close)?\r?\n){0,3}\r?\n){0,2}[0-2]?\r?\n?a{0,3}\r?\n?(0\r\n\r\n)?",
        step in 1usize..20,
        is_head: bool,
        is_closed: bool,
    ) {
        let asked = if is_head { RequestKind::Head } else { RequestKind::Plain };
        let whole = read([text.as_bytes()], asked, is_closed);
        prop_assert_eq!(whole, read(text.as_bytes().chunks(step), asked, is_closed));
    }

    #[test]
    fn any_bytes_do_not_panic(text in proptest::collection::vec(any::<u8>(), 0..200), step in 1usize..9) {
        let mut with_line = b"HTTP/1.1 200 OK\r\n".to_vec();
        with_line.extend_from_slice(&text);
        for text in [text, with_line] {
            let whole = read([&text[..]], RequestKind::Plain, true);
            prop_assert_eq!(whole, read(text.chunks(step), RequestKind::Plain, true));
        }
    }
}
