//! Handshakes in memory with clients of rustls: what is negotiated, refused, taken up again.
#![allow(clippy::unwrap_used, reason = "tests")]

mod peer;

use peer::*;
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustls::HandshakeKind;
use rustls::client::Resumption;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tls::certificates::Certificates;
use tls::configure::{Server, ServerOptions};
use tls::handshake::{Cause, Handshake, Level, NeedsInput};
use tls::sessions::{Sessions, Tickets};
use tls::suites::Protocols;

static ECDSA: LazyLock<Made> =
    LazyLock::new(|| self_signed("example.org", &PKCS_ECDSA_P256_SHA256));
static RSA: LazyLock<Made> = LazyLock::new(|| self_signed("example.org", &PKCS_RSA_SHA256));

#[test]
fn both_versions_all_cuts() {
    for versions in [TLS12, TLS13] {
        for cut in [1, 7, 100, 100_000] {
            let server = server(&ECDSA);
            let mut client = client(client_config(versions, None), "example.org");
            let mut complete = handshake(&server, &mut client, cut).unwrap();
            talk(&mut complete, &mut client);
            assert_eq!(
                complete.facts.server_name.as_deref(),
                Some(&b"example.org"[..])
            );
            assert_eq!(complete.facts.reused(), ".");
            assert_eq!(
                complete.facts.signature_scheme_name(),
                "ecdsa_secp256r1_sha256"
            );
            assert_eq!(complete.facts.session_id.len(), 32);
        }
    }
}

#[test]
fn facts_have_openssls_names() {
    let rsa = server(&RSA);
    let mut client13 = client(client_config(TLS13, None), "example.org");
    let facts = handshake(&rsa, &mut client13, 9999).unwrap().facts;
    assert_eq!(facts.protocol_name(), "TLSv1.3");
    assert_eq!(facts.cipher_name(), "TLS_AES_256_GCM_SHA384");
    assert_eq!(facts.group_name(), "X25519");
    assert!(facts.signature_scheme_name().starts_with("rsa_pss_rsae_"));
    let mut client12 = client(client_config(TLS12, None), "example.org");
    let facts = handshake(&rsa, &mut client12, 9999).unwrap().facts;
    assert_eq!(facts.protocol_name(), "TLSv1.2");
    assert_eq!(facts.cipher_name(), "ECDHE-RSA-AES256-GCM-SHA384");
}

#[test]
fn every_suite_and_group_works() {
    for ciphers in ["ECDHE+AES128", "ECDHE+AES256", "ECDHE+CHACHA20"] {
        for group in [
            "X25519MLKEM768",
            "X25519",
            "P-256",
            "P-384",
            "SecP256r1MLKEM768",
            "MLKEM1024",
        ] {
            let suite = match ciphers {
                "ECDHE+AES128" => "TLS_AES_128_GCM_SHA256",
                "ECDHE+AES256" => "TLS_AES_256_GCM_SHA384",
                _ => "TLS_CHACHA20_POLY1305_SHA256",
            };
            let mut options = options(&ECDSA);
            options.ciphers = ciphers.to_owned();
            options.groups = group.to_owned();
            options.commands.take("Ciphersuites", suite).unwrap();
            let server = Server::new(options).unwrap();
            for versions in [TLS12, TLS13] {
                if versions == TLS12 && group.contains("MLKEM") {
                    continue;
                }
                let mut config = client_config(versions, None);
                let mut provider = rustls::crypto::aws_lc_rs::default_provider();
                provider.kx_groups = rustls::crypto::aws_lc_rs::ALL_KX_GROUPS.to_vec();
                config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
                    .with_protocol_versions(versions)
                    .unwrap()
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(Any))
                    .with_client_cert_resolver(config.client_auth_cert_resolver.clone());
                let mut client = client(config, "example.org");
                let mut complete = handshake(&server, &mut client, 9999).unwrap();
                talk(&mut complete, &mut client);
                assert_eq!(
                    complete.facts.group_name().to_lowercase(),
                    match group {
                        "P-256" => "prime256v1".to_owned(),
                        "P-384" => "secp384r1".to_owned(),
                        other => other.to_lowercase(),
                    }
                );
            }
        }
    }
}

