//! The directives of a location that passes requests on, and the types of their values.
//!
//! Not here: where `proxy_pass` leads (`url`), and what is made of these lines once for each location
//! (`proxy_pass`).

use bytes::Bytes;
use config::{
    Bufs, Flag, List, Msec, Number, Placed, Problem, Scope, Size, Template, Value, Word, directives,
};
use disk::TemporaryPlace;

use httpcore::settings::Settings;
use httpcore::settings::conditions::Conditions;
use httpcore::settings::connections::SizeTemplate;
use httpcore::settings::request_body::TempPath;
use upstream::next_upstream::NextUpstream;

use crate::settings::bind::Bind;
use crate::settings::cookie_flags::CookieFlags;
use crate::settings::family::Family;
use crate::settings::proxy_redirect::{CookieDomain, CookiePath, Lines, Redirect};
use crate::settings::url::ProxyPassUrl;

/// `proxy_http_version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0: no chunks, no kept connections unless they are asked for.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2, without a change from HTTP/1.1.
    Http2,
}

impl Value for HttpVersion {
    const SYNTAX: &'static str = "1.0 | 1.1 | 2";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        match &args[0].bytes()[..] {
            b"1.0" => Ok(Self::Http10),
            b"1.1" => Ok(Self::Http11),
            b"2" => Ok(Self::Http2),
            other => Err(config::not_one_of(other, &["1.0", "1.1", "2"])),
        }
    }
}

/// A `proxy_set_header` line.
#[derive(Debug, Clone)]
pub struct SetHeader {
    /// The name as it is sent.
    pub name: Bytes,
    /// The value; empty: the line is not sent, the client's neither.
    pub value: Template,
}

impl Value for SetHeader {
    const SYNTAX: &'static str = "field value";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let value = Template::of_word(&args[1], scope).map_err(|problem| problem.at(1))?;
        Ok(Self {
            name: args[0].bytes().clone(),
            value,
        })
    }
}

config::choice_set! {
    /// `proxy_ignore_headers`: lines of an answer that have no effect here.
    pub struct IgnoreHeaders: u32 {
        /// `X-Accel-Redirect`.
        X_ACCEL_REDIRECT = "X-Accel-Redirect",
        /// `X-Accel-Expires`.
        X_ACCEL_EXPIRES = "X-Accel-Expires",
        /// `X-Accel-Limit-Rate`.
        X_ACCEL_LIMIT_RATE = "X-Accel-Limit-Rate",
        /// `X-Accel-Buffering`.
        X_ACCEL_BUFFERING = "X-Accel-Buffering",
        /// `X-Accel-Charset`.
        X_ACCEL_CHARSET = "X-Accel-Charset",
        /// `Expires`.
        EXPIRES = "Expires",
        /// `Cache-Control`.
        CACHE_CONTROL = "Cache-Control",
        /// `Set-Cookie`.
        SET_COOKIE = "Set-Cookie",
        /// `Vary`.
        VARY = "Vary",
    }
}

directives! {
    /// Proxying (proxy_pass).
    pub struct Proxy in Location {
        /// Passes requests to a server or to a group of servers. A URI after the host replaces the part of the
        /// request's URI that matched the location's prefix; without one the request's URI is sent as received.
        proxy_pass: Option<Placed<ProxyPassUrl>> = none, [LOCATION | LOCATION_IF | LIMIT_EXCEPT] 1, inherit never, syntax "URL";
        /// Sets the method of the upstream request.
        proxy_method: Option<Template> = none, [HTTP | SERVER | LOCATION] 1, syntax "method";
        /// Sets the HTTP version of upstream connections. Keep-alive connections require 1.1 or 2. With 2 a connection begins
        /// with HTTP/2 at once (over TLS its name is offered), carries up to `keepalive_streams` requests at a time, and has no
        /// upgrades.
        proxy_http_version: HttpVersion = "1.1", [HTTP | SERVER | LOCATION] 1;
        /// Sets a header field of the upstream request; with an empty value it is not sent. A level with lines of its
        /// own inherits none. `Host` is `$proxy_host` by default.
        proxy_set_header: List<SetHeader> = none, [HTTP | SERVER | LOCATION] 2;
        /// Sets the body of the upstream request.
        proxy_set_body: Option<Template> = none, [HTTP | SERVER | LOCATION] 1, syntax "value";
        /// Passes on the trailers of a response.
        proxy_pass_trailers: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sends GET instead of HEAD to the origin so that the response can be stored. With `off` the key should
        /// contain `$request_method`.
        proxy_cache_convert_head: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
    }
}

