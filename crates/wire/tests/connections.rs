//! Connections over socket pairs: what a client sends and receives.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

use bytes::Bytes;
use std::future::Future;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream as Plain;
use std::rc::Rc;
use std::time::Duration;

use message::Framing;
use wire::http1::body_decoder::{BodyFault, Decoder};
use wire::http1::request_parser::HeadLimits;
use wire::{Connection, Error, Loop, Stream};

mod common;

const SOON: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(60);

/// Runs `test` on a loop, with a connection and the client's end of it.
fn on_connection<F: Future<Output = ()>>(test: impl FnOnce(Connection, Plain, Rc<Loop>) -> F) {
    common::on_loop(async |owner| {
        let (server, client) = Plain::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let stream = Stream::from(tokio::net::UnixStream::from_std(server).unwrap());
        test(Connection::new(stream, &owner), client, owner.clone()).await;
    });
}

async fn uri_of_next(connection: &mut Connection) -> Result<String, Error> {
    let head = connection
        .read_head(&HeadLimits::default(), SOON, &mut |_| None)
        .await?;
    Ok(String::from_utf8(head.uri().to_vec()).unwrap())
}

/// The next piece of a body; `None` at its end.
async fn next_part(connection: &mut Connection, decoder: &mut Decoder) -> Option<Bytes> {
    let mut part = Vec::new();
    let outcome = connection.read_body_into(decoder, SOON, &mut part).await;
    outcome.unwrap();
    (!part.is_empty()).then(|| part.into())
}

#[test]
fn pipelined_requests_come_one_by_one() {
    on_connection(async |mut connection, mut client, _| {
        client
            .write_all(b"GET /a HTTP/1.0\n\nGET /b HTTP/1.0\n\nGET /c")
            .unwrap();
        connection.wait(LONG).await.unwrap();
        assert_eq!(uri_of_next(&mut connection).await.unwrap(), "/a");
        assert!(connection.has_unread());
        assert_eq!(uri_of_next(&mut connection).await.unwrap(), "/b");
        client.write_all(b"d HTTP/1.0\n\n").unwrap();
        assert_eq!(uri_of_next(&mut connection).await.unwrap(), "/cd");
        assert!(!connection.has_unread());
        drop(client);
        assert!(matches!(
            uri_of_next(&mut connection).await,
            Err(Error::Closed)
        ));
    });
}

