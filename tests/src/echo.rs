//! A server that sends bodies back while they come.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

/// The port of a server of HTTP/1 that sends the pieces of a body back as they come.
#[must_use]
pub fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it listens").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || send_back(&mut stream));
        }
    });
    port
}

/// `None`: the connection is over, or what came is no request with a length.
fn send_back(stream: &mut TcpStream) -> Option<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.split_once("content-length: ")?.1.lines().next()?;
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(answer.as_bytes()).ok()?;
    let mut body = stream.try_clone().ok()?.take(length.parse().ok()?);
    std::io::copy(&mut body, stream).ok().map(drop)
}
