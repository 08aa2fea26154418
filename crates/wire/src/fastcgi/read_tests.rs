//! FastCGI responses: the result of reading records, whole and split at any byte.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;

use super::read::{NoticeSink, RecordReader, StderrNotice};
use super::{STDERR_PIECE_MAX, kind};
use crate::answer::Event;
use crate::exchange::AnswerReader;

const CLOSED_STDOUT: &str = "upstream prematurely closed FastCGI stdout";
const CLOSED_REQUEST: &str = "upstream prematurely closed FastCGI request";

fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    let head = [1, kind, 0, 1, high, low, padding, 0];
    [&head[..], content, &vec![b'p'; padding.into()]].concat()
}

fn end(protocol_status: u8) -> Vec<u8> {
    record(
        kind::END_REQUEST,
        &[0, 0, 0, 0, protocol_status, 0, 0, 0],
        0,
    )
}

/// The result of reading a response in pieces of `step` bytes: status, body, error stream, how it ended, and whether
/// the connection may serve another request.
fn read(bytes: &[u8], step: usize, keeps_connection: bool, asks_head: bool) -> String {
    let told = Rc::new(RefCell::new(String::new()));
    let heard = Rc::clone(&told);
    let tell: NoticeSink = Box::new(move |one| {
        let text = match one {
            StderrNotice::Stderr(text) => format!("early {}", text.escape_ascii()),
            StderrNotice::LateStderr(text) => format!("late {}", text.escape_ascii()),
            StderrNotice::TooLong => "too long".to_owned(),
        };
        heard.borrow_mut().push_str(&format!("[{text}]"));
        !text.ends_with("caught")
    });
    let records = RecordReader::new(asks_head, 64, keeps_connection, tell);
    let mut reader = AnswerReader::of_records(records);
    let (mut status, mut body, mut unused) = (0, Vec::new(), Vec::new());
    let mut fault = None;
    'pieces: for piece in bytes.chunks(step) {
        unused.extend_from_slice(piece);
        while !reader.is_ended() {
            let (used, event) = match reader.advance(&unused) {
                Ok(found) => found,
                Err(error) => {
                    fault = Some(error.to_string());
                    break 'pieces;
                }
            };
            assert!(used <= unused.len());
            match &event {
                Event::Head(head) => status = head.status,
                Event::Data(range) => body.extend_from_slice(&unused[range.clone()]),
                Event::Interim(_) => panic!("a program sends one head"),
                Event::Partial | Event::End => {}
            }
            unused.drain(..used);
            if matches!(event, Event::Partial | Event::End) {
                break;
            }
        }
    }
    let is_reusable = fault.is_none() && reader.is_reusable(unused.len());
    if fault.is_none() && !reader.is_ended() {
        fault = reader.close().err().map(|error| error.to_string());
    }
    let (body, told) = (body.escape_ascii(), told.borrow());
    format!(
        "{status} {body} {told} {} {is_reusable}",
        fault.unwrap_or_default()
    )
}

fn whole(bytes: &[u8], keeps_connection: bool) -> String {
    let whole = read(bytes, usize::MAX, keeps_connection, false);
    for step in [1, 2, 3, 7, 8, 9] {
        assert_eq!(
            read(bytes, step, keeps_connection, false),
            whole,
            "in pieces of {step}"
        );
    }
    whole
}

fn usual(head: &str, body: &str) -> Vec<u8> {
    let text = [head, "\r\n\r\n", body].concat();
    [
        record(kind::STDOUT, text.as_bytes(), 3),
        record(kind::STDOUT, b"", 0),
        end(0),
    ]
    .concat()
}

#[test]
fn answers() {
    for (head, body, found) in [
        ("A: b", "xy", "200 xy  "),
        ("Status: 404 Not Found", "xy", "404 xy  "),
        ("Status: 404", "", "404   "),
        ("Location: /a", "", "302   "),
        ("Status: 301\r\nLocation: /a", "x", "301 x  "),
        ("Content-Length: 2", "xy", "200 xy  "),
        ("Content-Length: 1", "xy", "200 x [too long] "),
        ("Status: 204", "xy", "204   "),
        ("HTTP/1.1 500 No\nA: b", "x", "200 x  "),
    ] {
        let is_clean = !found.contains("too long");
        for keeps in [false, true] {
            let expected = format!("{found} {}", keeps && is_clean);
            assert_eq!(whole(&usual(head, body), keeps), expected, "{head} {body}");
        }
    }
}

fn out(text: &str) -> Vec<u8> {
    record(kind::STDOUT, text.as_bytes(), 1)
}

