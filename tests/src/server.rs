//! The program under test, running: its process, connections and logs.

use crate::client::{Connection, PATIENCE};
use crate::http2::Http2Client;
use crate::reply::Reply;
use crate::site::{Refused, Site};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// How often it is looked whether something has come.
pub const TICK: Duration = Duration::from_millis(5);
/// What nginx logs when the worker of an older configuration has gone, and freewheel after it.
const WORKER_LEFT: &str = "exited with code";

/// A running program. Ends by QUIT when it goes out of scope.
pub struct Server {
    pub(crate) site: Site,
    pub(crate) child: Child,
}

impl Server {
    /// Starts with `http` as the content of the `http` block; the lines that every test needs stand around it.
    ///
    /// # Panics
    /// When the program does not start.
    pub fn start(http: &str) -> Server {
        Server::start_with("", http)
    }

    /// As [`Server::start`], with `main` added outside of `http`.
    pub fn start_with(main: &str, http: &str) -> Server {
        Server::try_start(&whole(main, http))
            .unwrap_or_else(|refused| panic!("{}: {}", refused.status, refused.stderr))
    }

    /// Starts with the whole text as `nginx.conf`. It must say `daemon off;` and `pid nginx.pid;`.
    ///
    /// # Errors
    /// The program left instead of listening.
    pub fn try_start(text: &str) -> Result<Server, Refused> {
        let site = Site::new();
        site.configure(text);
        site.start()
    }

    /// Starts on a prepared site, as [`Server::start_with`].
    ///
    /// # Panics
    /// When the program does not start.
    pub fn start_on(site: Site, main: &str, http: &str) -> Server {
        site.configure(&whole(main, http));
        site.start()
            .unwrap_or_else(|refused| panic!("{}: {}", refused.status, refused.stderr))
    }

