//! An origin that says a lot which is no answer: how much of it one turn of a loop takes.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]
#![expect(clippy::disallowed_methods, reason = "the pause is the test's own")]

use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use message::Framing;
use wire::connect::{Destination, Options, connect};
use wire::fastcgi::RecordReader;
use wire::http1::answer::AnswerReader;
use wire::http1::request::BodyWriter;

mod common;

use common::on_loop;

const LONG: Duration = Duration::from_secs(60);
/// Records of nothing but padding: the largest of them is much for little work.
const RECORDS: usize = 128 << 10;
/// What a turn may take: so many of the loop's buffers.
const TURN_MAX: u64 = 512 << 10;
/// Time for the socket to fill between two turns.
const PAUSE: Duration = Duration::from_millis(2);

#[test]
fn one_turn_takes_a_bounded_part_of_what_is_no_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let origin = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        // The error stream, and an answer behind it.
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
        let to = Destination::Inet(address);
        let connection = connect(to, &Options::default(), LONG, &owner)
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
            let turn = poll_fn(|cx| Poll::Ready(pin!(exchange.head(LONG)).poll(cx))).await;
            most = most.max(exchange.received() - before);
            if let Poll::Ready(head) = turn {
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
