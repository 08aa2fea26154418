//! `origin`: the server behind the caches that are measured. A path says what its answer is (see `bench::content`); requests are
//! counted by path.
//!
//! Not a web server: GET and HEAD without a body, from a proxy that is trusted. One thread, so that it is pinned to one core.
//!
//! ```text
//! /SIZE[,OPTION…]/KEY    the answer
//! /_counts               all counts as JSON: requests, bytes (of bodies), connections, not_modified, cut, held_ms, held_by_large_ms, keys, most (requests for one key)
//! /_count/PATH           requests for /PATH
//! /_reset                forgets the counts
//! ```
//!
//! With a number of workers only so many requests are answered at a time, as by a program with as many blocking threads; the others wait. The
//! counts say how long (held_ms; by answers that the kernel does not take at once: held_by_large_ms), from an answer's begin until the kernel has
//! taken its last byte.

mod answer;
mod counts;

use counts::Counts;
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::rc::Rc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

/// Waiting connections: 1000 clients of a proxy may miss at once.
const BACKLOG: u32 = 4096;
const HEAD_MAX: usize = 65_536;
const READ: usize = 16_384;

/// What all connections share.
struct Origin {
    bytes: bench::content::Bytes,
    counts: RefCell<Counts>,
    workers: Semaphore,
    /// Of each connection, so that a worker is done when the proxy has taken an answer, not when the kernel has.
    send_buffer: Option<u32>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(address), Some([workers, send_buffer])) = (arguments.first(), numbers(&arguments))
    else {
        eprintln!(
            "usage: origin ADDRESS:PORT [WORKERS [SEND_BUFFER]]\n  says `ready`; serves until it is killed"
        );
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system gives an epoll descriptor");
    match LocalSet::new().block_on(&runtime, serve(address, workers, send_buffer)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("origin: {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Workers and send buffer, as far as they are given; None: they are no numbers.
fn numbers(arguments: &[String]) -> Option<[Option<u32>; 2]> {
    let number = |at: usize| arguments.get(at).map(|text| text.parse()).transpose().ok();
    Some([number(1)?, number(2)?])
}

async fn serve(address: &str, workers: Option<u32>, send_buffer: Option<u32>) -> io::Result<()> {
    let address = address
        .parse()
        .map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener: TcpListener = socket.listen(BACKLOG)?;
    println!("ready");
    let origin = Rc::new(Origin {
        bytes: bench::content::Bytes::new(),
        counts: RefCell::default(),
        workers: Semaphore::new(workers.map_or(Semaphore::MAX_PERMITS, |workers| workers as usize)),
        send_buffer,
    });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        if let Some(size) = origin.send_buffer {
            socket2::SockRef::from(&stream).set_send_buffer_size(size as usize)?;
        }
        origin.counts.borrow_mut().connection();
        let origin = Rc::clone(&origin);
        tokio::task::spawn_local(async move {
            // A proxy that hangs up is nothing to speak of; what it lost shows in its answers.
            let _ = converse(&stream, &origin).await;
        });
    }
}

/// Answers until the peer ends, an answer is to end in the middle, or a request is none.
async fn converse(stream: &TcpStream, origin: &Origin) -> io::Result<()> {
    let mut ahead: Vec<u8> = Vec::with_capacity(READ);
    loop {
        let Some(end) = ahead.windows(4).position(|window| window == b"\r\n\r\n") else {
            if ahead.len() > HEAD_MAX || read(stream, &mut ahead).await? == 0 {
                return Ok(());
            }
            continue;
        };
        let is_last = match answer::Request::parse(&ahead[..end]) {
            Some(request) => answer::give(stream, origin, &request).await?,
            None => {
                answer::refuse(stream).await?;
                true
            }
        };
        ahead.drain(..end + 4);
        if is_last {
            return Ok(());
        }
    }
}

async fn read(stream: &TcpStream, into: &mut Vec<u8>) -> io::Result<usize> {
    into.reserve(READ);
    loop {
        match stream.try_read_buf(into) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.readable().await?,
            other => return other,
        }
    }
}