#[test]
fn the_certificate_fits_the_clients_signatures() {
    let both = ServerOptions {
        certificates: Arc::new(Certificates::new(vec![RSA.pair(), ECDSA.pair()])),
        ..ServerOptions::default()
    };
    let both = Server::new(both).unwrap();
    for versions in [TLS12, TLS13] {
        let mut client = client(client_config(versions, None), "example.org");
        handshake(&both, &mut client, 9999).unwrap();
        assert_eq!(client.peer_certificates().unwrap()[0], ECDSA.der);
    }
    let mut options = ServerOptions {
        certificates: Arc::new(Certificates::new(vec![RSA.pair(), ECDSA.pair()])),
        ciphers: "ECDHE+aRSA".to_owned(),
        ..ServerOptions::default()
    };
    options.protocols = Protocols::read(["TLSv1.2"]).unwrap().chosen;
    let rsa_only = Server::new(options).unwrap();
    let mut client = client(client_config(TLS12, None), "example.org");
    let complete = handshake(&rsa_only, &mut client, 9999).unwrap();
    assert_eq!(client.peer_certificates().unwrap()[0], RSA.der);
    assert!(complete.facts.signature_scheme_name().starts_with("rsa_"));
}

#[test]
fn protocols_above_are_chosen_or_refused() {
    let server_with = |alpn: &[&str]| {
        let mut options = options(&ECDSA);
        options.alpn = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Server::new(options).unwrap()
    };
    let client_with = |alpn: &[&str]| {
        let mut config = client_config(TLS13, None);
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        client(config, "example.org")
    };
    let mut client = client_with(&["http/1.1", "h2"]);
    let complete = handshake(&server_with(&["h2", "http/1.1"]), &mut client, 9999).unwrap();
    assert_eq!(complete.facts.alpn.as_deref(), Some(&b"h2"[..]));
    assert_eq!(complete.hello.alpn, [&b"http/1.1"[..], b"h2"]);
    let mut client = client_with(&["other"]);
    let failure = handshake(&server_with(&["h2"]), &mut client, 9999)
        .err()
        .unwrap();
    assert_eq!(
        failure.to_string(),
        "SSL_do_handshake() failed (SSL: error:0A0000EB:SSL routines::no application protocol)"
    );
}

#[test]
fn nothing_in_common_is_said_in_openssls_words() {
    let tls13_only = |client_versions| {
        let mut options = options(&ECDSA);
        options.protocols = Protocols::read(["TLSv1.3"]).unwrap().chosen;
        let server = Server::new(options).unwrap();
        let mut client = client(client_config(client_versions, None), "example.org");
        handshake(&server, &mut client, 9999).err()
    };
    let failure = tls13_only(TLS12).unwrap();
    assert_eq!(
        failure.to_string(),
        "SSL_do_handshake() failed (SSL: error:0A000102:SSL routines::unsupported protocol)"
    );
    assert_eq!(
        (failure.level, failure.cause),
        (Level::Info, Cause::NothingInCommon)
    );
    let mut options = options(&ECDSA);
    options.ciphers = "ECDHE-RSA-AES128-GCM-SHA256".to_owned();
    let server = Server::new(options).unwrap();
    let mut client = client(client_config(TLS12, None), "example.org");
    let failure = handshake(&server, &mut client, 9999).err().unwrap();
    assert!(failure.to_string().contains("no s"), "{failure}");
    assert_eq!(failure.cause, Cause::NothingInCommon);
}

#[test]
fn what_is_not_tls_gets_its_alert() {
    for (bytes, sentence, alert) in [
        (
            &b"GET / HTTP/1.0\r\n\r\n"[..],
            "0A00009C:SSL routines::http request",
            None,
        ),
        (
            b"SSH-2.0-x",
            "0A00010B:SSL routines::wrong version number",
            Some(70),
        ),
        (
            b"\x16\x03\x01\xff\xff",
            "0A0000C6:SSL routines::packet length too long",
            Some(22),
        ),
        (
            b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
            "0A0000F4:SSL routines::unexpected message",
            Some(10),
        ),
    ] {
        let mut needs = NeedsInput::default();
        needs.receive(bytes);
        let mut outgoing = Vec::new();
        let failure = needs.step(&mut outgoing).err().unwrap();
        assert!(failure.to_string().contains(sentence), "{failure}");
        assert_eq!(
            (failure.level, outgoing.get(6).copied()),
            (Level::Info, alert)
        );
    }
}

