//! The directives of a location that passes requests on, and the types of their values.
//!
//! Not here: where `proxy_pass` leads (`url`), and what is made of these lines once for each location
//! (`proxy::proxy_pass`).

use bytes::Bytes;
use config::{
    Bufs, Flag, List, Msec, Number, Offset, Placed, Problem, Scope, Size, Template, Value, Word,
    directives,
};
use disk::TemporaryPlace;

use crate::caching::directives::Conditions;
use crate::connection::directives::SizeTemplate;
use crate::request_body::directives::TempPath;
use crate::settings::Settings;
use crate::upstream::next_upstream::NextUpstream;

use super::bind::Bind;
use super::cookies::CookieFlags;
use super::families::Family;
use super::proxy_redirect::{CookieDomain, CookiePath, Lines, Redirect};
use super::url::Pass;

/// `proxy_http_version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0: no chunks, no kept connections unless they are asked for.
    Http10,
    /// HTTP/1.1.
    Http11,
}

impl Value for HttpVersion {
    const SYNTAX: &'static str = "1.0 | 1.1";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        match &args[0].bytes()[..] {
            b"1.0" => Ok(Self::Http10),
            b"1.1" => Ok(Self::Http11),
            b"2" => Err(Problem::directive("cannot say \"2\" yet: HTTP/2 is not built").at(0)),
            other => Err(config::not_one_of(other, &["1.0", "1.1"])),
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
    /// Passing requests on to other servers.
    pub struct Proxy in Location {
        /// Passes requests on to a server or to a group of servers. With a URI behind the host, what matched the location's
        /// prefix is replaced by it; without one the request's URI is sent as it came.
        proxy_pass: Option<Placed<Pass>> = none, [LOCATION | LOCATION_IF | LIMIT_EXCEPT] 1, inherit never, syntax "URL";
        /// The method of the request that is passed on, instead of the client's.
        proxy_method: Option<Template> = none, [HTTP | SERVER | LOCATION] 1, syntax "method";
        /// The version of HTTP that is spoken to the server. Kept connections need 1.1.
        proxy_http_version: HttpVersion = "1.1", [HTTP | SERVER | LOCATION] 1;
        /// Sets a line of the request that is passed on; with an empty value it is not sent. Lines of the level around count
        /// only where a level has none of its own. `Host` is `$proxy_host` unless set.
        proxy_set_header: List<SetHeader> = none, [HTTP | SERVER | LOCATION] 2;
        /// The body of the request that is passed on, instead of the client's.
        proxy_set_body: Option<Template> = none, [HTTP | SERVER | LOCATION] 1, syntax "value";
        /// Passes on what stands behind the last chunk of an answer.
        proxy_pass_trailers: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Makes GET of HEAD for the origin, so that the answer can be stored. `off`: the key should have `$request_method`.
        proxy_cache_convert_head: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
    }
}

directives! {
    /// Asking other servers.
    pub struct Asking in Location {
        /// Passes the client's header lines on.
        proxy_pass_request_headers: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Passes the client's body on.
        proxy_pass_request_body: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Reads the client's body to its end before a server is asked. With `off` it is passed on as it comes, and no second server can
        /// be asked then.
        proxy_request_buffering: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Says which servers are asked next when one fails, or answers so.
        proxy_next_upstream: NextUpstream = "error timeout", [HTTP | SERVER | LOCATION] 1..;
        /// Limits how many servers one request may ask; `0`: all of them.
        proxy_next_upstream_tries: Number = "0", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time in which a next server may be asked; `0`: any time.
        proxy_next_upstream_timeout: Msec = "0", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time to open a connection to a server.
        proxy_connect_timeout: Msec = "60s", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time between two writes to a server.
        proxy_send_timeout: Msec = "60s", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time between two reads from a server.
        proxy_read_timeout: Msec = "60s", [HTTP | SERVER | LOCATION] 1;
        /// Goes on with a request whose client has closed the connection.
        proxy_ignore_client_abort: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// The local address that connections to servers come from; may have variables. With `transparent` it need not be this machine's
        /// (`$remote_addr`), which the system's routes must be made for; a worker that is started by root keeps the right to that
        /// (CAP_NET_RAW), and a reload that brings the first such line is refused.
        proxy_bind: Option<Bind> = none, [HTTP | SERVER | LOCATION] 1..=2;
        /// Asks the kernel to probe silent connections to servers (SO_KEEPALIVE).
        proxy_socket_keepalive: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// The size of the kernel's receive buffer of connections to servers.
        proxy_socket_rcvbuf: Option<Size> = none, [HTTP | SERVER | LOCATION] 1;
        /// The size of the kernel's send buffer of connections to servers.
        proxy_socket_sndbuf: Option<Size> = none, [HTTP | SERVER | LOCATION] 1;
    }
}

