//! Which virtual server answers, and what `$host` is.

use blackbox::Server;

const SERVERS: &str = "
    server { listen 127.0.0.1:%PORT%; server_name first; return 200 first; }
    server { listen 127.0.0.1:%PORT%; server_name exact.example.com; return 200 exact; }
    server { listen 127.0.0.1:%PORT%; server_name *.example.com; return 200 wildcard; }
    server { listen 127.0.0.1:%PORT%; server_name www.example.*; return 200 tail; }
    server { listen 127.0.0.1:%PORT%; server_name .dot.org; return 200 dot; }
    server { listen 127.0.0.1:%PORT%; server_name ~^r(?<digits>\\d+)\\.org$; return 200 regex-$digits; }
    server { listen 127.0.0.1:%PORT%; server_name \"\"; return 200 none; }
";

fn answer(server: &Server, host: &str) -> String {
    let reply = server
        .connect()
        .send(format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ))
        .reply();
    if reply.status == 200 {
        reply.text()
    } else {
        reply.status.to_string()
    }
}

#[test]
fn exact_then_wildcards_then_regexes_then_default() {
    let server = Server::start(SERVERS);
    for (host, expected) in [
        ("exact.example.com", "exact"),
        ("EXACT.example.COM", "exact"),
        ("exact.example.com:8080", "exact"),
        ("exact.example.com.", "exact"),
        ("a.example.com", "wildcard"),
        ("a.b.example.com", "wildcard"),
        ("www.example.com", "wildcard"),
        ("www.example.net", "tail"),
        ("dot.org", "dot"),
        ("a.dot.org", "dot"),
        ("R42.org", "regex-42"),
        ("unknown.net", "first"),
    ] {
        assert_eq!(answer(&server, host), expected, "{host}");
    }
}

#[test]
fn http_1_0_without_host_is_the_empty_name() {
    let server = Server::start(SERVERS);
    assert!(server.raw("GET / HTTP/1.0\r\n\r\n").ends_with("none"));
}

#[test]
fn a_host_that_cannot_be_is_400() {
    let server = Server::start(SERVERS);
    for host in [
        "", ".", "a..b", "a/b", "a\\b", "a:b", "a:1:2", "a:65536", "[::1", "x[::1]",
    ] {
        assert_eq!(answer(&server, host), "400", "{host:?}");
    }
    for host in ["[::1]", "[::1]:80", "a:80"] {
        assert_eq!(answer(&server, host), "first", "{host:?}");
    }
}
