//! What comes behind a handshake: large answers, closing, cut connections, new keys, renegotiation, garbage.
#![allow(clippy::unwrap_used, reason = "tests")]

mod peer;

use peer::*;
use rcgen::PKCS_ECDSA_P256_SHA256;
use rustls::ClientConnection;
use std::io::Write;
use std::sync::LazyLock;
use tls::configure::Server;
use tls::handshake::{Cause, Complete};
use tls::traffic::{OVERHEAD_BYTES_MAX, PLAIN_BYTES_MAX, SMALL_BYTES, Sizes};

static MADE: LazyLock<Made> = LazyLock::new(|| self_signed("example.org", &PKCS_ECDSA_P256_SHA256));

fn connected(versions: Versions, sizes: Sizes) -> (Box<Complete>, ClientConnection) {
    let mut options = options(&MADE);
    options.sizes = sizes;
    let server = Server::new(options).unwrap();
    let mut client = client(client_config(versions, None), "example.org");
    let complete = handshake(&server, &mut client, 9999).unwrap();
    (complete, client)
}

/// The lengths of the records in `bytes`, headers included.
fn records(mut bytes: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while !bytes.is_empty() {
        let length = 5 + usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
        lengths.push(length);
        bytes = &bytes[length..];
    }
    lengths
}

#[test]
fn large_answers_are_whole() {
    let body: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
    for versions in [TLS12, TLS13] {
        for sizes in [
            Sizes::default(),
            Sizes::Fixed(4096),
            Sizes::Fixed(PLAIN_BYTES_MAX),
        ] {
            let (mut complete, mut client) = connected(versions, sizes);
            let mut out = Vec::new();
            let expected = complete.traffic.sealed_bytes(body.len());
            let parts = [&body[..10], &body[10..200_000], &body[200_000..]];
            complete.traffic.seal(&parts, &mut out).unwrap();
            assert!(out.len() <= expected, "{} {expected}", out.len());
            assert_eq!(receive(&mut client, &out), body);
        }
    }
}

#[test]
fn records_grow_and_begin_small_after_a_rest() {
    let (mut complete, _) = connected(TLS13, Sizes::default());
    let mut out = Vec::new();
    complete.traffic.seal(&[&[0; 200_000]], &mut out).unwrap();
    let lengths = records(&out);
    assert!(lengths[0] <= SMALL_BYTES + OVERHEAD_BYTES_MAX);
    assert!(lengths[lengths.len() - 2] > PLAIN_BYTES_MAX);
    complete.traffic.rest();
    out.clear();
    complete.traffic.seal(&[&[0; 5000]], &mut out).unwrap();
    assert_eq!(records(&out).len(), 4);
}

#[test]
fn large_requests_are_whole_whatever_the_cuts() {
    let body: Vec<u8> = (0..100_000u32).map(|at| (at % 253) as u8).collect();
    for versions in [TLS12, TLS13] {
        for cut in [1000, 16_000, 200_000] {
            let (mut complete, mut client) = connected(versions, Sizes::default());
            let mut sent = Vec::new();
            for part in body.chunks(50_000) {
                client.writer().write_all(part).unwrap();
                sent.extend(take(&mut client));
            }
            let mut received = Vec::new();
            for part in sent.chunks(cut) {
                received.extend(open(&mut complete, part).unwrap().0);
            }
            assert_eq!(received, body);
        }
    }
}

#[test]
fn an_end_is_told_from_a_cut() {
    for versions in [TLS12, TLS13] {
        let (mut complete, mut client) = connected(versions, Sizes::default());
        client.writer().write_all(b"last").unwrap();
        let bytes = take(&mut client);
        open(&mut complete, &bytes).unwrap();
        let failure = complete.traffic.ended().unwrap_err();
        assert_eq!(
            failure.to_string(),
            "SSL_read() failed (SSL: error:0A000126:SSL routines::unexpected eof while reading)"
        );
        client.send_close_notify();
        let bytes = take(&mut client);
        let (_, _, is_closed) = open(&mut complete, &bytes).unwrap();
        assert!(is_closed && complete.traffic.ended().is_ok());
        let mut out = Vec::new();
        complete.traffic.close(&mut out);
        let once = out.len();
        complete.traffic.close(&mut out);
        assert_eq!(out.len(), once);
        give(&mut client, &out).unwrap();
        let state = client.process_new_packets().unwrap();
        assert!(state.peer_has_closed());
        assert!(complete.traffic.seal(&[b"more"], &mut out).is_err());
    }
}

#[test]
fn changed_bytes_are_refused() {
    for versions in [TLS12, TLS13] {
        let (mut complete, mut client) = connected(versions, Sizes::default());
        client.writer().write_all(b"question").unwrap();
        let mut bytes = take(&mut client);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let mut replies = Vec::new();
        let failure = complete.traffic.open(&mut bytes, &mut replies).unwrap_err();
        assert!(
            failure
                .to_string()
                .contains("decryption failed or bad record mac")
        );
        assert_eq!(failure.cause, Cause::Malformed);
        let error = give(&mut client, &replies).unwrap_err();
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
    }
}

