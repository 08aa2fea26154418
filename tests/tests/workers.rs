//! What the master does when a worker starts, serves, refuses, leaves or dies, in all orders.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: no event loop, and a failure is a panic"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use blackbox::{PATIENCE, Server, Site};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A server in the background, whose answer tells which configuration is served.
struct Daemon {
    site: Site,
    master: Pid,
}

impl Daemon {
    fn start() -> Self {
        let site = Site::new();
        site.file("slow", vec![b'x'; 1 << 20]);
        configure(&site, "", "one");
        assert!(site.command().status().unwrap().success());
        let pid = std::fs::read_to_string(site.path("nginx.pid")).unwrap();
        let master = Pid::from_raw(pid.trim().parse().unwrap());
        Self { site, master }
    }

    fn signal(&self, signal: Signal) {
        kill(self.master, signal).unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.site.path("logs/error.log")).unwrap()
    }

    fn count(&self, text: &str) -> usize {
        self.log().matches(text).count()
    }

    fn wait_for(&self, text: &str, count: usize) {
        let what = format!("{text:?} {count} times");
        self.until(&what, || self.count(text) >= count);
    }

    fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while !is_so() {
            let is_early = std::time::Instant::now() < deadline;
            assert!(is_early, "{what}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn started(&self) -> usize {
        self.count("start worker process ")
    }

    /// The worker that was started last.
    fn worker(&self) -> Pid {
        let log = self.log();
        let (_, rest) = log.rsplit_once("start worker process ").unwrap();
        Pid::from_raw(rest.lines().next().unwrap().parse().unwrap())
    }

    /// What the master had to do is done: this signal asks for nothing, and has a line.
    fn settle(&self) {
        let before = self.count("(SIGALRM)");
        self.signal(Signal::SIGALRM);
        self.wait_for("(SIGALRM)", before + 1);
    }

    /// A reload, up to where the configuration is on its way to a worker.
    fn send(&self, main: &str, said: &str) {
        let before = self.count(": reconfiguring");
        configure(&self.site, main, said);
        self.signal(Signal::SIGHUP);
        self.wait_for(": reconfiguring", before + 1);
        self.settle();
    }

    fn kill(&self, worker: Pid) {
        kill(worker, Signal::SIGKILL).unwrap();
        self.wait_for(&format!("worker process {worker} exited on signal 9"), 1);
    }

    /// Workers that die as soon as they are started: the next one comes after a pause.
    fn make_a_pause(&self) {
        for lives in 1..=5 {
            self.wait_for("start worker process ", lives);
            self.kill(self.worker());
        }
    }

    /// A connection that a worker keeps until its end.
    fn slow(&self) -> TcpStream {
        let mut slow = self.connect();
        slow.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        slow.read_exact(&mut [0; 100]).unwrap();
        slow
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.site.port(0))).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn answer(&self) -> String {
        let mut stream = self.connect();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text.rsplit("\r\n").next().unwrap_or_default().to_owned()
    }

    fn says(&self, said: &str) {
        self.until(said, || self.answer() == said);
    }

    fn has_one_worker(&self) {
        let path = format!("/proc/{0}/task/{0}/children", self.master);
        let children = || std::fs::read_to_string(&path).unwrap();
        self.until("one worker", || children().split_whitespace().count() == 1);
    }

    /// Processor time of the master, in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.master)).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let fields = rest.split(' ').skip(11).take(2);
        fields.map(|field| field.parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let children = format!("/proc/{0}/task/{0}/children", self.master);
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let children = children
            .split_whitespace()
            .map(|pid| Pid::from_raw(pid.parse().unwrap()));
        for process in [self.master].into_iter().chain(children) {
            let _ = kill(process, Signal::SIGKILL);
        }
    }
}

fn configure(site: &Site, main: &str, said: &str) {
    site.configure(&format!(
        "{main} pid nginx.pid; error_log logs/error.log info; worker_processes 1; events {{ }}
         http {{ access_log off; server {{ listen 127.0.0.1:%PORT%; location / {{ return 200 {said}; }}
             location /slow {{ root %DIR%/html; limit_rate 1k; }} }} }}"
    ));
}

#[test]
fn a_reload_in_the_pause_before_a_restart_is_followed_by_no_other_worker() {
    let daemon = Daemon::start();
    daemon.make_a_pause();
    configure(&daemon.site, "", "two");
    daemon.signal(Signal::SIGHUP);
    daemon.says("two");
    // The pause is over by then.
    std::thread::sleep(Duration::from_secs(2));
    daemon.settle();
    daemon.has_one_worker();
    daemon.says("two");
}

#[test]
fn a_worker_that_dies_while_its_successor_starts_is_not_replaced_twice() {
    let daemon = Daemon::start();
    let old = daemon.worker();
    // Another environment needs another process.
    configure(&daemon.site, "env A=b;", "two");
    daemon.signal(Signal::SIGHUP);
    daemon.wait_for("start worker process ", 2);
    let new = daemon.worker();
    kill(new, Signal::SIGSTOP).unwrap();
    daemon.kill(old);
    daemon.settle();
    assert_eq!(daemon.started(), 2);
    kill(new, Signal::SIGCONT).unwrap();
    daemon.says("two");
    daemon.has_one_worker();
}

#[test]
fn a_worker_that_dies_during_a_reload_is_followed_by_one_with_the_new_configuration() {
    let daemon = Daemon::start();
    let worker = daemon.worker();
    kill(worker, Signal::SIGSTOP).unwrap();
    daemon.send("", "two");
    daemon.kill(worker);
    daemon.says("two");
    daemon.has_one_worker();
}

