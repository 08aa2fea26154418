//! Connections of HTTP/2 that several requests share, to servers that go away or fall silent.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::rc::Rc;
use std::sync::mpsc::RecvTimeoutError;
use std::task::Poll;
use std::time::Duration;

use message::Framing;
use tokio::task::JoinHandle;
use wire::connect::{ConnectOptions, ConnectTo, connect};
use wire::exchange::{AnswerHead, ExchangeError, RequestKind};
use wire::http2::frame::{FrameHeader, HEADER_LEN};
use wire::http2::hpack::encode;
use wire::http2::session::PREFACE;
use wire::{Exchange, Loop, SharedConnection};

mod common;

use common::on_loop;

const SOON: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(60);
const HEAD_MAX: usize = 4096;
/// More than the buffers of both ends of a socket take.
const BODY_BYTES: usize = 64 << 20;
/// The frame types.
const HEADERS: u8 = 1;
const END: u8 = 5;
const PING: u8 = 6;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let head = [&[a, b, c, kind, flags][..], &stream.to_be_bytes()].concat();
    [&head[..], payload].concat()
}

/// The head of a response whose body follows.
fn answer_head(stream: u32) -> Vec<u8> {
    let mut block = Vec::new();
    encode::status(&mut block, 200);
    frame(HEADERS, 4, stream, &block)
}

/// A response without a body.
fn answer(stream: u32, status: u16) -> Vec<u8> {
    let mut block = Vec::new();
    encode::status(&mut block, status);
    frame(HEADERS, END, stream, &block)
}

/// A connection whose server has said that it takes any body, the task of its driver, and the server's end.
async fn open(owner: &Rc<Loop>) -> (SharedConnection, JoinHandle<()>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = ConnectTo::Inet(listener.local_addr().unwrap());
    let opened = connect(to, &ConnectOptions::default(), LONG, owner).await;
    let (connection, driver) = SharedConnection::new(opened.unwrap(), HEAD_MAX, 8);
    let (mut server, _) = listener.accept().unwrap();
    let window = 1u32 << 30;
    let settings = [&4u16.to_be_bytes()[..], &window.to_be_bytes()].concat();
    let start = [
        frame(4, 0, 0, &settings),
        frame(4, 1, 0, b""),
        frame(8, 0, 0, &window.to_be_bytes()),
    ];
    server.write_all(&start.concat()).unwrap();
    let driver = tokio::task::spawn_local(driver);
    let settled = async {
        while !connection.is_settled() {
            tokio::task::yield_now().await;
        }
    };
    owner.wheel.timeout(LONG, settled).await.unwrap();
    (connection, driver, server)
}

fn begin(connection: &SharedConnection, framing: Framing) -> Exchange {
    let mut head = Vec::new();
    encode::field(&mut head, b":method", b"POST");
    encode::indexed(&mut head, 6);
    encode::field(&mut head, b":path", b"/");
    encode::field(&mut head, b":authority", b"h");
    connection.begin(RequestKind::Plain, &head, framing, HEAD_MAX)
}

/// A request without a body, sent.
async fn ask(connection: &SharedConnection) -> Exchange {
    let mut exchange = begin(connection, Framing::None);
    exchange.flush(LONG).await.unwrap();
    exchange
}

/// A request whose body the server does not take, as far as the socket took it.
async fn begin_upload(connection: &SharedConnection, owner: &Rc<Loop>) -> Exchange {
    let mut upload = begin(connection, Framing::Length(BODY_BYTES as u64));
    upload.queue_piece(vec![b'x'; BODY_BYTES].into()).unwrap();
    upload.end_body(&[]).unwrap();
    let flushed = owner.wheel.timeout(SOON, upload.flush(LONG)).await;
    assert!(flushed.is_err(), "the server took all of it");
    upload
}

/// Reads up to the head of a request; the preface counts as read.
fn read_request(server: &mut TcpStream) -> u32 {
    loop {
        let mut head = [0; HEADER_LEN];
        server.read_exact(&mut head).unwrap();
        let header = FrameHeader::parse(&head);
        server.read_exact(&mut vec![0; header.len]).unwrap();
        if header.kind.0 == HEADERS {
            return header.stream;
        }
    }
}

