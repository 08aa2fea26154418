//! The PROXY protocol before the first request of a connection.

use blackbox::Server;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const REQUEST: &str = "GET /seen HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn start() -> Server {
    Server::start(
        "server { listen 127.0.0.1:%PORT% proxy_protocol; client_header_timeout 1s;
             set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol;
             location /seen { return 200 \"$remote_addr $remote_port|$proxy_protocol_addr $proxy_protocol_port|\\
$proxy_protocol_server_addr $proxy_protocol_server_port|$realip_remote_addr\"; }
             location /more { return 200 \"$proxy_protocol_tlv_authority|$proxy_protocol_tlv_0xe0|\\
$proxy_protocol_tlv_ssl_verify|$proxy_protocol_tlv_ssl_cn|$proxy_protocol_tlv_alpn\"; } }"
            .replace("\\\n", "")
            .as_str(),
    )
}

fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len())
        .expect("it is short")
        .to_be_bytes();
    let mut bytes = [SIGNATURE, &[0x20 | command, family, length[0], length[1]]].concat();
    bytes.extend_from_slice(rest);
    bytes
}

#[test]
fn both_versions_name_the_client() {
    let server = start();
    let seen = |header: &[u8]| {
        let bytes = [header, REQUEST.as_bytes()].concat();
        server.connect().send(bytes).reply().text()
    };
    let client = "192.0.2.1 1234|192.0.2.1 1234|192.0.2.2 80|127.0.0.1";
    assert_eq!(seen(b"PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r\n"), client);
    assert_eq!(
        seen(b"PROXY TCP6 2001:db8::1 2001:db8::2 1234 80\r\n"),
        "2001:db8::1 1234|2001:db8::1 1234|2001:db8::2 80|127.0.0.1"
    );
    let inet = [192, 0, 2, 1, 192, 0, 2, 2, 0x04, 0xd2, 0, 80];
    assert_eq!(seen(&binary(1, 0x11, &inet)), client);
    for silent in [b"PROXY UNKNOWN\r\n".to_vec(), binary(0, 0, b"")] {
        let seen = seen(&silent);
        assert!(seen.starts_with("127.0.0.1 "), "{seen}");
        assert!(seen.ends_with("| | |127.0.0.1"), "{seen}");
    }
}

#[test]
fn a_header_may_come_apart_from_its_request() {
    let server = start();
    let mut connection = server.connect();
    connection.send("PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r\n");
    for _ in 0..2 {
        connection.send("GET /seen HTTP/1.1\r\nHost: a\r\n\r\n");
        let text = connection.reply().text();
        assert!(text.starts_with("192.0.2.1 1234|"), "{text}");
    }
}

#[test]
fn a_proxy_may_say_more() {
    let server = start();
    let ssl = b"\x20\x00\x0b\x01\x00\x00\x00\x2a\x22\x00\x03one";
    let rest = [
        &[192, 0, 2, 1, 192, 0, 2, 2, 0x04, 0xd2, 0, 80][..],
        b"\x02\x00\x04a.de\xe0\x00\x01x",
        ssl,
    ]
    .concat();
    let request = REQUEST.replace("/seen", "/more");
    let bytes = [&binary(1, 0x11, &rest), request.as_bytes()].concat();
    assert_eq!(
        server.connect().send(bytes).reply().text(),
        "a.de|x|42|one|"
    );
}

#[test]
fn what_is_no_header_ends_the_connection() {
    let server = start();
    let inet = [192, 0, 2, 1, 192, 0, 2, 2, 0x04, 0xd2, 0, 80];
    let mut old = binary(1, 0x11, &inet);
    old[12] = 0x31;
    for (bytes, why) in [
        (
            REQUEST.as_bytes(),
            "broken header: \"GET /seen HTTP/1.1\" while reading PROXY protocol, client: 127.0.0.1",
        ),
        (
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1234\r\n",
            "broken header: \"PROXY TCP4 192.0.2.1 192.0.2.2 1234\"",
        ),
        (
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1234 99999\r\n",
            "1234 99999\" while reading PROXY protocol",
        ),
        (&old, "unknown PROXY protocol version: 3"),
        (&binary(1, 0x11, &[0; 5000])[..100], "header is too large"),
        (&binary(1, 0x11, &inet[1..]), ""),
    ] {
        assert_eq!(server.raw(bytes), "", "{why}");
        server.wait_for(why, "why");
    }
    // Nobody waits longer for one than for a request.
    let mut silent = server.connect();
    silent.send("PROXY TCP4");
    assert!(silent.is_closed());
    server.forget_log();
}
