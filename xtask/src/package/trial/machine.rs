//! A Debian in a container, with systemd as its first process and a network of its own.
//!
//! Invariant: nothing of it is left when it goes out of scope.

use super::PATIENCE;
use crate::package::output;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a bare root has beside the least one.
const PACKAGES: &str = "--include=systemd,systemd-sysv,dbus,logrotate,procps,gettext-base";
/// How long the machine may take to end.
const END: Duration = Duration::from_secs(20);

/// A running machine.
pub struct Machine {
    /// Its files.
    pub root: PathBuf,
    /// Its first process, as this system counts them.
    pub process: i32,
    container: Child,
    /// The directory around `root`.
    directory: Option<tempfile::TempDir>,
}

/// A bare Debian 12, made once and kept.
pub fn base(directory: &Path) -> Result<PathBuf, String> {
    if directory.join("etc/debian_version").exists() {
        return Ok(directory.to_owned());
    }
    let start = Instant::now();
    let new = directory.with_extension("new");
    let _ = std::fs::remove_dir_all(&new);
    output(
        Command::new("debootstrap")
            .args(["--variant=minbase", PACKAGES, "bookworm"])
            .arg(&new),
    )?;
    std::fs::rename(&new, directory).map_err(|error| error.to_string())?;
    println!("a bare Debian 12 made in {} s", start.elapsed().as_secs());
    Ok(directory.to_owned())
}

impl Machine {
    /// Starts a machine with a copy of these files.
    pub fn start(base: &Path) -> Result<Self, String> {
        let directory = tempfile::Builder::new()
            .prefix("freewheel-try.")
            .tempdir()
            .map_err(|error| error.to_string())?;
        let root = directory.path().join("root");
        output(
            Command::new("cp")
                .args(["-a", "--reflink=auto"])
                .args([base, &root]),
        )?;
        let container = Command::new("systemd-nspawn")
            .args([
                "--quiet",
                "--boot",
                "--register=no",
                "--keep-unit",
                "--console=pipe",
            ])
            .args(["--private-network", "--link-journal=no", "--directory"])
            .arg(&root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("systemd-nspawn: {error}"))?;
        let mut machine = Self {
            root,
            process: 0,
            container,
            directory: Some(directory),
        };
        machine.process = machine.first_process()?;
        let running = "systemctl is-system-running | grep -qE 'running|degraded'";
        machine.until("the machine runs", running)?;
        Ok(machine)
    }

    fn first_process(&mut self) -> Result<i32, String> {
        let deadline = Instant::now() + PATIENCE;
        let container = self.container.id();
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.container.try_wait() {
                return Err(format!("systemd-nspawn ended with {status}"));
            }
            let path = format!("/proc/{container}/task/{container}/children");
            let children = std::fs::read_to_string(path).unwrap_or_default();
            if let Some(process) = children.split_whitespace().next() {
                return process.parse().map_err(|_| "no process".to_owned());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err("systemd-nspawn starts no process".to_owned())
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--all", "--target", &self.process.to_string(), "--"])
            .args(["/bin/sh", "-c", line])
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// What a line of the shell says in the machine, on both of its outputs.
    pub fn run(&self, line: &str) -> Result<String, String> {
        let made = output(&mut self.command(line))?;
        Ok(String::from_utf8_lossy(&made.stdout).into_owned()
            + &String::from_utf8_lossy(&made.stderr))
    }

    /// Waits until a line of the shell succeeds in the machine.
    pub fn until(&self, what: &str, line: &str) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.run(line) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => {
                    let journal = self.run("journalctl -u freewheel --no-pager | tail -20");
                    return Err(format!(
                        "not so after {PATIENCE:?}: {what}: {error}\n{journal:?}"
                    ));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Writes a file of the machine.
    pub fn write(&self, path: &str, text: &str) -> Result<(), String> {
        let file = self.root.join(path.trim_start_matches('/'));
        std::fs::write(&file, text).map_err(|error| format!("{path}: {error}"))
    }

    /// Copies a file into the machine.
    pub fn copy(&self, from: &Path, to: &str) -> Result<(), String> {
        let file = self.root.join(to.trim_start_matches('/'));
        std::fs::copy(from, file).map_err(|error| format!("{to}: {error}"))?;
        Ok(())
    }

    /// Ends the machine and removes its files.
    pub fn end(&mut self) {
        let deadline = Instant::now() + END;
        let _ = self.run("systemctl poweroff");
        while Instant::now() < deadline && matches!(self.container.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.container.kill();
        let _ = self.container.wait();
        if let Some(directory) = self.directory.take()
            && let Err(error) = directory.close()
        {
            eprintln!("files of the machine are left: {error}");
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.directory.is_some() {
            self.end();
        }
    }
}
