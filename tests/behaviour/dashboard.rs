//! The dashboard: its page and its stream, which are our own.

#![expect(
    clippy::disallowed_methods,
    reason = "tests run on no loop: they touch files"
)]

use blackbox::{Connection, PATIENCE, Server, Site, binary, is_nginx};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::sockopt::RcvBuf;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, connect, setsockopt, socket,
};
use nix::sys::termios::tcgetattr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Command};

/// As `dashboard::STREAMS_MAX`.
const STREAMS_MAX: usize = 256;
/// Dashboards that are opened at once.
const DASHBOARDS: usize = 1000;
/// Zones, so that there is much to be told.
const ZONES: usize = 150;

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
fn of_a_thousand_dashboards_as_many_are_shown_as_may_be() {
    if is_nginx() {
        return;
    }
    allow_descriptors();
    let server = Server::start_with(
        "worker_processes 4; worker_rlimit_nofile 4000;",
        &format!("server {{ listen 127.0.0.1:%PORT%; {DASHBOARD} }}"),
    );
    let mut all: Vec<Connection> = (0..DASHBOARDS).map(|_| server.connect()).collect();
    for one in &mut all {
        one.send(STREAM);
    }
    let (mut shown, mut refused) = (Vec::new(), 0);
    for mut one in all {
        let head = one.until("\r\n\r\n");
        if head.starts_with("HTTP/1.1 200 ") {
            shown.push(one);
        } else {
            assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
            assert!(head.contains("\r\nRetry-After: 10\r\n"), "{head}");
            refused += 1;
        }
    }
    assert_eq!(
        (shown.len(), refused),
        (STREAMS_MAX, DASHBOARDS - STREAMS_MAX)
    );
    assert_eq!(server.get("/d").status, 200);
    for one in &mut shown {
        one.until("event: sample");
    }
    shown.truncate(STREAMS_MAX / 2);
    // A client that has left is noticed when it is sent something.
    until_one_more_is_shown(&server);
}

#[test]
fn who_never_reads_is_dropped_and_its_place_given_back() {
    if is_nginx() {
        return;
    }
    allow_descriptors();
    // What a dashboard begins with must be more than the sockets of both sides hold.
    let zones = (0..ZONES).map(|number| format!("location /{number} {{ status_zone {number}; }}"));
    let zones: String = zones.collect();
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT% sndbuf=4k; send_timeout 1s; {DASHBOARD} {zones} }}"
    ));
    for number in 0..ZONES {
        server.get(&format!("/{number}"));
    }
    // The sample behind the next one has them all, as far as they have places of their own.
    let (mut stream, _) = open(&server);
    for _ in 0..2 {
        stream.until("event: sample");
    }
    drop(stream);
    // They read that they are let in, and no more.
    let mut deaf = Vec::new();
    let begun = std::time::Instant::now();
    while deaf.len() < STREAMS_MAX {
        assert!(begun.elapsed() < PATIENCE, "no place is given back");
        let mut one = connect_deaf(&server);
        if one.send(STREAM).until("\r\n\r\n").contains(" 200 ") {
            deaf.push(one);
        }
    }
    let said = "client timed out (110: Connection timed out) while sending response to client";
    let begun = std::time::Instant::now();
    while server.error_log().matches(said).count() < STREAMS_MAX {
        assert!(begun.elapsed() < PATIENCE, "they are not dropped");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    until_one_more_is_shown(&server);
    for one in &mut deaf {
        assert!(!one.rest().ends_with(b"0\r\n\r\n"), "the end was sent");
    }
}

