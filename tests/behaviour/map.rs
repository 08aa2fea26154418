//! Variables by table.

use blackbox::Server;

#[test]
fn a_map_takes_exact_then_wildcard_then_regex() {
    let server = Server::start(
        "map $arg_k $v { hostnames; default none; exact.org e; *.org w; www.* t; ~^r(\\d)$ r$1; '~*^CASE$' c; }
         server { listen 127.0.0.1:%PORT%; return 200 $v; }",
    );
    for (key, expected) in [
        ("exact.org", "e"),
        ("EXACT.org", "e"),
        ("a.org", "w"),
        ("www.net", "t"),
        ("r5", "r5"),
        ("case", "c"),
        ("else", "none"),
        ("", "none"),
    ] {
        assert_eq!(server.get(&format!("/?k={key}")).text(), expected, "{key}");
    }
}

#[test]
fn split_clients_divides_by_the_same_hash() {
    let server = Server::start(
        "split_clients $arg_k $part { 50% a; 20% b; * c; }
         server { listen 127.0.0.1:%PORT%; return 200 $part; }",
    );
    let mut connection = server.connect();
    let mut text = String::new();
    for key in 0..24 {
        text += &connection
            .send(format!("GET /?k={key} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .reply()
            .text();
    }
    assert_eq!(text, "aaabaaacabaacacababbcaba");
}
