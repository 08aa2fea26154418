//! Workers that cannot start, cannot take a configuration, or lose their master: what is served goes on.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use blackbox::{PATIENCE, Server, is_nginx, is_running, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::upstreams::name_server;

const ONE: &str = "server { listen 127.0.0.1:%PORT%; limit_rate 200k; location = / { return 200 one; } location / { } }";
const TWO: &str = "server { listen 127.0.0.1:%PORT%; limit_rate 200k; location = / { return 200 two; } location / { } }";
/// Size in bytes of a file that is sent for a second or two.
const SLOW_BYTES: usize = 300_000;

/// The text of a configuration with these lines beside `http`.
fn around(main: &str, http: &str) -> String {
    format!(
        "daemon off; pid nginx.pid; error_log logs/error.log info; {main}\nevents {{ }}\n\
         http {{ root %DIR%/html; access_log logs/access.log;\n{http} }}"
    )
}

/// Children of the master, zombies too.
fn children(server: &Server) -> Vec<Pid> {
    let master = server.pid();
    let path = format!("/proc/{master}/task/{master}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    let numbers = children.split_whitespace().flat_map(str::parse);
    numbers.map(Pid::from_raw).collect()
}

/// The server's one worker.
fn worker(server: &Server) -> Pid {
    let all = children(server);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0]
}

/// Limits the processes and threads of a process's user, for this process. Only its own user may, or who has the rights.
fn limit_threads(process: Pid, most: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it lives");
    let id = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let mut command = Command::new("prlimit");
    command.args(["--pid", &process.to_string(), &format!("--nproc={most}:")]);
    command.uid(id("Uid:").expect("it has one"));
    command.gid(id("Gid:").expect("it has one"));
    command.status().is_ok_and(|status| status.success())
}

/// Takes that limit away.
fn end_limit_of_threads(process: Pid) {
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).expect("it lives");
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max processes"));
    let hard = line.and_then(|line| line.split_whitespace().nth(1));
    assert!(limit_threads(process, hard.expect("it has one")));
}

#[test]
fn names_are_resolved_and_metrics_shown_once_threads_can_be_started_again() {
    if is_nginx() {
        return;
    }
    let names = name_server();
    let server = Server::start(&format!(
        "resolver 127.0.0.1:{};
         server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_pass http://$arg_n:%PORT1%; }}
             location = /metrics {{ metrics; }} }}
         server {{ listen 127.0.0.1:%PORT1%; return 200 one; }}",
        names.port
    ));
    let process = worker(&server);
    if !limit_threads(process, "1") {
        println!("skipped: there is no prlimit(1)");
        return;
    }
    assert_eq!(server.get("/?n=x.test").status, 502);
    assert_eq!(server.get("/metrics").status, 503);
    server.wait_for(
        "the resolver's thread cannot be started (11: Resource temporarily unavailable)",
        "the reason",
    );
    end_limit_of_threads(process);
    until("the name is resolved", PATIENCE, || {
        (server.get("/?n=x.test").text() == "one").then_some(())
    });
    assert_eq!(server.get("/metrics").status, 200);
    assert_eq!(worker(&server), process);
    server.forget_log();
}

