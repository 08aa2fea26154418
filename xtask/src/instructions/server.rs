//! The server that is counted, with one loop, and kept connections to it: one of HTTP/1, one of HTTP/2.

use super::Case;
use crate::running::{self, Running};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How long it may take to start.
const START: Duration = Duration::from_secs(20);
/// How long it may take to answer, and to store: it goes in single steps, perhaps on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long files must have been as they are, and what was asked for must have come to rest.
const SETTLED: Duration = Duration::from_millis(300);

/// When the files were changed, in seconds since 1970, and the condition that has it answered with 304.
const CHANGED: u64 = 1_000_000_000;
const CONDITION: &str = "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT\r\n";

/// Directory of the cache in which each request is a fill.
const FILLED: &str = "filled";

/// Ends with this value.
pub struct Server {
    child: Running,
    connection: BufReader<TcpStream>,
    /// Responses that came through the cache of fills, each to be stored.
    filled: usize,
    directory: tempfile::TempDir,
}

impl Server {
    /// Starts it in the foreground, in a directory of its own.
    pub fn start(binary: &Path, origin: SocketAddr) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let address = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(|error| error.to_string())?;
        prepare(directory.path(), address, origin).map_err(|error| error.to_string())?;
        let child = Command::new(binary)
            .arg("-p")
            .arg(format!("{}/", directory.path().display()))
            .args(["-c", "nginx.conf", "-e", "logs/error.log"])
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let mut child = Running(child);
        let log = directory.path().join("logs/error.log");
        running::listens(&mut child.0, address.port(), START, || {
            std::fs::read_to_string(&log).unwrap_or_default()
        })?;
        let stream = connected(address).map_err(|error| error.to_string())?;
        thread::sleep(SETTLED);
        Ok(Server {
            child,
            connection: BufReader::new(stream),
            filled: 0,
            directory,
        })
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.0.id().cast_signed())
    }

    /// The thread of its loop, by name.
    pub fn loop_thread(&self) -> Result<Pid, String> {
        let tasks = format!("/proc/{}/task", self.child.0.id());
        for task in std::fs::read_dir(&tasks)
            .map_err(|error| format!("{tasks}: {error}"))?
            .flatten()
        {
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if name.starts_with("loop")
                && let Some(thread) = task.file_name().to_str().and_then(|id| id.parse().ok())
            {
                return Ok(Pid::from_raw(thread));
            }
        }
        Err("no thread is called loop".to_owned())
    }

    /// So many requests, one after the other; each must be answered as it should be. A `*` in the path is another number in each:
    /// a fill, which is waited for until its file is there.
    pub fn ask(&mut self, case: &Case, times: usize) -> Result<(), String> {
        let (condition, expected) = match case.is_conditional {
            true => (CONDITION, "304"),
            false => ("", "200"),
        };
        for _ in 0..times {
            let is_fill = case.path.contains('*');
            self.filled += usize::from(is_fill);
            let path = case.path.replace('*', &format!("{:08}", self.filled));
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: xtask\r\nAccept: */*\r\n{condition}\r\n"
            );
            let status = self
                .exchange(&request)
                .map_err(|error| format!("{path}: {error}"))?;
            if status != expected {
                return Err(format!("{path}: answered with {status}"));
            }
            if is_fill {
                self.wait_until_stored()?;
            }
        }
        Ok(())
    }

    /// Waits until each fill has its file.
    fn wait_until_stored(&self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        while files_in(&self.directory.path().join(FILLED)) < self.filled {
            if Instant::now() > until {
                return Err(format!("not all of {} fills are stored", self.filled));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The status; the body is read.
    fn exchange(&mut self, request: &str) -> std::io::Result<String> {
        self.connection.get_mut().write_all(request.as_bytes())?;
        let (mut line, mut status, mut left) = (String::new(), String::new(), 0);
        while line != "\r\n" {
            line.clear();
            if self.connection.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if status.is_empty() {
                status = line.split(' ').nth(1).unwrap_or_default().to_owned();
            } else if let Some(("content-length", value)) =
                line.to_ascii_lowercase().trim_end().split_once(": ")
            {
                left = value.parse().map_err(std::io::Error::other)?;
            }
        }
        let mut body = vec![0; left];
        self.connection.read_exact(&mut body)?;
        Ok(status)
    }
}

/// Files in the visible folders of a directory.
fn files_in(directory: &Path) -> usize {
    let visible = |path: &Path| {
        path.file_name()
            .is_none_or(|name| name.as_encoded_bytes()[0] != b'.')
    };
    let listed = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let folders = listed(directory).map(|entry| entry.path());
    folders
        .filter(|path| visible(path))
        .map(|path| listed(&path).count())
        .sum()
}

fn connected(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn prepare(directory: &Path, address: SocketAddr, origin: SocketAddr) -> std::io::Result<()> {
    for name in ["html", "logs"] {
        std::fs::create_dir(directory.join(name))?;
    }
    for (name, size) in [("html/1k.bin", 1024), ("html/16k.bin", 16_384)] {
        let mut file = std::fs::File::create(directory.join(name))?;
        file.write_all(&vec![b'x'; size])?;
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(CHANGED))?;
    }
    let text = format!(
        "daemon off;\nmaster_process off;\nworker_processes 1; stall_threshold 0;\npid logs/nginx.pid;\nevents {{ worker_connections 64; }}\n\
         http {{\n    access_log off;\n    keepalive_requests 1000000;\n    keepalive_timeout 300s;\n\
         \x20   upstream origin {{ server {origin}; keepalive 8; }}\n    proxy_http_version 1.1;\n    proxy_set_header Connection \"\";\n\
         \x20   proxy_cache_path cache levels=1:2 keys_zone=c:1m max_size=10m inactive=1h use_temp_path=off;\n\
         \x20   proxy_cache_path {FILLED} levels=1 keys_zone=f:1m max_size=1g inactive=1h use_temp_path=off;\n\
         \x20   server {{\n        listen {address};\n        root html;\n        location = /here {{ return 200 \"here\"; }}\n\
         \x20       location /proxied/ {{ proxy_pass http://origin; }}\n\
         \x20       location /cached/ {{ proxy_pass http://origin; proxy_cache c; proxy_cache_valid 200 1h; }}\n\
         \x20       location /filled/ {{ proxy_pass http://origin; proxy_cache f; proxy_cache_valid 200 1h; }}\n    }}\n}}\n"
    );
    std::fs::write(directory.join("nginx.conf"), text)
}
