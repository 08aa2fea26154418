//! Findings of the fuzz target `request_head`.

use wire::http1::request_parser::{HeadLimits, ParsedRequest, RequestParser, parse_head};

#[test]
fn a_line_of_carriage_returns_is_neither_a_header_nor_the_end() {
    let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\r\n\r\n";
    match parse_head(text, &HeadLimits::default()) {
        ParsedRequest::Refused(refusal) => assert_eq!(refusal.status, 400),
        other => panic!("{other:?}"),
    }
}

#[test]
fn carriage_returns_behind_a_name_do_not_depend_on_the_cut() {
    let text = b"GET / HTTP/1.1\nHost: a\nX\r\r\r\n\n";
    let limits = HeadLimits::default();
    let mut parser = RequestParser::new(&limits);
    let line_end = text.len() - 2;
    for end in 0..=line_end {
        assert!(
            matches!(
                parser.advance(&text[..end], &mut |_| None),
                ParsedRequest::Partial
            ),
            "{end}"
        );
    }
    for outcome in [
        parser.advance(text, &mut |_| None),
        parse_head(text, &limits),
    ] {
        // Complete, and then refused for want of a colon.
        assert!(
            matches!(outcome, ParsedRequest::Refused(refusal) if refusal.why.contains("\"X\\x0d"))
        );
    }
}