#[test]
fn a_new_configuration_that_kills_its_worker_leaves_the_old_one_in_service() {
    let daemon = Daemon::start();
    let worker = daemon.worker();
    kill(worker, Signal::SIGSTOP).unwrap();
    daemon.send("", "two");
    daemon.kill(worker);
    daemon.wait_for("start worker process ", 2);
    let second = daemon.worker();
    daemon.kill(second);
    // It may have served it before it was killed.
    daemon.wait_for("start worker process ", 3);
    let answer = daemon.answer();
    let is_kept = daemon.log().contains("the old one goes on");
    assert_eq!(answer, if is_kept { "one" } else { "two" });
    daemon.send("", "three");
    daemon.says("three");
    daemon.has_one_worker();
}

#[test]
fn winch_during_a_reload_ends_that_and_the_next_one_serves() {
    let daemon = Daemon::start();
    let worker = daemon.worker();
    kill(worker, Signal::SIGSTOP).unwrap();
    daemon.send("", "two");
    daemon.signal(Signal::SIGWINCH);
    daemon.wait_for("stop accepting connections", 1);
    kill(worker, Signal::SIGCONT).unwrap();
    daemon.send("", "three");
    daemon.says("three");
    daemon.has_one_worker();
}

#[test]
fn winch_that_meets_the_end_of_a_reload_leaves_no_worker_that_only_seems_to_serve() {
    let daemon = Daemon::start();
    let worker = daemon.worker();
    let _slow = daemon.slow();
    kill(worker, Signal::SIGSTOP).unwrap();
    daemon.send("", "two");
    daemon.signal(Signal::SIGSTOP);
    kill(worker, Signal::SIGCONT).unwrap();
    daemon.says("two");
    daemon.signal(Signal::SIGWINCH);
    daemon.signal(Signal::SIGCONT);
    daemon.wait_for("stop accepting connections", 1);
    daemon.wait_for("gracefully shutting down", 1);
    daemon.send("", "three");
    daemon.says("three");
}

#[test]
fn winch_in_the_pause_before_a_restart_makes_the_master_rest() {
    let daemon = Daemon::start();
    daemon.make_a_pause();
    daemon.signal(Signal::SIGWINCH);
    daemon.wait_for("stop accepting connections", 1);
    let before = daemon.ticks();
    std::thread::sleep(Duration::from_secs(3));
    let used = daemon.ticks() - before;
    assert!(used < 10, "{used} ticks");
    daemon.send("", "two");
    daemon.says("two");
    daemon.has_one_worker();
}

#[test]
fn a_worker_that_is_told_to_quit_is_replaced_before_it_has_ended() {
    let daemon = Daemon::start();
    let mut slow = daemon.slow();
    kill(daemon.worker(), Signal::SIGQUIT).unwrap();
    daemon.wait_for("start worker process ", 2);
    daemon.says("one");
    daemon.send("", "two");
    daemon.says("two");
    slow.read_exact(&mut [0; 100]).unwrap();
}

#[test]
fn a_worker_that_leaves_opens_its_logs_again() {
    let daemon = Daemon::start();
    let mut slow = daemon.slow();
    let old = daemon.worker();
    // Another environment needs another process.
    daemon.send("env A=b;", "two");
    daemon.says("two");
    daemon.wait_for("gracefully shutting down", 1);
    let log = daemon.site.path("logs/error.log");
    std::fs::rename(&log, daemon.site.path("logs/error.log.1")).unwrap();
    daemon.signal(Signal::SIGUSR1);
    daemon.until("the new file", || log.exists());
    slow.shutdown(std::net::Shutdown::Both).unwrap();
    let _ = slow.read(&mut [0]);
    daemon.wait_for(&format!("{old}#{old}: exit\n"), 1);
}

#[test]
fn a_restarted_worker_that_refuses_is_followed_by_another() {
    let daemon = Daemon::start();
    // Enough for the start of a process, not for a configuration.
    let master = daemon.master.to_string();
    let mut limit = Command::new("prlimit");
    let status = limit.args(["--pid", &master, "--nofile=12"]).status();
    assert!(status.unwrap().success());
    daemon.kill(daemon.worker());
    daemon.wait_for("start worker process ", 4);
    daemon.wait_for("Too many open files", 2);
    let log = daemon.log();
    assert!(!log.contains("worker process cannot be started"), "{log}");
}

#[test]
fn one_process_that_refuses_a_configuration_leaves_no_file_of_its_sockets() {
    let text = |levels: &str, listen: &str| {
        format!(
            "daemon off; master_process off; pid nginx.pid; error_log logs/error.log info; events {{ }}
             http {{ proxy_cache_path %DIR%/cache levels={levels} keys_zone=c:1m;
                 server {{ listen 127.0.0.1:%PORT%; {listen} proxy_cache c; return 200 \"{listen}\"; }} }}"
        )
    };
    let listen = "listen unix:%DIR%/socket;";
    let server = Server::try_start(&text("1:2", "")).unwrap();
    server.reload_file(&text("2", listen));
    server.wait_for("had previously different levels", "the refusal");
    server.reload_file(&text("1:2", listen));
    server.wait_for("configuration 2 is served now", "the reload");
    assert!(server.site().path("socket").exists());
    server.forget_log();
}

#[test]
fn a_worker_that_gets_usr1_has_the_logs_opened_again() {
    let daemon = Daemon::start();
    let (worker, log) = (daemon.worker(), daemon.site.path("logs/error.log"));
    std::fs::rename(&log, daemon.site.path("logs/error.log.1")).unwrap();
    kill(worker, Signal::SIGUSR1).unwrap();
    daemon.until("the new file", || log.exists());
    daemon.settle();
}
