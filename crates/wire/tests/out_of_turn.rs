//! Peers that never stop: how many of their bytes one turn of a task takes, and that the task waits once its turn is
//! over.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]
#![expect(clippy::disallowed_methods, reason = "the pause is the test's own")]

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream as Plain;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use message::Framing;
use wire::answer::Event;
use wire::connect::{ConnectOptions, ConnectTo, connect};
use wire::exchange::BodyWriter;
use wire::exchange::{AnswerReader, RequestKind};
use wire::fastcgi::{RecordReader, StderrNotice};
use wire::http1::body_decoder::Decoder;
use wire::http1::request_parser::HeadLimits;
use wire::loop_clock::read_ns;
use wire::{Connection, Error, Exchange, Loop, Stream, turn};

mod common;

use common::on_loop;

const LONG: Duration = Duration::from_secs(60);
/// Number of records that hold only padding: at their largest they are many bytes for little work.
const RECORDS: usize = 128 << 10;
/// Maximum number of bytes in a turn: the last read may fill the loop's buffer.
const TURN_MAX: u64 = turn::TURN_BYTES as u64 + (128 << 10);
/// Time for the socket to fill between two turns.
const PAUSE: Duration = Duration::from_millis(2);

#[test]
fn one_turn_takes_a_bounded_part_of_what_is_no_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let origin = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        // The error stream, followed by a response.
        let nothing = [&[1, 7, 0, 1, 0, 0, 255, 0][..], &[0; 255]].concat();
        stream.write_all(&nothing.repeat(RECORDS)).unwrap();
        stream
            .write_all(b"\x01\x06\x00\x01\x00\x08\x00\x00A: b\r\n\r\n")
            .unwrap();
        stream
            .write_all(b"\x01\x06\x00\x01\x00\x00\x00\x00")
            .unwrap();
    });
    on_loop(|owner| async move {
        let to = ConnectTo::Inet(address);
        let connection = connect(to, &ConnectOptions::default(), LONG, &owner)
            .await
            .unwrap();
        let records = RecordReader::new(false, 4096, false, Box::new(|_| true));
        let mut exchange = connection.begin_with(
            Bytes::from_static(b"asked"),
            BodyWriter::in_records(Framing::None),
            AnswerReader::of_records(records),
        );
        exchange.flush(LONG).await.unwrap();
        let mut most = 0;
        loop {
            let before = exchange.received();
            turn::begin(read_ns());
            let polled = poll_fn(|cx| Poll::Ready(pin!(exchange.head(LONG)).poll(cx))).await;
            most = most.max(exchange.received() - before);
            if let Poll::Ready(head) = polled {
                head.unwrap();
                break;
            }
            std::thread::sleep(PAUSE);
            tokio::task::yield_now().await;
        }
        assert!(most <= TURN_MAX, "{most} bytes in one turn");
        assert_eq!(exchange.piece(LONG).await.unwrap(), None);
        origin.join().unwrap();
    });
}

/// A connection that has been sent `text`, with the client's end of it.
fn accepted(owner: &Rc<Loop>, text: &[u8]) -> (Connection, Plain) {
    let (stream, client) = connected(text);
    (Connection::new(stream, owner), client)
}

/// A socket that has been sent `text`, with its other end.
fn connected(text: &[u8]) -> (Stream, Plain) {
    let (server, mut client) = Plain::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let stream = Stream::from(tokio::net::UnixStream::from_std(server).unwrap());
    client.write_all(text).unwrap();
    (stream, client)
}

/// Polls `work` once in a turn that is over: it must wait, though nothing else keeps it. Then polls it to its end, with
/// a turn for each poll.
async fn waits_for_its_turn<T>(what: &str, mut work: Pin<&mut impl Future<Output = T>>) -> T {
    turn::begin(read_ns());
    turn::spend(turn::TURN_BYTES as usize);
    assert!(!turn::may_go_on());
    let polled = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
    assert!(polled.is_pending(), "{what} goes on when its turn is over");
    let polls = Cell::new(0);
    let output = poll_fn(|cx| {
        polls.set(polls.get() + 1);
        turn::begin(read_ns());
        work.as_mut().poll(cx)
    })
    .await;
    assert!(polls.get() <= 2, "{what}: is woken for its next turn");
    output
}

