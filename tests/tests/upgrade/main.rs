//! The program is replaced while it serves: USR2, WINCH, QUIT and HUP, as nginx has them.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: no event loop, and a failure is a panic"
)]

mod daemon;
mod handovers;
mod load;
mod script;
mod sockets;
mod terminal;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use blackbox::{Answer, Origin, PATIENCE, Site, is_running};
use daemon::{Daemon, until, worker_on};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PLAIN: &str = "worker_processes 2; pid nginx.pid; error_log logs/error.log info; events { }
    http { server { listen 127.0.0.1:%PORT%; listen unix:%DIR%/s; location / { return 200 $pid; } } }";

#[test]
fn the_new_program_takes_the_place_of_the_old_one() {
    let daemon = Daemon::start(PLAIN);
    let first = daemon.ask();
    let (old, new) = daemon.upgrade();
    let log = daemon.log();
    for line in [
        "(SIGUSR2) received from",
        "changing binary",
        "start new binary process",
        "using inherited sockets from \"",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    kill(old, Signal::SIGWINCH).unwrap();
    daemon.wait_for_log(&format!("worker process {first} exited with code 0"), 1);
    assert!(is_running(old), "its master waits");
    let second = daemon.ask();
    assert_ne!(second, first);
    kill(old, Signal::SIGQUIT).unwrap();
    until("the end of the old master", || !is_running(old));
    assert!(!daemon.0.path("nginx.pid.oldbin").exists());
    assert_eq!((daemon.master(), daemon.ask()), (new, second));
    let mut stream = UnixStream::connect(daemon.0.path("s")).unwrap();
    assert_eq!(worker_on(&mut stream), Some(second));
    // It is a master like any other.
    kill(new, Signal::SIGHUP).unwrap();
    daemon.wait_for_log("is served now", 1);
    kill(new, Signal::SIGQUIT).unwrap();
    until("the end", || !daemon.0.path("nginx.pid").exists());
    until("no socket", || !daemon.0.path("s").exists());
}

#[test]
fn hup_leads_back_to_the_old_program() {
    let daemon = Daemon::start(PLAIN);
    let (old, new) = daemon.upgrade();
    kill(old, Signal::SIGWINCH).unwrap();
    daemon.wait_for_log("exited with code 0", 1);
    let second = daemon.ask();
    kill(old, Signal::SIGHUP).unwrap();
    daemon.wait_for_log("start worker process ", 3);
    kill(new, Signal::SIGQUIT).unwrap();
    until("the end of the new master", || !is_running(new));
    until("the old name", || daemon.number("nginx.pid") == Some(old));
    assert!(!daemon.0.path("nginx.pid.oldbin").exists());
    assert_ne!(daemon.ask(), second);
    assert!(UnixStream::connect(daemon.0.path("s")).is_ok());
    daemon.wait_for_log(&format!("new binary process {new} exited with code 0"), 1);
    // The next attempt may follow.
    daemon.upgrade();
}

#[test]
fn templates_have_the_same_environment_after_an_upgrade() {
    let site = Site::new().with_environment("FW_TEXT", "from outside");
    let template = "return 200 \"$pid ${FW_TEXT}\\n\";";
    std::fs::write(site.path("a.template"), template).unwrap();
    let daemon = Daemon::start_at(
        site,
        "events { } error_log logs/error.log info; pid nginx.pid;
         http { server { listen 127.0.0.1:%PORT%; include_template a.template; } }",
    );
    let (old, _) = daemon.upgrade();
    kill(old, Signal::SIGQUIT).unwrap();
    until("the end of the old master", || !is_running(old));
    let mut stream = TcpStream::connect(("127.0.0.1", daemon.0.port(0))).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.ends_with(" from outside\n"), "{text}");
}

#[test]
fn a_new_program_that_cannot_serve_changes_nothing() {
    let daemon = Daemon::start(PLAIN);
    let (old, first) = (daemon.master(), daemon.ask());
    std::fs::write(daemon.0.path("nginx.conf"), "http { nonsense; }").unwrap();
    kill(old, Signal::SIGUSR2).unwrap();
    daemon.wait_for_log("exited with code 1", 1);
    until("the old name", || daemon.number("nginx.pid") == Some(old));
    assert!(!daemon.0.path("nginx.pid.oldbin").exists());
    assert_eq!(daemon.ask(), first);
}

