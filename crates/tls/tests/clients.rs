//! Both sides of a connection by this crate: verdicts on clients' and servers' certificates, sessions of a peer.
#![allow(clippy::unwrap_used, reason = "tests")]

mod peer;

use peer::*;
use rcgen::PKCS_ECDSA_P256_SHA256;
use rustls::pki_types::CertificateDer;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tls::configure::{Client, ClientOptions, ClientVerification, Server, ServerOptions};
use tls::handshake::{
    ClientNeedsInput, Complete, Connected, Connecting, Handshake, NeedsInput, PeerSessions,
    verify_server,
};
use tls::sessions::Tickets;
use tls::suites::Protocols;
use tls::verify::{Purpose, Trust, Verdict};

static MADE: LazyLock<Made> = LazyLock::new(|| self_signed("example.org", &PKCS_ECDSA_P256_SHA256));

fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs() as i64
}

/// Runs both sides to their ends.
fn connect(
    server: &Server,
    client: &Client,
    sessions: Option<&PeerSessions>,
) -> (Box<Complete>, Box<Connected>) {
    connect_to("example.org", server, client, sessions)
}

fn connect_to(
    name: &str,
    server: &Server,
    client: &Client,
    sessions: Option<&PeerSessions>,
) -> (Box<Complete>, Box<Connected>) {
    let mut to_server = Vec::new();
    let mut to_client = Vec::new();
    let needs = ClientNeedsInput::new(client, name, sessions).unwrap();
    let mut ours = needs.step(&mut to_server).unwrap();
    let mut theirs = Handshake::NeedsInput(NeedsInput::default());
    for _ in 0..20 {
        theirs = match theirs {
            Handshake::NeedsInput(mut needs) => {
                needs.receive(&std::mem::take(&mut to_server));
                needs.step(&mut to_client).unwrap()
            }
            Handshake::Accepted(accepted) => accepted.choose(server, None, &mut to_client).unwrap(),
            complete => complete,
        };
        ours = match ours {
            Connecting::NeedsInput(mut needs) => {
                needs.receive(&std::mem::take(&mut to_client));
                needs.step(&mut to_server).unwrap()
            }
            complete => complete,
        };
        match (theirs, ours) {
            (Handshake::Complete(theirs), Connecting::Complete(mut ours)) => {
                ours.rest.extend_from_slice(&to_client);
                return (theirs, ours);
            }
            (other, another) => (theirs, ours) = (other, another),
        }
    }
    panic!("no end");
}

fn versions(name: &str) -> Protocols {
    Protocols::read([name]).unwrap().chosen
}

/// A server that gives tickets, and a client that sends names.
fn with_sessions(version: &str) -> (Server, Client) {
    let server = Server::new(ServerOptions {
        tickets: Some(Arc::new(Tickets::random(Duration::from_secs(60)).unwrap())),
        ..options(&MADE)
    });
    let client = Client::new(ClientOptions {
        protocols: versions(version),
        sends_name: true,
        ..ClientOptions::default()
    });
    (server.unwrap(), client.unwrap())
}

#[test]
fn both_sides_talk_and_take_up_sessions() {
    for version in ["TLSv1.2", "TLSv1.3"] {
        let (server, client) = with_sessions(version);
        let sessions = PeerSessions::default();
        for is_resumed in [false, true, true] {
            let (mut theirs, mut ours) = connect(&server, &client, Some(&sessions));
            assert_eq!(theirs.facts.is_resumed, is_resumed);
            assert_eq!(ours.facts.is_resumed, is_resumed);
            assert_eq!(ours.facts.protocol_name(), version);
            assert_eq!(
                theirs.facts.server_name.as_deref(),
                Some(&b"example.org"[..])
            );
            let mut sealed = Vec::new();
            ours.traffic.seal(&[b"question"], &mut sealed).unwrap();
            assert_eq!(open(&mut theirs, &sealed).unwrap().0, b"question");
            // Tickets of TLS 1.3 come before the answer.
            let mut answer = std::mem::take(&mut ours.rest);
            theirs.traffic.seal(&[b"answer"], &mut answer).unwrap();
            let opened = ours.traffic.open(&mut answer, &mut Vec::new()).unwrap();
            assert_eq!(&answer[..opened.plain], b"answer");
        }
    }
}

#[test]
fn sessions_of_several_names_are_kept() {
    let names = ["a.example.org", "b.example.org", "c.example.org"];
    for version in ["TLSv1.2", "TLSv1.3"] {
        let (server, client) = with_sessions(version);
        let sessions = PeerSessions::default();
        for is_resumed in [false, true] {
            for name in names {
                let (_, mut ours) = connect_to(name, &server, &client, Some(&sessions));
                assert_eq!(ours.facts.is_resumed, is_resumed, "{version} {name}");
                let mut tickets = std::mem::take(&mut ours.rest);
                ours.traffic.open(&mut tickets, &mut Vec::new()).unwrap();
            }
        }
    }
}

#[test]
fn a_name_is_sent_only_where_asked_for() {
    let server = server(&MADE);
    let client = Client::new(ClientOptions::default()).unwrap();
    let (theirs, _) = connect(&server, &client, None);
    assert_eq!(theirs.facts.server_name, None);
}

