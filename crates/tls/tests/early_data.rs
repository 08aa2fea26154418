//! Early data: answered before the client's Finished, once, and not where the client is asked for a certificate.
#![allow(clippy::unwrap_used, reason = "tests")]

mod peer;

use peer::*;
use rcgen::PKCS_ECDSA_P256_SHA256;
use std::io::Write;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tls::configure::{ClientVerification, Server, ServerOptions};
use tls::handshake::{Handshake, NeedsInput};
use tls::sessions::{Sessions, Tickets};

static ECDSA: LazyLock<Made> =
    LazyLock::new(|| self_signed("example.org", &PKCS_ECDSA_P256_SHA256));

#[test]
fn early_data_comes_once() {
    let cache = Arc::new(Sessions::new(1 << 20, Duration::from_secs(60)));
    let options = || ServerOptions {
        sessions: Some(Arc::clone(&cache)),
        tickets: Some(Arc::new(Tickets::random(Duration::from_secs(60)).unwrap())),
        has_early_data: true,
        ..options(&ECDSA)
    };
    let server = Server::new(options()).unwrap();
    let mut config = client_config(TLS13, None);
    config.enable_early_data = true;
    let config = Arc::new(config);
    let mut first = client(rustls::ClientConfig::clone(&config), "example.org");
    let complete = handshake(&server, &mut first, 9999).unwrap();
    assert_eq!(complete.early, b"");
    let mut second = client(rustls::ClientConfig::clone(&config), "example.org");
    second.early_data().unwrap().write_all(b"early").unwrap();
    let flight = take(&mut second);
    let mut replayed = flight.clone();
    let step = |bytes: &[u8]| {
        let mut needs = NeedsInput::default();
        needs.receive(bytes);
        let mut outgoing = Vec::new();
        let Ok(Handshake::Accepted(accepted)) = needs.step(&mut outgoing) else {
            panic!("not accepted");
        };
        let state = accepted.choose(&server, None, &mut outgoing).unwrap();
        (state, outgoing)
    };
    let (state, outgoing) = step(&flight);
    give(&mut second, &outgoing).unwrap();
    assert!(second.is_early_data_accepted());
    let Handshake::NeedsInput(needs) = state else {
        panic!("not waiting");
    };
    let Ok(mut complete) = needs.answer_early() else {
        panic!("no early data");
    };
    assert_eq!(
        (&complete.early[..], &complete.rest[..]),
        (&b"early"[..], &b""[..])
    );
    assert!(complete.traffic.is_early() && complete.facts.is_resumed);
    let (mut early_answer, body) = (Vec::new(), vec![b'x'; 40_000]);
    complete
        .traffic
        .seal(&[b"", &body], &mut early_answer)
        .unwrap();
    assert_eq!(receive(&mut second, &early_answer), body);
    second.writer().write_all(b"late").unwrap();
    let (plain, replies, is_closed) = open(&mut complete, &take(&mut second)).unwrap();
    assert_eq!((&plain[..], is_closed), (&b"late"[..], false));
    assert!(!complete.traffic.is_early());
    give(&mut second, &replies).unwrap();
    let mut answer = Vec::new();
    complete.traffic.seal(&[b"answer"], &mut answer).unwrap();
    assert_eq!(receive(&mut second, &answer), b"answer");
    // The same bytes again: the session is gone, so the early data is passed over.
    replayed.truncate(flight.len());
    let (state, _) = step(&replayed);
    assert!(matches!(state, Handshake::NeedsInput(_)));
}

#[test]
fn early_data_waits_where_the_client_is_asked_for_a_certificate() {
    let server = Server::new(ServerOptions {
        sessions: Some(Arc::new(Sessions::new(1 << 20, Duration::from_secs(60)))),
        has_early_data: true,
        client: Some(ClientVerification {
            trust: Arc::default(),
            authorities: Vec::new(),
        }),
        ..options(&ECDSA)
    })
    .unwrap();
    let mut config = client_config(TLS13, None);
    config.enable_early_data = true;
    let mut first = client(config.clone(), "example.org");
    handshake(&server, &mut first, 9999).unwrap();
    let mut second = client(config, "example.org");
    second.early_data().unwrap().write_all(b"early").unwrap();
    let (mut needs, mut outgoing) = (NeedsInput::default(), Vec::new());
    needs.receive(&take(&mut second));
    let Ok(Handshake::Accepted(accepted)) = needs.step(&mut outgoing) else {
        panic!("not accepted");
    };
    let state = accepted.choose(&server, None, &mut outgoing).unwrap();
    let Handshake::NeedsInput(needs) = state else {
        panic!("not waiting");
    };
    let Err(mut needs) = needs.answer_early() else {
        panic!("its certificate has not been judged");
    };
    give(&mut second, &outgoing).unwrap();
    needs.receive(&take(&mut second));
    let Ok(Handshake::Complete(complete)) = needs.step(&mut Vec::new()) else {
        panic!("not complete");
    };
    assert_eq!(complete.early, b"early");
    assert!(!complete.traffic.is_early());
}
