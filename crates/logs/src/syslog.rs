//! `syslog:…`: the parameter's grammar, the header of a message (RFC 3164 as nginx writes it), and the socket.
//!
//! Invariant: sending never waits, not even for the reader of a unix socket: a message that the kernel does not take at
//! once is lost and counted. A socket that failed is reopened for the next message.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::file::Complaint;
use super::level::Level;
use crate::getaddrinfo::Hosts;
use crate::wall_clock::Clock;
use sys::UNIX_PATH_MAX;

/// Maximum bytes of a message's header, more than any needs: `<191>`, time, host name, tag.
pub(super) const HEAD_BYTES_MAX: usize = 512;
/// The port of syslog (RFC 3164 2).
const PORT: u16 = 514;
/// RFC 3164 4.1.3.
const TAG_BYTES_MAX: usize = 32;
const LOCAL7: u8 = 23;
/// Minimum interval between two complaints about a server that takes nothing.
const COMPLAIN_EVERY: Duration = Duration::from_secs(1);

const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv",
    "ftp", "ntp", "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

/// The address of a syslog server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// UDP.
    Udp(SocketAddr),
    /// A unix datagram socket.
    Unix(PathBuf),
    /// UDP, by name: to be resolved where blocking is allowed ([`Peer::resolve`]).
    Name(String, u16),
}

/// The value of `syslog:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    server: Server,
    /// As written, for messages.
    name: String,
    facility: u8,
    severity: u8,
    tag: Bytes,
    hostname: bool,
}

/// The reason why it is refused; the texts are nginx's.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Problem {
    /// No `server=`.
    #[error("no syslog server specified")]
    NoServer,
    /// A parameter twice.
    #[error("duplicate syslog \"{0}\"")]
    Duplicate(&'static str),
    /// An unknown facility.
    #[error("unknown syslog facility \"{0}\"")]
    Facility(String),
    /// An unknown severity.
    #[error("unknown syslog severity \"{0}\"")]
    Severity(String),
    /// A tag of more than 32 characters.
    #[error("syslog tag length exceeds 32")]
    TagLength,
    /// A tag with other characters.
    #[error("syslog \"tag\" only allows alphanumeric characters and underscore")]
    Tag,
    /// A server that cannot be parsed, and the reason.
    #[error("{1} in syslog server \"{0}\"")]
    Server(String, &'static str),
    /// A name that the resolver does not know.
    #[error("host not found in syslog server \"{0}\"")]
    NotFound(String),
    /// Anything else.
    #[error("unknown syslog parameter \"{0}\"")]
    Parameter(String),
}

impl Peer {
    /// Parses the value of `syslog:`.
    ///
    /// # Errors
    /// An unknown or wrong parameter.
    pub fn parse(text: &[u8]) -> Result<Self, Problem> {
        let (mut server, mut facility, mut severity, mut tag, mut hostname) =
            (None, None, None, None, true);
        for part in text.split(|byte| *byte == b',') {
            let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            if let Some(value) = part.strip_prefix(b"server=") {
                let parsed = (parse_server(value)?, lossy(value));
                once(&mut server, parsed, "server")?;
            } else if let Some(value) = part.strip_prefix(b"facility=") {
                let found = FACILITIES.iter().position(|name| name.as_bytes() == value);
                let number = found.ok_or_else(|| Problem::Facility(lossy(value)))?;
                once(
                    &mut facility,
                    u8::try_from(number).expect("24 facilities"),
                    "facility",
                )?;
            } else if let Some(value) = part.strip_prefix(b"severity=") {
                let level =
                    Level::from_name(value).ok_or_else(|| Problem::Severity(lossy(value)))?;
                once(&mut severity, level.severity(), "severity")?;
            } else if let Some(value) = part.strip_prefix(b"tag=") {
                check_tag(value)?;
                once(&mut tag, Bytes::copy_from_slice(value), "tag")?;
            } else if part == b"nohostname" {
                hostname = false;
            } else {
                return Err(Problem::Parameter(lossy(part)));
            }
        }
        let (server, name) = server.ok_or(Problem::NoServer)?;
        Ok(Self {
            server,
            name,
            facility: facility.unwrap_or(LOCAL7),
            severity: severity.unwrap_or_else(|| Level::Info.severity()),
            tag: tag.unwrap_or(Bytes::from_static(b"nginx")),
            hostname,
        })
    }

    /// Resolves the server's name, if it is one. Blocks: for the thread that builds settings, not for a loop.
    ///
    /// # Errors
    /// The name is not found.
    pub fn resolve(&mut self, hosts: &Hosts) -> Result<(), Problem> {
        if let Server::Name(host, port) = &self.server {
            let found = hosts.of(host).first().map(|ip| SocketAddr::new(*ip, *port));
            self.server = Server::Udp(found.ok_or_else(|| Problem::NotFound(self.name.clone()))?);
        }
        Ok(())
    }
}

fn once<T>(slot: &mut Option<T>, value: T, name: &'static str) -> Result<(), Problem> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Problem::Duplicate(name)),
    }
}

