//! The server that is counted, with one loop, and one kept connection to it.

use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long it may take to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long files must have been as they are, and what was asked for must have come to rest.
const SETTLED: Duration = Duration::from_millis(300);

/// Ends when it is dropped.
pub struct Server {
    child: Child,
    connection: BufReader<TcpStream>,
    _directory: tempfile::TempDir,
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
        let mut child = Ending(Some(child));
        let stream = connected(address)?;
        stream
            .set_nodelay(true)
            .map_err(|error| error.to_string())?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .map_err(|error| error.to_string())?;
        thread::sleep(SETTLED);
        Ok(Server {
            child: child.0.take().expect("taken once"),
            connection: BufReader::new(stream),
            _directory: directory,
        })
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// The thread of its loop, by name.
    pub fn loop_thread(&self) -> Result<Pid, String> {
        let tasks = format!("/proc/{}/task", self.child.id());
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

    /// So many requests, one after the other; each must be answered as it should be.
    pub fn ask(&mut self, path: &str, times: usize) -> Result<(), String> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: xtask\r\nAccept: */*\r\n\r\n"
        );
        for _ in 0..times {
            let status = self
                .exchange(&request)
                .map_err(|error| format!("{path}: {error}"))?;
            if status != "200" {
                return Err(format!("{path}: answered with {status}"));
            }
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

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A child that is ended when what was to become of it does not.
struct Ending(Option<Child>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn connected(address: SocketAddr) -> Result<TcpStream, String> {
    let until = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > until => {
                return Err(format!("the server does not listen: {error}"));
            }
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn prepare(directory: &Path, address: SocketAddr, origin: SocketAddr) -> std::io::Result<()> {
    for name in ["html", "logs"] {
        std::fs::create_dir(directory.join(name))?;
    }
    for (name, size) in [("html/1k.bin", 1024), ("html/16k.bin", 16_384)] {
        std::fs::write(directory.join(name), vec![b'x'; size])?;
    }
    let text = format!(
        "daemon off;\nmaster_process off;\nworker_processes 1; stall_threshold 0;\npid logs/nginx.pid;\nevents {{ worker_connections 64; }}\n\
         http {{\n    access_log off;\n    keepalive_requests 1000000;\n    keepalive_timeout 300s;\n\
         \x20   upstream origin {{ server {origin}; keepalive 8; }}\n    proxy_http_version 1.1;\n    proxy_set_header Connection \"\";\n\
         \x20   proxy_cache_path cache levels=1:2 keys_zone=c:1m max_size=10m inactive=1h use_temp_path=off;\n\
         \x20   server {{\n        listen {address};\n        root html;\n        location = /here {{ return 200 \"here\"; }}\n\
         \x20       location /proxied/ {{ proxy_pass http://origin; }}\n\
         \x20       location /cached/ {{ proxy_pass http://origin; proxy_cache c; proxy_cache_valid 200 1h; }}\n    }}\n}}\n"
    );
    std::fs::write(directory.join("nginx.conf"), text)
}