directives! {
    /// Passing answers of other servers on.
    pub struct ProxyAnswers in Location {
        /// Does not pass a line of an answer on. `Date`, `Server`, `X-Pad` and `X-Accel-…` are hidden without it.
        proxy_hide_header: List<Bytes> = none, [HTTP | SERVER | LOCATION] 1, syntax "field";
        /// Passes a line on that is otherwise hidden.
        proxy_pass_header: List<Bytes> = none, [HTTP | SERVER | LOCATION] 1, syntax "field";
        /// Gives no effect to these lines of answers.
        proxy_ignore_headers: Option<IgnoreHeaders> = none, [HTTP | SERVER | LOCATION] 1.., syntax "field …";
        /// Reads an answer ahead of a client that is slow, so that its server is let go: into `proxy_buffers`, then into a temporary file. What
        /// comes is passed on at once in any case, and a client that keeps up causes neither. With `off` the server is held back. The line
        /// `X-Accel-Buffering` of an answer (`yes`, `no`) says otherwise for it.
        proxy_buffering: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Limits the head of an answer.
        proxy_buffer_size: Placed<Size> = "4k", [HTTP | SERVER | LOCATION] 1;
        /// Says how much of an answer is kept in memory, number times size, that was read ahead of its client, beside the piece that is being
        /// sent (at most 128 KiB), and while the pool writes up to 512 KiB, of all answers of a loop 8 MiB.
        proxy_buffers: Placed<Bufs> = "8 4k", [HTTP | SERVER | LOCATION] 2;
        /// How much of the buffers may be on its way to the client. Checked as nginx checks it: what is here goes out at once.
        proxy_busy_buffers_size: Option<Placed<Size>> = none, [HTTP | SERVER | LOCATION] 1;
        /// Limits the temporary file of an answer; 1024m unless set. From there on, and with `0` without such a file, the server is held back
        /// where its client is slow. So it is where the disk is slow, full or broken: what came is sent from memory then.
        proxy_max_temp_file_size: Option<Placed<Offset>> = none, [HTTP | SERVER | LOCATION] 1;
        /// Limits what is written to a temporary file at once; unless set, all that is there is.
        proxy_temp_file_write_size: Option<Placed<Size>> = none, [HTTP | SERVER | LOCATION] 1;
        /// Names the directory for answers that are buffered in files, and the digits of its levels of subdirectories; `proxy_temp` unless set.
        ///
        /// The directory is made at the start and belongs to the worker's user. Files in it are written and read by the location's pool (`aio
        /// threads=…`) and have no name, so that nothing is left of them whatever happens.
        proxy_temp_path: Option<TempPath> = none, [HTTP | SERVER | LOCATION] 1..=4, syntax "path [level1 [level2 [level3]]]";
        /// Limits the rate at which an answer is read, in bytes a second; may have variables. `0`: no limit.
        proxy_limit_rate: Option<SizeTemplate> = none, [HTTP | SERVER | LOCATION] 1, syntax "rate";
        /// Lets error pages cover answers of servers with a status of 300 and more.
        proxy_intercept_errors: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sends parts of answers whether or not their servers say that they can.
        proxy_force_ranges: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
    }
}

impl ProxyAnswers {
    /// Where answers are buffered.
    #[must_use]
    pub fn temporary_place(&self, family: Family, settings: &Settings) -> TemporaryPlace {
        match &self.proxy_temp_path {
            Some(path) => path.place(settings),
            None => TempPath::named(family.temp_path()).place(settings),
        }
    }
}

directives! {
    /// What answers of other servers say under their names, said under ours.
    pub struct ProxyRewrites in Location {
        /// Changes `Location` and `Refresh` of answers: a text that they begin with, or what a regular expression (`~`, caseless
        /// `~*`) matches. `default` (unless `proxy_pass` has variables) changes the URL of `proxy_pass` to the location.
        proxy_redirect: Option<Lines<Redirect>> = none, [HTTP | SERVER | LOCATION] 1..=2;
        /// Changes `domain` of cookies.
        proxy_cookie_domain: Option<Lines<CookieDomain>> = none, [HTTP | SERVER | LOCATION] 1..=2;
        /// Changes `path` of cookies.
        proxy_cookie_path: Option<Lines<CookiePath>> = none, [HTTP | SERVER | LOCATION] 1..=2;
        /// Adds flags to cookies or takes them away: `secure`, `httponly`, `samesite=strict`, `samesite=lax`, `samesite=none`; with
        /// `no` before the name it is taken away.
        proxy_cookie_flags: Option<Lines<CookieFlags>> = none, [HTTP | SERVER | LOCATION] 1..=4;
    }
}

directives! {
    /// Heads that come before an answer's own.
    pub struct Hints in Location {
        /// Passes early hints (103) of servers on where one of the texts is neither empty nor `0`.
        early_hints: Conditions = none, [HTTP | SERVER | LOCATION] 1.., syntax "string …";
    }
}
