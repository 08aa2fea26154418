//! Exchanges with origins that follow a script.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use message::Framing;
use wire::connect::{ConnectError, ConnectOptions, ConnectTo, connect};
use wire::exchange::RequestKind;
use wire::exchange::{AnswerHead, ExchangeError, Flushed};
use wire::http1::request_writer::{self, Outgoing};
use wire::{Exchange, Loop, UpstreamConnection};

mod common;

use common::on_loop;

const SOON: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(60);
const HEAD_MAX: usize = 4096;

/// An action of an origin on a connection. The origin performs its actions in order and then closes.
enum Act {
    /// Reads until this text has been received.
    Read(&'static str),
    /// Reads this number of further bytes.
    ReadBytes(usize),
    /// Writes this.
    Write(&'static str),
    /// Writes byte by byte, each in a packet of its own.
    Trickle(&'static str),
    /// Writes this number of bytes `x`.
    WriteBytes(usize),
    /// Shuts down the sending side.
    Shut,
    /// Reads until the other side closes.
    ReadToEnd,
}

/// An origin for one connection; joining it returns everything that it read.
fn origin(script: Vec<Act>) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut all = Vec::new();
        for act in script {
            match act {
                Act::Read(text) => {
                    while !all.windows(text.len()).any(|part| part == text.as_bytes()) {
                        read_some(&mut stream, &mut all, 1);
                    }
                }
                Act::ReadBytes(count) => {
                    let until = all.len() + count;
                    while all.len() < until {
                        let left = until - all.len();
                        read_some(&mut stream, &mut all, left);
                    }
                }
                Act::Write(text) => stream.write_all(text.as_bytes()).unwrap(),
                Act::Trickle(text) => {
                    for byte in text.as_bytes().chunks(1) {
                        stream.write_all(byte).unwrap();
                        std::thread::yield_now();
                    }
                }
                Act::WriteBytes(count) => stream.write_all(&vec![b'x'; count]).unwrap(),
                Act::Shut => stream.shutdown(Shutdown::Write).unwrap(),
                Act::ReadToEnd => {
                    let _ = stream.read_to_end(&mut all); // a reset is an end too
                }
            }
        }
        all
    });
    (address, thread)
}

fn read_some(stream: &mut impl Read, all: &mut Vec<u8>, most: usize) {
    let mut piece = vec![0; most.min(65_536)];
    let count = stream.read(&mut piece).unwrap();
    assert!(
        count > 0,
        "the client closed after {:?}",
        all.escape_ascii().to_string()
    );
    all.extend_from_slice(&piece[..count]);
}

async fn to(address: SocketAddr, owner: &Rc<Loop>) -> UpstreamConnection {
    connect(
        ConnectTo::Inet(address),
        &ConnectOptions::default(),
        LONG,
        owner,
    )
    .await
    .unwrap()
}

fn begin(
    connection: UpstreamConnection,
    method: &str,
    framing: Framing,
    asked: RequestKind,
) -> Exchange {
    let mut head = Vec::new();
    let outgoing = Outgoing {
        method: method.as_bytes(),
        target: b"/a",
        is_http10: false,
        framing,
    };
    request_writer::head(&mut head, &outgoing, [(&b"Host"[..], &b"h"[..])]).unwrap();
    connection.begin(head.into(), framing, asked, HEAD_MAX)
}

fn get(connection: UpstreamConnection) -> Exchange {
    begin(connection, "GET", Framing::None, RequestKind::Plain)
}

async fn status(exchange: &mut Exchange) -> u16 {
    match exchange.head(LONG).await.unwrap() {
        AnswerHead::Final(head) => head.status,
        AnswerHead::Interim(head) => panic!("{}", head.status),
    }
}

/// The rest of the body, and how it ended.
async fn body(exchange: &mut Exchange) -> (Vec<u8>, Result<(), String>) {
    let mut all = Vec::new();
    loop {
        match exchange.piece(LONG).await {
            Ok(Some(piece)) => all.extend_from_slice(&piece),
            Ok(None) => return (all, Ok(())),
            Err(error) => return (all, Err(error.to_string())),
        }
    }
}

