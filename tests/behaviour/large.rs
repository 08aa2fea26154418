//! Large configurations: the memory that they take, at the start and after reloads.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::fmt::Write as _;
use std::time::Instant;

use blackbox::{PATIENCE, Server, is_nginx};

/// Servers of the configuration, with three locations each.
const SERVERS: usize = 400;
/// With a copy of all settings for each location it was 34 MiB.
const MASTER_MAX_KIB: u64 = 10 << 10;
/// It was 36 MiB, and 71 after reloads.
const WORKER_MAX_KIB: u64 = 20 << 10;

fn many_servers(answer: &str) -> String {
    let mut text = String::new();
    for number in 0..SERVERS {
        write!(
            text,
            "server {{ listen 127.0.0.1:%PORT%; server_name s{number}.org www.s{number}.org; root html{number}; access_log off;
             location / {{ return 200 {answer}{number}; }}
             location /static/ {{ expires 30d; add_header X-Site {number}; }}
             location ~ \\.php$ {{ proxy_pass http://127.0.0.1:9; proxy_set_header Host $host; }} }}"
        )
        .expect("a text takes everything");
    }
    text
}

/// The anonymous memory of a process, in KiB.
fn anonymous_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no RssAnon in {status}"))
}

fn worker_of(server: &Server) -> i32 {
    let master = server.pid();
    let children = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children"));
    let children = children.expect("the master lives");
    let worker = children.split_whitespace().next();
    worker
        .and_then(|pid| pid.parse().ok())
        .expect("it has a worker")
}

/// Waits until a process has given back what it does not need.
fn settle(pid: i32, most_kib: u64, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while anonymous_kib(pid) > most_kib {
        assert!(
            Instant::now() < deadline,
            "{what} has {} KiB, {most_kib} at most",
            anonymous_kib(pid)
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn hundreds_of_servers_take_what_they_say_and_reloads_no_more() {
    if is_nginx() {
        return;
    }
    let server = Server::start(&many_servers("first"));
    let (master, worker) = (server.pid(), worker_of(&server));
    let ask = |number: usize| format!("GET / HTTP/1.1\r\nHost: s{number}.org\r\n\r\n");
    let mut kept = server.connect();
    assert_eq!(kept.send(ask(399)).reply().text(), "first399");
    settle(master, MASTER_MAX_KIB, "the master");
    settle(worker, WORKER_MAX_KIB, "the worker");
    for turn in 0..3 {
        server.reload(&many_servers(&format!("turn{turn}_")));
        // A connection that only waits keeps no old configuration.
        let _another = server.connect();
    }
    settle(master, MASTER_MAX_KIB, "the master after three reloads");
    settle(worker, WORKER_MAX_KIB, "the worker after three reloads");
    assert_eq!(worker_of(&server), worker);
    assert_eq!(kept.send(ask(7)).reply().text(), "turn2_7");
}