/// Opens streams until one is not refused.
fn until_one_more_is_shown(server: &Server) {
    let begun = std::time::Instant::now();
    loop {
        let mut next = server.connect();
        let head = next.send(STREAM).until("\r\n\r\n");
        if head.contains(" 200 ") {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "no place is given back");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// A connection with as small a buffer as there can be.
fn connect_deaf(server: &Server) -> Connection {
    let socket = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    );
    let socket = socket.expect("a socket is to be had");
    setsockopt(&socket, RcvBuf, &1).expect("any size is rounded up");
    let address = SockaddrIn::new(127, 0, 0, 1, server.site().port(0));
    connect(socket.as_raw_fd(), &address).expect("the server listens");
    Connection::new(socket.into())
}

/// As many descriptors as this process may have: so many connections need more than is usual.
fn allow_descriptors() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("it has a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("a process may do so");
}

#[test]
fn top_shows_the_same_in_a_terminal_and_leaves_it_as_it_was() {
    if is_nginx() {
        return;
    }
    let server = Server::start(&format!(
        "server {{ listen 127.0.0.1:%PORT%; status_zone site; {DASHBOARD} location / {{ return 200 x; }} }}"
    ));
    server.get("/");
    // The next sample has it: so all of a line is drawn at once, and not what of it is new.
    let (mut stream, upto) = open(&server);
    if !upto.contains("\"zone\":\"site\"") {
        stream.until("\"zone\":\"site\"");
    }
    // A line that has changed in parts is drawn in parts: another one is drawn whole.
    let is_shown = (0..10).any(|_| {
        let seen = seen_in_a_terminal(&server);
        let words = ["freewheel top", "blocked99", "first99", "site"];
        words.iter().all(|word| seen.contains(word))
    });
    assert!(is_shown);
}

/// What `freewheel top` shows until it has shown the zone, or for some seconds; it is ended with `q`.
fn seen_in_a_terminal(server: &Server) -> String {
    let terminal = open_terminal();
    let before = tcgetattr(&terminal.slave).expect("it is one");
    let mut top = start_top(server, &terminal);
    let mut shown = File::from(terminal.master);
    let (mut seen, mut piece) = (String::new(), [0; 4096]);
    // It draws five times a second.
    for _ in 0..100 {
        let count = shown.read(&mut piece).expect("there is something to show");
        seen += &String::from_utf8_lossy(&piece[..count]);
        if seen.contains("first99") && seen.contains("site") {
            break;
        }
    }
    shown.write_all(b"q").expect("it reads keys");
    // What it still shows is to be read, or it waits.
    std::thread::spawn(move || std::io::copy(&mut shown, &mut std::io::sink()));
    assert!(top.wait().expect("it ends").success());
    let after = tcgetattr(&terminal.slave).expect("it is one");
    assert_eq!(after.local_flags, before.local_flags);
    seen
}

fn open_terminal() -> OpenptyResult {
    let size = Winsize {
        ws_row: 50,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    openpty(&size, None).expect("a terminal is to be had")
}

/// `freewheel top` on a terminal.
fn start_top(server: &Server, terminal: &OpenptyResult) -> Child {
    let end = || {
        let end = terminal.slave.try_clone();
        end.expect("descriptors are to be had")
    };
    let url = format!("http://127.0.0.1:{}/d", server.site().port(0));
    Command::new(binary())
        .args(["top", &url])
        .env("TERM", "xterm")
        .stdin(end())
        .stdout(end())
        .spawn()
        .expect("the program can be run")
}

#[test]
fn top_leaves_the_terminal_as_it_was_when_a_signal_ends_it() {
    if is_nginx() {
        return;
    }
    let server = start();
    let terminal = open_terminal();
    let before = tcgetattr(&terminal.slave).expect("it is one");
    let mut top = start_top(&server, &terminal);
    let mut shown = File::from(terminal.master);
    let (mut seen, mut piece) = (String::new(), [0; 4096]);
    while !seen.contains("blocked99") {
        let count = shown.read(&mut piece).expect("there is something to show");
        seen += &String::from_utf8_lossy(&piece[..count]);
    }
    assert_ne!(
        tcgetattr(&terminal.slave).expect("it is one").local_flags,
        before.local_flags
    );
    let pid = nix::unistd::Pid::from_raw(i32::try_from(top.id()).expect("it is one"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    std::thread::spawn(move || std::io::copy(&mut shown, &mut std::io::sink()));
    assert!(top.wait().expect("it ends").success());
    let after = tcgetattr(&terminal.slave).expect("it is one");
    assert_eq!(after.local_flags, before.local_flags);
}

/// What top says on standard error where it has no terminal, for a path of this server.
fn top_says(server: &Server, user: &str, path: &str) -> String {
    let url = format!("http://{user}127.0.0.1:{}{path}", server.site().port(0));
    let output = Command::new(binary()).args(["top", &url]).output();
    let output = output.expect("the program can be run");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn top_says_why_it_cannot_show_anything() {
    if is_nginx() {
        return;
    }
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; location / { return 200 x; } location = /d { dashboard; }
            location = /closed { dashboard; auth_basic x; auth_basic_user_file %DIR%/html/users; } }",
    );
    server.file("users", "me:{PLAIN}p@ss\n");
    let says = |user, path| top_says(&server, user, path);
    assert!(says("", "/other").contains("/other: there is no dashboard"));
    assert!(says("", "/closed").contains("it asks for a user and a password"));
    let wrong = says("me:wrong@", "/closed");
    assert!(
        wrong.contains("it asks for a user and a password") && !wrong.contains("wrong"),
        "{wrong}"
    );
    assert!(
        says("", "/d")
            .contains("top needs a terminal; for scripts there are status_json and metrics")
    );
    assert!(says("me:p@ss@", "/closed").contains("top needs a terminal"));
}

#[test]
fn top_comes_back_after_a_reload_and_says_that_the_server_has_gone() {
    if is_nginx() {
        return;
    }
    let configuration = |zone: &str| {
        format!(
            "server {{ listen 127.0.0.1:%PORT%; {DASHBOARD} location / {{ status_zone {zone}; return 200 x; }} }}"
        )
    };
    let mut server = Server::start(&configuration("first"));
    let terminal = open_terminal();
    let mut top = start_top(&server, &terminal);
    let mut shown = File::from(
        terminal
            .master
            .try_clone()
            .expect("descriptors are to be had"),
    );
    let mut wait_for = |text: &str| {
        let (mut seen, mut piece) = (String::new(), [0; 4096]);
        while !seen.contains(text) {
            let count = shown.read(&mut piece).expect("there is something to show");
            seen += &String::from_utf8_lossy(&piece[..count]);
        }
    };
    wait_for("freewheel top");
    // Letters of which none is where it was, since only what changes is drawn.
    server.reload(&configuration("QQQQQQ"));
    server.get("/");
    wait_for("QQQQQQ");
    server.quit();
    wait_for("Gone, asking again");
    let mut keys = File::from(terminal.master);
    keys.write_all(b"q").expect("it reads keys");
    std::thread::spawn(move || std::io::copy(&mut keys, &mut std::io::sink()));
    assert!(top.wait().expect("it ends").success());
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
