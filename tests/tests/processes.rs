//! Master and worker from outside: start, signals, reload, the command line.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: no event loop, and a failure is a panic"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use blackbox::{PATIENCE, Site};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PLAIN: &str = "daemon off; pid nginx.pid; error_log logs/error.log info; events { }
    http { server { listen 127.0.0.1:%PORT%; } }";

/// A master that the test ends itself; killed if the test fails before.
struct Master {
    site: Site,
    child: Child,
}

impl Master {
    fn start(text: &str) -> Self {
        let site = Site::new();
        site.configure(text);
        let child = site.command().stderr(Stdio::piped()).spawn().unwrap();
        let master = Self { site, child };
        // It is there before its line is.
        until("the pid file", || {
            std::fs::read_to_string(master.site.path("nginx.pid")).is_ok_and(|pid| !pid.is_empty())
        });
        master
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.site.path("logs/error.log")).unwrap()
    }

    fn wait_for_log(&self, text: &str, count: usize) {
        until(text, || self.log().matches(text).count() >= count);
    }

    fn reload(&self, text: &str) {
        let before = self.log().matches("exited with code 0").count();
        self.site.configure(text);
        self.signal(Signal::SIGHUP);
        self.wait_for_log("exited with code 0", before + 1);
    }

    fn worker(&self) -> i32 {
        let log = self.log();
        let line = log
            .lines()
            .rev()
            .find(|line| line.contains("start worker process "))
            .unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn is_answering(&self) -> bool {
        ask(self.site.port(0)).is_some()
    }

    fn ends(mut self, signal: Signal) -> String {
        self.signal(signal);
        let mut status = None;
        until("the master ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{}", self.log());
        assert!(
            !self.site.path("nginx.pid").exists(),
            "the pid file goes with the master"
        );
        self.log()
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    blackbox::until(what, PATIENCE, || is_so().then_some(()));
}

/// The first line of an answer; `None` when the connection broke before it.
fn ask(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    ask_on(&mut stream)
}

fn ask_on(stream: &mut (impl Read + Write)) -> Option<String> {
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .ok()?;
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece).ok().filter(|&count| count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            let is_last = head.to_ascii_lowercase().contains("connection: close");
            return Some(format!(
                "{}{}",
                head.lines().next()?,
                if is_last { " last" } else { "" }
            ));
        }
    }
}

#[test]
fn quit_term_and_int_end_the_master() {
    for signal in [Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGINT] {
        let master = Master::start(PLAIN);
        assert!(master.is_answering());
        let pid = std::fs::read_to_string(master.site.path("nginx.pid")).unwrap();
        assert_eq!(pid, format!("{}\n", master.pid()));
        let log = master.ends(signal);
        assert!(log.contains("exited with code 0"), "{log}");
        assert!(!log.contains("[alert]") && !log.contains("[crit]"), "{log}");
    }
}

#[test]
fn quit_closes_idle_connections_and_unix_sockets() {
    let master = Master::start(&PLAIN.replace("server {", "server { listen unix:%DIR%/socket;"));
    let path = master.site.path("socket");
    let mut stream = UnixStream::connect(&path).unwrap();
    ask_on(&mut stream).unwrap();
    let started = Instant::now();
    master.ends(Signal::SIGQUIT);
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "it waits for keepalive_timeout"
    );
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert!(!path.exists());
}

#[test]
fn a_bad_file_on_reload_leaves_everything_as_it_was() {
    let master = Master::start(PLAIN);
    let worker = master.worker();
    master.site.configure("daemon off; nosuch on;");
    master.signal(Signal::SIGHUP);
    master.wait_for_log("[emerg]", 1);
    assert!(master.is_answering());
    assert_eq!(master.worker(), worker);
    let log = master.ends(Signal::SIGQUIT);
    assert!(log.contains("unknown directive \"nosuch\" in "), "{log}");
}

#[test]
fn a_port_that_is_taken_on_reload_leaves_everything_as_it_was() {
    let master = Master::start(PLAIN);
    let other = std::net::TcpListener::bind(("127.0.0.1", master.site.port(1))).unwrap();
    master
        .site
        .configure(&PLAIN.replace("server {", "server { listen 127.0.0.1:%PORT1%;"));
    master.signal(Signal::SIGHUP);
    master.wait_for_log("still could not bind()", 1);
    assert!(master.is_answering());
    drop(other);
    master.ends(Signal::SIGQUIT);
}