fn check_tag(tag: &[u8]) -> Result<(), Problem> {
    if tag.len() > TAG_BYTES_MAX {
        return Err(Problem::TagLength);
    }
    let plain = tag
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if plain { Ok(()) } else { Err(Problem::Tag) }
}

fn parse_server(value: &[u8]) -> Result<Server, Problem> {
    let refuse = |why| Problem::Server(String::from_utf8_lossy(value).into_owned(), why);
    if let Some(path) = value.strip_prefix(b"unix:") {
        use std::os::unix::ffi::OsStrExt as _;
        if path.is_empty() {
            return Err(refuse("no path in the unix domain socket"));
        }
        if path.len() + 1 > UNIX_PATH_MAX {
            return Err(refuse("too long path in the unix domain socket"));
        }
        return Ok(Server::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(
            path,
        ))));
    }
    let text = std::str::from_utf8(value).map_err(|_| refuse("invalid host"))?;
    if let Some(mut address) = config::parse_ip_and_port(value) {
        if address.port() == 0 {
            address.set_port(PORT);
        }
        return Ok(Server::Udp(address));
    }
    let (host, port) = text.split_once(':').unwrap_or((text, "514"));
    let port = config::parse_number(port.as_bytes())
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0)
        .ok_or_else(|| refuse("invalid port"))?;
    if host.is_empty() {
        return Err(refuse("no host"));
    }
    Ok(Server::Name(host.to_owned(), port))
}

/// The header in front of a message.
#[derive(Debug)]
pub struct Head {
    facility: u8,
    severity: u8,
    /// Host name (unless `nohostname`), tag, colon and blank.
    rest: Box<[u8]>,
}

impl Head {
    /// The severity of an access log's messages (an error log's follows each line's level).
    #[must_use]
    pub fn severity(&self) -> u8 {
        self.severity
    }

    /// Appends `<PRI>Mmm dd hh:mm:ss host tag: `.
    pub fn append(&self, severity: u8, clock: &Clock, out: &mut Vec<u8>) {
        out.push(b'<');
        out.extend_from_slice(
            itoa::Buffer::new()
                .format(self.facility * 8 + severity)
                .as_bytes(),
        );
        out.push(b'>');
        out.extend_from_slice(&clock.time_syslog());
        out.extend_from_slice(&self.rest);
    }
}

/// A connection to a syslog server.
#[derive(Debug)]
pub(super) struct Syslog {
    pub head: Head,
    server: Server,
    name: String,
    socket: Mutex<Socket>,
}

#[derive(Debug, Default)]
struct Socket {
    open: Option<OwnedFd>,
    complained: Option<Instant>,
}

impl Syslog {
    pub(crate) fn new(peer: &Peer) -> Self {
        let mut rest = vec![b' '];
        if peer.hostname {
            // nginx lower-cases the machine's name.
            let name = nix::unistd::gethostname().unwrap_or_default();
            rest.extend_from_slice(&name.as_encoded_bytes().to_ascii_lowercase());
            rest.push(b' ');
        }
        rest.extend_from_slice(&peer.tag);
        rest.extend_from_slice(b": ");
        Self {
            head: Head {
                facility: peer.facility,
                severity: peer.severity,
                rest: rest.into(),
            },
            server: peer.server.clone(),
            name: peer.name.clone(),
            socket: Mutex::default(),
        }
    }

