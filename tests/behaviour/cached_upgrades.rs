//! What offers an upgrade (`Upgrade`), where a cache is.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use super::cache::{cache, hit, server};
use blackbox::{Answer, Connection, Origin, Server};

const PASS: &str =
    "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; %PASS%";

/// Answers `/plain` by a 200 that may be stored, and becomes a tunnel that sends back what it gets in capitals elsewhere.
fn origin() -> Origin {
    let number = AtomicU32::new(0);
    Origin::start(move |request| {
        if request.target() == "/plain" || request.header("upgrade").is_none() {
            let number = number.fetch_add(1, SeqCst) + 1;
            return Answer::with(
                "200 OK",
                "Cache-Control: max-age=60\r\n",
                format!("answer {number}"),
            );
        }
        Answer::Talk(Box::new(|mut stream| {
            let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello";
            stream
                .write_all(head.as_bytes())
                .expect("the server takes it");
            let mut buffer = [0; 1000];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                stream
                    .write_all(&buffer[..count].to_ascii_uppercase())
                    .expect("the server takes it");
            }
        }))
    })
}

fn upgraded(server: &Server, path: &str) -> Connection {
    let mut client = server.connect();
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly"
    ));
    client
}

#[test]
fn a_client_that_offers_an_upgrade_fills_the_cache_and_is_answered_from_it() {
    let origin = origin();
    let server = server(&origin, &format!("location / {{ {PASS}; }}"));
    let upgrade = "Connection: Upgrade\r\nUpgrade: h2c\r\n";
    let first = server.get_with("/plain", upgrade);
    assert_eq!((cache(&first), first.text().as_str()), ("MISS", "answer 1"));
    assert_eq!(hit(&server, "/plain").text(), "answer 1");
    assert_eq!(cache(&server.get_with("/plain", upgrade)), "HIT");
    assert_eq!(origin.received().len(), 1);
}

#[test]
fn what_becomes_a_tunnel_is_stored_nowhere_and_holds_nobody_up() {
    let origin = origin();
    let server = server(
        &origin,
        &format!(
            "location / {{ proxy_cache_lock on; proxy_cache_lock_timeout 1h; proxy_cache_lock_age 1h; proxy_cache_valid any 1h; {PASS}; }}"
        ),
    );
    let mut tunnels: Vec<_> = (0..8).map(|_| upgraded(&server, "/tunnel")).collect();
    for client in &mut tunnels {
        let reply = client.reply();
        assert_eq!((reply.status, cache(&reply)), (101, "MISS"));
        assert_eq!(client.read(10), b"helloEARLY");
    }
    // Nothing of that is kept: who does not ask for a tunnel gets the origin's own answer.
    let plain = server.get("/tunnel");
    assert_eq!((cache(&plain), plain.text().as_str()), ("MISS", "answer 1"));
    for client in &mut tunnels {
        client.send("more");
        assert_eq!(client.read(4), b"MORE");
    }
}

#[test]
fn who_does_not_ask_for_a_tunnel_and_waits_for_one_that_does_gets_an_answer() {
    let origin = origin();
    let server = server(
        &origin,
        &format!(
            "location / {{ proxy_cache_lock on; proxy_cache_lock_timeout 1h; proxy_cache_lock_age 1h; {PASS}; }}"
        ),
    );
    for round in 0..20 {
        let path = format!("/{round}");
        let mut tunnel = upgraded(&server, &path);
        assert_eq!(server.get(&path).status, 200);
        // It may have come second, and then follows the other one's answer, as one that nginx's lock holds does.
        assert!([101, 200].contains(&tunnel.reply().status));
    }
}
