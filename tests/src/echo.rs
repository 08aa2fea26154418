//! A server that sends bodies back while they come.

use std::io::{Read as _, Take, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

/// The port of a server of HTTP/1 that sends the pieces of a body back as they come.
#[must_use]
pub fn echo() -> u16 {
    start(|mut from, to| std::io::copy(&mut from, to).ok().map(drop))
}

/// The same, of a server that takes pieces of the body whether its client takes the response or not.
#[must_use]
pub fn echo_ahead() -> u16 {
    start(|mut from, to| {
        let (pieces, taken) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                pieces.send(buffer[..count].to_vec()).ok()?;
            }
            Some(())
        });
        taken.iter().try_for_each(|piece| to.write_all(&piece).ok())
    })
}

type Echo = fn(Take<TcpStream>, &mut TcpStream) -> Option<()>;

fn start(echo: Echo) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it listens").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || send_back(&mut stream, echo));
        }
    });
    port
}

/// `None`: the connection is over, or what came is no request with a length.
fn send_back(stream: &mut TcpStream, echo: Echo) -> Option<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.split_once("content-length: ")?.1.lines().next()?;
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(answer.as_bytes()).ok()?;
    let body = stream.try_clone().ok()?.take(length.parse().ok()?);
    echo(body, stream)
}
