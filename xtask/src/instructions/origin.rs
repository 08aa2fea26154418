//! What stands behind the proxy: answers every request with as many bytes as its path ends with, and keeps the connection.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// More than any request here asks for.
const BYTES_MAX: usize = 1 << 20;

/// Its address; it runs as long as this process.
pub fn start() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    Ok(address)
}

/// Until the connection is closed.
fn answer(stream: TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let size = line.split(' ').nth(1)?.rsplit('/').next()?.parse().ok()?;
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        }
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {size}\r\n\r\n"
        );
        let mut answer = head.into_bytes();
        answer.resize(answer.len() + BYTES_MAX.min(size), b'x');
        writer.write_all(&answer).ok()?;
    }
}
