//! Requests as they are written for an upstream, read back as a server reads them.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

use message::{Framing, Header};
use proptest::prelude::*;
use wire::exchange::BodyWriter;
use wire::http1::body_decoder::Decoder;
use wire::http1::request_parser::{HeadLimits, ParsedRequest, parse_head};
use wire::http1::request_writer::{self, Outgoing, RequestFault};

type Fields<'a> = &'a [(&'a [u8], &'a [u8])];

fn get(target: &[u8]) -> Outgoing<'_> {
    Outgoing {
        method: b"GET",
        target,
        is_http10: false,
        framing: Framing::None,
    }
}

fn written(outgoing: &Outgoing<'_>, fields: Fields<'_>) -> Result<String, RequestFault> {
    let mut out = b"before".to_vec();
    let outcome = request_writer::head(&mut out, outgoing, fields.iter().copied());
    let text = String::from_utf8(out).unwrap();
    let text = text.strip_prefix("before").unwrap().to_owned();
    assert!(
        outcome.is_ok() || text.is_empty(),
        "a refused head leaves nothing: {text:?}"
    );
    outcome.map(|()| text)
}

#[test]
fn heads() {
    let fields: Fields<'_> = &[
        (b"Host", b"a"),
        (b"X", b""),
        (b"Expect", b"100-continue"),
        (b"content-length", b"9"),
    ];
    assert_eq!(
        written(
            &Outgoing {
                framing: Framing::Length(3),
                ..get(b"/a?b")
            },
            fields
        )
        .unwrap(),
        "GET /a?b HTTP/1.1\r\nHost: a\r\nX: \r\nContent-Length: 3\r\n\r\n"
    );
    assert_eq!(
        written(
            &Outgoing {
                framing: Framing::Chunked,
                ..get(b"/")
            },
            &[(b"X", b"1"), (b"Host", b"a")]
        )
        .unwrap(),
        "GET / HTTP/1.1\r\nX: 1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    assert_eq!(
        written(
            &Outgoing {
                is_http10: true,
                ..get(b"*")
            },
            &[]
        )
        .unwrap(),
        "GET * HTTP/1.0\r\n\r\n"
    );
}

#[test]
fn ambiguous_requests_are_refused() {
    for target in [
        &b""[..],
        b"/a b",
        b"/a\r\nX: y",
        b"/\n",
        b"/\0",
        b"/\x7f",
        b"/a\tb",
    ] {
        assert!(
            matches!(written(&get(target), &[]), Err(RequestFault::Target(_))),
            "{target:?}"
        );
    }
    for method in [&b""[..], b"G T", b"GET\n", b"G\0T", b"GET:"] {
        let outgoing = Outgoing {
            method,
            ..get(b"/")
        };
        assert!(
            matches!(written(&outgoing, &[]), Err(RequestFault::Method(_))),
            "{method:?}"
        );
    }
    let fields: Fields<'_> = &[
        (b"X", b"a\0"),
        (b"X", b"a\n\0"),
        (b"", b"a"),
        (b"X Y", b"a"),
        (b"X:", b"a"),
        (b"X\r", b""),
    ];
    for field in fields {
        assert!(
            matches!(written(&get(b"/"), &[*field]), Err(RequestFault::Header(_))),
            "{field:?}"
        );
    }
    let chunked = Outgoing {
        is_http10: true,
        framing: Framing::Chunked,
        ..get(b"/")
    };
    assert_eq!(written(&chunked, &[]), Err(RequestFault::Chunked10));
}

/// A certificate in `$ssl_client_cert`, and a decoded `$uri`.
#[test]
fn values_in_several_lines_are_sent_in_one() {
    for (value, sent) in [
        ("a\n\tb\n\tc", "a b c"),
        ("a\r\n \t b", "a b"),
        ("a\r\n\r\nGET /", "a GET /"),
        ("a\rb\n", "a b "),
    ] {
        let head = written(&get(b"/"), &[(b"X", value.as_bytes())]).unwrap();
        assert_eq!(
            head,
            format!("GET / HTTP/1.1\r\nX: {sent}\r\n\r\n"),
            "{value:?}"
        );
    }
}

#[test]
fn bodies_have_the_length_that_was_announced() {
    let mut out = Vec::new();
    let mut body = BodyWriter::new(Framing::Length(5));
    assert_eq!(body.piece(&mut out, 3), Ok(&b""[..]));
    assert_eq!(
        body.clone().end(&mut out, &[]),
        Err(RequestFault::Length {
            announced: 5,
            found: 3
        })
    );
    assert_eq!(
        body.clone().piece(&mut out, 3),
        Err(RequestFault::Length {
            announced: 5,
            found: 6
        })
    );
    assert_eq!(body.piece(&mut out, 2), Ok(&b""[..]));
    assert_eq!((body.end(&mut out, &[]), body.written()), (Ok(()), 5));
    assert!(BodyWriter::new(Framing::None).piece(&mut out, 1).is_err());
    assert_eq!(BodyWriter::new(Framing::None).end(&mut out, &[]), Ok(()));
    assert!(out.is_empty());
    let mut body = BodyWriter::new(Framing::Chunked);
    body.piece(&mut out, 0).unwrap();
    for piece in ["hello", "a much longer piece"] {
        let behind = body.piece(&mut out, piece.len() as u64).unwrap();
        out.extend_from_slice(piece.as_bytes());
        out.extend_from_slice(behind);
    }
    body.end(&mut out, &[Header::new("X", "y")]).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "5\r\nhello\r\n13\r\na much longer piece\r\n0\r\nX: y\r\n\r\n"
    );
}

proptest! {
    #[test]
    fn written_requests_are_read_as_one_request(
        method in "[A-Z]{1,7}",
        target in "/[!-~]{0,30}",
        fields in proptest::collection::vec(("[A-Za-z][A-Za-z0-9-]{0,9}", "([!-~][ -~]{0,9}[!-~])?"), 0..6),
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..4),
        is_chunked: bool,
    ) {
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        let framing = if is_chunked { Framing::Chunked } else { Framing::Length(length) };
        let outgoing = Outgoing { method: method.as_bytes(), target: target.as_bytes(), is_http10: false, framing };
        let mut out = Vec::new();
        let plain: Vec<(&[u8], &[u8])> = std::iter::once((&b"Host"[..], &b"h"[..]))
            .chain(fields.iter().filter(|(name, _)| name.len() > 1 && !name.eq_ignore_ascii_case("host")).map(|(name, value)| (name.as_bytes(), value.as_bytes())))
            .collect();
        request_writer::head(&mut out, &outgoing, plain.iter().copied()).unwrap();
        let mut body = BodyWriter::new(framing);
        for piece in &pieces {
            let behind = body.piece(&mut out, piece.len() as u64).unwrap();
            out.extend_from_slice(piece);
            out.extend_from_slice(behind);
        }
        body.end(&mut out, &[]).unwrap();
        if let ParsedRequest::Complete(head, used) = parse_head(&out, &HeadLimits::default()) {
            prop_assert_eq!(head.framing, framing);
            prop_assert_eq!(head.fields.len(), plain.len() + 1);
            let mut decoder = Decoder::new(head.framing, 0);
            let (mut at, mut data) = (used, Vec::new());
            while !decoder.is_end() {
                let found = decoder.decode(&out[at..]).unwrap();
                data.extend_from_slice(&out[at..][found.data]);
                at += found.used;
            }
            prop_assert_eq!((at, data), (out.len(), pieces.concat()));
        }
    }
}
