//! Where the server can be reached.

use blackbox::{Connection, Server, Site};
use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

#[test]
fn a_unix_socket() {
    let server = Server::start(
        "server { listen unix:%DIR%/socket; return 200 \"$server_addr|$remote_addr|$server_port\"; }",
    );
    let path = server.site().path("socket");
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(ASK.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(
        text.ends_with(&format!("\r\n\r\nunix:{}|unix:|", path.display())),
        "{text}"
    );
}

#[test]
fn a_range_of_ports_is_one_server() {
    // Two neighbours that are free: found by trying, since ports are handed out one by one.
    for _ in 0..50 {
        let site = Site::new();
        let (first, next) = (site.port(0), site.port(1));
        if next != first + 1 {
            continue;
        }
        let server = Server::start_on(
            site,
            "",
            &format!("server {{ listen 127.0.0.1:{first}-{next}; return 200 $server_port; }}"),
        );
        for index in [0, 1] {
            let port = server.site().port(index);
            assert_eq!(
                server.connect_to(index).send(ASK).reply().text(),
                port.to_string()
            );
        }
        return;
    }
}

/// nginx shows such a client as what its socket says it is, and judges it as what it is.
#[test]
fn ipv4_clients_of_an_ipv6_socket_are_shown_as_such_and_judged_as_ipv4() {
    if !has_ipv6() {
        return;
    }
    let server = Server::start(
        "geo $place { default nowhere; 127.0.0.0/8 here; ::/0 six; }
         map $binary_remote_addr $bytes { \"~^.{16}$\" 16; \"~^.{4}$\" 4; }
         server { listen [::]:%PORT% ipv6only=off; set_real_ip_from 127.0.0.0/8;
           location /shown { return 200 \"$remote_addr $server_addr $proxy_add_x_forwarded_for $place $realip_remote_addr\"; }
           location /bytes { return 200 $bytes; }
           location /allowed { allow 127.0.0.1; deny all; } location /net { deny 127.0.0.0/8; }
           location /six { deny ::/0; } location /both { deny 10.0.0.1; deny ::/0; } }",
    );
    server.file("file", "x");
    let client = "::ffff:127.0.0.1";
    let shown = server.get_with("/shown", "X-Forwarded-For: a\r\n").text();
    assert_eq!(
        shown,
        format!("{client} {client} a, {client} here {client}")
    );
    assert_eq!(server.get("/bytes").text(), "16");
    let real = server.get_with("/shown", "X-Real-IP: 10.1.2.3\r\n").text();
    assert_eq!(real, format!("10.1.2.3 {client} 10.1.2.3 nowhere {client}"));
    for (path, status) in [
        ("/allowed", 404),
        ("/net", 403),
        ("/six", 403),
        ("/both", 404),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    let log = server.access_log(7);
    let clients = log.lines().map(|line| line.split(' ').next().unwrap());
    let clients: Vec<_> = clients.collect();
    assert_eq!(clients[0], client, "{log}");
    server.wait_for(&format!("client: {client}, server: "), "the error log");
}

#[test]
fn ipv6_alone_and_with_ipv4() {
    if !has_ipv6() {
        return;
    }
    let server = Server::start(
        "server { listen [::1]:%PORT%; return 200 \"$server_addr $remote_addr\"; }
         server { listen [::]:%PORT1% ipv6only=on; listen 127.0.0.1:%PORT1%; return 200 $server_addr; }
         server { listen [::]:%PORT2% ipv6only=off; return 200 $remote_addr; }",
    );
    let six = |index: usize| {
        let address = (Ipv6Addr::LOCALHOST, server.site().port(index));
        Connection::new(TcpStream::connect(address).unwrap())
            .send(ASK)
            .reply()
            .text()
    };
    let four = |index: usize| server.connect_to(index).send(ASK).reply().text();
    assert_eq!(six(0), "::1 ::1");
    assert_eq!(
        (six(1), four(1)),
        ("::1".to_owned(), "127.0.0.1".to_owned())
    );
    assert_eq!(
        (six(2), four(2)),
        ("::1".to_owned(), "::ffff:127.0.0.1".to_owned())
    );
}

#[test]
fn a_wildcard_serves_the_addresses_that_have_no_socket_of_their_own() {
    let server = Server::start(
        "server { listen %PORT%; return 200 \"all $server_addr\"; }
         server { listen 127.0.0.2:%PORT%; return 200 \"second $server_addr\"; }",
    );
    let ask = |address: &str| {
        let stream = TcpStream::connect((address, server.site().port(0))).unwrap();
        Connection::new(stream).send(ASK).reply().text()
    };
    assert_eq!(ask("127.0.0.1"), "all 127.0.0.1");
    assert_eq!(ask("127.0.0.2"), "second 127.0.0.2");
}

#[test]
fn all_options_together_are_taken() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT% default_server backlog=16 rcvbuf=64k sndbuf=64k fastopen=3 deferred so_keepalive=10m::5 reuseport;
            return 200 fine; }",
    );
    for _ in 0..5 {
        assert_eq!(server.get("/").text(), "fine");
    }
}
