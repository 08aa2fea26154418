//! Connections of TLS behind their handshakes: what came early, what close_notify ends, and where a connection of HTTP/2
//! ends behind a reload.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

use super::tls::{CERTIFICATE, site};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use blackbox::tls::{Certificate, TlsClient};
use blackbox::{Answer, Origin, Server, is_nginx};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::{ClientConnection, StreamOwned};
use wire::http2::session::PREFACE;

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// The frame that a client of HTTP/2 opens a connection with, behind the preface: SETTINGS without any.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// The beginning of a GOAWAY without words of its own.
const GOAWAY: [u8; 9] = [0, 0, 8, 7, 0, 0, 0, 0, 0];

/// A GET for `/` over HTTP/2, in one frame (RFC 7541, 6.1 and 6.2.1).
fn get(stream: u8) -> Vec<u8> {
    let block = [&[0x82, 0x87, 0x84, 0x41, 9][..], b"a.example"].concat();
    let whole = 0x4 | 0x1;
    let header = [0, 0, block.len() as u8, 1, whole, 0, 0, 0, stream];
    [&header[..], &block].concat()
}

/// Reads until there is something between two texts; returns that.
fn between(stream: &mut Stream, begin: &str, end: char) -> String {
    let mut seen = String::new();
    loop {
        let rest = seen.split_once(begin).map(|(_, rest)| rest);
        if let Some((found, _)) = rest.and_then(|rest| rest.split_once(end)) {
            return found.to_owned();
        }
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "{seen}");
        seen += &String::from_utf8_lossy(&piece[..count]);
    }
}

#[test]
fn early_data_over_http2_is_that_of_the_requests_in_it() {
    let (site, ..) = site();
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl; http2 on; {CERTIFICATE} ssl_early_data on;
             return 200 \"early=$ssl_early_data;\"; }}"
    );
    let server = Server::start_on(site, "", &http);
    let port = server.site().port(0);
    let opening = [&PREFACE[..], &SETTINGS].concat();
    for (ahead, behind, expected) in [
        ([&opening[..], &get(1)].concat(), Vec::new(), "1"),
        (opening.clone(), get(1), ""),
    ] {
        let client = TlsClient::with_protocol(b"h2").with_early_data();
        let mut first = client.connect(port, "a.example").unwrap();
        first.write_all(&[&opening[..], &get(1)].concat()).unwrap();
        assert_eq!(between(&mut first, "early=", ';'), "");
        let mut second = client.connect(port, "a.example").unwrap();
        let mut early = second.conn.early_data().expect("a session");
        early.write_all(&ahead).unwrap();
        second.write_all(&behind).unwrap();
        assert_eq!(between(&mut second, "early=", ';'), expected);
        assert!(second.conn.is_early_data_accepted());
        second.write_all(&get(3)).unwrap();
        assert_eq!(between(&mut second, "early=", ';'), "", "it came later");
    }
}

/// The client's Finished comes with its next request, or never.
#[test]
fn a_request_in_early_data_is_answered_before_the_handshake_is_over() {
    let (site, ..) = site();
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl; {CERTIFICATE} ssl_early_data on;
             location / {{ return 200 \"early=$ssl_early_data;\"; }}
             location /large {{ root html; }} }}"
    );
    let server = Server::start_on(site, "", &http);
    server.file("large", "x".repeat(100_000) + "end;");
    let port = server.site().port(0);
    let ask = |path: &str, lines: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let client = TlsClient::new(None).with_early_data();
    for (path, begin, expected) in [("/", "early=", "1"), ("/large", "xxx", "end")] {
        let mut first = client.connect(port, "a.example").unwrap();
        first.write_all(ask("/", "").as_bytes()).unwrap();
        assert_eq!(between(&mut first, "early=", ';'), "");
        for lines in ["", "Connection: close\r\n"] {
            let mut stream = client.connect(port, "a.example").unwrap();
            let mut early = stream.conn.early_data().expect("a session");
            early.write_all(ask(path, lines).as_bytes()).unwrap();
            stream.conn.write_tls(&mut stream.sock).unwrap();
            // Nothing is written from here on.
            let mut seen = String::new();
            while !seen.contains(&format!("{expected};")) {
                let count = stream.conn.read_tls(&mut stream.sock).unwrap();
                assert!(count > 0, "{seen}");
                let state = stream.conn.process_new_packets().unwrap();
                let mut piece = vec![0; state.plaintext_bytes_to_read()];
                stream.conn.reader().read_exact(&mut piece).unwrap();
                seen += &String::from_utf8_lossy(&piece);
            }
            assert!(seen.contains(begin), "{seen}");
            if lines.is_empty() {
                stream.write_all(ask("/", "").as_bytes()).unwrap();
                assert_eq!(between(&mut stream, "early=", ';'), "", "it is over");
            } else {
                // The end comes with close_notify, and no reset meets the Finished.
                stream.flush().unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            }
        }
    }
}