/// Answers requests with 204 on a thread of its own, after the preface; returns the server's end.
fn answer_requests(mut server: TcpStream, streams: &[u32]) -> std::thread::JoinHandle<TcpStream> {
    let streams = streams.to_vec();
    std::thread::spawn(move || {
        let last = *streams.last().unwrap();
        while read_request(&mut server) != last {}
        for stream in streams {
            server.write_all(&answer(stream, 204)).unwrap();
        }
        server
    })
}

fn read_preface(server: &mut TcpStream) {
    let mut preface = [0; PREFACE.len()];
    server.read_exact(&mut preface).unwrap();
}

async fn status(exchange: &mut Exchange) -> u16 {
    match exchange.head(LONG).await.unwrap() {
        AnswerHead::Final(head) => head.status,
        AnswerHead::Interim(head) => panic!("{}", head.status),
    }
}

#[test]
fn a_connection_on_which_nothing_came_while_a_request_waited_takes_no_more() {
    on_loop(|owner| async move {
        let (connection, driver, mut server) = open(&owner).await;
        read_preface(&mut server);
        let server = answer_requests(server, &[1]);
        let mut first = ask(&connection).await;
        assert_eq!(status(&mut first).await, 204);
        drop(first);
        let server = server.join().unwrap();
        assert!(connection.is_usable());
        let mut unanswered = ask(&connection).await;
        let outcome = unanswered.head(SOON).await;
        assert!(matches!(outcome, Err(ExchangeError::Timeout)));
        assert!(!connection.is_usable());
        drop(unanswered);
        owner.wheel.timeout(LONG, driver).await.unwrap().unwrap();
        drop(server);
    });
}