#[test]
fn requests_follow_each_other_on_one_connection() {
    let (address, thread) = origin(vec![
        Act::Read("\r\n\r\n"),
        Act::Write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
        Act::Read("\r\n\r\nHEAD /a HTTP/1.1\r\nHost: h\r\n\r\n"),
        Act::Write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        Act::Read(
            "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        ),
        Act::Trickle(
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
        ),
        Act::ReadToEnd,
    ]);
    on_loop(async |owner| {
        let mut exchange = get(to(address, &owner).await);
        assert_eq!(exchange.flush(LONG).await.unwrap(), Flushed::All);
        assert_eq!(status(&mut exchange).await, 200);
        assert_eq!(body(&mut exchange).await, (b"hello".to_vec(), Ok(())));
        assert_eq!((exchange.sent(), exchange.received()), (28, 43));
        let connection = exchange.finish().unwrap();
        assert!(connection.is_intact() && connection.requests() == 1);
        let mut exchange = begin(connection, "HEAD", Framing::None, RequestKind::Head);
        assert_eq!(status(&mut exchange).await, 200);
        assert_eq!(body(&mut exchange).await, (Vec::new(), Ok(())));
        let mut exchange = begin(
            exchange.finish().unwrap(),
            "POST",
            Framing::Chunked,
            RequestKind::Plain,
        );
        exchange.queue_piece(Bytes::from_static(b"abc")).unwrap();
        assert_eq!(exchange.flush(LONG).await.unwrap(), Flushed::All);
        assert!(!exchange.is_sent());
        exchange.queue_piece(Bytes::from_static(b"de")).unwrap();
        exchange.end_body(&[]).unwrap();
        let AnswerHead::Interim(hints) = exchange.head(LONG).await.unwrap() else {
            panic!()
        };
        assert_eq!((hints.status, exchange.is_sent()), (103, true));
        assert_eq!(status(&mut exchange).await, 200);
        assert_eq!(body(&mut exchange).await, (b"abc".to_vec(), Ok(())));
        assert_eq!(exchange.trailers()[0].value, "y");
        assert_eq!(exchange.finish().unwrap().requests(), 3);
    });
    thread.join().unwrap();
}

/// The buffers that the loop lends out with large pieces are all away then.
#[test]
fn a_large_body_is_whole_while_all_its_pieces_are_kept() {
    const LARGE: usize = 8 << 20;
    on_loop(async |owner| {
        let (address, origin) = origin(vec![
            Act::Read("\r\n\r\n"),
            Act::Write("HTTP/1.1 200 OK\r\nContent-Length: 8388608\r\n\r\n"),
            Act::WriteBytes(LARGE),
            Act::Read("\r\n\r\nGET /a"),
            Act::Write("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok"),
        ]);
        let mut exchange = get(to(address, &owner).await);
        assert_eq!(status(&mut exchange).await, 200);
        let mut pieces = Vec::new();
        while let Some(piece) = exchange.piece(LONG).await.unwrap() {
            assert!(piece.iter().all(|byte| *byte == b'x'));
            pieces.push(piece);
        }
        assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), LARGE);
        let mut exchange = get(exchange.finish().unwrap());
        assert_eq!(status(&mut exchange).await, 201);
        assert_eq!(body(&mut exchange).await, (b"ok".to_vec(), Ok(())));
        drop((exchange, pieces));
        origin.join().unwrap();
    });
}