#[test]
fn reload_opens_new_addresses_and_closes_old_ones() {
    let master = Master::start(PLAIN);
    let worker = master.worker();
    master.reload(&PLAIN.replace("%PORT%", "%PORT1%"));
    assert!(ask(master.site.port(1)).is_some());
    until("the old port is closed", || {
        TcpStream::connect(("127.0.0.1", master.site.port(0))).is_err()
    });
    assert_eq!(master.worker(), worker, "the same process serves on");
    master.ends(Signal::SIGQUIT);
}

#[test]
fn a_change_that_needs_a_new_process_gets_one() {
    let master = Master::start(PLAIN);
    let worker = master.worker();
    let mut kept = TcpStream::connect(("127.0.0.1", master.site.port(0))).unwrap();
    ask_on(&mut kept).unwrap();
    master.reload(&format!("env A=b; {PLAIN}"));
    assert_ne!(master.worker(), worker);
    assert!(master.is_answering());
    let log = master.ends(Signal::SIGQUIT);
    assert!(
        log.contains(&format!("worker process {worker} exited with code 0")),
        "{log}"
    );
}

#[test]
fn loops_shrink_and_grow_under_load_and_no_request_is_lost() {
    let with = |loops: usize| format!("worker_processes {loops}; {PLAIN}");
    let master = Master::start(&with(16));
    let port = master.site.port(0);
    let (is_over, asked) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let (is_over, asked) = (Arc::clone(&is_over), Arc::clone(&asked));
            std::thread::spawn(move || {
                let mut kept: Option<TcpStream> = None;
                while !is_over.load(Ordering::Relaxed) {
                    if number % 2 == 0 {
                        ask(port).expect("a fresh connection is answered");
                    } else {
                        let mut stream = kept
                            .take()
                            .unwrap_or_else(|| TcpStream::connect(("127.0.0.1", port)).unwrap());
                        let line = ask_on(&mut stream).expect("a kept connection is answered");
                        // One that was told to close is not asked again.
                        kept = (!line.ends_with(" last")).then_some(stream);
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for loops in [2, 16, 1, 4] {
        let before = asked.load(Ordering::Relaxed);
        master.reload(&with(loops));
        until("more requests", || {
            asked.load(Ordering::Relaxed) > before + 50
        });
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("no request was lost");
    }
    master.ends(Signal::SIGQUIT);
}

#[test]
fn a_worker_that_dies_is_replaced_on_the_same_sockets() {
    let master = Master::start(PLAIN);
    let worker = master.worker();
    kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
    // The sockets stay open: this connection waits for the next worker.
    assert!(master.is_answering());
    assert_ne!(master.worker(), worker);
    let log = master.ends(Signal::SIGQUIT);
    assert!(
        log.contains(&format!("[alert] {}#", log_process(&log))),
        "{log}"
    );
    assert!(
        log.contains(&format!("worker process {worker} exited on signal 9")),
        "{log}"
    );
}

fn log_process(log: &str) -> String {
    let line = log
        .lines()
        .find(|line| line.contains("start worker processes"))
        .unwrap();
    let from = line.find("] ").unwrap() + 2;
    line[from..].split('#').next().unwrap().to_owned()
}

#[test]
fn usr1_opens_logs_anew_and_tells_figures() {
    let master = Master::start(PLAIN);
    assert!(master.is_answering());
    std::fs::rename(
        master.site.path("logs/error.log"),
        master.site.path("logs/old.log"),
    )
    .unwrap();
    master.signal(Signal::SIGUSR1);
    until("a new log", || master.site.path("logs/error.log").exists());
    master.wait_for_log("event_loop_blocked p50", 1);
    master.wait_for_log("logs: ", 1);
    master.ends(Signal::SIGQUIT);
}

#[test]
fn winch_changes_nothing_in_the_foreground() {
    let master = Master::start(PLAIN);
    master.signal(Signal::SIGWINCH);
    assert!(master.is_answering());
    let log = master.ends(Signal::SIGQUIT);
    assert!(!log.contains("stop accepting connections"));
}

#[test]
fn a_second_instance_fails_with_nginx_s_error() {
    let master = Master::start(PLAIN);
    let text = PLAIN
        .replace("%PORT%", &master.site.port(0).to_string())
        .replace("nginx.pid", "other.pid");
    std::fs::write(master.site.path("other.conf"), master.site.fill(&text)).unwrap();
    let (status, said) = master.site.run(&["-c", "other.conf"]);
    assert_eq!(status.code(), Some(1));
    let port = master.site.port(0);
    let sentence =
        format!("nginx: [emerg] bind() to 127.0.0.1:{port} failed (98: Address already in use)");
    assert_eq!(said.matches(&sentence).count(), 5, "{said}");
    assert!(
        said.contains("nginx: [emerg] still could not bind()"),
        "{said}"
    );
    assert!(!master.site.path("other.pid").exists());
    master.ends(Signal::SIGQUIT);
}

#[test]
fn the_command_returns_when_the_daemon_is_ready_and_signals_reach_it() {
    let site = Site::new();
    site.configure(&PLAIN.replace("daemon off; ", ""));
    let status = site.command().status().unwrap();
    assert!(status.success());
    let pid: i32 = std::fs::read_to_string(site.path("nginx.pid"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(ask(site.port(0)).is_some());
    let (status, said) = site.run(&["-s", "reload"]);
    assert!(status.success(), "{said}");
    let log = || std::fs::read_to_string(site.path("logs/error.log")).unwrap();
    until("the reload", || log().contains("exited with code 0"));
    assert!(log().contains("signal process started"));
    site.configure(&PLAIN.replace("daemon off; ", "error_log logs/later.log; "));
    assert!(site.run(&["-s", "quit"]).0.success());
    // A log is the master's to make: its umask is not that of this command.
    assert!(!site.path("logs/later.log").exists());
    until("the end", || kill(Pid::from_raw(pid), None).is_err());
    assert!(!site.path("nginx.pid").exists());
    let (status, said) = site.run(&["-s", "quit"]);
    assert_eq!(status.code(), Some(1));
    assert!(
        said.contains("nginx.pid\" failed (2: No such file or directory)"),
        "{said}"
    );
}

/// A daemon: found by its pid file, ended with the test whatever happens.
struct Daemon(Site);

impl Daemon {
    fn start(text: &str) -> Self {
        let site = Site::new();
        site.configure(text);
        assert!(site.command().status().unwrap().success());
        Self(site)
    }

    fn pid(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(self.0.path("nginx.pid")).ok()?;
        text.trim().parse().ok().map(Pid::from_raw)
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid().unwrap(), signal).unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.0.path("logs/error.log")).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill(pid, Signal::SIGTERM);
            let deadline = Instant::now() + PATIENCE;
            while self.0.path("nginx.pid").exists() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

#[test]
fn winch_stops_the_worker_of_a_daemon_and_hup_starts_one() {
    let daemon = Daemon::start(&PLAIN.replace("daemon off; ", ""));
    let port = daemon.0.port(0);
    assert!(ask(port).is_some());
    daemon.signal(Signal::SIGWINCH);
    until("the worker has left", || {
        daemon.log().contains("exited with code 0")
    });
    // The master still listens: this connection waits for the next worker.
    let mut waiting = TcpStream::connect(("127.0.0.1", port)).unwrap();
    daemon.signal(Signal::SIGHUP);
    assert!(ask_on(&mut waiting).is_some());
}

#[test]
fn who_is_told_to_leave_while_it_reloads_leaves() {
    for signal in [Signal::SIGTERM, Signal::SIGQUIT] {
        for pause in [0, 5, 20, 60] {
            let master = Master::start(PLAIN);
            // Another environment needs another process: the reload takes its time.
            master.site.configure(&format!("env A=b; {PLAIN}"));
            master.signal(Signal::SIGHUP);
            std::thread::sleep(Duration::from_millis(pause));
            master.ends(signal);
        }
    }
}

#[test]
fn s_stop_and_reopen_reach_the_daemon() {
    let daemon = Daemon::start(&PLAIN.replace("daemon off; ", ""));
    let log = daemon.0.path("logs/error.log");
    std::fs::rename(&log, daemon.0.path("logs/old.log")).unwrap();
    assert!(daemon.0.run(&["-s", "reopen"]).0.success());
    until("a new log", || log.exists());
    assert!(daemon.0.run(&["-s", "stop"]).0.success());
    until("the end", || !daemon.0.path("nginx.pid").exists());
}

#[test]
fn workers_see_the_environment_that_the_configuration_names() {
    let site = Site::new()
        .with_environment("FREEWHEEL_TEST_KEPT", "kept")
        .with_environment("FREEWHEEL_TEST_LEFT", "left");
    site.configure(&format!(
        "env FREEWHEEL_TEST_KEPT; env FREEWHEEL_TEST_MADE=made; {PLAIN}"
    ));
    let server = site.start().unwrap();
    let log = server.error_log();
    let line = log
        .lines()
        .find(|line| line.contains("start worker process "))
        .unwrap();
    let worker = line.rsplit(' ').next().unwrap();
    let environment = std::fs::read(format!("/proc/{worker}/environ")).unwrap();
    let variables: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
    assert!(variables.contains(&&b"FREEWHEEL_TEST_KEPT=kept"[..]));
    assert!(variables.contains(&&b"FREEWHEEL_TEST_MADE=made"[..]));
    assert!(
        !variables
            .iter()
            .any(|text| text.starts_with(b"FREEWHEEL_TEST_LEFT"))
    );
}

#[test]
fn a_slow_request_ends_when_the_time_for_shutting_down_is_over() {
    let master = Master::start(
        &format!("worker_shutdown_timeout 300ms; {PLAIN}")
            .replace("server {", "server { limit_rate 1k;"),
    );
    master.site.file("large", vec![b'x'; 1 << 20]);
    let mut slow = TcpStream::connect(("127.0.0.1", master.site.port(0))).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    slow.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    slow.read_exact(&mut [0; 100]).unwrap();
    master.ends(Signal::SIGQUIT);
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    assert!(rest.len() < 1 << 20, "{}", rest.len());
}

#[test]
fn without_a_pid_file_it_does_not_start() {
    let site = Site::new();
    site.configure(&PLAIN.replace("pid nginx.pid", "pid %DIR%/none/nginx.pid"));
    let (status, said) = site.run(&[]);
    assert_eq!(status.code(), Some(1));
    let sentence = format!(
        "nginx: [emerg] open() \"{}\" failed (2: No such file or directory)",
        site.path("none/nginx.pid").display()
    );
    assert!(said.contains(&sentence), "{said}");
}

#[test]
fn one_process_can_do_it_all() {
    let master = Master::start(&format!("master_process off; {PLAIN}"));
    assert!(master.is_answering());
    let children = Command::new("pgrep")
        .args(["-P", &master.pid().to_string()])
        .output()
        .unwrap();
    assert!(children.stdout.is_empty());
    master.reload(&format!("master_process off; worker_processes 2; {PLAIN}"));
    assert!(master.is_answering());
    master.ends(Signal::SIGQUIT);
}

#[test]
fn a_test_tells_and_dumps_and_binds_nothing() {
    let site = Site::new();
    site.configure(PLAIN);
    let (status, said) = site.run(&["-t"]);
    assert!(status.success(), "{said}");
    let name = site.path("nginx.conf");
    let name = name.display();
    assert!(
        said.contains(&format!(
            "nginx: the configuration file {name} syntax is ok\n"
        )),
        "{said}"
    );
    assert!(
        said.contains(&format!(
            "nginx: configuration file {name} test is successful\n"
        )),
        "{said}"
    );
    assert_eq!(site.run(&["-tq"]).1, "");
    let (_, said) = site.run(&["-T"]);
    assert!(
        said.contains(&format!(
            "# configuration file {name}:\n{}\n",
            site.fill(PLAIN)
        )),
        "{said}"
    );
    assert!(!site.path("nginx.pid").exists());
    site.configure("events { } http { server { listen 127.0.0.1:99999; } }");
    let (status, said) = site.run(&["-t"]);
    assert_eq!(status.code(), Some(1));
    assert!(
        said.starts_with(
            "nginx: [emerg] invalid port in \"127.0.0.1:99999\" of the \"listen\" directive in "
        ),
        "{said}"
    );
    assert!(
        said.ends_with(&format!("nginx: configuration file {name} test failed\n")),
        "{said}"
    );
}

#[test]
fn wrong_flags_have_nginx_s_sentences() {
    let run = |arguments: &[&str]| {
        let output = Command::new(blackbox::binary())
            .args(arguments)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert_eq!(
        run(&["-x"]),
        (Some(1), "nginx: invalid option: \"x\"\n".to_owned())
    );
    assert_eq!(
        run(&["-s", "go"]),
        (Some(1), "nginx: invalid option: \"-s go\"\n".to_owned())
    );
    let (code, said) = run(&["-V"]);
    assert_eq!(code, Some(0));
    assert!(
        said.contains("nginx version: nginx/1.31.5\n") && said.contains("configure arguments:"),
        "{said}"
    );
}
