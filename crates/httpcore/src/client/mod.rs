//! The client of a connection, as requests see it: addresses, scheme, counts, ages.

pub mod proxy_protocol;

use std::cell::{Cell, OnceCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use logs::{ErrorContext, ErrorLogs, Level};
use runtime::listen::Address;
use runtime::{Listener, Loop};

use crate::http_loop::HttpLoop;
use crate::http_loop::generation::Generation;
use crate::route::ServerId;
use crate::tls::ClientTls;

use proxy_protocol::ProxyProtocol;

/// The scheme of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

impl Scheme {
    /// The scheme of this name, in lower case.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        [Self::Http, Self::Https]
            .into_iter()
            .find(|scheme| scheme.name() == name)
    }

    /// Its name, without the colon.
    #[must_use]
    pub const fn name(self) -> &'static [u8] {
        match self {
            Self::Http => b"http",
            Self::Https => b"https",
        }
    }

    /// The port of URLs that name none.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub const fn is_secure(self) -> bool {
        matches!(self, Self::Https)
    }
}

/// A connection and its client, as far as they are known.
#[derive(Debug)]
pub struct Client {
    /// The loop that it lives on.
    pub loop_: Rc<Loop>,
    /// What HTTP has on that loop.
    pub http: Rc<HttpLoop>,
    /// nginx's connection number.
    pub number: u64,
    /// The client's address; `None` at unix sockets.
    pub peer: Option<SocketAddr>,
    /// The address that the client connected to; `None` at unix sockets.
    pub local: Option<SocketAddr>,
    /// The listening socket that accepted it.
    pub listener: Arc<Listener>,
    /// Number of requests so far, including the current ones.
    pub requests: Cell<u64>,
    /// When it was accepted, in the loop's milliseconds.
    pub accepted_ms: u64,
    /// The client as a proxy named it before the first request.
    proxied: OnceCell<Rc<ProxyProtocol>>,
    /// What its handshake of TLS has brought; empty in clear.
    tls: OnceCell<Rc<ClientTls>>,
    /// Whether it speaks in clear where TLS is spoken.
    is_plain_on_tls: Cell<bool>,
    /// The entry of the listening table, with the generation that it was looked up in.
    entry: Cell<Option<(u64, usize)>>,
}

impl Client {
    /// The client of a new connection.
    #[must_use]
    pub fn new(
        loop_: Rc<Loop>,
        http: Rc<HttpLoop>,
        number: u64,
        peer: Option<SocketAddr>,
        local: Option<SocketAddr>,
        listener: Arc<Listener>,
    ) -> Self {
        Self {
            loop_,
            http,
            number,
            peer,
            local,
            listener,
            requests: Cell::new(0),
            accepted_ms: wire::loop_clock::monotonic_ms(),
            proxied: OnceCell::new(),
            tls: OnceCell::new(),
            is_plain_on_tls: Cell::new(false),
            entry: Cell::new(None),
        }
    }

    /// The same connection's client for one request, with another address (`real_ip_header`).
    #[must_use]
    pub fn behind(&self, peer: SocketAddr) -> Self {
        Self {
            peer: Some(peer),
            ..self.copied()
        }
    }

    /// The same connection's client in its handshake, as far as that has come.
    #[must_use]
    pub fn in_handshake(&self, tls: ClientTls) -> Self {
        Self {
            tls: OnceCell::from(Rc::new(tls)),
            is_plain_on_tls: Cell::new(false),
            ..self.copied()
        }
    }

    fn copied(&self) -> Self {
        Self {
            loop_: Rc::clone(&self.loop_),
            http: Rc::clone(&self.http),
            listener: Arc::clone(&self.listener),
            requests: self.requests.clone(),
            proxied: self.proxied.clone(),
            tls: self.tls.clone(),
            is_plain_on_tls: self.is_plain_on_tls.clone(),
            entry: self.entry.clone(),
            ..*self
        }
    }

    /// Records the client that a proxy named.
    pub fn set_proxied(&self, said: Box<ProxyProtocol>) {
        // There is only one header.
        let _ = self.proxied.set(said.into());
    }

    /// The client as a proxy named it before the first request.
    #[must_use]
    pub fn proxied(&self) -> Option<&ProxyProtocol> {
        self.proxied.get().map(|said| &**said)
    }

