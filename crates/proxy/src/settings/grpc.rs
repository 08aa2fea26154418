//! The directives that `grpc_…` has alone: where it leads, and which header fields are sent.
//!
//! Not here: what it shares with `proxy_…` (`families`, `ssl`), and what is made of them (`proxy_pass`).

use config::{List, Placed, Template, directives};

use crate::settings::directives::SetHeader;

directives! {
    /// gRPC.
    ///
    /// Directives that correspond to those of `proxy_pass` are on a page of their own.
    pub struct GrpcPass in Location {
        /// Passes requests to a gRPC server or a group of them, over HTTP/2: `[grpc://]host:port`, `grpcs://host:port` (over
        /// TLS), `unix:path` or the name of an `upstream`; may contain variables.
        ///
        /// The request's body is passed on as it arrives, also while the response is sent, and trailers follow the response.
        /// A connection carries up to `keepalive_streams` requests at a time; `keepalive` of the upstream keeps it for later ones.
        grpc_pass: Option<Placed<Template>> = none, [LOCATION | LOCATION_IF] 1, inherit never, syntax "address";
        /// Sets a header field of the upstream request; with an empty value it is not sent. A level with lines of its
        /// own inherits none. `Host` sets `:authority`, by default the host and port of `grpc_pass`.
        grpc_set_header: List<SetHeader> = none, [HTTP | SERVER | LOCATION] 2;
    }
}

/// What stands behind the prefix in the names of shared directives that `grpc_…` has; the others are of `proxy_…` alone.
pub(crate) const SHARED: &[&str] = &[
    "bind",
    "buffer_size",
    "connect_timeout",
    "hide_header",
    "ignore_headers",
    "intercept_errors",
    "next_upstream",
    "next_upstream_timeout",
    "next_upstream_tries",
    "pass_header",
    "read_timeout",
    "send_timeout",
    "socket_keepalive",
    "socket_rcvbuf",
    "socket_sndbuf",
];