#[test]
fn a_rejected_client_is_told_so() {
    let mut client = client(client_config(TLS13, None), "example.org");
    let mut needs = NeedsInput::default();
    needs.receive(&take(&mut client));
    let mut outgoing = Vec::new();
    let Ok(Handshake::Accepted(accepted)) = needs.step(&mut outgoing) else {
        panic!("not accepted");
    };
    assert_eq!(
        accepted.hello().server_name.as_deref(),
        Some(&b"example.org"[..])
    );
    assert_eq!(
        accepted.reject(&mut outgoing).to_string(),
        "handshake rejected"
    );
    let error = give(&mut client, &outgoing).unwrap_err();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
}

#[test]
fn a_certificate_may_come_with_the_connection() {
    let server = server(&ECDSA);
    let own = Arc::new(Certificates::new(vec![RSA.pair()]));
    let mut client = client(client_config(TLS13, None), "example.org");
    let mut needs = NeedsInput::default();
    needs.receive(&take(&mut client));
    let mut outgoing = Vec::new();
    let Ok(Handshake::Accepted(accepted)) = needs.step(&mut outgoing) else {
        panic!("not accepted");
    };
    assert!(accepted.choose(&server, Some(own), &mut outgoing).is_ok());
    give(&mut client, &outgoing).unwrap();
    assert_eq!(client.peer_certificates().unwrap()[0], RSA.der);
}

/// Kinds of a second handshake with the same client configuration, under two servers.
fn resumed(versions: Versions, first: ServerOptions, second: ServerOptions) -> HandshakeKind {
    let mut config = client_config(versions, None);
    config.resumption = Resumption::in_memory_sessions(8);
    let config = Arc::new(config);
    let mut last = HandshakeKind::Full;
    for options in [first, second] {
        let server = Server::new(options).unwrap();
        let mut client = client(rustls::ClientConfig::clone(&config), "example.org");
        let mut complete = handshake(&server, &mut client, 9999).unwrap();
        talk(&mut complete, &mut client);
        last = client.handshake_kind().unwrap();
        assert_eq!(complete.facts.is_resumed, last == HandshakeKind::Resumed);
    }
    last
}

#[test]
fn sessions_are_taken_up_by_ids_and_by_tickets() {
    let minute = Duration::from_secs(60);
    for versions in [TLS12, TLS13] {
        let plain = || options(&ECDSA);
        assert_eq!(resumed(versions, plain(), plain()), HandshakeKind::Full);
        let cache = Arc::new(Sessions::new(1 << 20, minute));
        let tickets = Arc::new(Tickets::random(minute).unwrap());
        let cached = |context| {
            let sessions = Some(Arc::clone(&cache));
            ServerOptions {
                sessions,
                context,
                ..options(&ECDSA)
            }
        };
        let ticketed = |context| {
            let tickets = Some(Arc::clone(&tickets));
            ServerOptions {
                tickets,
                context,
                ..options(&ECDSA)
            }
        };
        assert_eq!(
            resumed(versions, cached([1; 32]), cached([1; 32])),
            HandshakeKind::Resumed
        );
        assert_eq!(
            resumed(versions, cached([1; 32]), cached([2; 32])),
            HandshakeKind::Full
        );
        assert_eq!(
            resumed(versions, ticketed([1; 32]), ticketed([1; 32])),
            HandshakeKind::Resumed
        );
        assert_eq!(
            resumed(versions, ticketed([1; 32]), ticketed([2; 32])),
            HandshakeKind::Full
        );
        assert!(!cache.is_empty());
    }
}

#[test]
fn chacha_comes_first_for_those_who_like_it() {
    let mut options = options(&ECDSA);
    options
        .commands
        .take("Options", "ServerPreference,PrioritizeChaCha")
        .unwrap();
    let server = Server::new(options).unwrap();
    let cipher = |is_chacha_first: bool| {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider.cipher_suites.sort_by_key(|suite| {
            let name = format!("{:?}", suite.suite());
            name.contains("CHACHA") != is_chacha_first
        });
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(TLS13)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Any))
            .with_no_client_auth();
        let mut client = client(config, "example.org");
        let complete = handshake(&server, &mut client, 9999).unwrap();
        complete.facts.cipher_name()
    };
    assert_eq!(cipher(true), "TLS_CHACHA20_POLY1305_SHA256");
    assert_eq!(cipher(false), "TLS_AES_256_GCM_SHA384");
}