#[test]
fn the_old_program_serves_again_when_the_new_one_is_killed() {
    let daemon = Daemon::start(PLAIN);
    let first = daemon.ask();
    let (old, new) = daemon.upgrade();
    kill(old, Signal::SIGWINCH).unwrap();
    daemon.wait_for_log(&format!("worker process {first} exited with code 0"), 1);
    let second = daemon.ask();
    kill(new, Signal::SIGKILL).unwrap();
    daemon.wait_for_log(&format!("new binary process {new} exited on signal 9"), 1);
    until("the old name", || daemon.number("nginx.pid") == Some(old));
    until("the old program's worker", || {
        ![first, second].contains(&daemon.ask())
    });
}

#[test]
fn the_new_program_goes_on_when_the_old_one_is_killed() {
    let daemon = Daemon::start(PLAIN);
    let first = daemon.ask();
    let (old, new) = daemon.upgrade();
    kill(old, Signal::SIGKILL).unwrap();
    until("the old worker has left", || {
        !is_running(Pid::from_raw(first))
    });
    assert_ne!(daemon.ask(), first);
    assert_eq!(daemon.master(), new);
    // Nothing is left in the way of the next upgrade.
    std::fs::remove_file(daemon.0.path("nginx.pid.oldbin")).unwrap();
    let (before, after) = daemon.upgrade();
    assert!(before == new && after != new);
}

#[test]
fn one_upgrade_at_a_time() {
    let daemon = Daemon::start(PLAIN);
    let (old, new) = daemon.upgrade();
    kill(old, Signal::SIGUSR2).unwrap();
    kill(new, Signal::SIGUSR2).unwrap();
    until("both are refused", || {
        let log = daemon.log();
        let lines = log.lines().filter(|line| line.contains("(SIGUSR2)"));
        lines.filter(|line| line.ends_with(", ignoring")).count() == 2
            && log.matches("the changing binary signal is ignored").count() == 2
    });
    kill(new, Signal::SIGTERM).unwrap();
    until("the old name", || daemon.number("nginx.pid") == Some(old));
    assert!(UnixStream::connect(daemon.0.path("s")).is_ok());
}