#[test]
fn a_connection_on_which_others_are_answered_outlives_a_request_that_is_not() {
    on_loop(|owner| async move {
        let (connection, _driver, mut server) = open(&owner).await;
        read_preface(&mut server);
        let server = answer_requests(server, &[3]);
        let mut unanswered = ask(&connection).await;
        {
            let mut waits = pin!(unanswered.head(SOON));
            poll_fn(|cx| {
                assert!(waits.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            let mut other = ask(&connection).await;
            assert_eq!(status(&mut other).await, 204);
            let outcome = waits.await;
            assert!(matches!(outcome, Err(ExchangeError::Timeout)));
        }
        assert!(connection.is_usable());
        drop(server.join().unwrap());
    });
}

#[test]
fn what_a_server_sends_to_an_idle_connection_makes_it_idle_no_later() {
    on_loop(|owner| async move {
        let (connection, _driver, mut server) = open(&owner).await;
        read_preface(&mut server);
        let server = answer_requests(server, &[1]);
        let mut exchange = ask(&connection).await;
        assert_eq!(status(&mut exchange).await, 204);
        drop(exchange);
        let mut server = server.join().unwrap();
        let since = connection.idle_since_ms();
        assert!(since.is_some());
        // The next look at the clock gives another time.
        owner.wheel.sleep(Duration::from_millis(5)).await;
        let pinged = std::thread::spawn(move || {
            server.write_all(&frame(PING, 0, 0, &[0; 8])).unwrap();
            let mut header = [0; HEADER_LEN];
            while FrameHeader::parse(&header).kind.0 != PING {
                server.read_exact(&mut header).unwrap();
                let length = FrameHeader::parse(&header).len;
                server.read_exact(&mut vec![0; length]).unwrap();
            }
        });
        while !pinged.is_finished() {
            owner.wheel.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(connection.idle_since_ms(), since);
    });
}

/// A server that sends interim heads, each of them within the time, does not prolong it.
#[test]
fn all_heads_of_a_response_have_one_time_together() {
    on_loop(|owner| async move {
        let (connection, _driver, mut server) = open(&owner).await;
        read_preface(&mut server);
        let mut asked = ask(&connection).await;
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let server = std::thread::spawn(move || {
            let mut block = Vec::new();
            encode::status(&mut block, 103);
            let interim = frame(HEADERS, 4, 1, &block);
            while is_done.recv_timeout(SOON / 20) == Err(RecvTimeoutError::Timeout) {
                server.write_all(&interim).unwrap();
            }
            server
        });
        let error = loop {
            if let Err(error) = asked.head(SOON).await {
                break error;
            }
        };
        assert!(matches!(error, ExchangeError::Timeout), "{error}");
        drop(done);
        drop(server.join().unwrap());
    });
}

/// Of two requests that wait for as long, the one whose response has not begun times out; the other one goes on. Its server
/// sends a PING, and then DATA on a third stream alone.
#[test]
fn the_pings_of_a_server_keep_a_response_alive_that_has_begun() {
    on_loop(|owner| async move {
        let (connection, _driver, mut server) = open(&owner).await;
        read_preface(&mut server);
        let mut begun = ask(&connection).await;
        let mut busy = ask(&connection).await;
        server.write_all(&answer_head(1)).unwrap();
        server.write_all(&answer_head(3)).unwrap();
        assert_eq!(status(&mut begun).await, 200);
        assert_eq!(status(&mut busy).await, 200);
        let mut unanswered = ask(&connection).await;
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let server = std::thread::spawn(move || {
            server.write_all(&frame(PING, 0, 0, &[0; 8])).unwrap();
            let step = Duration::from_millis(5);
            while is_done.recv_timeout(step) == Err(RecvTimeoutError::Timeout) {
                server.write_all(&frame(0, 0, 3, b"x")).unwrap();
            }
            server.write_all(&frame(0, 1, 1, b"at last")).unwrap();
            server
        });
        {
            let mut piece = pin!(poll_fn(|cx| begun.poll_piece(cx, SOON)));
            let mut waits = pin!(unanswered.head(SOON));
            let outcome = poll_fn(|cx| {
                assert!(piece.as_mut().poll(cx).is_pending(), "it goes on");
                waits.as_mut().poll(cx)
            });
            assert!(matches!(outcome.await, Err(ExchangeError::Timeout)));
            drop(done);
            assert_eq!(piece.await.unwrap().unwrap(), "at last");
        }
        drop(server.join().unwrap());
    });
}

/// The same without a PING: each stream is on its own.
#[test]
fn what_comes_on_other_streams_does_not_keep_a_response_alive() {
    on_loop(|owner| async move {
        let (connection, _driver, mut server) = open(&owner).await;
        read_preface(&mut server);
        let mut begun = ask(&connection).await;
        server.write_all(&answer_head(1)).unwrap();
        assert_eq!(status(&mut begun).await, 200);
        let mut piece = pin!(poll_fn(|cx| begun.poll_piece(cx, SOON)));
        poll_fn(|cx| {
            assert!(piece.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        let mut other = ask(&connection).await;
        server.write_all(&answer(3, 204)).unwrap();
        assert_eq!(status(&mut other).await, 204);
        assert!(matches!(piece.await, Err(ExchangeError::Timeout)));
        drop(server);
    });
}

#[test]
fn a_response_that_came_before_the_server_closed_is_received() {
    on_loop(|owner| async move {
        let (connection, driver, mut server) = open(&owner).await;
        let mut upload = begin_upload(&connection, &owner).await;
        server.write_all(&answer(1, 413)).unwrap();
        // With what it has not read: the connection is reset.
        drop(server);
        assert_eq!(status(&mut upload).await, 413);
        assert!(upload.is_ended());
        assert!(!connection.is_usable());
        drop(upload);
        owner.wheel.timeout(LONG, driver).await.unwrap().unwrap();
    });
}

#[test]
fn a_connection_that_is_left_ends_though_its_server_takes_nothing() {
    on_loop(|owner| async move {
        let (connection, driver, server) = open(&owner).await;
        drop(begin_upload(&connection, &owner).await);
        drop(connection);
        let limit = Duration::from_secs(10);
        owner.wheel.timeout(limit, driver).await.unwrap().unwrap();
        drop(server);
    });
}

/// Each time that there is room, another one has it first.
#[test]
fn an_upload_that_has_always_more_to_send_holds_up_no_other() {
    const PIECES: usize = 4096;
    const PIECE: usize = 128 << 10;
    on_loop(|owner| async move {
        let (connection, _driver, mut server) = open(&owner).await;
        let mut upload = begin(&connection, Framing::Length((PIECES * PIECE) as u64));
        let uploading = tokio::task::spawn_local(async move {
            for _ in 0..PIECES {
                upload.queue_piece(vec![b'x'; PIECE].into()).unwrap();
                upload.flush(LONG).await.unwrap();
            }
        });
        // Until the socket is full.
        owner.wheel.sleep(SOON).await;
        let mut small = begin(&connection, Framing::Length(10));
        small.queue_piece(vec![b'y'; 10].into()).unwrap();
        small.end_body(&[]).unwrap();
        let small = tokio::task::spawn_local(async move { small.flush(LONG).await.map(drop) });
        // How many bytes of the upload come before the end of the other one.
        let (tell, told) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            read_preface(&mut server);
            let mut before = 0;
            loop {
                let mut head = [0; HEADER_LEN];
                server.read_exact(&mut head).unwrap();
                let header = FrameHeader::parse(&head);
                server.read_exact(&mut vec![0; header.len]).unwrap();
                match (header.kind.0, header.stream) {
                    (0, 1) => before += header.len,
                    (0, _) if header.len > 0 => return tell.send((before, server)),
                    _ => {}
                }
            }
        });
        let (before, _server) = told.await.unwrap();
        assert!(before < PIECES * PIECE / 2, "{before} bytes before it");
        small.await.unwrap().unwrap();
        uploading.abort();
    });
}

/// A header block in frames of at most 16 KiB.
fn block_frames(stream: u32, is_end: bool, block: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let last = block.len().div_ceil(16_384) - 1;
    for (at, part) in block.chunks(16_384).enumerate() {
        let (kind, end) = match at {
            0 => (HEADERS, u8::from(is_end)),
            _ => (9, 0),
        };
        let flags = end | if at == last { 4 } else { 0 };
        out.extend(frame(kind, flags, stream, part));
    }
    out
}

/// A field of so many bytes, and one behind it that is indexed.
fn with_large_field(mut block: Vec<u8>, bytes: usize) -> Vec<u8> {
    encode::field(&mut block, b"grpc-message", &vec![0xe4; bytes]);
    block.push(0x40);
    encode::string(&mut block, b"x-a");
    encode::string(&mut block, b"b");
    block
}

fn status_block() -> Vec<u8> {
    let mut block = Vec::new();
    encode::status(&mut block, 200);
    block
}

#[test]
fn a_head_or_trailers_that_are_too_large_end_their_own_request_alone() {
    on_loop(|owner| async move {
        let (connection, _driver, mut server) = open(&owner).await;
        let mut other = ask(&connection).await;
        let mut of_head = ask(&connection).await;
        let mut of_trailers = ask(&connection).await;
        let large = block_frames(3, true, &with_large_field(status_block(), 70_000));
        server.write_all(&large).unwrap();
        let error = of_head.head(LONG).await.unwrap_err();
        assert!(error.to_string().contains("too big header"), "{error}");
        server.write_all(&answer_head(5)).unwrap();
        let large = block_frames(5, true, &with_large_field(Vec::new(), 700_000));
        server.write_all(&large).unwrap();
        assert_eq!(status(&mut of_trailers).await, 200);
        let error = poll_fn(|cx| of_trailers.poll_piece(cx, LONG)).await;
        assert!(error.unwrap_err().to_string().contains("too big header"));
        // What the dropped blocks put into the table is there.
        let block = [&status_block()[..], &[0x80 | 62]].concat();
        server.write_all(&frame(HEADERS, END, 1, &block)).unwrap();
        let AnswerHead::Final(head) = other.head(LONG).await.unwrap() else {
            panic!("an interim head");
        };
        let mut lines = head.iter();
        assert!(lines.any(|(name, value, _)| name == b"x-a" && value == b"b"));
        assert!(connection.is_usable());
    });
}

#[test]
fn a_connection_with_many_resets_takes_no_more_requests_and_goes_on_with_others() {
    on_loop(|owner| async move {
        let (connection, driver, mut server) = open(&owner).await;
        let mut held = ask(&connection).await;
        let mut given_up = 0;
        while connection.is_usable() {
            drop(ask(&connection).await);
            given_up += 1;
            assert!(given_up < 50, "it takes more");
        }
        assert!(given_up > 10, "{given_up}");
        server.write_all(&answer(1, 204)).unwrap();
        assert_eq!(status(&mut held).await, 204);
        drop(held);
        owner.wheel.timeout(LONG, driver).await.unwrap().unwrap();
    });
}