#[test]
fn signatures_may_be_narrowed() {
    let schemes = |list: &str| {
        let mut options = ServerOptions::default();
        options.commands.take("SignatureAlgorithms", list).unwrap();
        let schemes = options.commands.signature_schemes.clone().unwrap();
        let both = vec![ECDSA.pair(), RSA.pair()];
        options.certificates = Arc::new(Certificates::with_schemes(both, schemes));
        let server = Server::new(options).unwrap();
        let mut client = client(client_config(TLS13, None), "example.org");
        let complete = handshake(&server, &mut client, 9999);
        complete.map(|complete| complete.facts.signature_scheme_name())
    };
    assert_eq!(schemes("RSA-PSS+SHA256"), Ok("rsa_pss_rsae_sha256"));
    assert_eq!(
        schemes("ECDSA+SHA256:RSA-PSS+SHA384"),
        Ok("ecdsa_secp256r1_sha256")
    );
    let failure = schemes("ECDSA+SHA512").unwrap_err();
    assert_eq!(
        failure.to_string(),
        "SSL_do_handshake() failed (SSL: error:0A000076:SSL routines::no suitable signature algorithm)"
    );
}

#[test]
fn stapled_responses_are_shown() {
    let certificates = Arc::new(Certificates::new(vec![ECDSA.pair()]));
    let server = Server::new(ServerOptions {
        certificates: Arc::clone(&certificates),
        ..ServerOptions::default()
    })
    .unwrap();
    for (stapled, seen) in [(None, &b""[..]), (Some(b"response".to_vec()), b"response")] {
        certificates.staple(&ECDSA.der, stapled);
        for versions in [TLS12, TLS13] {
            let shown = Arc::new(peer::stapled::Stapled::default());
            let config = rustls::ClientConfig::builder_with_protocol_versions(versions)
                .dangerous()
                .with_custom_certificate_verifier(Arc::clone(&shown) as Arc<_>)
                .with_no_client_auth();
            handshake(&server, &mut client(config, "example.org"), 9999).unwrap();
            assert_eq!(shown.last(), seen);
        }
    }
}

#[test]
fn states_move_between_threads() {
    fn is_send<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_send::<Handshake>();
    is_send::<tls::handshake::Connecting>();
    is_send::<tls::traffic::Traffic>();
    is_shared::<Server>();
    is_shared::<tls::configure::Client>();
}

#[test]
fn another_key_share_is_asked_for() {
    let mut options = options(&ECDSA);
    options.groups = "P-384".to_owned();
    let server = Server::new(options).unwrap();
    let mut client = client(client_config(TLS13, None), "example.org");
    let mut complete = handshake(&server, &mut client, 9999).unwrap();
    assert_eq!(
        client.handshake_kind(),
        Some(HandshakeKind::FullWithHelloRetryRequest)
    );
    assert_eq!(complete.facts.session_id.len(), 32);
    talk(&mut complete, &mut client);
}

#[test]
fn values_that_leave_nothing_have_nginxs_sentences() {
    let sentence = |change: &dyn Fn(&mut ServerOptions)| {
        let mut options = ServerOptions::default();
        change(&mut options);
        Server::new(options).unwrap_err().to_string()
    };
    let command = |name: &'static str, value: &'static str| {
        sentence(&move |options| options.commands.take(name, value).unwrap())
    };
    assert_eq!(
        sentence(&|options| options.groups = "X25519:foo".to_owned()),
        "SSL_CTX_set1_curves_list(\"X25519:foo\") failed (SSL: error:0A080106:SSL routines::passed invalid \
         argument:group 'foo' cannot be set)"
    );
    assert_eq!(
        sentence(&|options| options.ciphers = "@FOO".to_owned()),
        "SSL_CTX_set_cipher_list(\"@FOO\") failed (SSL: error:0A000118:SSL routines::invalid command)"
    );
    assert_eq!(
        command("Groups", "foo"),
        "SSL_CONF_cmd(\"Groups\", \"foo\") failed (SSL: error:0A080106:SSL routines::passed invalid argument:group \
         'foo' cannot be set error:0A000180:SSL routines::bad value:cmd=Groups, value=foo)"
    );
    assert_eq!(
        command("CipherString", "foo"),
        "SSL_CONF_cmd(\"CipherString\", \"foo\") failed (SSL: error:0A0000B9:SSL routines::no cipher match \
         error:0A000180:SSL routines::bad value:cmd=CipherString, value=foo)"
    );
    assert_eq!(
        command("MinProtocol", "foo"),
        "SSL_CONF_cmd(\"MinProtocol\", \"foo\") failed (SSL: error:0A000180:SSL routines::bad \
         value:cmd=MinProtocol, value=foo)"
    );
}

