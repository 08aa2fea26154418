//! A server in the background that is upgraded: found by its pid files.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use blackbox::{PATIENCE, Site, is_running};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Puts a copy of a program at a path. Another process writes it: a descriptor of this one could be inherited by what
/// another test starts meanwhile, and the kernel runs no file that is open for writing (execve(2), ETXTBSY).
pub(crate) fn put_program(program: &Path, path: &Path) {
    let copied = Command::new("cp").args([program, path]).status().unwrap();
    assert!(copied.success());
}

/// A server in the background, with all that came of it: ended with the test, whatever happens.
pub(crate) struct Daemon(pub(crate) Site);

impl Daemon {
    pub(crate) fn start(text: &str) -> Self {
        Self::start_at(Site::new(), text)
    }

    pub(crate) fn start_at(site: Site, text: &str) -> Self {
        site.configure(text);
        assert!(site.command().status().unwrap().success());
        Self(site)
    }

    pub(crate) fn number(&self, name: &str) -> Option<Pid> {
        let text = std::fs::read_to_string(self.0.path(name)).ok()?;
        text.trim().parse().ok().map(Pid::from_raw)
    }

    /// The master whose pid file has no ending.
    pub(crate) fn master(&self) -> Pid {
        self.number("nginx.pid").unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.0.path("logs/error.log")).unwrap()
    }

    pub(crate) fn wait_for_log(&self, text: &str, count: usize) {
        until(text, || self.log().matches(text).count() >= count);
    }

    /// Asks for an upgrade; returns the old master and the new one once this one serves.
    pub(crate) fn upgrade(&self) -> (Pid, Pid) {
        // A master that has lost its successor gets its file back.
        until("a pid file", || self.number("nginx.pid").is_some());
        let old = self.master();
        kill(old, Signal::SIGUSR2).unwrap();
        until("both pid files", || {
            self.number("nginx.pid.oldbin") == Some(old)
                && self.number("nginx.pid").is_some_and(|new| new != old)
        });
        (old, self.master())
    }

    /// The worker that answers.
    pub(crate) fn ask(&self) -> i32 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.0.port(0))).unwrap();
        worker_on(&mut stream).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let all = ["nginx.pid.oldbin", "nginx.pid"].map(|name| self.number(name));
        for pid in all.into_iter().flatten() {
            let _ = kill(pid, Signal::SIGTERM);
            let deadline = Instant::now() + PATIENCE;
            while is_running(pid) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    blackbox::until(what, PATIENCE, || holds().then_some(()));
}

pub(crate) fn worker_on(stream: &mut (impl Read + Write)) -> Option<i32> {
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200 ").then_some(())?;
    body.trim().parse().ok()
}
