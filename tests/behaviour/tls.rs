//! TLS of clients' connections: certificates by name, certificates of clients, sessions, and the sentences of `-t`.

use blackbox::tls::{Certificate, TlsClient};
use blackbox::{Exposition, Server, Site, is_nginx};
use std::io::{Read as _, Write as _};

pub(super) const CERTIFICATE: &str = "ssl_certificate a.crt; ssl_certificate_key a.key;";

/// A site with certificates `a` and `b`.
pub(super) fn site() -> (Site, Certificate, Certificate) {
    let site = Site::new();
    let (a, b) = (Certificate::of("a.example"), Certificate::of("b.example"));
    a.write(&site, "a");
    b.write(&site, "b");
    (site, a, b)
}

fn two_servers() -> String {
    format!(
        "server {{ listen 127.0.0.1:%PORT% ssl; server_name a.example; {CERTIFICATE}
             location / {{ return 200 \"a $ssl_protocol $ssl_server_name $https $scheme\"; }} }}
         server {{ listen 127.0.0.1:%PORT% ssl; server_name b.example;
             ssl_certificate b.crt; ssl_certificate_key %DIR%/b.key;
             location / {{ return 200 \"b $ssl_server_name\"; }} }}"
    )
}

#[test]
fn a_name_chooses_certificate_and_server() {
    let (site, a, b) = site();
    let server = Server::start_on(site, "", &two_servers());
    let port = server.site().port(0);
    let client = TlsClient::new(None);
    let seen = client.get(port, "a.example", "/").unwrap();
    assert!(seen.is_shown(&a));
    assert_eq!(seen.reply.text(), "a TLSv1.3 a.example on https");
    let seen = client.get(port, "b.example", "/").unwrap();
    assert!(seen.is_shown(&b));
    assert_eq!(seen.reply.text(), "b b.example");
    let seen = client.get(port, "other.example", "/").unwrap();
    assert!(seen.is_shown(&a));
    assert_eq!(seen.reply.text(), "a TLSv1.3 other.example on https");
}

/// Whether HTTP/2 is agreed on with the server of a name.
fn is_http2(port: u16, name: &str) -> bool {
    let client = TlsClient::with_protocol(b"h2");
    let mut stream = client.connect(port, name).expect("it is a name");
    let sent = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    sent.is_ok() && stream.read(&mut [0; 9]).is_ok() && stream.conn.alpn_protocol() == Some(b"h2")
}

#[test]
fn http2_of_an_address_is_offered_by_all_its_servers_and_there_alone() {
    let (site, ..) = site();
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl http2; server_name a.example; {CERTIFICATE} return 200 a; }}
         server {{ listen 127.0.0.1:%PORT% ssl; listen 127.0.0.1:%PORT1% ssl default_server; server_name b.example;
             ssl_certificate b.crt; ssl_certificate_key b.key; return 200 \"b $http2\"; }}
         server {{ listen 127.0.0.1:%PORT1% ssl; server_name on.example; http2 on; return 200 c; }}"
    );
    let server = Server::start_on(site, "", &http);
    let ports = [server.site().port(0), server.site().port(1)];
    assert!(is_http2(ports[0], "a.example"));
    assert!(is_http2(ports[0], "b.example"));
    assert!(!is_http2(ports[1], "b.example"));
    // It shows the default server's certificate, and speaks what is its own.
    assert!(is_http2(ports[1], "on.example"));
    for port in ports {
        let seen = TlsClient::new(None).get(port, "b.example", "/").unwrap();
        assert_eq!(seen.reply.text(), "b ");
    }
}

#[test]
fn what_is_said_in_clear_is_answered_with_497() {
    let (site, ..) = site();
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl; {CERTIFICATE} error_page 497 =418 /clear;
             location = /clear {{ return 418 \"clear $ssl_protocol\"; }} }}
         server {{ listen 127.0.0.1:%PORT1% ssl; {CERTIFICATE} }}"
    );
    let server = Server::start_on(site, "", &http);
    let reply = server.get("/");
    assert_eq!((reply.status, &*reply.text()), (418, "clear "));
    let mut other = server.connect_to(1);
    let reply = other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").reply();
    assert_eq!(reply.status, 400);
    assert!(
        reply
            .text()
            .contains("The plain HTTP request was sent to HTTPS port")
    );
    assert!(other.is_closed());
}

#[test]
fn a_server_without_a_certificate_shows_the_default_ones_and_one_that_rejects_shows_none() {
    let (site, a, _) = site();
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl; {CERTIFICATE} return 200 a; }}
         server {{ listen 127.0.0.1:%PORT% ssl; server_name b.example; return 200 b; }}
         server {{ listen 127.0.0.1:%PORT% ssl; server_name no.example; ssl_reject_handshake on; }}"
    );
    let server = Server::start_on(site, "", &http);
    let port = server.site().port(0);
    let client = TlsClient::new(None);
    let seen = client.get(port, "b.example", "/").unwrap();
    assert!(seen.is_shown(&a) && seen.reply.text() == "b");
    let refused = client.get(port, "no.example", "/").unwrap_err();
    assert!(refused.contains("UnrecognisedName"), "{refused}");
}

#[test]
fn a_default_server_that_rejects_shows_its_certificate_for_others() {
    let (site, a, _) = site();
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl; server_name a.example; {CERTIFICATE} ssl_reject_handshake on; }}
         server {{ listen 127.0.0.1:%PORT% ssl; server_name b.example; return 200 b; }}"
    );
    let server = Server::start_on(site, "", &http);
    let port = server.site().port(0);
    let client = TlsClient::new(None);
    let seen = client.get(port, "b.example", "/").unwrap();
    assert!(seen.is_shown(&a) && seen.reply.text() == "b");
    for name in ["a.example", "unknown.example"] {
        let refused = client.get(port, name, "/").unwrap_err();
        assert!(refused.contains("UnrecognisedName"), "{refused}");
    }
}