    /// The client's address; `None` at unix sockets.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.peer.map(|peer| peer.ip())
    }

    /// The client's port; `None` at unix sockets, and where only an address is known.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.peer.map(|peer| peer.port()).filter(|port| *port > 0)
    }

    /// Records what the handshake of TLS has brought.
    pub fn set_tls(&self, tls: ClientTls) {
        // There is only one handshake.
        let _ = self.tls.set(Rc::new(tls));
    }

    /// What the handshake of TLS has brought; `None` in clear.
    #[inline]
    #[must_use]
    pub fn tls(&self) -> Option<&ClientTls> {
        self.tls.get().map(|tls| &**tls)
    }

    /// Records that it speaks in clear where TLS is spoken.
    pub fn set_plain_on_tls(&self) {
        self.is_plain_on_tls.set(true);
    }

    /// Whether it speaks in clear where TLS is spoken: its request is answered with 497.
    #[must_use]
    pub fn is_plain_on_tls(&self) -> bool {
        self.is_plain_on_tls.get()
    }

    /// The scheme of the URLs that the client asks for.
    #[inline]
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        match self.tls() {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        }
    }

    /// The connection's age in milliseconds.
    #[must_use]
    pub fn age_ms(&self) -> u64 {
        wire::loop_clock::monotonic_ms().saturating_sub(self.accepted_ms)
    }

    /// The port that the client connected to; `None` at unix sockets.
    #[must_use]
    pub fn server_port(&self) -> Option<u16> {
        self.local.map(|local| local.port())
    }

    /// Appends the address that the client connected to: `127.0.0.1`, `::1` or `unix:PATH`.
    pub fn append_server_addr(&self, out: &mut Vec<u8>) {
        match (self.local, self.listener.address.unix_path()) {
            (Some(local), _) => append_ip(local.ip(), out),
            (None, Some(path)) => {
                use std::os::unix::ffi::OsStrExt as _;
                out.extend_from_slice(b"unix:");
                out.extend_from_slice(path.as_os_str().as_bytes());
            }
            (None, None) => {}
        }
    }

    /// Appends the client's address; `unix:` at unix sockets.
    pub fn append_remote_addr(&self, out: &mut Vec<u8>) {
        match self.peer {
            Some(peer) => append_ip(peer.ip(), out),
            None => out.extend_from_slice(b"unix:"),
        }
    }

    /// The entry of the listening table that the connection belongs to; `None` when a reload took it away.
    #[must_use]
    pub fn entry(&self, generation: &Generation) -> Option<usize> {
        if let Some((number, entry)) = self.entry.get()
            && number == generation.number
        {
            return Some(entry);
        }
        let listens = &generation.settings.listens;
        let local = self
            .local
            .map_or_else(|| self.listener.address.clone(), Address::Inet);
        let entry = listens
            .find(&local)
            .or_else(|| listens.find(&self.listener.address))?;
        self.entry.set(Some((generation.number, entry)));
        Some(entry)
    }

    /// The configuration for what begins now on the connection: where a reload took its address away, the last one that
    /// had it, so that what its client has sent already is answered, as by a worker of nginx that shuts down.
    #[must_use]
    pub fn generation(&self) -> Rc<Generation> {
        let current = self.http.generation();
        match self.is_removed() {
            false => current,
            true => {
                let removed = self.http.removed(|it| self.entry(it).is_some());
                removed.unwrap_or(current)
            }
        }
    }

    /// Whether a reload took the connection's address away: it has no other request behind the one that comes next.
    #[inline]
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.http.has_removed() && self.entry(&self.http.generation()).is_none()
    }

    /// The server for requests whose host no server has: the one that the client asked for in its handshake of TLS, else
    /// the default server of the address. `None` when a reload took the address away.
    #[must_use]
    pub fn default_server(&self, generation: &Generation) -> Option<ServerId> {
        let entry = self.entry(generation)?;
        Some(self.default_server_at(generation, entry))
    }

    /// As [`Client::default_server`], for a caller that has looked up the entry of the listening table.
    #[inline]
    #[must_use]
    pub fn default_server_at(&self, generation: &Generation, entry: usize) -> ServerId {
        match self.tls() {
            None => generation.settings.listens.entries()[entry].default,
            Some(tls) => server_of_handshake(tls, generation, entry),
        }
    }

    /// Logs a line about the connection, outside any request, to the error logs of its server.
    pub fn log(&self, generation: &Generation, level: Level, text: &str) {
        if let Some(server) = self.default_server(generation) {
            self.log_of((generation, server), level, text);
        }
    }

    /// As [`Client::log`], to the error logs of a server that a handshake of TLS has chosen and not finished with.
    pub fn log_of(&self, of: (&Generation, ServerId), level: Level, text: &str) {
        let logs = error_logs(of);
        if !logs.wants(level) {
            return;
        }
        // The listening address, as in nginx; it may stand for many.
        let address = self.listener.address.to_string();
        let context = ErrorContext {
            server: Some(address.as_bytes()),
            ..ErrorContext::default()
        };
        self.tell(logs, level, context, &|out| {
            out.extend_from_slice(text.as_bytes());
        });
    }

    /// Logs that the client has closed its connection between two requests: as in nginx, a line without a context.
    pub fn log_kept_closed(&self, generation: &Generation) {
        let Some(server) = self.default_server(generation) else {
            return;
        };
        let logs = error_logs((generation, server));
        let (feed, number) = (&self.loop_.feed, Some(self.number));
        feed.error(logs, Level::Info, number, |out| {
            out.extend_from_slice(b"client ");
            self.append_remote_addr(out);
            out.extend_from_slice(b" closed keepalive connection");
        });
    }

    /// Logs a line with the client's address in its context, if a log takes that level.
    pub fn tell(
        &self,
        logs: &ErrorLogs,
        level: Level,
        context: ErrorContext<'_>,
        text: &dyn Fn(&mut Vec<u8>),
    ) {
        if !logs.wants(level) {
            return;
        }
        let mut address = Vec::new();
        self.append_remote_addr(&mut address);
        let context = ErrorContext {
            client: Some(&address),
            ..context
        };
        self.loop_
            .feed
            .error(logs, level, Some(self.number), |out| {
                text(out);
                context.append(out);
            });
    }
}

/// The error logs of a server.
fn error_logs((generation, server): (&Generation, ServerId)) -> &ErrorLogs {
    let settings = &generation.settings;
    settings
        .location(settings.server(server).location)
        .error_logs()
}

/// The server of the name that a client asked for in its handshake.
fn server_of_handshake(tls: &ClientTls, generation: &Generation, entry: usize) -> ServerId {
    let (number, server) = tls.server.get();
    if number == generation.number {
        return server;
    }
    let name = tls.hello.server_name.as_deref();
    let server = generation.settings.server_of_name(entry, name);
    let server = server.unwrap_or(generation.settings.listens.entries()[entry].default);
    tls.server.set((generation.number, server));
    server
}

/// Appends an address without its port.
fn append_ip(ip: IpAddr, out: &mut Vec<u8>) {
    use std::io::Write as _;
    // Writing to memory cannot fail.
    let _ = write!(out, "{ip}");
}