#[test]
fn doubtful_connections_are_not_reused() {
    for (text, expected) in [
        (
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab",
            Ok(()),
        ),
        ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", Ok(())),
        ("HTTP/1.1 200 OK\r\n\r\nab", Ok(())),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 200 OK\r\n\r\n",
            Ok(()),
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", Ok(())),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
            Err("upstream prematurely closed connection"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nx",
            Err("upstream sent invalid chunked response"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
            Err("upstream prematurely closed connection"),
        ),
    ] {
        let (address, thread) = origin(vec![
            Act::Read("\r\n\r\n"),
            Act::Write(text),
            Act::Shut,
            Act::ReadToEnd,
        ]);
        on_loop(async |owner| {
            let mut exchange = get(to(address, &owner).await);
            assert_eq!(status(&mut exchange).await, 200, "{text}");
            let (data, outcome) = body(&mut exchange).await;
            assert_eq!(
                (&data[..], outcome),
                (&b"ab"[..], expected.map_err(str::to_owned)),
                "{text}"
            );
            // The origin's end has come by now, or comes while this waits.
            exchange.piece(SOON).await.ok();
            tokio::time::sleep(SOON).await;
            assert!(exchange.finish().is_none(), "{text}");
        });
        thread.join().unwrap();
    }
}

#[test]
fn answers_that_do_not_come() {
    on_loop(async |owner| {
        for (script, expected) in [
            (
                vec![Act::Read("\r\n\r\n")],
                "upstream prematurely closed connection",
            ),
            (
                vec![Act::Read("\r\n\r\n"), Act::Write("HTTP/1.1 200 O")],
                "upstream prematurely closed connection",
            ),
            (
                vec![
                    Act::Read("\r\n\r\n"),
                    Act::Write("HTTP/1.1 200 OK\r\nX : y\r\n\r\n"),
                ],
                "upstream sent invalid header: \"X\\x20...\"",
            ),
            (vec![Act::Read("\r\n\r\n"), Act::WriteBytes(10)], ""),
        ] {
            let (address, thread) = origin(script);
            let outcome = get(to(address, &owner).await).head(LONG).await;
            let shown = outcome.map_or_else(|error| error.to_string(), |_| String::new());
            assert_eq!(shown, expected);
            thread.join().unwrap();
        }
        let (address, thread) = origin(vec![Act::ReadToEnd]);
        let mut exchange = get(to(address, &owner).await);
        let error = exchange.head(SOON).await.unwrap_err();
        assert!(matches!(error, ExchangeError::Timeout), "{error}");
        drop(exchange);
        thread.join().unwrap();
    });
}

/// A server that sends its heads in drops, each of them within the time, does not prolong it.
#[expect(clippy::disallowed_methods, reason = "the pause is the test's own")]
#[test]
fn all_heads_of_an_answer_have_one_time_together() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        read_some(&mut stream, &mut Vec::new(), 1);
        let interim = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nX: ";
        let mut sent = stream.write_all(interim);
        while sent.is_ok() {
            std::thread::sleep(SOON / 20);
            sent = stream.write_all(b"x");
        }
    });
    on_loop(async |owner| {
        let mut exchange = get(to(address, &owner).await);
        let interim = exchange.head(SOON).await;
        assert!(matches!(interim, Ok(AnswerHead::Interim(_))));
        let error = exchange.head(SOON).await.unwrap_err();
        assert!(matches!(error, ExchangeError::Timeout), "{error}");
    });
    thread.join().unwrap();
}

#[test]
fn an_answer_may_come_before_the_request_is_sent() {
    const LARGE: usize = 32 << 20;
    let refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nab";
    let (address, thread) = origin(vec![
        Act::Read("\r\n\r\n"),
        Act::Write(refusal),
        Act::ReadBytes(1),
        Act::ReadToEnd,
    ]);
    on_loop(async |owner| {
        let framing = Framing::Length(LARGE as u64);
        let mut exchange = begin(
            to(address, &owner).await,
            "POST",
            framing,
            RequestKind::Plain,
        );
        exchange
            .queue_piece(Bytes::from(vec![b'x'; LARGE / 2]))
            .unwrap();
        exchange.flush(LONG).await.unwrap();
        assert_eq!(status(&mut exchange).await, 413);
        assert_eq!(body(&mut exchange).await, (b"ab".to_vec(), Ok(())));
        assert!(exchange.finish().is_none());
    });
    thread.join().unwrap();
}

#[test]
fn the_request_goes_on_while_an_answer_is_read() {
    const LARGE: usize = 8 << 20;
    let (address, thread) = origin(vec![
        Act::Read("\r\n\r\n"),
        Act::Write("HTTP/1.1 100 Continue\r\n\r\n"),
        Act::ReadBytes(LARGE),
        Act::Write("HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n"),
        Act::WriteBytes(2_000_000),
        Act::ReadToEnd,
    ]);
    on_loop(async |owner| {
        let framing = Framing::Length(LARGE as u64);
        let mut exchange = begin(
            to(address, &owner).await,
            "PUT",
            framing,
            RequestKind::Plain,
        );
        exchange
            .queue_piece(Bytes::from(vec![b'x'; LARGE]))
            .unwrap();
        exchange.end_body(&[]).unwrap();
        let AnswerHead::Interim(head) = exchange.head(LONG).await.unwrap() else {
            panic!()
        };
        assert_eq!(head.status, 100);
        assert_eq!(status(&mut exchange).await, 200);
        let (data, outcome) = body(&mut exchange).await;
        assert_eq!((data.len(), outcome), (2_000_000, Ok(())));
        assert!(exchange.is_sent() && exchange.finish().is_some());
    });
    assert!(thread.join().unwrap().len() > LARGE);
}

#[test]
fn a_server_that_reads_nothing_is_not_waited_for_forever() {
    let (address, thread) = origin(vec![
        Act::Read("\r\n\r\n"),
        Act::Read("end"),
        Act::ReadToEnd,
    ]);
    on_loop(async |owner| {
        let mut exchange = begin(
            to(address, &owner).await,
            "PUT",
            Framing::Chunked,
            RequestKind::Plain,
        );
        assert_eq!(exchange.flush(LONG).await.unwrap(), Flushed::All);
        exchange.queue_piece(Bytes::from_static(b"end")).unwrap();
        exchange.end_body(&[]).unwrap();
        let error = exchange.head(SOON).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "upstream timed out (110: Connection timed out)"
        );
        drop(exchange);
    });
    thread.join().unwrap();
}

