//! Addresses of responders, and what is taken as an answer.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use super::fetch::fetch;
use super::{NameServers, Responder};

/// Questions of clients are counted in the whole process: one test at a time asks them.
pub(super) static ASKING: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

fn target(url: &str) -> String {
    match Responder::parse(url) {
        Ok(responder) => format!("{} {}", responder.host(), responder.target(b"")),
        Err(told) => told,
    }
}

#[test]
fn addresses_are_read_as_nginx_reads_them() {
    for (url, read) in [
        ("http://127.0.0.1:8080", "127.0.0.1:8080 /"),
        ("HTTP://ocsp.example/a/b", "ocsp.example /a/b/"),
        ("http://[::1]:81/a/#part", "[::1]:81 /a/"),
        ("http://ocsp.example?a", "ocsp.example /?a/"),
        (
            "https://ocsp.example/",
            "invalid URL prefix in OCSP responder \"https://ocsp.example/\"",
        ),
        (
            "http://",
            "invalid URL prefix in OCSP responder \"http://\"",
        ),
        (
            "http://a:99999/",
            "invalid port in OCSP responder \"a:99999/\"",
        ),
        ("http:///a", "no host in OCSP responder \"/a\""),
        ("http://a b/", "invalid host in OCSP responder \"a b/\""),
        (
            "http://a\u{e4}/",
            "invalid host in OCSP responder \"a\u{e4}/\"",
        ),
    ] {
        assert_eq!(target(url), read, "{url}");
    }
}

/// What a fetch makes of these bytes, and the request's first line.
fn fetched(answer: &'static [u8]) -> (Result<Vec<u8>, String>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/base", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
            head.push(byte[0]);
        }
        stream.write_all(answer).unwrap();
        String::from_utf8(head).unwrap()
    });
    let responder = Responder::parse(&url).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let told = runtime.block_on(fetch(&responder, &NameServers::default(), b"?>?"));
    let head = asked.join().unwrap();
    let line = head.lines().next().unwrap().to_owned();
    (told.map_err(|failure| failure.to_string()), line)
}

#[test]
fn answers_are_taken_whole_or_not_at_all() {
    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/ocsp-response\r\n";
    let answer = |rest: &str| -> &'static [u8] { format!("{OK}{rest}").leak().as_bytes() };
    let (told, line) = fetched(answer("\r\nuntil the end"));
    assert_eq!(told.unwrap(), b"until the end");
    assert_eq!(line, "GET /base/Pz4%2F HTTP/1.0");
    let (told, _) = fetched(answer("Content-Length: 3\r\n\r\nabcdef"));
    assert_eq!(told.unwrap(), b"abc");
    for (bytes, sentence) in [
        (
            answer("Content-Length: 7\r\n\r\nabcdef"),
            "OCSP responder prematurely closed connection",
        ),
        (answer(""), "OCSP responder prematurely closed connection"),
        (
            answer("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            "OCSP responder sent invalid response",
        ),
        (b"nonsense\r\n\r\n", "OCSP responder sent invalid response"),
        (
            b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\na",
            "OCSP responder sent invalid \"Content-Type\" header: \"text/html\"",
        ),
        (
            b"HTTP/1.0 404 Not Found\r\n\r\na",
            "OCSP responder sent response with status 404",
        ),
    ] {
        let told = fetched(bytes).0.unwrap_err();
        let line = format!("{sentence} while requesting certificate status, responder: 127.0.0.1:");
        assert!(told.starts_with(&line), "{told}");
        assert!(told.contains(", peer: 127.0.0.1:"), "{told}");
    }
    let long = [OK.as_bytes(), b"\r\n", &[b'a'; 80_000]].concat().leak();
    assert!(fetched(long).0.unwrap_err().contains("too long"));
}

#[test]
fn names_need_name_servers() {
    let responder = Responder::parse("http://ocsp.example/").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let told = runtime.block_on(fetch(&responder, &NameServers::default(), b""));
    let line = "no resolver defined to resolve ocsp.example while requesting certificate status, \
                responder: ocsp.example";
    assert_eq!(told.unwrap_err().to_string(), line);
}

#[test]
fn questions_of_clients_are_bounded() {
    use super::fetch::Place;
    use super::{FETCHES_MAX, FETCHES_WAITING_MAX, RESPONDER_WAITING_MAX};
    let _alone = ASKING.lock();
    let responder = |number: usize| Responder::parse(&format!("http://{number}.test/")).unwrap();
    let too_many = |responder: &Responder| {
        let told = Place::of_client(responder).err().map(|why| why.to_string());
        told.is_some_and(|told| told.starts_with("too many certificate status requests"))
    };
    let places = |to: &Responder| -> Vec<Place> {
        let places = (0..RESPONDER_WAITING_MAX).map_while(|_| Place::of_client(to).ok());
        places.collect()
    };
    let all: Vec<_> = (0..3).map(|number| places(&responder(number))).collect();
    let count: usize = all.iter().map(Vec::len).sum();
    assert_eq!(count, FETCHES_MAX + FETCHES_WAITING_MAX);
    assert!(too_many(&responder(9)));
    drop(all);
    let _own = places(&responder(0));
    assert!(too_many(&responder(0)) && !too_many(&responder(9)));
}

#[test]
fn a_responder_that_is_silent_holds_up_no_other() {
    use super::fetch::Place;
    let _alone = ASKING.lock();
    let responder = |name: &str| Responder::parse(&format!("http://{name}/")).unwrap();
    let (silent, other) = (responder("silent.test"), responder("other.test"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for kind in [
            |to: &Responder| Place::of_client(to).ok().unwrap(),
            Place::of_staple,
        ] {
            for _ in 0..super::FETCHES_MAX {
                let place = kind(&silent);
                tokio::spawn(async move {
                    let _turn = place.turn().await;
                    std::future::pending::<()>().await;
                });
            }
            tokio::task::yield_now().await; // they have their turns, or wait
            let place = kind(&other);
            let patience = super::FETCH_TIME_MAX / 2;
            let turn = tokio::time::timeout(patience, place.turn()).await;
            assert!(turn.is_ok());
        }
    });
}
