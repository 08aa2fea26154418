//! The mixed load: files, some of which are out of memory, through a cache and without, compressed, put together, behind limits, passwords
//! and proxies, and some that are not there.

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use super::PATIENCE;
use super::server::FILES;

/// Clients.
const CLIENTS: usize = 8;
/// Between two requests of a client, and between two files that are put out of memory.
const PAUSE: Duration = Duration::from_millis(10);

/// Who knows the password, and who does not (`user:secret`, `user:wrong`).
const RIGHT: &str = "Authorization: Basic dXNlcjpzZWNyZXQ=\r\n";
const WRONG: &str = "Authorization: Basic dXNlcjp3cm9uZw==\r\n";
/// What a proxy says of its client.
const PROXY: &str = "PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r\n";

/// Threads that ask; they end with this value.
pub struct Load {
    is_on: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Begins.
    pub fn start(port: u16, files: &Path) -> Load {
        let is_on = Arc::new(AtomicBool::new(true));
        let mut threads = Vec::new();
        for client in 0..CLIENTS {
            let is_on = Arc::clone(&is_on);
            threads.push(std::thread::spawn(move || ask_much(port, client, &is_on)));
        }
        let (evicting, files) = (Arc::clone(&is_on), files.to_owned());
        threads.push(std::thread::spawn(move || evict(&files, &evicting)));
        Load { is_on, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_on.store(false, Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn ask_much(port: u16, client: usize, is_on: &AtomicBool) {
    let mut number = client * 31;
    while is_on.load(Relaxed) {
        number = (number * 1_103_515_245 + 12_345) % (1 << 31);
        let file = number / 7 % FILES;
        let (path, headers) = match number / 3 % 20 {
            0 | 1 => ("/missing".to_owned(), ""),
            2..7 => (format!("/{file}"), ""),
            7..13 => (format!("/cached/{file}"), ""),
            13 => (format!("/limited/{file}?key={}", number % 3), ""),
            14 => (format!("/packed/{file}"), "Accept-Encoding: gzip\r\n"),
            15 => (format!("/packed/{file}"), "Accept-Encoding: zstd\r\n"),
            16 => (format!("/closed/{file}"), RIGHT),
            17 => (format!("/closed/{file}"), WRONG),
            18 => (format!("/put-together/{file}"), ""),
            _ => (format!("/{file}"), PROXY),
        };
        let asked = match headers {
            PROXY => format!("{PROXY}GET {path} HTTP/1.0\r\n\r\n"),
            _ => format!("GET {path} HTTP/1.0\r\n{headers}\r\n"),
        };
        say(port + if headers == PROXY { 2 } else { 0 }, &asked);
        std::thread::sleep(PAUSE);
    }
}

/// Asks for one thing: all of the answer, or as much as came.
pub fn ask(port: u16, path: &str) -> String {
    say(port, &format!("GET {path} HTTP/1.0\r\n\r\n"))
}

fn say(port: u16, request: &str) -> String {
    let mut answer = Vec::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let asked = stream.write_all(request.as_bytes());
        let _ = asked.and_then(|()| stream.read_to_end(&mut answer));
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Puts one file after the other out of memory, so that some are always to be read from the disk.
fn evict(files: &Path, is_on: &AtomicBool) {
    let paths: Vec<PathBuf> = (0..FILES)
        .map(|file| files.join(file.to_string()))
        .collect();
    for path in paths.iter().cycle() {
        if !is_on.load(Relaxed) {
            return;
        }
        if let Ok(file) = File::open(path) {
            let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        std::thread::sleep(PAUSE);
    }
}
