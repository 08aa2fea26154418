//! TLS on a socket: what is written comes out whole, however little the socket takes at a time; ends are told apart.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

#[path = "../../tls/tests/peer/mod.rs"]
mod peer;

mod common;

use bytes::Bytes;
use common::on_loop;
use message::Framing;
use peer::{TLS12, TLS13, Versions, client, client_config, handshake, self_signed, server};
use rcgen::PKCS_ECDSA_P256_SHA256;
use rustls::ClientConnection;
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::thread;
use std::time::Duration;
use wire::connect::{ConnectOptions, ConnectTo, connect};
use wire::exchange::{AnswerHead, RequestKind};
use wire::{Stream, TlsLayer};

/// A stream of this runtime with TLS on it, and the client's end.
fn pair(versions: Versions) -> (Stream, ClientConnection, UnixStream) {
    let made = self_signed("example.org", &PKCS_ECDSA_P256_SHA256);
    let mut client = client(client_config(versions, None), "example.org");
    let complete = handshake(&server(&made), &mut client, 9999).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 8192).unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut stream = Stream::from(tokio::net::UnixStream::from_std(ours).unwrap());
    stream.begin_tls(TlsLayer::new(
        complete.traffic,
        complete.rest,
        complete.early,
    ));
    (stream, client, theirs)
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

/// Runs in a runtime of one thread, in one turn after the other.
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

async fn write_all(stream: &Stream, data: &[u8]) {
    let mut done = 0;
    let mut step = 1;
    while done < data.len() {
        // Offers of all lengths, also shorter ones than the last.
        step = (step * 7 + 13) % 300_000 + 1;
        let offer = &data[done..data.len().min(done + step)];
        let (front, back) = offer.split_at(offer.len() / 3);
        match stream.try_write_vectored(&[IoSlice::new(front), IoSlice::new(back)]) {
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                poll_fn(|cx| stream.poll_writable(cx)).await.unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn read_some(stream: &Stream, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.try_read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                poll_fn(|cx| stream.poll_readable(cx)).await.unwrap();
            }
            other => return other,
        }
    }
}

#[test]
fn bytes_come_whole_both_ways() {
    for versions in [TLS12, TLS13] {
        run(async {
            let (stream, mut client, mut theirs) = pair(versions);
            let data = bytes(3_000_000);
            let expected = data.clone();
            let peer = thread::spawn(move || {
                let mut tls = rustls::Stream::new(&mut client, &mut theirs);
                let mut got = Vec::new();
                Read::by_ref(&mut tls)
                    .take(3_000_000)
                    .read_to_end(&mut got)
                    .unwrap();
                assert!(got == expected);
                tls.write_all(&bytes(300_000)).unwrap();
                let mut rest = Vec::new();
                // An end without close_notify would be an error.
                tls.read_to_end(&mut rest).unwrap();
                rest
            });
            write_all(&stream, &data).await;
            let mut got = Vec::new();
            let mut buffers = [vec![0; 1000], vec![0; 65_536]];
            let mut at = 0;
            while got.len() < 300_000 {
                let count = read_some(&stream, &mut buffers[at % 2]).await.unwrap();
                got.extend_from_slice(&buffers[at % 2][..count]);
                at += 1;
            }
            assert!(got == bytes(300_000));
            stream.close_notify();
            drop(stream);
            assert_eq!(peer.join().unwrap(), b"");
        });
    }
}

#[test]
fn an_end_that_was_broken_off_looks_so() {
    run(async {
        let (stream, mut client, mut theirs) = pair(TLS13);
        write_all(&stream, b"half").await;
        drop(stream);
        let mut tls = rustls::Stream::new(&mut client, &mut theirs);
        let mut got = Vec::new();
        let end = tls.read_to_end(&mut got).unwrap_err();
        assert_eq!(
            (got.as_slice(), end.kind()),
            (&b"half"[..], ErrorKind::UnexpectedEof)
        );
    });
}