    /// Sends one message, header included.
    pub(crate) fn send(&self, packet: &[u8]) -> Result<(), Complaint> {
        let mut socket = self.socket.lock();
        let sent = match &socket.open {
            Some(open) => Ok(open),
            None => match connect(&self.server) {
                Ok(open) => Ok(&*socket.open.insert(open)),
                Err(failure) => Err(failure),
            },
        }
        .and_then(|open| {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            rustix::net::send(open, packet, flags)
                .map(drop)
                .map_err(|error| ("send", error.into()))
        });
        sent.map_err(|(call, error)| self.complain(&mut socket, call, &error))
    }

    fn complain(&self, socket: &mut Socket, call: &str, error: &io::Error) -> Complaint {
        socket.open = None;
        let now = Instant::now();
        let mut text = Vec::new();
        if socket
            .complained
            .is_none_or(|last| now >= last + COMPLAIN_EVERY)
        {
            socket.complained = Some(now);
            text.extend_from_slice(call.as_bytes());
            text.extend_from_slice(b"() failed");
            super::append_os_error(&mut text, error);
            text.extend_from_slice(b" while logging to syslog, server: ");
            text.extend_from_slice(self.name.as_bytes());
        }
        Complaint {
            text,
            level: Level::Error,
            lost: 1,
        }
    }
}

fn connect(server: &Server) -> Result<OwnedFd, (&'static str, io::Error)> {
    let family = match server {
        Server::Udp(SocketAddr::V4(_)) => AddressFamily::INET,
        Server::Udp(SocketAddr::V6(_)) => AddressFamily::INET6,
        Server::Unix(_) => AddressFamily::UNIX,
        // Settings resolve names before they make a sink.
        Server::Name(..) => return Err(("connect", io::ErrorKind::AddrNotAvailable.into())),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)
        .map_err(|error| ("socket", error.into()))?;
    let connected = match server {
        Server::Udp(address) => rustix::net::connect(&socket, address),
        Server::Unix(path) => {
            SocketAddrUnix::new(path).and_then(|address| rustix::net::connect(&socket, &address))
        }
        Server::Name(..) => unreachable!("refused above"),
    };
    connected
        .map(|()| socket)
        .map_err(|error| ("connect", error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_as_nginx_reads_them() {
        let peer = Peer::parse(b"server=127.0.0.1:8981").unwrap();
        assert_eq!(peer.server, Server::Udp("127.0.0.1:8981".parse().unwrap()));
        assert_eq!(
            (peer.facility, peer.severity, &peer.tag[..], peer.hostname),
            (23, 6, &b"nginx"[..], true)
        );
        let peer =
            Peer::parse(b"severity=alert,facility=user,tag=A_1,nohostname,server=[::1]").unwrap();
        assert_eq!(peer.server, Server::Udp("[::1]:514".parse().unwrap()));
        assert_eq!(
            (peer.facility, peer.severity, &peer.tag[..], peer.hostname),
            (1, 1, &b"A_1"[..], false)
        );
        assert_eq!(
            Peer::parse(b"server=unix:/dev/log").unwrap().server,
            Server::Unix("/dev/log".into())
        );
        assert_eq!(
            Peer::parse(b"server=010.0.0.1").unwrap().server,
            Server::Udp("10.0.0.1:514".parse().unwrap())
        );
        assert_eq!(
            Peer::parse(b"server=logs:99").unwrap().server,
            Server::Name("logs".into(), 99)
        );
    }

    #[test]
    fn wrong_parameters_are_refused_with_nginx_s_words() {
        let long_tag = format!("server=1.1.1.1,tag={}", "a".repeat(33));
        for (text, words) in [
            ("tag=a", "no syslog server specified"),
            (
                "server=1.1.1.1,server=1.1.1.1",
                "duplicate syslog \"server\"",
            ),
            (
                "server=1.1.1.1,facility=no",
                "unknown syslog facility \"no\"",
            ),
            (
                "server=1.1.1.1,severity=err",
                "unknown syslog severity \"err\"",
            ),
            (&long_tag, "syslog tag length exceeds 32"),
            (
                "server=1.1.1.1,tag=a-b",
                "syslog \"tag\" only allows alphanumeric characters and underscore",
            ),
            ("server=1.1.1.1,x", "unknown syslog parameter \"x\""),
            ("server=a:0", "invalid port in syslog server \"a:0\""),
            ("server=a:+5", "invalid port in syslog server \"a:+5\""),
        ] {
            assert_eq!(Peer::parse(text.as_bytes()).unwrap_err().to_string(), words);
        }
    }
}
