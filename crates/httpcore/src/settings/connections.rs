//! The directives of a location that concern its clients' connections.

use bytes::Bytes;
use config::{
    Flag, Msec, Number, Problem, Scope, Sec, Size, Template, Value, Word, directives, parse_size,
};
use logs::template::{Variables, expand};
use message::Method;

use crate::user_agent::Browser;

use super::http2::{Push, PushPreload};

/// `keepalive_timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveTimeout {
    /// How long an idle connection is kept, in milliseconds; 0: not at all.
    pub timeout_ms: u64,
    /// `Keep-Alive: timeout=` for the client, in seconds.
    pub told: Option<u64>,
}

impl Value for KeepaliveTimeout {
    const SYNTAX: &'static str = "timeout [header_timeout]";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let timeout_ms = Msec::parse(&args[..1], scope)?.0;
        let told = match args.get(1) {
            Some(_) => Some(
                Sec::parse(&args[1..], scope)
                    .map_err(|problem| problem.at(1))?
                    .0,
            ),
            None => None,
        };
        Ok(Self {
            timeout_ms,
            told: told.filter(|seconds| *seconds > 0),
        })
    }
}

config::choices! {
    /// `lingering_close`.
    pub enum Lingering {
        /// Never: the connection is closed at once.
        Off = "off",
        /// When the client may still be sending.
        On = "on",
        /// Always.
        Always = "always",
    }
}

config::choice_set! {
    /// `keepalive_disable`.
    pub struct Browsers: u32 {
        /// None.
        NONE = "none",
        /// Old MSIE, after a POST.
        MSIE6 = "msie6",
        /// Safari on macOS.
        SAFARI = "safari",
    }
}

impl Browsers {
    /// Whether a request with this method, and this `User-Agent`, is of one of them.
    pub fn include<'a>(self, method: Method, agent: impl FnOnce() -> &'a [u8]) -> bool {
        if method != Method::Post && !self.contains(Self::SAFARI) {
            return false;
        }
        match Browser::of(agent()) {
            Browser::Msie6 => method == Method::Post && self.contains(Self::MSIE6),
            Browser::Safari => self.contains(Self::SAFARI),
            _ => false,
        }
    }
}

directives! {
    /// Keep-alive connections of clients.
    pub struct Keepalive in Location {
        /// Sets how long a connection is kept open for the next request; `0` closes it after the first. The second
        /// argument is sent to the client as `Keep-Alive: timeout=`.
        keepalive_timeout: KeepaliveTimeout = "75s", [HTTP | SERVER | LOCATION] 1..=2;
        /// Sets how long an idle connection is protected from being closed to make room for others or because the
        /// worker exits. It is part of `keepalive_timeout`.
        keepalive_min_timeout: Msec = "0", [HTTP | SERVER | LOCATION] 1;
        /// Limits the number of requests on one connection.
        keepalive_requests: Number = "1000", [HTTP | SERVER | LOCATION] 1;
        /// Limits the age of a connection; it is closed after the request in progress.
        keepalive_time: Msec = "1h", [HTTP | SERVER | LOCATION] 1;
        /// Does not keep connections of misbehaving browsers open.
        keepalive_disable: Browsers = "msie6", [HTTP | SERVER | LOCATION] 1..=2;
    }
}

directives! {
    /// Sending responses.
    pub struct Sending in Location {
        /// Limits the time between two successive writes to the client.
        send_timeout: Msec = "60s", [HTTP | SERVER | LOCATION] 1;
        /// Sends small packets without delay (TCP_NODELAY).
        tcp_nodelay: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Sends the response head and the beginning of a file in full packets. Takes effect with `sendfile`.
        tcp_nopush: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Limits the rate of a response in bytes per second; may contain variables. `0` means no limit.
        ///
        /// A proxied response is limited where it is buffered (`proxy_buffering`).
        limit_rate: Option<SizeTemplate> = none, [HTTP | SERVER | LOCATION | LOCATION_IF] 1, syntax "rate";
        /// Sets the number of bytes sent before the rate is limited; may contain variables.
        limit_rate_after: Option<SizeTemplate> = none, [HTTP | SERVER | LOCATION | LOCATION_IF] 1, syntax "size";
        /// Sends responses of unknown length in chunks to HTTP/1.1 clients; with `off` they end with the connection.
        chunked_transfer_encoding: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets the maximum size of the frames that a response's body is sent in over HTTP/2; they never get larger than
        /// 16k.
        http2_chunk_size: ChunkSize = "8k", [HTTP | SERVER | LOCATION] 1;
        /// Obsolete and without effect: nothing is pushed.
        http2_push: Option<Push> = none, [HTTP | SERVER | LOCATION] 1, syntax "uri | off";
        /// Obsolete and without effect: nothing is pushed.
        http2_push_preload: Option<PushPreload> = none, [HTTP | SERVER | LOCATION] FLAG, syntax "on | off";
    }
}

directives! {
    /// Closing connections.
    pub struct Closing in Location {
        /// Sets when to read what the client is still sending before the connection is closed, so that the client
        /// receives the response.
        lingering_close: Lingering = "on", [HTTP | SERVER | LOCATION] 1;
        /// Limits the total time of lingering.
        lingering_time: Msec = "30s", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time between two reads while lingering.
        lingering_timeout: Msec = "5s", [HTTP | SERVER | LOCATION] 1;
        /// Resets connections that timed out, so that the kernel keeps nothing for them.
        reset_timedout_connection: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
    }
}

/// `http2_chunk_size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSize(usize);

impl ChunkSize {
    /// The size in bytes; at least 1.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.0
    }
}

impl Value for ChunkSize {
    const SYNTAX: &'static str = "size";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        match Size::parse(args, scope)?.bytes() {
            0 => Err(Problem::new("the http2 chunk size cannot be zero")),
            bytes => Ok(Self(bytes)),
        }
    }
}

/// A size that may have variables; one without is checked when it is read.
#[derive(Clone, Debug)]
pub struct SizeTemplate(Template);

impl SizeTemplate {
    /// Whether it has variables.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.0.literal().is_none()
    }

    /// The size for a request in bytes.
    ///
    /// # Errors
    /// The text, where it is no size.
    pub fn bytes(&self, variables: &impl Variables) -> Result<u64, Bytes> {
        let text = expand(&self.0, variables);
        parse_size(&text).ok_or(text)
    }
}

impl Value for SizeTemplate {
    const SYNTAX: &'static str = "size";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let template = <Template as Value>::parse(args, scope)?;
        if template.literal().is_some() {
            Size::parse(args, scope)?;
        }
        Ok(Self(template))
    }
}