directives! {
    /// Proxying: requests to upstream servers.
    pub struct RequestSettings in Location {
        /// Passes the client's header fields on.
        proxy_pass_request_headers: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Passes the client's body on.
        proxy_pass_request_body: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Reads the client's body completely before connecting to a server. With `off` it is passed on as it arrives,
        /// and the request cannot be sent to another server after that.
        proxy_request_buffering: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets the failures and statuses after which a request is passed to the next server.
        proxy_next_upstream: NextUpstream = "error timeout", [HTTP | SERVER | LOCATION] 1..;
        /// Limits the number of servers tried for one request; `0` means all of them.
        proxy_next_upstream_tries: Number = "0", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time in which a next server may be tried; `0` means no limit.
        proxy_next_upstream_timeout: Msec = "0", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time to connect to a server.
        proxy_connect_timeout: Msec = "60s", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time between two writes to a server.
        proxy_send_timeout: Msec = "60s", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time for the head of a response, from when the request has been sent, and then the time between two
        /// reads of its body.
        proxy_read_timeout: Msec = "60s", [HTTP | SERVER | LOCATION] 1;
        /// Continues with a request whose client has closed the connection.
        proxy_ignore_client_abort: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets the local address of connections to servers; may contain variables. With `transparent` it may be an
        /// address that is not local (`$remote_addr`), for which routing must be set up; a worker started by root keeps
        /// the capability for it (CAP_NET_RAW), and a reload that introduces the first such line is refused.
        proxy_bind: Option<Bind> = none, [HTTP | SERVER | LOCATION] 1..=2;
        /// Enables TCP keepalive on connections to servers (SO_KEEPALIVE).
        proxy_socket_keepalive: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets the size of the kernel's receive buffer of connections to servers.
        proxy_socket_rcvbuf: Option<Size> = none, [HTTP | SERVER | LOCATION] 1;
        /// Sets the size of the kernel's send buffer of connections to servers.
        proxy_socket_sndbuf: Option<Size> = none, [HTTP | SERVER | LOCATION] 1;
    }
}

