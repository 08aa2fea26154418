//! A connection to an authority: bytes over TCP, in the clear or under TLS.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tls::handshake::{ClientNeedsInput, Connecting, Facts, verify_server};
use tls::traffic::Traffic;
use tls::verify::{Purpose, Trust};
use tls::x509::certificate::{AlternativeName, Certificate};
use wire::{call_failed, numbered};

use crate::Error;
use crate::clock::unix_now;

/// Maximum time to connect to one address.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes read at a time: a record of TLS.
const READ_BYTES: usize = 16 << 10;

/// A connection.
pub(super) struct Stream {
    socket: TcpStream,
    /// What the peer's name is in messages.
    peer: SocketAddr,
    deadline: Instant,
    secured: Option<Secured>,
}

struct Secured {
    traffic: Traffic,
    /// Records that have come, still sealed.
    sealed: Vec<u8>,
    is_closed: bool,
}

impl Stream {
    pub(super) fn connect(peer: SocketAddr, deadline: Instant) -> Result<Self, Error> {
        let failed = |error| {
            let error = numbered(&error);
            Error::Connection(format!("connect() to {peer} failed {error}"))
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = left.clamp(Duration::from_millis(1), CONNECT_TIME_MAX);
        let socket = TcpStream::connect_timeout(&peer, timeout).map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        Ok(Self {
            socket,
            peer,
            deadline,
            secured: None,
        })
    }

    pub(super) fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Runs a handshake and judges the server's certificate.
    pub(super) fn begin_tls(
        &mut self,
        client: &tls::configure::Client,
        host: &str,
        trust: Option<&Trust>,
    ) -> Result<(), Error> {
        let failed = |failure: tls::Failure| Error::Connection(failure.to_string());
        let mut waiting = ClientNeedsInput::new(client, host, None).map_err(failed)?;
        let connected = loop {
            let mut outgoing = Vec::new();
            let step = waiting.step(&mut outgoing);
            self.write_raw(&outgoing)?;
            match step.map_err(failed)? {
                Connecting::Complete(connected) => break connected,
                Connecting::NeedsInput(next) => waiting = next,
            }
            let mut bytes = Vec::new();
            if self.read_raw(&mut bytes)? == 0 {
                let peer = self.peer;
                return Err(Error::Connection(format!(
                    "{peer} closed the connection while SSL handshaking"
                )));
            }
            waiting.receive(&bytes);
        };
        if let Some(trust) = trust {
            judge(trust, &connected.facts, host)?;
        }
        self.secured = Some(Secured {
            traffic: connected.traffic,
            sealed: connected.rest,
            is_closed: false,
        });
        Ok(())
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some(secured) = &mut self.secured else {
            return self.write_raw(bytes);
        };
        let mut sealed = Vec::new();
        secured
            .traffic
            .seal(&[bytes], &mut sealed)
            .map_err(|failure| Error::Connection(failure.to_string()))?;
        self.write_raw(&sealed)
    }

    /// Appends bytes that have come, at least one; 0: there are no more.
    pub(super) fn read(&mut self, out: &mut Vec<u8>) -> Result<usize, Error> {
        loop {
            let Some(secured) = &mut self.secured else {
                return self.read_raw(out);
            };
            let mut replies = Vec::new();
            let opened = secured.traffic.open(&mut secured.sealed, &mut replies);
            let opened = opened.map_err(|failure| Error::Connection(failure.to_string()))?;
            out.extend_from_slice(&secured.sealed[..opened.plain]);
            secured.sealed.drain(..opened.consumed);
            secured.is_closed |= opened.is_closed;
            let is_closed = secured.is_closed;
            if !replies.is_empty() {
                self.write_raw(&replies)?;
            }
            if opened.plain > 0 || is_closed {
                return Ok(opened.plain);
            }
            let mut bytes = Vec::new();
            if self.read_raw(&mut bytes)? == 0 {
                return Ok(0);
            }
            if let Some(secured) = &mut self.secured {
                secured.sealed.extend_from_slice(&bytes);
            }
        }
    }

    fn write_raw(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let left = self.left()?;
        let sent = self.socket.set_write_timeout(Some(left));
        let sent = sent.and_then(|()| self.socket.write_all(bytes));
        sent.map_err(|error| self.failed("send", &error))
    }

    fn read_raw(&mut self, out: &mut Vec<u8>) -> Result<usize, Error> {
        let mut buffer = [0; READ_BYTES];
        loop {
            let left = self.left()?;
            let read = self.socket.set_read_timeout(Some(left));
            match read.and_then(|()| self.socket.read(&mut buffer)) {
                Ok(length) => {
                    out.extend_from_slice(&buffer[..length]);
                    return Ok(length);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("recv", &error)),
            }
        }
    }

    fn left(&self) -> Result<Duration, Error> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(self.timed_out()),
            false => Ok(left),
        }
    }

    fn timed_out(&self) -> Error {
        Error::Connection(format!("{} does not answer in time", self.peer))
    }

    fn failed(&self, call: &str, error: &std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => self.timed_out(),
            _ => {
                let told = call_failed(call, error);
                Error::Connection(format!("{told}, peer: {}", self.peer))
            }
        }
    }
}

/// Judges the certificates of a host, or of an address.
fn judge(trust: &Trust, facts: &Facts, host: &str) -> Result<(), Error> {
    let Ok(address) = host.parse::<IpAddr>() else {
        return verify_server(trust, facts, host, unix_now())
            .map_err(|fault| Error::Connection(fault.to_string()));
    };
    let chain = &facts.certificates;
    trust
        .verify(chain, Purpose::Server, unix_now())
        .map_err(|reason| {
            let number = reason.number();
            Error::Connection(format!(
                "upstream SSL certificate verify error: ({number}:{reason})"
            ))
        })?;
    let leaf = chain.first().and_then(|der| Certificate::read(der));
    let is_hosts = leaf.is_some_and(|leaf| {
        let names = leaf.names();
        names.contains(&AlternativeName::Address(address))
    });
    match is_hosts {
        true => Ok(()),
        false => Err(Error::Connection(format!(
            "upstream SSL certificate does not match \"{host}\""
        ))),
    }
}