#[test]
fn a_server_in_the_foreground_is_upgraded_and_the_service_manager_told() {
    let site = Site::new();
    let manager = UnixDatagram::bind(site.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut text = [0; 256];
        let length = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let site = site.with_environment("NOTIFY_SOCKET", "%DIR%/notify");
    site.configure(&format!("daemon off; {PLAIN}"));
    let mut child = site.command().stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(told(), "READY=1");
    let daemon = Daemon(site);
    kill(daemon.master(), Signal::SIGHUP).unwrap();
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(told(), "READY=1");
    let (old, new) = daemon.upgrade();
    kill(old, Signal::SIGWINCH).unwrap();
    daemon.wait_for_log("stop accepting connections", 1);
    kill(old, Signal::SIGQUIT).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(told(), format!("READY=1\nMAINPID={new}"));
    daemon.ask();
    kill(new, Signal::SIGQUIT).unwrap();
    assert_eq!(told(), "STOPPING=1");
}

#[test]
fn no_request_is_lost() {
    let daemon = Daemon::start(PLAIN);
    let is_over = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicUsize::new(0));
    let port = daemon.0.port(0);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (is_over, answered) = (Arc::clone(&is_over), Arc::clone(&answered));
            std::thread::spawn(move || {
                while !is_over.load(Relaxed) {
                    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                    worker_on(&mut stream).expect("each request has its answer");
                    answered.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    let some = || {
        let before = answered.load(Relaxed);
        until("requests", || answered.load(Relaxed) > before + 50);
    };
    for _ in 0..3 {
        let (old, _) = daemon.upgrade();
        some();
        kill(old, Signal::SIGWINCH).unwrap();
        some();
        kill(old, Signal::SIGQUIT).unwrap();
        until("the end of the old master", || !is_running(old));
        some();
    }
    is_over.store(true, Relaxed);
    for client in clients {
        client.join().unwrap();
    }
}

/// An origin of storable answers: small ones, large ones below `/large`, and below `/varies` by a header field.
fn varied() -> Origin {
    Origin::start(|asked| {
        let vary = match asked.target().starts_with("/varies") {
            true => "Vary: X-Kind\r\n",
            false => "",
        };
        let headers = format!("Cache-Control: max-age=3600\r\n{vary}");
        let kind = asked.header("X-Kind").unwrap_or_default();
        let seed = format!("{}{kind} ", asked.target());
        let length = if asked.target().starts_with("/large") {
            700_000
        } else {
            900
        };
        Answer::with("200 OK", &headers, seed.repeat(length / seed.len()))
    })
}

#[test]
fn caches_change_hands() {
    let origin = varied();
    let daemon = Daemon::start(&format!(
        "worker_processes 2; pid nginx.pid; error_log logs/error.log info; events {{ }}
         http {{ proxy_cache_path %DIR%/cache keys_zone=c:1m max_size=100m;
         server {{ listen 127.0.0.1:%PORT%; proxy_cache c; location / {{ proxy_pass http://{}; }} }} }}",
        origin.address()
    ));
    let port = daemon.0.port(0);
    let ask = |path: &str, kind: &str| {
        let mut client =
            blackbox::Connection::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nX-Kind: {kind}\r\nConnection: close\r\n\r\n"
        );
        let reply = client.send(head).reply();
        let seed = format!("{path}{kind} ");
        assert_eq!(reply.status, 200);
        assert!(
            reply.text().starts_with(&seed) && reply.text().ends_with(&seed),
            "{path}"
        );
    };
    let names: Vec<String> = (0..20)
        .map(|number| format!("/small{number}"))
        .chain((0..3).map(|number| format!("/large{number}")))
        .collect();
    let ask_all = || {
        for name in &names {
            ask(name, "");
        }
        ["a", "b"].iter().for_each(|kind| ask("/varies", kind));
    };
    let times = |name: &str| {
        let all = origin.received();
        all.iter().filter(|asked| asked.target() == name).count()
    };
    ask_all();
    let stored = origin.received().len();
    until("all is stored", || {
        ask_all();
        origin.received().len() == stored
    });
    daemon.wait_for_log("all of the directory was looked at", 1);
    let known = daemon.log().matches("entries known").count();
    for round in 0..3 {
        let (old, _) = daemon.upgrade();
        daemon.wait_for_log("is in use by another process", round + 1);
        (0..4).for_each(|_| ask_all());
        kill(old, Signal::SIGWINCH).unwrap();
        (0..4).for_each(|_| ask_all());
        daemon.wait_for_log("entries left to another process", round + 1);
        daemon.wait_for_log("entries known", known + round + 1);
        assert_eq!(origin.received().len(), stored + round, "round {round}");
        // The new owner stores.
        let name = format!("/new{round}");
        ask(&name, "");
        until("it is stored", || {
            let before = times(&name);
            ask(&name, "");
            times(&name) == before
        });
        assert_eq!(times(&name), 1, "{}", daemon.log());
        kill(old, Signal::SIGQUIT).unwrap();
        until("the end of the old master", || !is_running(old));
    }
}

#[test]
fn a_cache_on_a_device_goes_over_to_the_new_program_and_back() {
    let site = Site::new();
    if site.device("device", 20 << 20).is_none() {
        return;
    }
    let origin = Origin::start(|_| {
        Answer::with(
            "200 OK",
            "Cache-Control: max-age=600\r\n",
            "stored".repeat(2000),
        )
    });
    let address = origin.address();
    let daemon = Daemon::start_at(
        site,
        &format!(
            "worker_processes 2; pid nginx.pid; error_log logs/error.log info; events {{ }}
             http {{ proxy_cache_path %DIR%/device files=%DIR%/cache keys_zone=c:1m;
             server {{ listen 127.0.0.1:%PORT%; add_header X-Cache $upstream_cache_status;
             location = / {{ return 200 $pid; }}
             location / {{ proxy_cache c; proxy_pass http://{address}; }} }} }}"
        ),
    );
    let hits = || {
        until("a hit", || {
            let mut stream = TcpStream::connect(("127.0.0.1", daemon.0.port(0))).unwrap();
            stream.write_all(b"GET /a HTTP/1.0\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert!(text.ends_with("stored"), "{text}");
            text.contains("X-Cache: HIT")
        });
    };
    hits();
    let asked = origin.received().len();
    // The line of a start says more behind it.
    let taken_over = "1 entries known\n";
    let (old, new) = daemon.upgrade();
    kill(old, Signal::SIGWINCH).unwrap();
    daemon.wait_for_log(taken_over, 1);
    hits();
    // Back.
    kill(old, Signal::SIGHUP).unwrap();
    daemon.wait_for_log("start worker process ", 3);
    kill(new, Signal::SIGQUIT).unwrap();
    until("the end of the new master", || !is_running(new));
    daemon.wait_for_log(taken_over, 2);
    hits();
    let (old, new) = daemon.upgrade();
    kill(old, Signal::SIGQUIT).unwrap();
    until("the end of the old master", || !is_running(old));
    daemon.wait_for_log(taken_over, 3);
    hits();
    assert!(is_running(new));
    assert_eq!(origin.received().len(), asked, "nothing was lost");
}