const CLIENTS: &str = "
    server { listen 127.0.0.1:%PORT% ssl; server_name a.example; ssl_certificate a.crt; ssl_certificate_key a.key;
        ssl_verify_client optional; ssl_client_certificate c.crt;
        location / { return 200 \"$ssl_client_verify|$ssl_client_s_dn\"; } }
    server { listen 127.0.0.1:%PORT% ssl; server_name b.example; ssl_certificate b.crt; ssl_certificate_key b.key;
        ssl_verify_client on; ssl_trusted_certificate c.crt;
        location / { return 200 \"$ssl_client_verify|$ssl_client_v_remain\"; } }
    server { listen 127.0.0.1:%PORT% ssl; server_name c.example; ssl_certificate b.crt; ssl_certificate_key b.key;
        ssl_verify_client optional_no_ca; location / { return 200 \"$ssl_client_verify\"; } }
    server { listen 127.0.0.1:%PORT% ssl; server_name d.example; ssl_certificate b.crt; ssl_certificate_key b.key;
        return 200 $ssl_client_verify; }";

#[test]
fn certificates_of_clients_are_judged() {
    let (site, ..) = site();
    let c = Certificate::of("c.example");
    c.write(&site, "c");
    let server = Server::start_on(site, "", CLIENTS);
    let port = server.site().port(0);
    let ask = |client: &TlsClient, name: &str| {
        let reply = client.get(port, name, "/").unwrap().reply;
        (reply.status, reply.text())
    };
    let none = TlsClient::new(None);
    assert_eq!(ask(&none, "a.example"), (200, "NONE|".to_owned()));
    let (status, text) = ask(&none, "b.example");
    assert_eq!(status, 400);
    assert!(
        text.contains("No required SSL certificate was sent"),
        "{text}"
    );
    assert_eq!(ask(&none, "d.example"), (200, "NONE".to_owned()));
    let known = TlsClient::new(Some(&c));
    assert_eq!(
        ask(&known, "a.example"),
        (200, "SUCCESS|CN=c.example".to_owned())
    );
    assert!(ask(&known, "b.example").1.starts_with("SUCCESS|"));
    let stranger = TlsClient::new(Some(&Certificate::of("x.example")));
    for name in ["a.example", "b.example"] {
        let (status, text) = ask(&stranger, name);
        assert_eq!(status, 400);
        assert!(text.contains("The SSL certificate error"), "{text}");
    }
    let (status, text) = ask(&stranger, "c.example");
    assert_eq!(status, 200);
    assert!(text.starts_with("FAILED:self-signed certificate"), "{text}");
}

#[test]
fn a_request_for_a_server_that_judges_clients_comes_by_its_own_name() {
    let (site, ..) = site();
    let c = Certificate::of("c.example");
    c.write(&site, "c");
    let server = Server::start_on(site, "", CLIENTS);
    let port = server.site().port(0);
    let client = TlsClient::new(Some(&c));
    let status = |name, host| {
        let seen = client.get_of(port, name, host, "/").unwrap();
        seen.reply.status
    };
    assert_eq!(status("d.example", "b.example"), 421);
    assert_eq!(status("b.example", "a.example"), 421);
    assert_eq!(status("b.example", "d.example"), 200);
    assert_eq!(status("b.example", "B.example:443"), 200);
}

/// Work that a client asks for without sending anything ends its connection, and so does what is no record; both are
/// counted and logged.
#[test]
fn floods_behind_a_handshake_end_the_connection() {
    let (site, ..) = site();
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl; server_name a.example; {CERTIFICATE}
             location / {{ return 200 ok; }} location = /metrics {{ metrics; }} }}"
    );
    let server = Server::start_on(site, "", &http);
    let port = server.site().port(0);
    let client = TlsClient::new(None);
    let faults = |cause: &str| {
        let seen = client.get(port, "a.example", "/metrics").unwrap();
        let page = Exposition::read(&seen.reply.text(), false);
        let name = format!("freewheel_tls_faults_total{{cause=\"{cause}\"}}");
        page.get(&name).unwrap_or_default()
    };
    for (cause, log) in [
        ("flood", "too many key updates"),
        ("malformed", "bad record type"),
    ] {
        let mut stream = client.connect(port, "a.example").unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut answer = [0; 1];
        stream.read_exact(&mut answer).unwrap();
        match cause {
            "flood" => {
                for _ in 0..40 {
                    stream.conn.refresh_traffic_keys().unwrap();
                }
                // It may be closed before all of them were sent.
                let _ = stream.flush();
            }
            _ => stream.sock.write_all(&[0xee; 100]).unwrap(),
        }
        server.wait_for(log, cause);
        server.wait_for("while keepalive", cause);
        let end = std::iter::repeat_with(|| stream.read(&mut [0; 4096]));
        assert!(end.take(100).any(|read| !matches!(read, Ok(1..))));
        assert_eq!(faults(cause), 1.0, "{cause}");
        let seen = client.get(port, "a.example", "/").unwrap();
        assert_eq!(seen.reply.status, 200, "a normal client beside it");
    }
}

#[test]
fn keys_are_changed_by_a_reload() {
    let (site, a, b) = site();
    let http = format!("server {{ listen 127.0.0.1:%PORT% ssl; {CERTIFICATE} return 200 x; }}");
    let server = Server::start_on(site, "", &http);
    let client = TlsClient::new(None);
    let seen = || client.get(server.site().port(0), "a.example", "/").unwrap();
    assert!(seen().is_shown(&a));
    b.write(server.site(), "a");
    assert!(seen().is_shown(&a));
    server.reload(&http);
    assert!(seen().is_shown(&b));
}

#[test]
fn watched_certificates_are_taken_without_a_reload() {
    let (site, a, b) = site();
    let http = format!(
        "ssl_certificate_watch on;
         server {{ listen 127.0.0.1:%PORT% ssl; {CERTIFICATE} return 200 $pid; }}"
    );
    let server = Server::start_on(site, "", &http);
    let client = TlsClient::new(None);
    let port = server.site().port(0);
    let seen = || client.get(port, "a.example", "/").unwrap();
    let begun = seen();
    assert!(begun.is_shown(&a));
    let mut kept = client.connect(port, "a.example").unwrap();
    let ask = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    kept.write_all(ask).unwrap();
    assert!(kept.read(&mut [0; 4096]).unwrap() > 0);
    // A certificate without its key is not taken.
    server.site().secret("a.crt", &b.certificate);
    server.wait_for("has changed and is not used, the old one stays", "the log");
    assert!(seen().is_shown(&a));
    server.site().secret("a.key", &b.key);
    server.wait_for("is served now", "the log");
    let changed = seen();
    assert!(changed.is_shown(&b));
    assert_eq!(changed.reply.text(), begun.reply.text(), "the same process");
    kept.write_all(ask).unwrap();
    assert!(kept.read(&mut [0; 4096]).unwrap() > 0, "it goes on");
    let lines = server.error_log();
    assert_eq!(lines.matches("the old one stays").count(), 1, "{lines}");
}

#[test]
fn certificates_may_be_named_by_variables() {
    let site = Site::new();
    let (a, b) = (Certificate::of("a.example"), Certificate::of("b.example"));
    for (name, made) in [("a.example", &a), ("b.example", &b)] {
        site.file(&format!("{name}.crt"), &made.certificate);
        site.file(&format!("{name}.key"), &made.key);
    }
    let server = Server::start_on(
        site,
        "",
        "map $ssl_server_name $key { default html/$ssl_server_name.key; }
         server { listen 127.0.0.1:%PORT% ssl; ssl_certificate html/$ssl_server_name.crt; ssl_certificate_key $key;
             return 200 \"$ssl_server_name $ssl_session_reused\"; }
         server { listen 127.0.0.1:%PORT1% ssl; ssl_certificate html/$ssl_server_name.crt; ssl_certificate_key $key;
             ssl_certificate_cache max=4 valid=1m; return 200 kept; }",
    );
    let client = TlsClient::new(None);
    let get = |port, name| client.get(server.site().port(port), name, "/");
    for port in [0, 1] {
        assert!(get(port, "a.example").unwrap().is_shown(&a));
        assert!(get(port, "b.example").unwrap().is_shown(&b));
    }
    assert_eq!(get(0, "a.example").unwrap().reply.text(), "a.example r");
    assert!(get(0, "c.example").is_err());
    server.wait_for("cannot load certificate", "a certificate that is not there");
    let log = server.error_log();
    assert!(
        log.contains("html/c.example.crt\": BIO_new_file() failed"),
        "{log}"
    );
    server.file("a.example.crt", &b.certificate);
    server.file("a.example.key", &b.key);
    // Each by a client without a session.
    let get = |port| {
        let fresh = TlsClient::new(None);
        fresh
            .get(server.site().port(port), "a.example", "/")
            .unwrap()
    };
    assert!(get(0).is_shown(&b), "read for each handshake");
    assert!(get(1).is_shown(&a), "kept for a minute");
}

#[test]
fn what_cannot_be_used_is_told_with_nginxs_sentence() {
    let (site, ..) = site();
    site.secret("empty", "");
    let told = |lines: &str| {
        site.configure(&format!(
            "events {{ }} http {{\nserver {{ listen 127.0.0.1:%PORT% ssl;\n{lines} }} }}"
        ));
        let (status, said) = site.run(&["-t"]);
        assert!(!status.success(), "{lines}");
        said
    };
    for (lines, sentence) in [
        (
            "",
            "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in",
        ),
        (
            "ssl_certificate a.crt;",
            "no \"ssl_certificate_key\" is defined for certificate",
        ),
        (
            "ssl_certificate no.crt; ssl_certificate_key a.key;",
            "no.crt\": BIO_new_file() failed (SSL: error:80000002:system library::No such file or directory:calling fopen(",
        ),
        (
            "ssl_certificate empty; ssl_certificate_key a.key;",
            "PEM_read_bio_X509_AUX() failed (SSL: error:0480006C:PEM routines::no start line:Expecting: TRUSTED CERTIFICATE",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key b.key;",
            "SSL_CTX_use_PrivateKey(\"",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_ciphers NOSUCH;",
            "SSL_CTX_set_cipher_list(\"NOSUCH\") failed (SSL: error:0A0000B9:SSL routines::no cipher match)",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_verify_client on;",
            "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_stapling on; ssl_certificate_compression on;",
            "\"ssl_stapling\" is incompatible with \"ssl_certificate_compression\"",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_session_cache shared:x;",
            "invalid session cache \"shared:x\"",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_protocols TLSv1.4;",
            "invalid value \"TLSv1.4\"",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_session_ticket_key empty;",
            "empty\" must be 48 or 80 bytes",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_conf_command Nosuch x;",
            "SSL_CONF_cmd(\"Nosuch\", \"x\") failed",
        ),
        (
            "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA25;",
            "SSL_CONF_cmd(\"Ciphersuites\", \"TLS_AES_128_GCM_SHA25\") failed",
        ),
    ] {
        let said = told(lines);
        assert!(said.contains(sentence), "{said}");
    }
}

#[test]
fn what_is_not_offered_is_told_once() {
    if is_nginx() {
        return;
    }
    let (site, ..) = site();
    site.secret(
        "dh",
        "-----BEGIN DH PARAMETERS-----\nMAYCAQUCAQI=\n-----END DH PARAMETERS-----\n",
    );
    let servers = "server { listen 127.0.0.1:%PORT% ssl; }".to_owned()
        + "server { listen 127.0.0.1:%PORT1% ssl; }";
    site.configure(&format!(
        "events {{ }} http {{ {CERTIFICATE} ssl_protocols TLSv1 TLSv1.1 TLSv1.2; ssl_dhparam dh;
         ssl_ecdh_curve X448:X25519; {servers} }}"
    ));
    let (status, said) = site.run(&["-t"]);
    assert!(status.success(), "{said}");
    for told in [
        "\"ssl_protocols\" names versions that are not offered: TLSv1, TLSv1.1",
        "\"ssl_ecdh_curve\" names groups that are not offered: X448",
    ] {
        assert_eq!(said.matches(told).count(), 1, "{told}: {said}");
    }
    assert!(!said.contains("\"ssl_dhparam\""), "{said}");
}

#[test]
fn all_files_that_cannot_be_used_are_told_at_once() {
    if is_nginx() {
        return;
    }
    let (site, ..) = site();
    site.secret("empty", "");
    let upstream = "proxy_pass https://127.0.0.1:1; proxy_ssl_certificate no2.crt; proxy_ssl_certificate_key a.key;
proxy_ssl_verify on; proxy_ssl_trusted_certificate no3.crt;";
    site.configure(&format!(
        "events {{ }} http {{
server {{ listen 127.0.0.1:%PORT% ssl; server_name a;
ssl_certificate no.crt; ssl_certificate_key a.key;
ssl_certificate a.crt;
ssl_certificate_key b.key;
ssl_verify_client on; ssl_client_certificate empty;
location / {{ {upstream} }} }}
server {{ listen 127.0.0.1:%PORT% ssl; server_name b;
ssl_certificate a.crt; ssl_certificate_key empty;
ssl_session_ticket_key empty; }} }}"
    ));
    let (status, said) = site.run(&["-t"]);
    assert_eq!(status.code(), Some(1), "{said}");
    let told: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("[emerg]"))
        .collect();
    let wanted = [
        ("no.crt\": BIO_new_file() failed", 3),
        (
            "b.key\") failed (SSL: error:05800074:x509 certificate routines::key values mismatch)",
            5,
        ),
        ("empty\": PEM_read_bio_X509_AUX() failed", 6),
        ("no2.crt\": BIO_new_file() failed", 7),
        ("no3.crt\": BIO_new_file() failed", 8),
        ("empty\": PEM_read_bio_PrivateKey() failed", 10),
        ("empty\" must be 48 or 80 bytes", 11),
    ];
    for (sentence, line) in wanted {
        let place = site.fill(&format!(" in %DIR%/nginx.conf:{line}"));
        let is_it = |told: &&&str| told.contains(sentence) && told.ends_with(&place);
        assert!(
            told.iter().any(|told| is_it(&told)),
            "{sentence} {line}: {said}"
        );
    }
    assert_eq!(told.len(), wanted.len(), "{said}");
}

