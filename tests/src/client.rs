//! A connection to the server under test: bytes out, bytes or answers in, each wait bounded.

use crate::reply::{Reply, split_reply};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long any one wait for the server lasts before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A connected socket and what was read ahead from it.
pub struct Connection {
    stream: TcpStream,
    ahead: Vec<u8>,
}

impl Connection {
    /// Wraps a connected socket.
    pub fn new(stream: TcpStream) -> Connection {
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout above zero is valid");
        stream
            .set_write_timeout(Some(PATIENCE))
            .expect("a timeout above zero is valid");
        stream
            .set_nodelay(true)
            .expect("a connected socket takes TCP_NODELAY");
        Connection {
            stream,
            ahead: Vec::new(),
        }
    }

    /// Sends bytes as they are. A server that has closed already is no error here: what it said is what counts.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Connection {
        match self.stream.write_all(bytes.as_ref()) {
            Err(error) if !is_closed(&error) => panic!("cannot send: {error}"),
            _ => self,
        }
    }

    /// The next answer, to a request other than HEAD.
    ///
    /// # Panics
    /// When the connection ends or 10 s pass before it is complete.
    pub fn reply(&mut self) -> Reply {
        self.reply_to("GET")
    }

    /// The next answer, to a request of that method.
    pub fn reply_to(&mut self, method: &str) -> Reply {
        loop {
            if let Some((reply, used)) = split_reply(&self.ahead, method == "HEAD", false) {
                self.ahead.drain(..used);
                return reply;
            }
            if !self.read_more() {
                let whole = split_reply(&self.ahead, method == "HEAD", true);
                let (reply, used) = whole.unwrap_or_else(|| {
                    panic!("cut answer: {:?}", String::from_utf8_lossy(&self.ahead))
                });
                self.ahead.drain(..used);
                return reply;
            }
        }
    }

    /// All bytes until the server closes.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.read_more() {}
        std::mem::take(&mut self.ahead)
    }

    /// Exactly that many bytes.
    pub fn read(&mut self, count: usize) -> Vec<u8> {
        while self.ahead.len() < count {
            assert!(
                self.read_more(),
                "closed after {} of {count} bytes",
                self.ahead.len()
            );
        }
        self.ahead.drain(..count).collect()
    }

    /// All up to `text`, and that.
    ///
    /// # Panics
    /// The server closes before it.
    pub fn until(&mut self, text: &str) -> String {
        loop {
            let found = self
                .ahead
                .windows(text.len())
                .position(|part| part == text.as_bytes());
            if let Some(at) = found {
                let upto = self.ahead.drain(..at + text.len()).collect::<Vec<u8>>();
                return String::from_utf8_lossy(&upto).into_owned();
            }
            assert!(self.read_more(), "closed without {text:?}");
        }
    }

    /// Whether the server has closed, with nothing left to read; waits for it.
    pub fn is_closed(&mut self) -> bool {
        self.rest().is_empty()
    }

    /// The socket, for options and half-closes.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads once; false at the end of the connection.
    fn read_more(&mut self) -> bool {
        let mut buffer = [0; 65_536];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.ahead.extend_from_slice(&buffer[..count]);
                true
            }
            Err(error) if is_closed(&error) => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) => panic!(
                "no answer ({error}); so far {:?}",
                String::from_utf8_lossy(&self.ahead)
            ),
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
    )
}