#[test]
fn servers_are_judged_by_chain_and_host() {
    let authority = Authority::new("root");
    let made = authority.issue(&params("example.org"));
    let server = server(&made);
    let client = Client::new(ClientOptions::default()).unwrap();
    let (_, ours) = connect(&server, &client, None);
    let trust = Trust::new([authority.der()], Vec::new(), 1);
    assert_eq!(
        verify_server(&trust, &ours.facts, "example.org", now()),
        Ok(())
    );
    let fault = |trust: &Trust, host| {
        verify_server(trust, &ours.facts, host, now())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        fault(&trust, "other.org"),
        "upstream SSL certificate does not match \"other.org\""
    );
    let nothing = Trust::new([], Vec::new(), 1);
    assert_eq!(
        fault(&nothing, "example.org"),
        "upstream SSL certificate verify error: (21:unable to verify the first certificate)"
    );
}

/// The verdict of a server on a client.
fn verdict(
    trust: Trust,
    authorities: Vec<CertificateDer<'static>>,
    own: Option<&Made>,
    version: &str,
) -> Verdict {
    let trust = Arc::new(trust);
    let client = ClientVerification {
        trust: Arc::clone(&trust),
        authorities,
    };
    let server = Server::new(ServerOptions {
        client: Some(client),
        ..options(&MADE)
    })
    .unwrap();
    let client = Client::new(ClientOptions {
        protocols: versions(version),
        certificate: own.map(Made::pair),
        ..ClientOptions::default()
    })
    .unwrap();
    let (theirs, _) = connect(&server, &client, None);
    let scheme = own.map(|_| "ecdsa_secp256r1_sha256").unwrap_or_default();
    assert_eq!(theirs.facts.client_signature_scheme_name(), scheme);
    trust.verdict(&theirs.facts.certificates, Purpose::Client, now())
}

#[test]
fn clients_have_verdicts() {
    let authority = Authority::new("root");
    let made = authority.client("client");
    for version in ["TLSv1.2", "TLSv1.3"] {
        let trust = || Trust::new([authority.der()], Vec::new(), 1);
        let told = || vec![authority.der()];
        assert_eq!(verdict(trust(), told(), None, version).to_string(), "NONE");
        assert_eq!(
            verdict(trust(), told(), Some(&made), version).to_string(),
            "SUCCESS"
        );
        let other = Trust::new([Authority::new("other").der()], Vec::new(), 1);
        assert_eq!(
            verdict(other, told(), Some(&made), version).to_string(),
            "FAILED:unable to verify the first certificate"
        );
    }
}

#[test]
fn a_self_signed_client_is_accepted_where_it_is_configured() {
    let made = self_signed("client", &PKCS_ECDSA_P256_SHA256);
    for version in ["TLSv1.2", "TLSv1.3"] {
        let trust = Trust::new([made.der.clone()], Vec::new(), 1);
        assert_eq!(
            verdict(trust, Vec::new(), Some(&made), version),
            Verdict::Success
        );
        let trust = Trust::new([MADE.der.clone()], Vec::new(), 1);
        let verdict = verdict(trust, Vec::new(), Some(&made), version);
        assert_eq!(verdict.to_string(), "FAILED:self-signed certificate");
    }
}

#[test]
fn a_session_that_is_taken_up_knows_its_client() {
    let authority = Authority::new("root");
    let made = authority.client("client");
    let trust = Arc::new(Trust::new([authority.der()], Vec::new(), 1));
    for version in ["TLSv1.2", "TLSv1.3"] {
        let client = ClientVerification {
            trust: Arc::clone(&trust),
            authorities: vec![authority.der()],
        };
        let server = Server::new(ServerOptions {
            client: Some(client),
            tickets: Some(Arc::new(Tickets::random(Duration::from_secs(60)).unwrap())),
            ..options(&MADE)
        })
        .unwrap();
        let client = Client::new(ClientOptions {
            protocols: versions(version),
            certificate: Some(made.pair()),
            ..ClientOptions::default()
        })
        .unwrap();
        let sessions = PeerSessions::default();
        for is_resumed in [false, true] {
            let (theirs, mut ours) = connect(&server, &client, Some(&sessions));
            let mut rest = std::mem::take(&mut ours.rest);
            ours.traffic.open(&mut rest, &mut Vec::new()).unwrap();
            assert_eq!(theirs.facts.is_resumed, is_resumed);
            let verdict = trust.verdict(&theirs.facts.certificates, Purpose::Client, now());
            assert_eq!(verdict, Verdict::Success);
        }
    }
}

#[test]
fn a_client_that_is_too_old_is_told_so() {
    // TLS 1.1, no session, one suite, no compression, no extensions.
    let begin = b"\x16\x03\x01\0\x2d\x01\0\0\x29\x03\x02";
    let mut needs = NeedsInput::default();
    needs.receive(&[&begin[..], &[7; 32], b"\0\0\x02\0\x2f\x01\0"].concat());
    let mut answer = Vec::new();
    let Ok(Handshake::Accepted(accepted)) = needs.step(&mut answer) else {
        panic!("a hello");
    };
    let failure = accepted
        .choose(&server(&MADE), None, &mut answer)
        .err()
        .unwrap();
    let text = failure.to_string();
    assert!(
        text.contains("0A000102:SSL routines::unsupported protocol"),
        "{text}"
    );
    assert_eq!(answer[5..], [2, 70]);
}