#[test]
fn a_reload_for_which_no_thread_can_be_started_is_refused_and_cuts_nothing() {
    if is_nginx() {
        return;
    }
    let server = Server::start(ONE);
    server.file("large", vec![b'x'; SLOW_BYTES]);
    let process = worker(&server);
    let mut download = server.connect();
    download.send("GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    download.read(1000);
    if !limit_threads(process, "1") {
        println!("skipped: there is no prlimit(1)");
        return;
    }
    server.reload_file(&around("", TWO));
    server.wait_for(
        "a helper thread cannot be started (11: Resource temporarily unavailable)",
        "the refusal",
    );
    assert_eq!(server.get("/").text(), "one");
    assert!(download.rest().len() > SLOW_BYTES - 1000, "it ends whole");
    assert_eq!(worker(&server), process);
    end_limit_of_threads(process);
    server.signal(Signal::SIGHUP);
    until("the next reload is taken", PATIENCE, || {
        (server.get("/").text() == "two").then_some(())
    });
    assert_eq!(worker(&server), process);
    server.forget_log();
}

#[test]
fn a_worker_that_dies_before_it_has_read_what_to_serve_is_told_of_and_waited_for() {
    if is_nginx() {
        return;
    }
    let server = Server::start(ONE);
    let process = worker(&server);
    let library = server.site().path("broken/libc.so.6");
    std::fs::create_dir(server.site().path("broken")).expect("the directory is ours");
    std::fs::write(library, "no library").expect("the directory is ours");
    // More than the socket between them takes.
    let long = format!("{TWO}\n{}", "# filler\n".repeat(120_000));
    let main = "env LD_LIBRARY_PATH=%DIR%/broken;";
    server.reload_file(&around(main, &long));
    server.wait_for("a worker process cannot be started (", "the refusal");
    server.wait_for("exited with code 127", "why");
    until("nothing is left of it", PATIENCE, || {
        (children(&server) == [process]).then_some(())
    });
    assert_eq!(server.get("/").text(), "one");
    server.forget_log();
}

#[test]
fn a_worker_whose_master_dies_behind_a_reload_ends_what_it_has_begun() {
    if is_nginx() {
        return;
    }
    let mut server = Server::start(ONE);
    server.file("large", vec![b'x'; SLOW_BYTES]);
    let process = worker(&server);
    let mut download = server.connect();
    download.send("GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    download.read(1000);
    // Long enough to be built that the master stands before the worker answers.
    let many: String = (0..20_000)
        .map(|number| format!("location = /{number} {{ return 200 {number}; }}\n"))
        .collect();
    let long = TWO.replace("location / { }", &format!("location / {{ }} {many}"));
    server.reload_file(&around("", &long));
    let tasks = format!("/proc/{process}/task");
    until("the worker builds it", PATIENCE, || {
        let mut tasks = std::fs::read_dir(&tasks).ok()?.flatten();
        let builds = |name: String| name == "settings\n";
        tasks
            .any(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(builds))
            .then_some(())
    });
    let master = Pid::from_raw(server.pid());
    kill(master, Signal::SIGSTOP).expect("the master lives");
    until("the worker serves it", PATIENCE, || {
        (server.get("/").text() == "two").then_some(())
    });
    kill(master, Signal::SIGKILL).expect("the master lives");
    assert!(download.rest().len() > SLOW_BYTES - 1000, "it ends whole");
    until("the worker has left", PATIENCE, || {
        (!is_running(process)).then_some(())
    });
    let log = server.error_log();
    assert!(log.contains("the master process has gone"), "{log}");
    server.site().configure(&around("", ONE));
    server.restart_killed();
    server.forget_log();
}

#[test]
fn loops_that_a_refused_reload_would_have_added_lose_no_connection() {
    if is_nginx() {
        return;
    }
    let server = Server::start_with("worker_processes 1;", ONE);
    let taken = TcpListener::bind(("127.0.0.1", server.site().port(1))).expect("the port is ours");
    let both = TWO.replace("%PORT%;", "%PORT%; listen 127.0.0.1:%PORT1%;");
    server.reload_file(&around("worker_processes 4;", &both));
    server.wait_for("try again to bind()", "the address is in use");
    for _ in 0..100 {
        assert_eq!(server.get("/").text(), "one");
    }
    server.wait_for("still could not bind()", "the refusal");
    assert_eq!(server.get("/").text(), "one");
    drop(taken);
    server.signal(Signal::SIGHUP);
    until("the next reload is taken", PATIENCE, || {
        (server.get("/").text() == "two").then_some(())
    });
    let listens = format!(":{:04X} 00000000:0000 0A ", server.site().port(0));
    // The first loop answers before the others listen.
    until("all loops listen", PATIENCE, || {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("there is TCP");
        (table.matches(&listens).count() == 4).then_some(())
    });
    server.forget_log();
}

#[test]
fn a_refused_reload_leaves_the_logs_as_they_are() {
    if is_nginx() {
        return;
    }
    let zone =
        |key: &str, log: &str| format!("{log} limit_req_zone {key} zone=z:1m rate=9r/s; {ONE}");
    let server = Server::start(&zone("$binary_remote_addr", ""));
    let file = "http { root %DIR%/html; access_log logs/access.log";
    let buffered = format!("{file} combined gzip buffer=64k flush=1h");
    let text = around("", &zone("$uri", "")).replace(file, &buffered);
    assert!(text.contains(&buffered));
    server.reload_file(&text);
    server.wait_for("the old one goes on", "the refusal");
    server.get("/");
    assert!(server.access_log(1).contains("GET / HTTP/1.1"));
    // The same buffer in a configuration that is served holds.
    let text = around("", &zone("$binary_remote_addr", "")).replace(file, &buffered);
    server.reload_file(&text);
    server.wait_for("is served now", "the reload");
    server.get("/");
    let mut server = server;
    server.forget_log();
    server.quit();
    let log = std::fs::read(server.site().path("logs/access.log")).expect("it is there");
    let line = log.iter().position(|&byte| byte == b'\n').expect("a line");
    assert_eq!(log[line + 1..][..2], [0x1f, 0x8b], "a gzip member follows");
}

#[test]
fn a_reload_with_more_loops_has_the_descriptors_of_all() {
    if is_nginx() {
        return;
    }
    let server = Server::start_with("worker_processes 1; worker_rlimit_nofile 200;", ONE);
    let limit = || {
        let process = *children(&server).last()?;
        let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).ok()?;
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    assert_eq!(limit(), Some(200));
    server.reload_with("worker_processes 4; worker_rlimit_nofile 200;", TWO);
    assert_eq!(limit(), Some(800));
    assert_eq!(server.get("/").text(), "two");
}
