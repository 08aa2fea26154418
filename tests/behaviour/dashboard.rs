//! The dashboard: its page and its stream, which are our own.

#![expect(
    clippy::disallowed_methods,
    reason = "tests run on no loop: they touch files"
)]

use blackbox::{Connection, Server, Site, is_nginx};

/// As `dashboard::STREAMS_MAX`.
const STREAMS_MAX: usize = 256;

const DASHBOARD: &str = "location = /d { access_log off; dashboard; }";
const STREAM: &str = "GET /d?stream HTTP/1.1\r\nHost: a\r\n\r\n";
/// The end of an event.
const END: &str = "\n\n";

fn start() -> Server {
    Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; {DASHBOARD} }}"
    ))
}

/// A stream, read up to its first sample.
fn open(server: &Server) -> (Connection, String) {
    let mut stream = server.connect();
    stream.send(STREAM);
    let upto = stream.until("event: sample") + &stream.until(END);
    (stream, upto)
}

/// The moment of the first sample in a text.
fn first_moment(text: &str) -> &str {
    let (_, behind) = text.split_once("{\"t\":").expect("there is a sample");
    behind.split_once(',').expect("more than the moment").0
}

#[test]
fn the_page_is_one_that_may_run_its_own_script_only() {
    if is_nginx() {
        return;
    }
    let server = start();
    let page = server.get("/d");
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header("Content-Type"),
        Some("text/html; charset=utf-8")
    );
    let policy = page.header("Content-Security-Policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"));
    assert!(!policy.contains("unsafe"));
    assert!(page.text().contains("<title>freewheel</title>"));
    let compressed = server.get_with("/d", "Accept-Encoding: gzip\r\n");
    assert_eq!(compressed.header("Content-Encoding"), Some("gzip"));
    assert!(compressed.body.len() < page.body.len() / 2);
    assert_eq!(server.request("HEAD", "/d", "").status, 200);
    assert_eq!(server.request("HEAD", "/d?stream", "").status, 200);
    assert_eq!(server.request("POST", "/d", "").status, 405);
}

#[test]
fn a_stream_begins_with_what_there_is_and_goes_on() {
    if is_nginx() {
        return;
    }
    let server = start();
    let mut stream = server.connect();
    let head = stream.send(STREAM).until("\r\n\r\n");
    assert!(head.contains("Content-Type: text/event-stream\r\n"));
    stream.until("event: begin");
    stream.until("event: series\ndata: [[0,\"freewheel_build_info\",\"gauge\",");
    let first = stream.until("event: sample") + &stream.until(END);
    let mut late = open(&server);
    assert_eq!(first_moment(&late.1), first_moment(&first));
    let second = stream.until("event: sample") + &stream.until(END);
    assert!(first_moment(&second) > first_moment(&first));
    assert_eq!(
        first_moment(&(late.0.until("event: sample") + &late.0.until(END))),
        first_moment(&second)
    );
}

#[test]
fn what_a_request_said_is_a_string_in_an_event() {
    if is_nginx() {
        return;
    }
    let server = start();
    let _told = server.raw("GET /<script>\"\\ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let (mut stream, _) = open(&server);
    stream.until("event: errors\ndata: [[\"error\",\"");
    let line = stream.until(END);
    assert!(
        line.contains("/<script>\\\"") && line.ends_with("\"]]\n\n"),
        "{line}"
    );
}

#[test]
fn a_reload_ends_streams_and_keeps_the_past() {
    if is_nginx() {
        return;
    }
    let server = start();
    let (mut stream, before) = open(&server);
    server.reload(&format!(
        "server {{ listen 127.0.0.1:%PORT%; {DASHBOARD} }}"
    ));
    assert!(stream.until("0\r\n\r\n").ends_with("0\r\n\r\n"));
    let (_stream, after) = open(&server);
    assert_eq!(first_moment(&after), first_moment(&before));
}

#[test]
fn streams_end_when_the_server_leaves() {
    if is_nginx() {
        return;
    }
    let mut server = start();
    let (mut stream, _) = open(&server);
    assert!(server.quit().success());
    assert!(String::from_utf8_lossy(&stream.rest()).ends_with("0\r\n\r\n"));
}

#[test]
fn streams_are_bounded_and_a_place_is_given_back() {
    if is_nginx() {
        return;
    }
    let server = start();
    let mut streams: Vec<Connection> = (0..STREAMS_MAX).map(|_| server.connect()).collect();
    for stream in &mut streams {
        stream.send(STREAM).until("\r\n\r\n");
    }
    let refused = server.get("/d?stream");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("Retry-After"), Some("10"));
    assert_eq!(server.get("/d").status, 200);
    streams.truncate(STREAMS_MAX / 2);
    // A client that has left is noticed when it is sent something.
    let mut one_more = 503;
    while one_more == 503 {
        streams[0].until("event: sample");
        let mut next = server.connect();
        let head = next.send(STREAM).until("\r\n\r\n");
        one_more = if head.contains(" 200 ") { 200 } else { 503 };
    }
}

#[test]
fn a_pool_that_stands_still_is_seen() {
    if is_nginx() {
        return;
    }
    let site = Site::new().with_environment("FREEWHEEL_DEBUG_HOLD", "%DIR%/hold");
    let server = Server::start_on(
        site,
        "thread_pool stuck threads=2;",
        &format!(
            "aio threads=stuck; server {{ listen 127.0.0.1:%PORT%; {DASHBOARD} location = /cold {{ alias /proc/self/limits; }} }}"
        ),
    );
    std::fs::write(server.site().path("hold"), "").expect("the directory is ours");
    let mut stream = server.connect();
    stream.send(STREAM);
    // Its place among the numbers of a sample.
    stream.until("event: series\ndata: [");
    let series = stream.until(END);
    let place = series.split("],[").position(|one| {
        one.contains("\"freewheel_pool_queue\"")
            && one.contains("\"pool\":\"stuck\",\"lane\":\"read\"")
    });
    let place = place.expect("the queue is a series");
    let mut waiting = Vec::new();
    loop {
        // What lies in procfs always goes through the pool, which stands still from its first look at the file on.
        for _ in 0..5 {
            let mut client = server.connect();
            client.send("GET /cold HTTP/1.0\r\n\r\n");
            waiting.push(client);
        }
        stream.until("\"v\":");
        let numbers: Vec<serde_json::Value> =
            serde_json::from_str(stream.until("}").trim_end_matches('}')).expect("an array");
        if numbers[place].as_u64() >= Some(3) {
            break;
        }
        assert!(waiting.len() < 100, "no job waits");
    }
    std::fs::remove_file(server.site().path("hold")).expect("it was there");
    for client in &mut waiting {
        client.rest();
    }
}