#[test]
fn client_io_waits_for_the_next_turn() {
    on_loop(|owner| async move {
        let ready = || tokio::time::sleep(PAUSE);
        let body = |length| Decoder::new(Framing::Length(length), 0);
        let (mut one, client) = accepted(&owner, b"GET / HTTP/1.0\n\n");
        ready().await;
        let limits = HeadLimits::default();
        let mut choose = |_: &[u8]| None;
        let head = one.read_head(&limits, LONG, &mut choose);
        let head = waits_for_its_turn("read_head", pin!(head)).await;
        assert_eq!(head.unwrap().uri(), b"/");
        waits_for_its_turn("send_bytes", pin!(one.send_bytes(LONG, b"x")))
            .await
            .unwrap();
        drop(client);

        let (mut one, mut client) = accepted(&owner, b"abc");
        ready().await;
        let mut decoder = body(5);
        let mut piece = Vec::new();
        let reading = one.read_body_into(&mut decoder, LONG, &mut piece);
        let outcome = waits_for_its_turn("read_body_into", pin!(reading)).await;
        outcome.unwrap();
        assert_eq!(piece, b"abc");
        client.write_all(b"de").unwrap();
        ready().await;
        let discarding = one.discard_body(&mut decoder, LONG, LONG);
        waits_for_its_turn("discard_body", pin!(discarding))
            .await
            .unwrap();
        client.write_all(b"more").unwrap();
        drop(client);
        ready().await;
        waits_for_its_turn("linger", pin!(one.linger(LONG, LONG))).await;

        let (mut one, client) = accepted(&owner, b"PROXY");
        ready().await;
        let parse = |bytes: &[u8]| Some((bytes.len(), ()));
        let prologue = one.read_prologue(LONG, parse);
        waits_for_its_turn("read_prologue", pin!(prologue))
            .await
            .unwrap();
        drop(client);
        turn::begin(read_ns());
        assert!(matches!(one.wait(LONG).await, Err(Error::Closed) | Ok(())));
    });
}

/// An exchange whose server sends `text` and nothing more.
async fn asking(owner: &Rc<Loop>, text: &'static [u8]) -> Exchange {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = ConnectTo::Inet(listener.local_addr().unwrap());
    let connection = connect(to, &ConnectOptions::default(), LONG, owner)
        .await
        .unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.write_all(text).unwrap();
    connection.begin(
        Bytes::from_static(b"GET / HTTP/1.0\r\n\r\n"),
        Framing::None,
        RequestKind::Plain,
        4096,
    )
}

#[test]
fn upstream_io_waits_for_the_next_turn() {
    on_loop(|owner| async move {
        turn::begin(read_ns());
        let mut exchange = asking(&owner, b"HTTP/1.0 200 OK\r\n\r\nabc").await;
        waits_for_its_turn("flush", pin!(exchange.flush(LONG)))
            .await
            .unwrap();
        waits_for_its_turn("head", pin!(exchange.head(LONG)))
            .await
            .unwrap();
        let piece = waits_for_its_turn("piece", pin!(exchange.piece(LONG))).await;
        assert_eq!(piece.unwrap().unwrap(), "abc");
        let end = waits_for_its_turn("the end", pin!(exchange.piece(LONG))).await;
        assert_eq!(end.unwrap(), None);
    });
}

#[test]
fn what_is_left_of_a_turn_is_not_more_for_small_chunks() {
    on_loop(|owner| async move {
        turn::begin(read_ns());
        let text: &[u8] =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n";
        let mut exchange = asking(&owner, text).await;
        exchange.head(LONG).await.unwrap();
        // They have been received, and the turn is over before they are examined.
        let piece = waits_for_its_turn("small chunks", pin!(exchange.piece(LONG))).await;
        assert_eq!(piece.unwrap().unwrap(), "ab");
        assert_eq!(exchange.piece(LONG).await.unwrap(), None);
    });
}

#[test]
fn what_the_last_read_of_a_turn_brought_is_written_in_it() {
    on_loop(|_| async move {
        let (from, _from) = connected(b"abc");
        let (to, _to) = connected(b"");
        tokio::time::sleep(PAUSE).await;
        let mut bytes = [0; 3];
        turn::begin(read_ns());
        assert_eq!(from.try_read(&mut bytes).unwrap(), 3);
        turn::spend(turn::TURN_BYTES as usize);
        assert!(!turn::may_go_on());
        assert_eq!(to.try_write(&bytes).unwrap(), 3);
        let again = to.try_write(&bytes);
        assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        // A read in an earlier turn counts for that turn only.
        turn::begin(read_ns());
        turn::spend(turn::TURN_BYTES as usize);
        assert!(to.try_write(&bytes).is_err());
    });
}

/// A turn whose time is up: it continues until the clock is read.
fn begin_late() {
    turn::begin(read_ns() - 2 * turn::TURN_NS);
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0][..], content].concat()
}

/// Number of parts that fit in what is left of a turn before the clock is read.
const PARTS_MAX: usize = turn::LOOK_BYTES as usize / turn::PART_BYTES + 1;
const LINES: usize = 5000;