directives! {
    /// Proxying: responses of upstream servers.
    pub struct ProxyAnswers in Location {
        /// Removes a header field from responses. `Date`, `Server`, `X-Pad` and `X-Accel-…` are removed by default.
        proxy_hide_header: List<Bytes> = none, [HTTP | SERVER | LOCATION] 1, syntax "field";
        /// Passes on a header field that is removed by default.
        proxy_pass_header: List<Bytes> = none, [HTTP | SERVER | LOCATION] 1, syntax "field";
        /// Ignores the meaning of these header fields of responses.
        proxy_ignore_headers: Option<IgnoreHeaders> = none, [HTTP | SERVER | LOCATION] 1.., syntax "field …";
        /// Reads a response ahead of a slow client so that its server is released: into `proxy_buffers`, then into a
        /// temporary file. Data is passed on at once in any case, and a client that keeps up causes neither. With `off`
        /// the server is held back instead. `X-Accel-Buffering` (`yes`, `no`) of a response overrides it.
        proxy_buffering: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Limits the head of a response.
        proxy_buffer_size: Placed<Size> = "4k", [HTTP | SERVER | LOCATION] 1;
        /// Sets how much of a response that was read ahead of its client is kept in memory: number times size. Not
        /// included are the piece being sent (at most 128 KiB) and data being written by the pool (up to 512 KiB; 8 MiB
        /// for all responses of a loop).
        proxy_buffers: Placed<Bufs> = "8 4k", [HTTP | SERVER | LOCATION] 2;
        /// Limits how much of the buffers may be in the process of being sent to the client. Checked as in nginx, but
        /// without effect: data is sent at once.
        proxy_busy_buffers_size: Option<Placed<Size>> = none, [HTTP | SERVER | LOCATION] 1;
        /// Limits the temporary file of a response; 1024m by default. Beyond it, and with `0` without such a file, the
        /// server is held back when its client is slow. The same applies when the disk is slow, full or broken: the
        /// response is then sent from memory.
        proxy_max_temp_file_size: Option<Placed<Size>> = none, [HTTP | SERVER | LOCATION] 1;
        /// Limits what is written to a temporary file at a time; by default all available data is.
        proxy_temp_file_write_size: Option<Placed<Size>> = none, [HTTP | SERVER | LOCATION] 1;
        /// Sets the directory for responses that are buffered in files, and the digits of its levels of subdirectories;
        /// `proxy_temp` by default.
        ///
        /// The directory is created at startup and belongs to the worker's user. Its files are written and read by the
        /// location's thread pool (`aio threads=…`) and have no name, so that none is left behind in any event.
        proxy_temp_path: Option<TempPath> = none, [HTTP | SERVER | LOCATION] 1..=4, syntax "path [level1 [level2 [level3]]]";
        /// Limits the rate at which a response is read, in bytes per second; may contain variables. `0` means no limit.
        ///
        /// It holds where the response is buffered (`proxy_buffering`).
        proxy_limit_rate: Option<SizeTemplate> = none, [HTTP | SERVER | LOCATION] 1, syntax "rate";
        /// Lets `error_page` apply to upstream responses with a status of 300 or more.
        proxy_intercept_errors: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Serves byte ranges of responses even if their servers do not support them.
        proxy_force_ranges: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
    }
}

impl ProxyAnswers {
    /// Where answers are buffered.
    #[must_use]
    pub fn temporary_place(&self, family: Family, settings: &Settings) -> TemporaryPlace {
        match &self.proxy_temp_path {
            Some(path) => path.place(&settings.prefix),
            None => TempPath::named(family.temp_path()).place(&settings.prefix),
        }
    }
}

directives! {
    /// Proxying: redirects and cookies of upstream servers.
    pub struct ProxyRewrites in Location {
        /// Changes `Location` and `Refresh` of responses: replaces a prefix, or what a regular expression (`~`, `~*`
        /// without regard to case) matches. `default` (unless `proxy_pass` contains variables) replaces the URL of
        /// `proxy_pass` by the location.
        proxy_redirect: Option<Lines<Redirect>> = none, [HTTP | SERVER | LOCATION] 1..=2;
        /// Changes the `domain` of cookies.
        proxy_cookie_domain: Option<Lines<CookieDomain>> = none, [HTTP | SERVER | LOCATION] 1..=2;
        /// Changes the `path` of cookies.
        proxy_cookie_path: Option<Lines<CookiePath>> = none, [HTTP | SERVER | LOCATION] 1..=2;
        /// Adds flags to cookies: `secure`, `httponly`, `samesite=strict`, `samesite=lax`, `samesite=none`; with `no`
        /// before the name the flag is removed.
        proxy_cookie_flags: Option<Lines<CookieFlags>> = none, [HTTP | SERVER | LOCATION] 1..=4;
    }
}

directives! {
    /// Early hints.
    pub struct Hints in Location {
        /// Passes on early hints (103) of servers if one of the values is neither empty nor `0`.
        early_hints: Conditions = none, [HTTP | SERVER | LOCATION] 1.., syntax "string …";
    }
}
