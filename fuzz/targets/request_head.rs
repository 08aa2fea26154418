//! A request's head: never a panic; the same answer however the bytes were cut, if not always as early; what is found
//! lies in the head and is what was allowed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use message::RequestHead;
use wire::http1::request_parser::{HeadLimits, ParsedRequest, RequestParser, parse_head};

fuzz_target!(|input: &[u8]| {
    let [step, switches, text @ ..] = input else {
        return;
    };
    let limits = limits(*switches);
    let whole = parse_head(text, &limits);
    if let ParsedRequest::Complete(head, length) = &whole {
        check(head, *length, text, &limits);
    }
    if let ParsedRequest::Refused(refusal) = &whole {
        assert!(
            matches!(refusal.status, 400 | 405 | 414 | 494 | 501 | 505),
            "{}",
            refusal.status
        );
    }
    let cut = in_pieces(text, usize::from(*step).max(1), &limits);
    if is_noticed_later(&cut, &whole, text) {
        return;
    }
    assert_eq!(summary(&cut), summary(&whole), "cut into pieces of {step}");
});

/// Small buffers and few headers, so that an input can exceed them.
fn limits(switches: u8) -> HeadLimits {
    let is_on = |bit: u8| switches & (1 << bit) != 0;
    HeadLimits {
        client_header_buffer_size: if is_on(0) { 64 } else { 1024 },
        large_buffers: if is_on(1) { 1 } else { 4 },
        large_buffer_size: if is_on(2) { 96 } else { 8192 },
        max_headers: if is_on(3) { 3 } else { 1000 },
        ignore_invalid_headers: is_on(4),
        underscores_in_headers: is_on(5),
        merge_slashes: is_on(6),
        allow_connect: is_on(7),
    }
}

fn in_pieces(text: &[u8], step: usize, limits: &HeadLimits) -> ParsedRequest {
    let mut parser = RequestParser::new(limits);
    let mut end = 0;
    loop {
        end = text.len().min(end + step);
        match parser.advance(&text[..end], &mut |_| None) {
            ParsedRequest::Partial if end < text.len() => {}
            outcome => return outcome,
        }
    }
}

fn check(head: &RequestHead, length: usize, text: &[u8], limits: &HeadLimits) {
    assert!(length <= text.len() && head.bytes[..] == text[..length]);
    assert!(head.fields.len() <= limits.max_headers);
    for (name, value, _) in head.iter() {
        assert!(!name.is_empty());
        assert!(
            !value.iter().any(|byte| matches!(byte, 0 | b'\n')),
            "a value is one line"
        );
        let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        assert!(
            !is_blank(value.first()) && !is_blank(value.last()),
            "blanks around a value are not its"
        );
    }
    let uri = head.uri();
    assert!(
        uri.is_empty() || uri[0] == b'/' || head.method_text() == b"CONNECT" || uri == b"*",
        "{uri:?}"
    );
    assert!(!uri.contains(&0));
    assert!(
        !uri.split(|byte| *byte == b'/')
            .any(|segment| segment == b".."),
        "nothing climbs"
    );
    let _ = (
        head.line(),
        head.target(),
        head.args(),
        head.extension(),
        head.host(),
        head.protocol(),
    );
    let _ = (
        head.wants_keepalive(),
        head.expects_continue(),
        head.has_body(),
        head.cookie(b"a"),
    );
}

/// A line that is not complete is only checked now and then, so its fault may be found when more of it has come.
fn is_noticed_later(cut: &ParsedRequest, whole: &ParsedRequest, text: &[u8]) -> bool {
    matches!((cut, whole), (ParsedRequest::Partial, ParsedRequest::Refused(_))) && text.last() != Some(&b'\n')
}

/// What an answer depends on.
fn summary(parsed: &ParsedRequest) -> String {
    match parsed {
        ParsedRequest::Partial => "partial".to_owned(),
        ParsedRequest::Complete(head, length) => format!("{length} {head:?}"),
        // Of several faults another one may be found first.
        ParsedRequest::Refused(_) => "refused".to_owned(),
    }
}