/// Many lines on the error stream, followed by a response.
fn complaints() -> Vec<u8> {
    let mut text = record(7, b"a complaint").repeat(LINES);
    text.extend(record(6, b"A: b\r\n\r\nbody"));
    text.extend(record(6, b""));
    text
}

#[test]
fn what_is_told_of_an_error_stream_is_work_of_a_turn() {
    let told = Rc::new(Cell::new(0));
    let heard = Rc::clone(&told);
    let hear = move |one: StderrNotice<'_>| {
        assert_eq!(one, StderrNotice::Stderr(b"a complaint"));
        heard.set(heard.get() + 1);
        true
    };
    let mut reader = RecordReader::new(false, 4096, false, Box::new(hear));
    let text = complaints();
    let (mut at, mut turns) = (0, 0);
    loop {
        begin_late();
        let before = told.get();
        let (used, event) = reader.advance(&text[at..]).unwrap();
        let lines = told.get() - before;
        let lines_max = turn::LOOK_BYTES as usize / turn::TOLD_BYTES + 1;
        assert!(lines <= lines_max, "{lines} lines in one turn");
        (at, turns) = (at + used, turns + 1);
        match event {
            Event::Head(head) => break assert_eq!(head.status, 200),
            other => assert!(matches!(other, Event::Partial), "{other:?}"),
        }
        assert!(turns <= LINES, "each turn gets further");
    }
    assert_eq!(told.get(), LINES);
    turn::begin(read_ns());
    let (used, body) = reader.advance(&text[at..]).unwrap();
    let Event::Data(range) = body else {
        panic!("{body:?}");
    };
    assert_eq!(text[at..][range], *b"body");
    assert!(matches!(
        reader.advance(&text[at + used..]),
        Ok((8, Event::End))
    ));
}

#[test]
fn a_head_behind_more_than_a_turn_may_look_at_is_found() {
    on_loop(|owner| async move {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = ConnectTo::Inet(listener.local_addr().unwrap());
        let connection = connect(to, &ConnectOptions::default(), LONG, &owner)
            .await
            .unwrap();
        let (mut server, _) = listener.accept().unwrap();
        // The connection stays open: nothing arrives that would wake a task that has stopped.
        let sent = std::thread::spawn(move || {
            server.write_all(&complaints()).unwrap();
            server
        });
        let records = RecordReader::new(false, 4096, false, Box::new(|_| true));
        let mut exchange = connection.begin_with(
            Bytes::from_static(b"asked"),
            BodyWriter::in_records(Framing::None),
            AnswerReader::of_records(records),
        );
        let mut asking = pin!(async {
            // As when a body is sent piece by piece: there is room for a piece, and none to send.
            loop {
                match exchange.head_or_room(LONG).await.unwrap() {
                    Some(_) => break,
                    None => exchange.more_comes().await,
                }
            }
            let piece = exchange.piece(LONG).await.unwrap();
            (piece, exchange.piece(LONG).await.unwrap())
        });
        let (piece, end) = poll_fn(|cx| {
            turn::begin(read_ns());
            turn::spend((turn::TURN_BYTES - turn::LOOK_BYTES) as usize);
            asking.as_mut().poll(cx)
        })
        .await;
        assert_eq!((piece.as_deref(), end), (Some(&b"body"[..]), None));
        drop(sent.join().unwrap());
    });
}

#[test]
fn small_parts_of_a_body_are_work_of_a_turn() {
    on_loop(|owner| async move {
        turn::begin(read_ns());
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunks = b"1\r\nx\r\n".repeat(LINES);
        let text = [&head[..], &chunks, b"0\r\n\r\n"].concat().leak();
        let mut exchange = asking(&owner, text).await;
        exchange.head(LONG).await.unwrap();
        let mut body = 0;
        loop {
            let piece = poll_fn(|cx| {
                begin_late();
                exchange.poll_piece(cx, LONG)
            });
            let Some(piece) = piece.await.unwrap() else {
                break;
            };
            let parts = piece.len();
            assert!(parts <= PARTS_MAX, "{parts} chunks in one turn");
            body += parts;
        }
        assert_eq!(body, LINES);

        turn::begin(read_ns());
        let (mut one, mut client) = accepted(&owner, &chunks);
        client.write_all(b"0\r\n\r\n").unwrap();
        tokio::time::sleep(PAUSE).await;
        let mut decoder = Decoder::new(Framing::Chunked, 0);
        let mut discarding = pin!(one.discard_body(&mut decoder, LONG, LONG));
        let polls = Cell::new(0);
        poll_fn(|cx| {
            begin_late();
            polls.set(polls.get() + 1);
            discarding.as_mut().poll(cx)
        })
        .await
        .unwrap();
        assert!(polls.get() >= LINES / PARTS_MAX, "{} turns", polls.get());
    });
}
