//! Peers under Nagle's algorithm that write a message in pieces: the next piece has come when the wait for it begins, since
//! what came before is acknowledged then.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use message::{Framing, RequestHead};
use wire::connect::{ConnectOptions, ConnectTo, connect};
use wire::exchange::{AnswerHead, RequestKind};
use wire::http1::body_decoder::Decoder;
use wire::http1::request_parser::HeadLimits;
use wire::{Connection, Stream, UpstreamConnection};

mod common;

use common::on_loop;

const LONG: Duration = Duration::from_secs(60);
/// Messages both ways until a kernel expects that whoever answers what it reads sends the acknowledgement along.
const ROUNDS: usize = 20;

/// Polls once; the future has to wait.
fn begin_wait(future: impl Future) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(future).poll(&mut context).is_pending());
}

fn has_come(socket: &impl AsFd) -> bool {
    rustix::io::ioctl_fionread(socket).unwrap() > 0
}

/// Reads what has come, which is all of a message.
fn read(peer: &mut TcpStream) {
    assert!(peer.read(&mut [0; 4096]).unwrap() > 0);
}

async fn head(connection: &mut Connection) -> Box<RequestHead> {
    let limits = HeadLimits::default();
    let head = connection.read_head(&limits, LONG, &mut |_| None).await;
    head.unwrap()
}

/// A connection that has been used, its socket, and its client.
async fn accepted(owner: &std::rc::Rc<wire::Loop>) -> (Connection, OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let stream = Stream::from_accepted(socket.try_clone().unwrap().into(), true).unwrap();
    let mut connection = Connection::new(stream, owner);
    for _ in 0..ROUNDS {
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        connection.wait(LONG).await.unwrap();
        head(&mut connection).await;
        connection.send_bytes(LONG, b"answer").await.unwrap();
        read(&mut client);
    }
    (connection, socket.into(), client)
}

#[test]
fn the_rest_of_a_head() {
    on_loop(async |owner| {
        let (mut connection, socket, mut client) = accepted(&owner).await;
        client.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        client.write_all(b"Host: a\r\n\r\n").unwrap();
        connection.wait(LONG).await.unwrap();
        let (limits, mut choose) = (HeadLimits::default(), |_: &[u8]| None);
        begin_wait(connection.read_head(&limits, LONG, &mut choose));
        assert!(has_come(&socket));
    });
}

#[test]
fn the_body_of_a_request() {
    on_loop(async |owner| {
        let (mut connection, socket, mut client) = accepted(&owner).await;
        client
            .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
            .unwrap();
        client.write_all(b"hello").unwrap();
        connection.wait(LONG).await.unwrap();
        let mut decoder = Decoder::new(head(&mut connection).await.framing, 5);
        let mut body = Vec::new();
        begin_wait(connection.read_body_into(&mut decoder, LONG, &mut body));
        assert!(has_come(&socket));
    });
}

#[test]
fn the_body_of_a_response() {
    on_loop(async |owner| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = ConnectTo::Inet(listener.local_addr().unwrap());
        let mut connection = connect(to, &ConnectOptions::default(), LONG, &owner)
            .await
            .unwrap();
        let socket = connection.stream().tcp_socket().unwrap();
        let socket = socket.try_clone_to_owned().unwrap();
        let (mut origin, _) = listener.accept().unwrap();
        let get = |connection: UpstreamConnection| {
            let head = (&b"GET / HTTP/1.1\r\n\r\n"[..]).into();
            connection.begin(head, Framing::None, RequestKind::Plain, 4096)
        };
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        for _ in 0..ROUNDS {
            let mut exchange = get(connection);
            exchange.flush(LONG).await.unwrap();
            read(&mut origin);
            origin.write_all(&[&head[..], b"hello"].concat()).unwrap();
            assert!(matches!(
                exchange.head(LONG).await.unwrap(),
                AnswerHead::Final(_)
            ));
            assert!(exchange.piece(LONG).await.unwrap().is_some());
            assert!(exchange.piece(LONG).await.unwrap().is_none());
            connection = exchange.finish().unwrap();
        }
        let mut exchange = get(connection);
        exchange.flush(LONG).await.unwrap();
        read(&mut origin);
        origin.write_all(head).unwrap();
        origin.write_all(b"hello").unwrap();
        assert!(matches!(
            exchange.head(LONG).await.unwrap(),
            AnswerHead::Final(_)
        ));
        begin_wait(exchange.piece(LONG));
        assert!(has_come(&socket));
    });
}

/// As after a handshake that ends with the client's word.
#[test]
fn a_request_behind_what_is_not_answered() {
    on_loop(async |owner| {
        let (mut connection, socket, mut client) = accepted(&owner).await;
        client.write_all(b"Finished").unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        let all = |bytes: &[u8]| Some((bytes.len(), bytes.len()));
        assert_eq!(connection.read_prologue(LONG, all).await.unwrap(), 8);
        begin_wait(connection.wait(LONG));
        assert!(has_come(&socket));
    });
}
