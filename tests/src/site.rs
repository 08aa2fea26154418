//! Where the program under test runs: a directory with a configuration, ports and files.

use crate::binary::binary;
use crate::client::PATIENCE;
use crate::port::Port;
use crate::server::{Server, TICK, text_of};
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

const PORTS_MAX: usize = 4;

/// A directory with a configuration, ports and files, before a program runs on it.
pub struct Site {
    program: PathBuf,
    dir: tempfile::TempDir,
    ports: Vec<Port>,
    environment: Vec<(&'static str, String)>,
    /// A command that runs the program, in front of it.
    runner: Vec<String>,
}

/// The program did not start: how it left and what it said.
#[derive(Debug)]
pub struct Refused {
    /// As a shell would see it.
    pub status: ExitStatus,
    /// Everything on standard error.
    pub stderr: String,
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
            runner: Vec::new(),
        };
        for name in ["html", "logs"] {
            std::fs::create_dir(site.path(name)).expect("a fresh directory is writable");
            open_to_all(&site.path(name));
        }
        site
    }

    /// A site as a distribution installs one, for a program that root starts and that serves as `nobody`: everything is root's, and the
    /// logs' directory is closed to all others. None, with a word, where the test is not run by root.
    pub fn of_root() -> Option<Site> {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: only root can start a server that serves as somebody else");
            return None;
        }
        let site = Site::new();
        close_to_others(&site.path("logs"));
        Some(site)
    }

    /// Runs the program by another command (`unshare`), which has its words behind its own.
    #[must_use]
    pub fn run_by(mut self, words: &[&str]) -> Site {
        self.runner = words.iter().map(|word| self.fill(word)).collect();
        self
    }

    /// Writes a file beside the configuration that only root may read.
    pub fn secret(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, self.fill(text)).expect("the directory can be written");
        close_to_others(&path);
        path
    }

    /// Sets a variable of the program's environment; `%DIR%` is filled in.
    #[must_use]
    pub fn with_environment(mut self, name: &'static str, value: &str) -> Site {
        let value = self.fill(value);
        self.environment.push((name, value));
        self
    }

    /// Makes a file of zeros that stands for a block device. None, with a word: its file system has no direct I/O.
    pub fn device(&self, name: &str, bytes: u64) -> Option<PathBuf> {
        let path = self.path(name);
        let file = File::create(&path).expect("a fresh directory is writable");
        file.set_len(bytes).expect("it may be long");
        let mut direct = File::options();
        direct.read(true).custom_flags(libc::O_DIRECT);
        if direct.open(&path).is_err() {
            println!("skipped: no O_DIRECT in {}", path.display());
            return None;
        }
        Some(path)
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
        let mut words = self.runner.iter().map(OsString::from).collect::<Vec<_>>();
        words.push(self.program.clone().into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
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
        let child = self.spawn()?;
        Ok(Server { site: self, child })
    }

    /// The same, without a [`Server`] yet.
    pub(crate) fn spawn(&self) -> Result<Child, Refused> {
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
        Ok(child)
    }
}

impl Default for Site {
    fn default() -> Self {
        Site::new()
    }
}

fn close_to_others(path: &Path) {
    let mode = if path.is_dir() { 0o700 } else { 0o600 };
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).expect("the directory is ours");
}