#[test]
fn a_broken_record_ends_the_connection() {
    run(async {
        let (stream, _, mut theirs) = pair(TLS13);
        theirs.write_all(&[23, 3, 3, 0, 32]).unwrap();
        theirs.write_all(&[7; 32]).unwrap();
        let failure = read_some(&stream, &mut [0; 100]).await.unwrap_err();
        assert_eq!(failure.kind(), ErrorKind::InvalidData);
    });
}

/// Whether what came before is read, looked at ahead, or waited for.
#[test]
fn what_came_before_a_broken_record_is_read_first() {
    for looks_ahead in [false, true] {
        run(async {
            let (stream, mut client, mut theirs) = pair(TLS13);
            client.writer().write_all(b"whole").unwrap();
            let mut sent = Vec::new();
            client.write_tls(&mut sent).unwrap();
            sent.extend_from_slice(b"no record at all");
            theirs.write_all(&sent).unwrap();
            if looks_ahead {
                stream.peer_closed().await;
            }
            let mut buffer = [0; 100];
            let count = read_some(&stream, &mut buffer).await.unwrap();
            assert_eq!(&buffer[..count], b"whole");
            // Nothing more comes on the socket.
            let failure = read_some(&stream, &mut buffer).await.unwrap_err();
            assert_eq!(failure.kind(), ErrorKind::InvalidData);
        });
    }
}

/// While the socket does not take the answer to a key update, there is no second one to keep.
#[test]
fn answers_to_key_updates_do_not_gather() {
    const UPDATES: usize = 1000;
    run(async {
        let (stream, mut client, mut theirs) = pair(TLS13);
        let mut buffer = [0; 100];
        for _ in 0..UPDATES {
            client.refresh_traffic_keys().unwrap();
            client.writer().write_all(b"x").unwrap();
            while client.wants_write() {
                client.write_tls(&mut theirs).unwrap();
            }
            assert_eq!(read_some(&stream, &mut buffer).await.unwrap(), 1);
        }
        let received = thread::spawn(move || {
            let mut bytes = Vec::new();
            theirs.read_to_end(&mut bytes).unwrap();
            bytes
        });
        write_all(&stream, b"answer").await;
        stream.close_notify();
        drop(stream);
        let received = received.join().unwrap();
        assert!(received.len() < 10 * UPDATES, "{} bytes", received.len());
        let mut got = Vec::new();
        rustls::Stream::new(&mut client, &mut ReadOnly(&received))
            .read_to_end(&mut got)
            .unwrap();
        assert_eq!(got, b"answer");
    });
}

/// What a peer has sent, for a client whose own words do not matter any more.
struct ReadOnly<'a>(&'a [u8]);

impl Read for ReadOnly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for ReadOnly<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_peer_is_watched_in_a_turn_that_is_over() {
    run(async {
        let (stream, mut client, mut theirs) = pair(TLS13);
        rustls::Stream::new(&mut client, &mut theirs)
            .write_all(b"more")
            .unwrap();
        poll_fn(|cx| stream.poll_readable(cx)).await.unwrap();
        wire::turn::begin(0);
        wire::turn::spend(wire::turn::TURN_BYTES as usize);
        // Without the budget of the runtime, which would end a loop.
        let mut waiting = pin!(tokio::task::unconstrained(stream.peer_closed()));
        assert!(!is_over(&mut waiting).await);
    });
}

