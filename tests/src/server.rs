//! The program under test, running: its directory, ports, process and logs.

use crate::binary::binary;
use crate::client::{Connection, PATIENCE};
use crate::port::Port;
use crate::reply::Reply;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{File, Permissions};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const PORTS_MAX: usize = 4;
const TICK: Duration = Duration::from_millis(5);
/// What nginx logs when the worker of an older configuration has gone, and freewheel after it.
const WORKER_LEFT: &str = "exited with code";

/// A directory with a configuration, ports and files, before a program runs on it.
pub struct Site {
    program: PathBuf,
    dir: tempfile::TempDir,
    ports: Vec<Port>,
    environment: Vec<(&'static str, String)>,
}

/// The program did not start: how it left and what it said.
#[derive(Debug)]
pub struct Refused {
    /// As a shell would see it.
    pub status: ExitStatus,
    /// Everything on standard error.
    pub stderr: String,
}

/// A running program. Ends by QUIT when it goes out of scope.
pub struct Server {
    site: Site,
    child: Child,
}

impl Site {
    /// A fresh directory: `html/` and `logs/`, readable by everyone (a worker is not root), and four ports.
    pub fn new() -> Site {
        Site::of(binary())
    }

    /// The same for another program that is built on freewheel.
    pub fn of(program: &Path) -> Site {
        let dir = tempfile::Builder::new()
            .prefix("freewheel-test.")
            .tempdir()
            .expect("a temporary directory can be made");
        open_to_all(dir.path());
        let site = Site {
            program: program.to_owned(),
            dir,
            ports: (0..PORTS_MAX).map(|_| Port::take()).collect(),
            environment: Vec::new(),
        };
        for name in ["html", "logs"] {
            std::fs::create_dir(site.path(name)).expect("a fresh directory is writable");
            open_to_all(&site.path(name));
        }
        site
    }

    /// Sets a variable of the program's environment; `%DIR%` is filled in.
    #[must_use]
    pub fn with_environment(mut self, name: &'static str, value: &str) -> Site {
        let value = self.fill(value);
        self.environment.push((name, value));
        self
    }

    /// Path of a name below the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Port `index` of the four.
    pub fn port(&self, index: usize) -> u16 {
        self.ports[index].number()
    }

    /// Writes `html/NAME`, with its directories, mode 0644 in directories 0755, as an installation has them.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path("html").join(name);
        let parent = path.parent().expect("a file has a directory");
        std::fs::create_dir_all(parent).expect("html can be written");
        for dir in parent
            .ancestors()
            .take_while(|dir| dir.starts_with(self.path("html")))
        {
            open_to_all(dir);
        }
        std::fs::write(&path, bytes).expect("html can be written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("the file is ours");
        path
    }

    /// Writes `nginx.conf`, `%DIR%`, `%PORT%` and `%PORT1%` to `%PORT3%` filled in.
    pub fn configure(&self, text: &str) {
        std::fs::write(self.path("nginx.conf"), self.fill(text))
            .expect("the directory can be written");
    }

    /// `text` with the places filled in.
    pub fn fill(&self, text: &str) -> String {
        let mut text = text
            .replace("%DIR%", &self.dir.path().to_string_lossy())
            .replace("%PORT%", &self.port(0).to_string());
        for index in 1..PORTS_MAX {
            text = text.replace(&format!("%PORT{index}%"), &self.port(index).to_string());
        }
        text
    }

    /// A command of the program with this directory as prefix and this configuration; arguments may be added.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        let prefix = format!("{}/", self.dir.path().display());
        command
            .args(["-p", &prefix, "-c", "nginx.conf", "-e", "logs/error.log"])
            .stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs `-t` or the like to its end: exit status and all that was said, standard output first.
    pub fn run(&self, arguments: &[&str]) -> (ExitStatus, String) {
        let output = self
            .command()
            .args(arguments)
            .output()
            .expect("the program can be run");
        (
            output.status,
            text_of(&output.stdout) + &text_of(&output.stderr),
        )
    }

    /// Starts the program and waits until its pid file says that it listens.
    ///
    /// # Errors
    /// It left before that.
    pub fn start(self) -> Result<Server, Refused> {
        let stderr = File::create(self.path("stderr")).expect("the directory can be written");
        let child = self
            .command()
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("the program can be run");
        let mut child = child;
        let deadline = Instant::now() + PATIENCE;
        while !std::fs::read(self.path("nginx.pid")).is_ok_and(|text| text.ends_with(b"\n")) {
            let said = || {
                std::fs::read(self.path("stderr"))
                    .map(|bytes| text_of(&bytes))
                    .unwrap_or_default()
            };
            if let Some(status) = child.try_wait().expect("the child is ours") {
                return Err(Refused {
                    status,
                    stderr: said(),
                });
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                panic!("no pid file after {PATIENCE:?}: {}", said());
            }
            std::thread::sleep(TICK);
        }
        Ok(Server { site: self, child })
    }
}

impl Default for Site {
    fn default() -> Self {
        Site::new()
    }
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
        let gone = self.error_log().matches(WORKER_LEFT).count();
        self.reload_file(&whole("", http));
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
            let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
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

/// Bytes as text, whatever they are.
pub fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).expect("the directory is ours");
}