/// Sends a request and close_notify at once.
fn ask_and_end(stream: &mut Stream, path: &str) {
    let Stream { conn, sock } = stream;
    conn.complete_io(sock).unwrap();
    let ask = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
    conn.writer().write_all(ask.as_bytes()).unwrap();
    conn.send_close_notify();
    while conn.wants_write() {
        conn.write_tls(sock).unwrap();
    }
}

#[test]
fn a_client_that_sends_no_more_gets_its_response_and_one_that_leaves_is_noticed() {
    let (site, ..) = site();
    let origin = Origin::start(|request| match request.target() {
        "/silent" => Answer::Talk(Box::new(|mut stream| drop(stream.read(&mut [0; 1])))),
        _ => Answer::ok("whole"),
    });
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl; {CERTIFICATE} proxy_buffering off;
             location / {{ proxy_pass http://{}; }} }}",
        origin.address()
    );
    let server = Server::start_on(site, "", &http);
    let client = TlsClient::new(None);
    let connect = || client.connect(server.site().port(0), "a.example").unwrap();
    let mut stream = connect();
    ask_and_end(&mut stream, "/");
    let mut seen = String::new();
    stream.read_to_string(&mut seen).unwrap();
    assert!(seen.starts_with("HTTP/1.1 200 "), "{seen}");
    assert!(seen.ends_with("whole"), "{seen}");
    let mut stream = connect();
    ask_and_end(&mut stream, "/silent");
    origin.wait(2);
    drop(stream);
    server.wait_for("client prematurely closed connection", "the end");
    assert!(
        server
            .access_log(2)
            .contains("\"GET /silent HTTP/1.1\" 499 ")
    );
}

/// nginx ends all connections at a reload.
#[test]
fn a_connection_of_http2_ends_where_its_certificate_is_not_trusted_any_more() {
    if is_nginx() {
        return;
    }
    let (site, ..) = site();
    let (c, other) = (Certificate::of("c.example"), Certificate::of("o.example"));
    c.write(&site, "c");
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT% ssl; http2 on; {CERTIFICATE} ssl_verify_client on; ssl_client_certificate c.crt;
             return 200 \"verify=$ssl_client_verify;\"; }}"
    );
    let server = Server::start_on(site, "", &http);
    let client = TlsClient::new(Some(&c)).speaking(b"h2");
    let mut stream = client.connect(server.site().port(0), "a.example").unwrap();
    stream
        .write_all(&[&PREFACE[..], &SETTINGS, &get(1)].concat())
        .unwrap();
    assert_eq!(between(&mut stream, "verify=", ';'), "SUCCESS");
    other.write(server.site(), "c");
    server.reload(&http);
    stream.write_all(&get(3)).unwrap();
    let mut seen = Vec::new();
    stream.read_to_end(&mut seen).unwrap();
    let text = String::from_utf8_lossy(&seen);
    assert!(text.contains("The SSL certificate error"), "{text}");
    assert!(seen.windows(GOAWAY.len()).any(|part| part == GOAWAY));
}

/// As any other text of TLS that is empty.
#[test]
fn a_certificate_without_a_subject_has_none_in_the_log() {
    let (site, ..) = site();
    let mut params = CertificateParams::new(vec!["c.example".to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate().unwrap();
    let own = Certificate {
        certificate: params.self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    };
    let http = format!(
        "log_format names '[$ssl_client_s_dn][$ssl_client_s_dn_legacy][$ssl_client_i_dn]';
         server {{ listen 127.0.0.1:%PORT% ssl; {CERTIFICATE} ssl_verify_client optional_no_ca;
             access_log logs/access.log names; return 200 $ssl_client_serial; }}"
    );
    let server = Server::start_on(site, "", &http);
    let client = TlsClient::new(Some(&own));
    let seen = client.get(server.site().port(0), "a.example", "/").unwrap();
    assert_ne!(seen.reply.text(), "", "it showed one");
    assert_eq!(server.access_log(1), "[-][-][-]\n");
}