#[test]
fn answers_that_end_too_early() {
    let closed = "upstream prematurely closed connection";
    let stdout_end = || record(kind::STDOUT, b"", 0);
    let long = || out("Content-Length: 9\r\n\r\nx");
    for (records, found, why) in [
        (vec![], "0  ", closed),
        (vec![out("A: b\r\n\r\nx")], "200 x ", closed),
        (vec![out("A: b\r\n"), stdout_end()], "0  ", CLOSED_STDOUT),
        (vec![long(), stdout_end()], "200 x ", CLOSED_STDOUT),
        (vec![long(), end(0)], "200 x ", CLOSED_REQUEST),
        (vec![out("Content-Length: 1\r\n\r\nx")], "200 x ", ""),
        (vec![end(0)], "0  ", CLOSED_REQUEST),
    ] {
        let expected = format!("{found} {why} false");
        assert_eq!(whole(&records.concat(), true), expected);
    }
}

#[test]
fn invalid_responses_are_refused() {
    let head = out("A: b\r\n\r\nx");
    let mut other = head.clone();
    other[3] = 2;
    let late = [head, record(5, b"a", 0)].concat();
    let late_why = "upstream sent invalid FastCGI record type: 5";
    assert_eq!(whole(&late, true), format!("200 x  {late_why} false"));
    let long = format!("A: {}\r\n\r\n", "b".repeat(64));
    for (bytes, why) in [
        (
            end(1),
            "FastCGI server takes no second request on a connection",
        ),
        (end(2), "FastCGI server is overloaded"),
        (end(3), "FastCGI server knows no responder"),
        (out(&long), "sent too big header"),
        (out("Status: 4\r\n\r\n"), "sent invalid status \"4\""),
        (out("Status: 100\r\n\r\n"), "sent unexpected status \"100\""),
        (out("Status: 101\r\n\r\n"), "sent unexpected status \"101\""),
        (record(9, b"", 0), "sent invalid FastCGI record type: 9"),
        (other, "sent unexpected FastCGI request id: 2"),
        (
            b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
            "sent unsupported FastCGI protocol version: 72",
        ),
    ] {
        assert_eq!(whole(&bytes, true), format!("0   upstream {why} false"));
    }
}

#[test]
fn the_error_stream_is_told() {
    let err = |text: &[u8]| record(kind::STDERR, text, 5);
    let early = [err(b"one\n"), err(b""), usual("A: b", "x")].concat();
    assert_eq!(whole(&early, true), "200 x [early one\\n]  true");
    let late = [record(kind::STDOUT, b"A: b\n\nx", 0), err(b"two"), end(0)].concat();
    assert_eq!(whole(&late, false), "200 x [late two]  false");
    let caught = [err(b"is caught"), usual("A: b", "x")].concat();
    let expected = "0  [early is caught] upstream sent what \"fastcgi_catch_stderr\" names false";
    assert_eq!(whole(&caught, true), expected);
    let long = err(&[b'e'; STDERR_PIECE_MAX + 1]);
    let told = whole(&[long, usual("A: b", "x")].concat(), true);
    assert!(told.ends_with("e][early e]  true"), "{told}");
}

#[test]
fn an_unwanted_body_is_dropped() {
    assert_eq!(
        read(&usual("Content-Length: 9", "xy"), 1, true, true),
        "200    true"
    );
}

#[test]
fn bytes_after_the_end_are_not_consumed() {
    let more = [usual("A: b", "x"), vec![1]].concat();
    assert_eq!(read(&more, usize::MAX, true, false), "200 x   false");
    // Nor is it checked, however it arrives.
    let broken = [out("A: b\n\nx"), record(kind::STDOUT, b"", 0), vec![9; 40]].concat();
    assert_eq!(whole(&broken, false), "200 x   false");
}

proptest! {
    #[test]
    fn records_may_be_cut_anywhere(
        parts in proptest::collection::vec((0usize..40, 0u8..9), 1..8),
        step in 1usize..50,
        keeps in any::<bool>(),
    ) {
        let text = b"Status: 201\r\nX-One: two\r\n\r\nthe body of it, long enough to be cut more than once, and then once more";
        let (mut bytes, mut at) = (Vec::new(), 0);
        for (len, padding) in parts {
            let next = (at + len + 1).min(text.len());
            if next > at {
                bytes.extend(record(kind::STDOUT, &text[at..next], padding));
            }
            at = next;
        }
        bytes.extend(record(kind::STDOUT, &text[at..], 0));
        if at < text.len() {
            bytes.extend(record(kind::STDOUT, b"", 0));
        }
        bytes.extend(end(0));
        let body = text[27..].escape_ascii();
        let expected = format!("201 {body}   {keeps}");
        prop_assert_eq!(read(&bytes, step, keeps, false), expected);
    }

    #[test]
    fn any_bytes_do_not_panic(bytes in proptest::collection::vec(0u8..9, 0..200), step in 1usize..20) {
        read(&bytes, step, true, false);
    }
}