#[test]
fn a_client_that_no_certificate_fits_is_told_so() {
    let provider = rustls::crypto::CryptoProvider {
        cipher_suites: vec![
            rustls::crypto::aws_lc_rs::cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ],
        ..rustls::crypto::aws_lc_rs::default_provider()
    };
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(TLS12)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any))
        .with_no_client_auth();
    let mut client = client(config, "example.org");
    assert!(handshake(&server(&ECDSA), &mut client, 10_000).is_err());
    assert_eq!(
        client.process_new_packets().unwrap_err(),
        rustls::Error::AlertReceived(rustls::AlertDescription::HandshakeFailure)
    );
}

/// Whether each step of a handshake behind the ClientHello is work.
fn work_of(server: &Server, client: &mut rustls::ClientConnection) -> Vec<bool> {
    let mut work = Vec::new();
    let mut outgoing = Vec::new();
    let mut state = Handshake::NeedsInput(NeedsInput::default());
    loop {
        state = match state {
            Handshake::NeedsInput(mut needs) => {
                give(client, &std::mem::take(&mut outgoing)).unwrap();
                needs.receive(&take(client));
                work.push(needs.is_work());
                needs.step(&mut outgoing).unwrap()
            }
            Handshake::Accepted(accepted) => accepted.choose(server, None, &mut outgoing).unwrap(),
            Handshake::Complete(_) => {
                give(client, &outgoing).unwrap();
                return work;
            }
        }
    }
}

#[test]
fn the_last_step_of_tls13_and_of_old_sessions_is_no_work() {
    let server = Server::new(ServerOptions {
        sessions: Some(Arc::new(Sessions::new(100_000, Duration::from_secs(60)))),
        ..options(&ECDSA)
    })
    .unwrap();
    let mut fast = client(client_config(TLS13, None), "example.org");
    assert_eq!(work_of(&server, &mut fast), [false, false]);
    let config = client_config(TLS12, None);
    let mut old = client(config.clone(), "example.org");
    assert_eq!(work_of(&server, &mut old), [false, true]);
    let mut again = client(config, "example.org");
    assert_eq!(work_of(&server, &mut again), [false, false], "resumed");
    // Another key share is asked for first.
    let other = Server::new(ServerOptions {
        groups: "secp384r1".to_owned(),
        ..options(&ECDSA)
    });
    let mut retried = client(client_config(TLS13, None), "example.org");
    assert_eq!(work_of(&other.unwrap(), &mut retried), [false, true, false]);
}

#[test]
fn parts_of_a_record_are_no_work() {
    let mut client = client(client_config(TLS12, None), "example.org");
    let mut outgoing = Vec::new();
    let mut needs = NeedsInput::default();
    needs.receive(&take(&mut client));
    let accepted = match needs.step(&mut outgoing).unwrap() {
        Handshake::Accepted(accepted) => accepted,
        _ => panic!("the ClientHello is whole"),
    };
    let chosen = accepted.choose(&server(&ECDSA), None, &mut outgoing);
    let Handshake::NeedsInput(mut needs) = chosen.unwrap() else {
        panic!("the client's key is missing");
    };
    give(&mut client, &outgoing).unwrap();
    let flight = take(&mut client);
    let length = 5 + usize::from(u16::from_be_bytes([flight[3], flight[4]]));
    for byte in &flight[..length - 1] {
        needs.receive(&[*byte]);
        assert!(!needs.is_work());
        let Handshake::NeedsInput(same) = needs.step(&mut outgoing).unwrap() else {
            panic!("the record is not whole");
        };
        needs = same;
    }
    needs.receive(&flight[length - 1..]);
    assert!(needs.is_work());
    assert!(needs.step(&mut outgoing).is_ok());
}
