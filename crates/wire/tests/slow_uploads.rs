//! Bodies of requests that their server takes slowly, after it has said something already.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]
#![expect(clippy::disallowed_methods, reason = "the pause is the test's own")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use bytes::Bytes;
use message::Framing;
use wire::connect::{ConnectOptions, ConnectTo, connect};
use wire::exchange::{AnswerHead, RequestKind};

mod common;

use common::on_loop;

const LONG: Duration = Duration::from_secs(60);
/// Less than the whole body takes, and far more than a part of it.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Time before each part is read.
const PAUSE: Duration = Duration::from_millis(80);
const PART: usize = 1 << 20;
const PARTS: usize = 60;
const HEAD: &str = "PUT / HTTP/1.1\r\nContent-Length: 62914560\r\n\r\n";

/// The time is that between two writes, also behind an interim head.
#[test]
fn an_upload_has_time_as_long_as_its_server_takes_some_of_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut vec![0; HEAD.len()]).unwrap();
        let interim = stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n");
        let mut part = vec![0; PART];
        for _ in 0..PARTS {
            std::thread::sleep(PAUSE);
            // It fails where the client has given up.
            if stream.read_exact(&mut part).is_err() {
                return;
            }
        }
        let end = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
        interim.and(end).unwrap();
    });
    on_loop(async |owner| {
        let to = ConnectTo::Inet(address);
        let options = ConnectOptions::default();
        let connecting = connect(to, &options, LONG, &owner);
        let framing = Framing::Length((PART * PARTS) as u64);
        let connection = connecting.await.unwrap();
        let mut exchange = connection.begin(HEAD.into(), framing, RequestKind::Plain, 4096);
        let body = Bytes::from(vec![b'x'; PART * PARTS]);
        exchange.queue_piece(body).unwrap();
        exchange.end_body(&[]).unwrap();
        let mut statuses = Vec::new();
        while statuses.last() != Some(&204) {
            let (AnswerHead::Interim(head) | AnswerHead::Final(head)) =
                exchange.head(TIMEOUT).await.unwrap();
            statuses.push(head.status);
        }
        assert_eq!(statuses, [103, 204]);
    });
    server.join().unwrap();
}