#[test]
fn records_that_are_none_are_refused() {
    for (bytes, alert) in [
        (&b"\x17\x03\x03\xff\xff"[..], "RecordOverflow"),
        (b"\x17\x09\x03\x00\x05hello", "UnexpectedMessage"),
        (b"\x17\x03\x03\x00\x05hello", "BadRecordMac"),
        (b"\x99\x03\x03\x00\x05hello", "UnexpectedMessage"),
    ] {
        let (mut complete, mut client) = connected(TLS13, Sizes::default());
        let mut replies = Vec::new();
        let result = complete.traffic.open(&mut bytes.to_vec(), &mut replies);
        assert!(result.is_err(), "{bytes:?}");
        let error = give(&mut client, &replies).unwrap_err();
        assert!(error.to_string().contains(alert), "{error} {alert}");
    }
}

#[test]
fn keys_are_changed_when_a_client_asks() {
    let (mut complete, mut client) = connected(TLS13, Sizes::default());
    for _ in 0..40 {
        client.refresh_traffic_keys().unwrap();
        client.writer().write_all(b"question").unwrap();
        let bytes = take(&mut client);
        let (question, replies, _) = open(&mut complete, &bytes).unwrap();
        assert_eq!(question, b"question");
        give(&mut client, &replies).unwrap();
        let mut out = Vec::new();
        complete.traffic.seal(&[b"answer"], &mut out).unwrap();
        give(&mut client, &out).unwrap();
        assert_eq!(read(&mut client), b"answer");
    }
}

/// What a client sends that asks for new keys so many times, with a byte of data behind each.
fn key_updates(client: &mut ClientConnection, count: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|_| {
            client.refresh_traffic_keys().unwrap();
            client.writer().write_all(b"x").unwrap();
            take(client)
        })
        .collect()
}

#[test]
fn one_answer_is_for_all_key_updates_that_come_before_it_is_sent() {
    let (mut complete, mut client) = connected(TLS13, Sizes::default());
    let bytes = key_updates(&mut client, 10);
    let (data, replies, _) = open(&mut complete, &bytes).unwrap();
    assert_eq!((data.len(), records(&replies).len()), (10, 1));
    let bytes = key_updates(&mut client, 10);
    complete.traffic.hold_answers();
    let (data, none, _) = open(&mut complete, &bytes).unwrap();
    assert_eq!((data.len(), none.len()), (10, 0));
    let bytes = key_updates(&mut client, 1);
    let (_, more, _) = open(&mut complete, &bytes).unwrap();
    assert_eq!(records(&more).len(), 1);
    let mut out = [replies, more].concat();
    complete.traffic.seal(&[b"answer"], &mut out).unwrap();
    give(&mut client, &out).unwrap();
    assert_eq!(read(&mut client), b"answer");
}

#[test]
fn key_updates_with_hardly_any_data_are_a_flood() {
    let (mut complete, mut client) = connected(TLS13, Sizes::default());
    let bytes = key_updates(&mut client, 40);
    open(&mut complete, &bytes).unwrap();
    assert_eq!(open(&mut complete, b"").unwrap_err().cause, Cause::Flood);
}

/// What came before the end of a connection is given out, however it ends, and can still be answered.
#[test]
fn what_comes_before_a_failure_is_given_out_first() {
    for (versions, is_alert) in [(TLS12, false), (TLS13, false), (TLS12, true), (TLS13, true)] {
        let (mut complete, mut client) = connected(versions, Sizes::default());
        client.writer().write_all(b"question").unwrap();
        let mut bytes = take(&mut client);
        match is_alert {
            false => bytes.extend_from_slice(b"no record at all"),
            true => {
                give(&mut client, b"no record at all").unwrap_err();
                bytes.extend(take(&mut client));
            }
        }
        let (question, replies, is_closed) = open(&mut complete, &bytes).unwrap();
        assert_eq!((question.as_slice(), replies.len()), (&b"question"[..], 0));
        assert!(!is_closed && complete.traffic.has_failure());
        let mut out = Vec::new();
        complete.traffic.seal(&[b"answer"], &mut out).unwrap();
        let mut replies = Vec::new();
        let failure = complete.traffic.open(&mut [], &mut replies).unwrap_err();
        assert_eq!(replies.is_empty(), is_alert, "{failure}");
        if !is_alert {
            give(&mut client, &out).unwrap();
            assert_eq!(read(&mut client), b"answer");
            give(&mut client, &replies).unwrap_err();
        }
        assert!(complete.traffic.open(&mut [], &mut replies).is_err());
        assert!(complete.traffic.seal(&[b"more"], &mut out).is_err());
    }
}

#[test]
fn key_updates_without_data_are_a_flood() {
    let (mut complete, mut client) = connected(TLS13, Sizes::default());
    let mut result = Ok(());
    for _ in 0..40 {
        client.refresh_traffic_keys().unwrap();
        let bytes = take(&mut client);
        result = open(&mut complete, &bytes).map(drop);
        if result.is_err() {
            break;
        }
    }
    assert_eq!(result.unwrap_err().cause, Cause::Flood);
}