    /// The directory and ports.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Writes a file below `html/`.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        self.site.file(name, bytes)
    }

    /// A connection to the first port.
    pub fn connect(&self) -> Connection {
        self.connect_to(0)
    }

    /// A connection to port `index`.
    pub fn connect_to(&self, index: usize) -> Connection {
        let address = (Ipv4Addr::LOCALHOST, self.site.port(index));
        Connection::new(TcpStream::connect(address).expect("the server listens"))
    }

    /// A connection to the first port over HTTP/2, by prior knowledge.
    pub fn connect_http2(&self) -> Http2Client {
        let address = (Ipv4Addr::LOCALHOST, self.site.port(0));
        Http2Client::new(TcpStream::connect(address).expect("the server listens"))
    }

    /// The same, with this window for each answer, in bytes.
    pub fn connect_http2_with_window(&self, window: u32) -> Http2Client {
        let address = (Ipv4Addr::LOCALHOST, self.site.port(0));
        let stream = TcpStream::connect(address).expect("the server listens");
        Http2Client::with_window(stream, window)
    }

    /// Sends bytes over a new connection and returns all that comes until the server closes.
    pub fn raw(&self, bytes: impl AsRef<[u8]>) -> String {
        text_of(&self.connect().send(bytes).rest())
    }

    /// The answer to `GET PATH` over HTTP/1.1 with `Connection: close`.
    pub fn get(&self, path: &str) -> Reply {
        self.get_with(path, "")
    }

    /// The same with more header lines, each ending in CRLF.
    pub fn get_with(&self, path: &str, headers: &str) -> Reply {
        self.request("GET", path, headers)
    }

    /// The answer to a request without a body.
    pub fn request(&self, method: &str, path: &str, headers: &str) -> Reply {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        );
        self.connect().send(request).reply_to(method)
    }

    /// Empties the error log: what stands in it is meant. For tests that provoke an `[emerg]`, after they have looked at it.
    pub fn forget_log(&self) {
        std::fs::write(self.site.path("logs/error.log"), "").expect("the directory is ours");
    }

    /// QUIT, and what stands in the error log until the end is meant: for tests whose `[crit]` may still be on its way.
    ///
    /// # Panics
    /// It does not end well.
    pub fn quit_and_forget_log(mut self) {
        self.quit();
        self.forget_log();
    }

    /// Process id of the master.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid fits")
    }

    /// Sends a signal to the master.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("the master lives");
    }

    /// Writes a new configuration for `http`, sends HUP and waits until the old worker has gone.
    pub fn reload(&self, http: &str) {
        self.reload_with("", http);
    }

    /// The same, with `main` added outside of `http`.
    pub fn reload_with(&self, main: &str, http: &str) {
        let gone = self.error_log().matches(WORKER_LEFT).count();
        self.reload_file(&whole(main, http));
        self.wait(WORKER_LEFT, gone + 1, "reloading");
    }

    /// Writes a new `nginx.conf` and sends HUP; waits for nothing.
    pub fn reload_file(&self, text: &str) {
        self.site.configure(text);
        self.signal(Signal::SIGHUP);
    }

    /// Waits until a line with `text` stands in the error log.
    ///
    /// # Panics
    /// After 10 s, saying what was waited for.
    pub fn wait_for(&self, text: &str, what: &str) {
        self.wait(text, 1, what);
    }

    fn wait(&self, text: &str, times: usize, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.error_log().matches(text).count() < times {
            assert!(
                Instant::now() < deadline,
                "{what}: no {text:?} in the error log:\n{}",
                self.error_log()
            );
            std::thread::sleep(TICK);
        }
    }

    /// The error log as it stands.
    pub fn error_log(&self) -> String {
        self.read("logs/error.log")
    }

    /// The access log once it has `lines` lines: it is written behind the answers.
    pub fn access_log(&self, lines: usize) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.read("logs/access.log");
            if text.matches('\n').count() >= lines {
                return text;
            }
            assert!(
                Instant::now() < deadline,
                "fewer than {lines} lines in the access log: {text:?}"
            );
            std::thread::sleep(TICK);
        }
    }

    /// A file of the directory as text; empty when there is none.
    pub fn read(&self, name: &str) -> String {
        std::fs::read(self.site.path(name))
            .map(|bytes| text_of(&bytes))
            .unwrap_or_default()
    }

    /// QUIT, and the exit status.
    pub fn quit(&mut self) -> ExitStatus {
        self.end(Signal::SIGQUIT)
    }

    /// QUIT, and the same program again, on the same directory.
    ///
    /// # Panics
    /// It does not end well, or does not start again.
    pub fn restart(&mut self) {
        let status = self.quit();
        assert!(status.success(), "left with {status}");
        let started = self.site.spawn();
        self.child =
            started.unwrap_or_else(|refused| panic!("{}: {}", refused.status, refused.stderr));
    }

    /// Kills the program, with all its processes, and starts it again on the same directory.
    ///
    /// # Panics
    /// It does not start again.
    pub fn restart_killed(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(self.site.path("nginx.pid"));
        let started = self.site.spawn();
        self.child =
            started.unwrap_or_else(|refused| panic!("{}: {}", refused.status, refused.stderr));
    }

    /// Ends by a signal: the exit status.
    ///
    /// # Panics
    /// When it still runs after 10 s; it is killed then.
    pub fn end(&mut self, signal: Signal) -> ExitStatus {
        if let Ok(Some(status)) = self.child.try_wait() {
            return status;
        }
        self.signal(signal);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                return status;
            }
            if Instant::now() > deadline {
                self.kill();
                panic!(
                    "still running {PATIENCE:?} after {signal}:\n{}",
                    self.error_log()
                );
            }
            std::thread::sleep(TICK);
        }
    }

    /// The master dead, its children too: they are its process group's only when it made one, so they are found by parent.
    fn kill(&mut self) {
        let children =
            std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.child.id()))
                .unwrap_or_default();
        let _ = self.child.kill();
        let _ = self.child.wait();
        for child in children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
        {
            let child = Pid::from_raw(child);
            let _ = kill(child, Signal::SIGKILL);
            // Its sockets are free once it is gone.
            let deadline = Instant::now() + PATIENCE;
            while is_running(child) && Instant::now() < deadline {
                std::thread::sleep(TICK);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.kill();
            eprintln!(
                "--- error log ---\n{}--- stderr ---\n{}",
                self.error_log(),
                self.read("stderr")
            );
            return;
        }
        let status = self.quit();
        let log = self.error_log() + &self.read("stderr");
        assert!(status.success(), "left with {status}:\n{log}");
        for bad in ["[alert]", "[crit]", "[emerg]", "panicked"] {
            assert!(!log.contains(bad), "{bad} in the error log:\n{log}");
        }
    }
}

/// The lines around `http` that every test needs.
fn whole(main: &str, http: &str) -> String {
    format!(
        "daemon off;\npid nginx.pid;\nerror_log logs/error.log info;\n{main}\nevents {{ }}\n\
         http {{\n    root %DIR%/html;\n    access_log logs/access.log;\n{http}\n}}\n"
    )
}

/// Whether a process runs; a zombie, which waits for its parent, does not, unless threads of it have not ended: they keep
/// its sockets.
pub fn is_running(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    stat.is_ok_and(|stat| threads > 1 || !stat.contains(") Z "))
}

/// Bytes as text, whatever they are.
pub fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The statuses of all answers in the text of a connection.
pub fn statuses_of(text: &str) -> Vec<u16> {
    text.match_indices("HTTP/1.1 ")
        .filter_map(|(at, _)| text[at + 9..].get(..3)?.parse().ok())
        .collect()
}