#[test]
fn a_tunnel_begins_behind_the_head() {
    let (address, thread) = origin(vec![
        Act::Read("\r\n\r\n"),
        Act::Write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nraw"),
        Act::ReadToEnd,
    ]);
    on_loop(async |owner| {
        let mut exchange = begin(
            to(address, &owner).await,
            "GET",
            Framing::None,
            RequestKind::Upgrade,
        );
        assert_eq!(status(&mut exchange).await, 101);
        let first = exchange.piece(LONG).await.unwrap().unwrap();
        let (stream, rest) = exchange.into_tunnel().unwrap();
        assert_eq!([&first[..], &rest[..]].concat(), b"raw");
        stream.try_write(b"more").unwrap();
    });
    assert!(thread.join().unwrap().ends_with(b"\r\n\r\nmore"));
}

#[test]
fn an_idle_connection_shows_when_the_server_closes_or_speaks() {
    for last in [
        Act::Shut,
        Act::Write("HTTP/1.1 408 Request Time-out\r\n\r\n"),
    ] {
        let (address, thread) = origin(vec![
            Act::Read("\r\n\r\n"),
            Act::Write("HTTP/1.1 204 No Content\r\n\r\n"),
            Act::Read("x"),
            last,
            Act::ReadToEnd,
        ]);
        on_loop(async |owner| {
            let mut exchange = get(to(address, &owner).await);
            assert_eq!(status(&mut exchange).await, 204);
            let connection = exchange.finish().unwrap();
            assert!(connection.is_intact());
            connection.stream().try_write(b"x").unwrap();
            while connection.is_intact() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        thread.join().unwrap();
    }
}

#[test]
fn servers_that_cannot_be_reached() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let path = std::env::temp_dir().join(format!("freewheel-exchange-{}", std::process::id()));
    let socket = UnixListener::bind(&path).unwrap();
    on_loop(async |owner| {
        let go = async |to: ConnectTo<'_>, options: ConnectOptions| {
            connect(to, &options, LONG, &owner).await
        };
        let refused = "connect() failed (111: Connection refused)";
        let error = go(ConnectTo::Inet(free), ConnectOptions::default()).await;
        assert_eq!(error.err().unwrap().to_string(), refused);
        let options = ConnectOptions {
            from: Some("192.0.2.1:0".parse().unwrap()),
            probes: true,
            ..ConnectOptions::default()
        };
        let error = go(ConnectTo::Inet(free), options).await.err().unwrap();
        assert!(
            matches!(&error, ConnectError::Bind { error, .. } if error.kind() == ErrorKind::AddrNotAvailable)
        );
        assert_eq!(
            error.to_string(),
            "bind(192.0.2.1:0) failed (99: Cannot assign requested address)"
        );
        let error = go(
            ConnectTo::Unix("/no/such.sock".as_ref()),
            ConnectOptions::default(),
        )
        .await
        .err()
        .unwrap();
        assert_eq!(
            error.to_string(),
            "connect() failed (2: No such file or directory)"
        );
        assert!(
            go(ConnectTo::Unix(&path), ConnectOptions::default())
                .await
                .is_ok()
        );
        let options = ConnectOptions {
            from: Some("127.0.0.9:0".parse().unwrap()),
            probes: true,
            ..ConnectOptions::default()
        };
        let (address, thread) = origin(vec![Act::ReadToEnd]);
        let connection = go(ConnectTo::Inet(address), options).await.unwrap();
        assert_eq!(
            connection
                .stream()
                .local_addr()
                .unwrap()
                .unwrap()
                .ip()
                .to_string(),
            "127.0.0.9"
        );
        drop(connection);
        thread.join().unwrap();
    });
    drop(socket);
    rustix::fs::unlink(&path).unwrap();
}

#[test]
fn a_connect_that_hangs_times_out() {
    // A full queue of one: the kernel does not answer any further client.
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    rustix::net::bind(&socket, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let address = TcpListener::from(socket);
    let to = ConnectTo::Inet(address.local_addr().unwrap());
    on_loop(async |owner| {
        let mut kept = Vec::new();
        loop {
            match connect(to, &ConnectOptions::default(), SOON, &owner).await {
                Ok(connection) => kept.push(connection),
                Err(error) => {
                    assert_eq!(
                        error.to_string(),
                        "upstream timed out (110: Connection timed out)"
                    );
                    return;
                }
            }
            assert!(kept.len() < 20, "the queue never fills");
        }
    });
}