#[test]
fn incomplete_heads_differ_from_idle_ends() {
    on_connection(async |mut connection, mut client, _| {
        assert!(matches!(connection.wait(SOON).await, Err(Error::Timeout)));
        assert!(matches!(
            uri_of_next(&mut connection).await,
            Err(Error::Timeout)
        ));
        client.write_all(b"GET /a HT").unwrap();
        match uri_of_next(&mut connection).await {
            Err(Error::Refused(refusal)) => {
                assert_eq!((refusal.status, refusal.is_silent), (408, true));
                assert_eq!(refusal.head.line(), b"GET /a HT");
            }
            other => panic!("{other:?}"),
        }
        client.write_all(b"GET /b HT").unwrap();
        drop(client);
        match uri_of_next(&mut connection).await {
            Err(Error::Refused(refusal)) => {
                assert_eq!((refusal.status, refusal.is_silent), (400, true))
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn bodies_end_where_they_end() {
    on_connection(async |mut connection, mut client, _| {
        client
            .write_all(b"POST /a HTTP/1.0\nContent-Length: 5\n\nhelloGET /b HTTP/1.0\n\n")
            .unwrap();
        let head = connection
            .read_head(&HeadLimits::default(), SOON, &mut |_| None)
            .await
            .unwrap();
        let mut decoder = Decoder::new(head.framing, 0);
        assert_eq!(
            next_part(&mut connection, &mut decoder).await.unwrap(),
            "hello"
        );
        assert_eq!(next_part(&mut connection, &mut decoder).await, None);
        assert_eq!(uri_of_next(&mut connection).await.unwrap(), "/b");

        let mut decoder = Decoder::new(Framing::Chunked, 0);
        client.write_all(b"5\r\nhello\r\n3\r\n").unwrap();
        assert_eq!(
            next_part(&mut connection, &mut decoder).await.unwrap(),
            "hello"
        );
        let outcome = connection.try_read_body_into(&mut decoder, &mut Vec::new());
        assert!(!outcome.unwrap(), "there is framing alone");
        client
            .write_all(b"abc\r\n0\r\nX: y\r\n\r\nGET /c HTTP/1.0\n\n")
            .unwrap();
        assert_eq!(
            next_part(&mut connection, &mut decoder).await.unwrap(),
            "abc"
        );
        assert_eq!(next_part(&mut connection, &mut decoder).await, None);
        assert_eq!(decoder.trailers().len(), 1);
        assert_eq!(uri_of_next(&mut connection).await.unwrap(), "/c");
    });
}

/// Room for what is left of the body, and for what is not: straight from the socket, and through the scratch buffer.
#[test]
fn a_large_body_goes_straight_to_where_there_is_room() {
    const LEN: usize = 300_000;
    on_connection(async |mut connection, mut client, _| {
        let body: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
        let sent = [&body[..], b"GET /next HTTP/1.0\n\n"].concat();
        let sender = std::thread::spawn(move || {
            client.write_all(&sent).unwrap();
            client
        });
        let mut decoder = Decoder::new(Framing::Length(LEN as u64), 0);
        let mut come = Vec::with_capacity(100_000);
        while !decoder.is_end() {
            let left = decoder.remaining().unwrap() as usize;
            if come.len() == come.capacity() {
                let is_half = come.len() < LEN / 2;
                come.reserve_exact(if is_half {
                    100_000.min(left)
                } else {
                    left + 50_000
                });
            }
            let reading = connection.read_body_into(&mut decoder, LONG, &mut come);
            reading.await.unwrap();
        }
        assert!(come == body, "{} bytes", come.len());
        assert_eq!(uri_of_next(&mut connection).await.unwrap(), "/next");
        let mut client = sender.join().unwrap();

        let mut decoder = Decoder::new(Framing::Length(LEN as u64), 0);
        client.write_all(&body[..50_000]).unwrap();
        drop(client);
        let mut come = Vec::with_capacity(LEN);
        let outcome = loop {
            let reading = connection.read_body_into(&mut decoder, LONG, &mut come);
            if let Err(error) = reading.await {
                break error;
            }
        };
        assert!(matches!(outcome, Error::Closed), "{outcome}");
        assert_eq!(come, body[..50_000]);
    });
}

#[test]
fn bodies_that_do_not_end() {
    on_connection(async |mut connection, mut client, _| {
        let mut decoder = Decoder::new(Framing::Length(10), 0);
        client.write_all(b"hello").unwrap();
        assert!(matches!(
            connection.discard_body(&mut decoder, LONG, SOON).await,
            Err(Error::Timeout)
        ));
        drop(client);
        assert!(matches!(
            connection.discard_body(&mut decoder, LONG, SOON).await,
            Err(Error::Closed)
        ));
        assert_eq!(decoder.remaining(), Some(5));
    });
    on_connection(async |mut connection, mut client, _| {
        client.write_all(b"5\nhello").unwrap();
        let mut decoder = Decoder::new(Framing::Chunked, 0);
        let mut part = Vec::new();
        let outcome = connection
            .read_body_into(&mut decoder, SOON, &mut part)
            .await;
        assert!(matches!(outcome, Err(Error::Body(BodyFault::Framing))));
    });
    on_connection(async |mut connection, mut client, _| {
        client.write_all(b"hello").unwrap();
        drop(client);
        let mut decoder = Decoder::until_close();
        assert_eq!(
            next_part(&mut connection, &mut decoder).await.unwrap(),
            "hello"
        );
        assert_eq!(next_part(&mut connection, &mut decoder).await, None);
    });
}

#[test]
fn all_is_sent_even_when_the_socket_fills() {
    on_connection(async |mut connection, mut client, _| {
        const LEN: usize = 4 << 20;
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            all
        });
        let body: Vec<u8> = (0..LEN).map(|n| (n % 251) as u8).collect();
        connection
            .send(LONG, |out| out.extend_from_slice(b"one"))
            .await
            .unwrap();
        connection
            .send_with_body(LONG, |out| out.extend_from_slice(&body), b"small")
            .await
            .unwrap();
        connection
            .send_with_body(LONG, |out| out.extend_from_slice(b"two"), &body)
            .await
            .unwrap();
        connection.send_bytes(LONG, b"end").await.unwrap();
        assert_eq!(connection.sent(), 3 + LEN as u64 + 5 + 3 + LEN as u64 + 3);
        drop(connection);
        assert!(
            reader.join().unwrap() == [b"one", &body[..], b"small", b"two", &body, b"end"].concat()
        );
    });
}

#[test]
fn a_client_that_takes_nothing_times_out() {
    on_connection(async |mut connection, _client, _| {
        let body = vec![0; 4 << 20];
        assert!(matches!(
            connection.send_bytes(SOON, &body).await,
            Err(Error::Timeout)
        ));
    });
}

#[test]
fn a_client_that_left_is_seen_while_it_is_served() {
    on_connection(async |connection, client, owner| {
        let closed = connection.stream.peer_closed();
        assert!(owner.wheel.timeout(SOON, closed).await.is_err());
        drop(client);
        owner
            .wheel
            .timeout(LONG, connection.stream.peer_closed())
            .await
            .unwrap();
    });
}

#[test]
fn lingering_reads_what_still_comes() {
    on_connection(async |mut connection, mut client, _| {
        client.write_all(&[b'x'; 1000]).unwrap();
        let mut client_end = client.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut rest = Vec::new();
            client_end.read_to_end(&mut rest).unwrap(); // our side says that it is done first
            client_end.write_all(b"more").unwrap();
            rest
        });
        drop(client);
        connection.linger(LONG, SOON).await;
        assert!(reader.join().unwrap().is_empty());
    });
}
