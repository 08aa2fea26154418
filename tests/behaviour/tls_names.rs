//! The server of a request over TLS, by its host, whatever name the handshake was for; and the rules for its client's
//! certificate, which are those of the configuration that the request comes under.

use super::tls::{CERTIFICATE, site};
use std::io::{Read as _, Write as _};
use std::time::Duration;

use blackbox::tls::{Certificate, TlsClient};
use blackbox::{Server, is_nginx};

#[test]
fn a_host_without_a_server_is_the_default_servers_whatever_name_the_handshake_was_for() {
    let (site, ..) = site();
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl default_server; {CERTIFICATE} http2 on; return 200 default; }}
         server {{ listen 127.0.0.1:%PORT% ssl; server_name b.example; {CERTIFICATE} return 200 b; }}
         server {{ listen 127.0.0.1:%PORT% ssl; server_name c.example; {CERTIFICATE} ssl_verify_client optional; ssl_client_certificate a.crt; return 200 c; }}"
    );
    let server = Server::start_on(site, "", &http);
    let port = server.site().port(0);
    let client = TlsClient::new(None);
    let text = |name, host| client.get_of(port, name, host, "/").unwrap().reply.text();
    assert_eq!(text("b.example", "b.example"), "b");
    assert_eq!(text("b.example", "unknown.example"), "default");
    assert_eq!(text("c.example", "unknown.example"), "default");
    assert_eq!(text("unknown.example", "b.example"), "b");
}

#[test]
fn an_address_with_one_server_has_one_set_of_rules_whatever_the_names() {
    let (site, ..) = site();
    let c = Certificate::of("c.example");
    c.write(&site, "c");
    let of = |port: u8, name: &str| {
        format!(
            "server {{ listen 127.0.0.1:%PORT{port}% ssl; server_name {name}; {CERTIFICATE}
                ssl_verify_client on; ssl_client_certificate c.crt; ssl_crl \"\"; return 200 $ssl_client_verify; }}"
        )
    };
    let names = ["a.example", r"~\.example$", r"~^(.+)\.example$"];
    let http = (1..).zip(names).map(|(port, name)| of(port, name));
    let server = Server::start_on(site, "", &http.collect::<String>());
    let client = TlsClient::new(Some(&c));
    // Groups of a regex are looked up, and so is the host of a request.
    for (port, status) in [(1, 200), (2, 200), (3, 421)] {
        let port = server.site().port(port);
        let seen = client.get_of(port, "a.example", "b.example", "/").unwrap();
        assert_eq!(seen.reply.status, status, "{port}");
    }
}

#[test]
fn a_connection_ends_behind_a_request_for_a_server_with_other_rules() {
    let (site, ..) = site();
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl; server_name a.example; {CERTIFICATE} return 200 a; }}
         server {{ listen 127.0.0.1:%PORT% ssl; server_name b.example; {CERTIFICATE}
            ssl_verify_client on; ssl_client_certificate a.crt; return 200 b; }}"
    );
    let server = Server::start_on(site, "", &http);
    let client = TlsClient::new(None);
    let mut stream = client.connect(server.site().port(0), "a.example").unwrap();
    let ask = "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n";
    stream.write_all(ask.as_bytes()).unwrap();
    let mut seen = String::new();
    stream.read_to_string(&mut seen).unwrap();
    assert!(seen.starts_with("HTTP/1.1 421 "), "{seen}");
    assert!(seen.contains("\r\nConnection: close\r\n"), "{seen}");
}

#[test]
fn a_handshake_is_told_of_in_the_log_of_the_server_that_it_names() {
    let (site, ..) = site();
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl default_server; {CERTIFICATE} error_log logs/default.log crit; return 200 a; }}
         server {{ listen 127.0.0.1:%PORT% ssl; server_name b.example; error_log logs/b.log;
            ssl_certificate none/$ssl_server_name.crt; ssl_certificate_key a.key; return 200 b; }}"
    );
    let server = Server::start_on(site, "", &http);
    let port = server.site().port(0);
    assert!(TlsClient::new(None).get(port, "b.example", "/").is_err());
    let log = blackbox::until("a line in b.log", Duration::from_secs(10), || {
        let log = server.read("logs/b.log");
        (!log.is_empty()).then_some(log)
    });
    assert!(log.contains("cannot load certificate"), "{log}");
}

/// nginx closes such a connection, or has closed it.
#[test]
fn a_certificate_is_judged_again_where_a_reload_has_changed_the_rules() {
    if is_nginx() {
        return;
    }
    let (site, ..) = site();
    let (c, other) = (Certificate::of("c.example"), Certificate::of("o.example"));
    c.write(&site, "c");
    let of = |rules: &str| {
        format!(
            "server {{ listen 127.0.0.1:%PORT% ssl; {CERTIFICATE} {rules} return 200 \"$ssl_client_verify.\"; }}"
        )
    };
    let rules = "ssl_verify_client on; ssl_client_certificate c.crt;";
    let server = Server::start_on(site, "", &of(rules));
    let port = server.site().port(0);
    let ask = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let mut stream = TlsClient::new(Some(&c)).connect(port, "a.example").unwrap();
    for rules in [
        rules,
        "ssl_verify_client optional; ssl_client_certificate c.crt;",
    ] {
        stream.write_all(ask.as_bytes()).unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"SUCCESS.") {
            let mut piece = [0; 4096];
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&piece[..count]);
        }
        server.reload(&of(rules));
    }
    other.write(server.site(), "c");
    server.reload(&of(rules));
    stream.write_all(ask.as_bytes()).unwrap();
    let mut seen = String::new();
    stream.read_to_string(&mut seen).unwrap();
    assert!(seen.starts_with("HTTP/1.1 400 "), "{seen}");
    assert!(seen.contains("The SSL certificate error"), "{seen}");
}