#[test]
fn certificates_that_have_expired_are_warned_of() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    Certificate::between("a.example", (2001, 2002)).write(&site, "a");
    Certificate::between("b.example", (2990, 2999)).write(&site, "b");
    site.configure(
        "events { } http { server { listen 127.0.0.1:%PORT% ssl; server_name a;
         ssl_certificate a.crt; ssl_certificate_key a.key; }
         server { listen 127.0.0.1:%PORT% ssl; server_name b;
         ssl_certificate b.crt; ssl_certificate_key b.key; } }",
    );
    let (status, said) = site.run(&["-t"]);
    assert!(status.success(), "{said}");
    for told in [
        "a.crt\" expired on Jan  1 00:00:00 2002 GMT in",
        "b.crt\" is not valid before Jan  1 00:00:00 2990 GMT in",
    ] {
        assert_eq!(said.matches(told).count(), 1, "{told}: {said}");
    }
}

/// What an operator watches: which versions clients speak, and when certificates end.
#[test]
fn metrics_tell_versions_suites_and_the_ends_of_certificates() {
    let site = Site::new();
    let certificate = Certificate::between("a.example", (2020, 2040));
    certificate.write(&site, "a");
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl; server_name a.example; {CERTIFICATE} location / {{ metrics; }} }}"
    );
    let server = Server::start_on(site, "", &http);
    let client = TlsClient::new(None);
    let seen = client.get(server.site().port(0), "a.example", "/").unwrap();
    let page = Exposition::read(&seen.reply.text(), false);
    let value = |key: &str| page.get(key);
    // 1 January 2040.
    let end = value("freewheel_tls_certificate_end_seconds{certificate=\"a.example\"}");
    assert_eq!(end, Some(2_208_988_800.0));
    let suite =
        "freewheel_tls_connections_total{protocol=\"TLSv1.3\",cipher=\"TLS_AES_256_GCM_SHA384\"}";
    assert_eq!(value(suite), Some(1.0));
    assert_eq!(
        value("freewheel_tls_early_data_connections_total"),
        Some(0.0)
    );
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it runs on no loop")]
fn handshakes_go_on_while_disks_hang() {
    if is_nginx() {
        return;
    }
    let (site, ..) = site();
    let site = site.with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    let http = format!("server {{ listen 127.0.0.1:%PORT% ssl; {CERTIFICATE} return 200 a; }}");
    let server = Server::start_on(site, "", &http);
    let port = server.site().port(0);
    // From here on the pool is there.
    TlsClient::new(None).get(port, "a.example", "/").unwrap();
    let held = server.site().path("hold");
    std::fs::write(&held, "").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let seen = TlsClient::new(None).get(port, "a.example", "/").unwrap();
    assert_eq!(seen.reply.text(), "a");
    std::fs::remove_file(held).unwrap();
}