/// The end of the socket, whether it comes together with close_notify, behind it, or alone: close_notify itself ends
/// only what is read.
#[test]
fn an_end_is_seen_behind_unread_bytes() {
    for (is_said, is_at_once) in [(true, true), (true, false), (false, true)] {
        run(async {
            let (stream, mut client, mut theirs) = pair(TLS13);
            let mut tls = rustls::Stream::new(&mut client, &mut theirs);
            tls.write_all(b"GET / HTTP/1.1").unwrap();
            let mut waiting = pin!(stream.peer_closed());
            assert!(!is_over(&mut waiting).await);
            if is_said {
                client.send_close_notify();
                client.write_tls(&mut theirs).unwrap();
            }
            if !is_at_once {
                // Until the record has been opened, and longer.
                for _ in 0..3 {
                    assert!(!is_over(&mut waiting).await);
                    tokio::task::yield_now().await;
                }
                let mut buffer = [0; 100];
                let count = read_some(&stream, &mut buffer).await.unwrap();
                assert_eq!(&buffer[..count], b"GET / HTTP/1.1");
                assert_eq!(read_some(&stream, &mut buffer).await.unwrap(), 0);
                assert!(!is_over(&mut waiting).await);
                write_all(&stream, b"response").await;
            }
            theirs.shutdown(Shutdown::Write).unwrap();
            waiting.await;
            let mut rest = Vec::new();
            let mut buffer = [0; 100];
            while let count @ 1.. = read_some(&stream, &mut buffer).await.unwrap() {
                rest.extend_from_slice(&buffer[..count]);
            }
            let expected: &[u8] = match is_at_once {
                true => b"GET / HTTP/1.1",
                false => b"",
            };
            assert_eq!((rest.as_slice(), stream.is_cut_off()), (expected, !is_said));
        });
    }
}

/// Polls once.
async fn is_over(waiting: &mut Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_ready())).await
}

#[test]
fn the_end_is_told_also_when_the_turn_is_over() {
    run(async {
        let (stream, mut client, mut theirs) = pair(TLS13);
        write_all(&stream, b"whole").await;
        wire::turn::begin(0);
        wire::turn::spend(wire::turn::TURN_BYTES as usize);
        assert!(!wire::turn::may_go_on());
        stream.close_notify();
        drop(stream);
        let mut got = Vec::new();
        let mut tls = rustls::Stream::new(&mut client, &mut theirs);
        tls.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"whole");
    });
}

/// New keys, as a session ticket, are no answer and no reason not to keep a connection; records behind them are.
#[test]
fn a_message_of_tls_itself_is_no_answer() {
    const LONG: Duration = Duration::from_secs(60);
    on_loop(async |owner| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = ConnectTo::Inet(listener.local_addr().unwrap());
        let options = ConnectOptions::default();
        let connecting = connect(to, &options, LONG, &owner);
        let mut connection = connecting.await.unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        let made = self_signed("example.org", &PKCS_ECDSA_P256_SHA256);
        let mut peer = client(client_config(TLS13, None), "example.org");
        let complete = handshake(&server(&made), &mut peer, 9999).unwrap();
        connection.begin_tls(TlsLayer::new(
            complete.traffic,
            complete.rest,
            complete.early,
        ));
        let head = Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n");
        let mut exchange = connection.begin(head, Framing::None, RequestKind::Plain, 4096);
        exchange.flush(LONG).await.unwrap();
        peer.refresh_traffic_keys().unwrap();
        while peer.wants_write() {
            peer.write_tls(&mut theirs).unwrap();
        }
        {
            let mut begins = pin!(exchange.answer_begins());
            // Until the bytes have been read, and longer.
            for _ in 0..5 {
                assert!(!is_over(&mut begins).await);
                owner.wheel.sleep(Duration::from_millis(1)).await;
            }
        }
        {
            let mut comes = pin!(async { exchange.answer_comes(LONG).await.unwrap() });
            assert!(!is_over(&mut comes).await);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
            rustls::Stream::new(&mut peer, &mut theirs)
                .write_all(answer)
                .unwrap();
            comes.await;
        }
        let head = exchange.head(LONG).await.unwrap();
        assert!(matches!(head, AnswerHead::Final(head) if head.status == 200));
        let body = exchange.piece(LONG).await.unwrap();
        assert_eq!(body.as_deref(), Some(&b"ab"[..]));
        assert_eq!(exchange.piece(LONG).await.unwrap(), None);
        peer.refresh_traffic_keys().unwrap();
        while peer.wants_write() {
            peer.write_tls(&mut theirs).unwrap();
        }
        owner.wheel.sleep(Duration::from_millis(1)).await;
        let kept = exchange.finish().unwrap();
        assert!(kept.is_intact());
    });
}
