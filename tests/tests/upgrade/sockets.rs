//! What becomes of listening sockets, and of the files of unix sockets, where the two programs have not the same.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use blackbox::is_running;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::daemon::{Daemon, until, worker_on};

/// A configuration with so many loops, and these lines in its server.
fn text(loops: usize, lines: &str) -> String {
    format!(
        "worker_processes {loops}; pid nginx.pid; error_log logs/error.log info; events {{ }}
         http {{ server {{ listen 127.0.0.1:%PORT%; {lines} location / {{ return 200 $pid; }} }} }}"
    )
}

/// Ends the new program, and waits until the old one is alone.
fn go_back(daemon: &Daemon, (old, new): (Pid, Pid)) {
    kill(new, Signal::SIGQUIT).unwrap();
    until("the end of the new master", || !is_running(new));
    until("the old name", || daemon.number("nginx.pid") == Some(old));
}

#[test]
fn each_program_removes_the_files_of_the_sockets_that_it_alone_has() {
    let daemon = Daemon::start(&text(1, "listen unix:%DIR%/both; listen unix:%DIR%/old;"));
    let path = |name: &str| daemon.0.path(name);
    let new_text = text(1, "listen unix:%DIR%/both; listen unix:%DIR%/new;");
    daemon.0.configure(&new_text);
    let (old, new) = daemon.upgrade();
    until("the new socket", || path("new").exists());
    // A reload of the new program that drops a socket of both leaves it to the old one.
    daemon.0.configure(&text(1, "listen unix:%DIR%/new;"));
    kill(new, Signal::SIGHUP).unwrap();
    daemon.wait_for_log("is served now", 1);
    assert!(UnixStream::connect(path("both")).is_ok());
    go_back(&daemon, (old, new));
    assert!(path("both").exists() && path("old").exists());
    assert!(!path("new").exists());
    daemon.0.configure(&new_text);
    kill(old, Signal::SIGHUP).unwrap();
    daemon.wait_for_log("is served now", 2);
    let mut stream = UnixStream::connect(path("new")).unwrap();
    assert!(worker_on(&mut stream).is_some());
    assert!(!path("old").exists());
    // Forwards.
    daemon.0.configure(&text(1, "listen unix:%DIR%/both;"));
    let (old, _) = daemon.upgrade();
    kill(old, Signal::SIGQUIT).unwrap();
    until("the end of the old master", || !is_running(old));
    assert!(path("both").exists() && !path("new").exists());
}

#[test]
fn a_server_that_is_told_to_end_starts_no_other() {
    for end in [Signal::SIGTERM, Signal::SIGQUIT] {
        let daemon = Daemon::start(&text(1, ""));
        let master = daemon.master();
        kill(master, Signal::SIGSTOP).unwrap();
        for signal in [Signal::SIGUSR2, end, Signal::SIGCONT] {
            kill(master, signal).unwrap();
        }
        until("the end", || !is_running(master));
        assert!(!daemon.0.path("nginx.pid").exists());
        assert!(!daemon.0.path("nginx.pid.oldbin").exists());
        let log = daemon.log();
        assert!(!log.contains("start new binary process"), "{log}");
    }
}

#[test]
fn a_reload_that_is_asked_for_together_with_an_upgrade_comes_first() {
    let daemon = Daemon::start(&text(1, ""));
    let master = daemon.master();
    daemon.0.configure(&text(2, "listen 127.0.0.1:%PORT1%;"));
    kill(master, Signal::SIGSTOP).unwrap();
    for signal in [Signal::SIGUSR2, Signal::SIGHUP, Signal::SIGCONT] {
        kill(master, signal).unwrap();
    }
    until("both pid files", || {
        daemon.number("nginx.pid.oldbin") == Some(master) && daemon.number("nginx.pid").is_some()
    });
    let log = daemon.log();
    let at = |text: &str| log.find(text);
    assert!(at("is served now").is_some(), "{log}");
    assert!(
        at("is served now") < at("start new binary process"),
        "{log}"
    );
    assert!(!log.contains("bind() to"), "{log}");
}

/// The numbers of connections that wait at the sockets that listen on a port (proc_pid_net(5), `tcp`: `rx_queue`).
fn waiting(port: u16) -> Vec<u32> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let of_line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (_, local) = words.get(1)?.split_once(':')?;
        (u16::from_str_radix(local, 16) == Ok(port) && words[3] == "0A").then_some(())?;
        let (_, waits) = words[4].split_once(':')?;
        u32::from_str_radix(waits, 16).ok()
    };
    table.lines().filter_map(of_line).collect()
}

#[test]
fn a_new_program_that_serves_again_has_connections_at_all_of_its_sockets() {
    let daemon = Daemon::start(&text(1, ""));
    daemon.0.configure(&text(4, ""));
    let (old, new) = daemon.upgrade();
    let port = daemon.0.port(0);
    until("four sockets", || waiting(port).len() == 4);
    kill(new, Signal::SIGWINCH).unwrap();
    daemon.wait_for_log("exited with code 0", 1);
    kill(new, Signal::SIGHUP).unwrap();
    daemon.wait_for_log("start worker process ", 3);
    kill(old, Signal::SIGQUIT).unwrap();
    until("the end of the old master", || !is_running(old));
    let worker = Pid::from_raw(daemon.ask());
    // The master ends the steering once it knows that its worker serves, and threads stop one after the other.
    until("connections at all sockets", || {
        kill(worker, Signal::SIGSTOP).unwrap();
        let _clients = [(); 64].map(|()| TcpStream::connect(("127.0.0.1", port)).unwrap());
        let waits = waiting(port);
        kill(worker, Signal::SIGCONT).unwrap();
        waits.iter().all(|&count| count > 0)
    });
}
