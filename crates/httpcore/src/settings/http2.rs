//! The directives of a server that concern its HTTP/2 connections.
//!
//! Not here: the size of frames, which a location says ([`super::connections`]).

use config::{Flag, Number, Problem, Scope, Size, Value, Word, directives};
use wire::http2::frame::MAX_31;
use wire::http2::priority::SLOTS_MAX;
use wire::http2::{SessionConfig, session};

/// Maximum size of a stream's window in bytes: of all streams together it must fit into that of the connection.
const WINDOW_MAX: u64 = 1 << 24;
/// Bytes that `http2_recv_buffer_size` must exceed (nginx: the rest of a frame that is kept between two reads).
const RECEIVED_MIN: u64 = 16;

directives! {
    /// HTTP/2 with clients.
    pub struct Http2Settings in Server {
        /// Lets clients speak HTTP/2: over TLS where they choose it (ALPN), without TLS where they know it beforehand.
        /// The default server of an address decides for connections without TLS.
        http2: Flag = "off", [HTTP | SERVER] FLAG;
        /// Limits the number of requests that a connection may carry at a time; never more than 128.
        http2_max_concurrent_streams: Streams = "128", [HTTP | SERVER] 1;
        /// Sets how much of a request's body may come before it is asked for, and how much of it may wait to be taken.
        http2_body_preread_size: Preread = "64k", [HTTP | SERVER] 1;
        /// Limits the number of bytes that are read of a connection at once; never more than 128k.
        http2_recv_buffer_size: Received = "256k", [HTTP] 1;
        /// Obsolete and without effect: `keepalive_timeout` limits the time.
        http2_idle_timeout: Option<IdleTimeout> = none, [HTTP | SERVER] 1, syntax "time";
        /// Obsolete and without effect: nothing is pushed.
        http2_max_concurrent_pushes: Option<MaxConcurrentPushes> = none, [HTTP | SERVER] 1, syntax "number";
        /// Obsolete and without effect: `large_client_header_buffers` limits the size.
        http2_max_field_size: Option<MaxFieldSize> = none, [HTTP | SERVER] 1, syntax "size";
        /// Obsolete and without effect: `large_client_header_buffers` limits the size.
        http2_max_header_size: Option<MaxHeaderSize> = none, [HTTP | SERVER] 1, syntax "size";
        /// Obsolete and without effect: `keepalive_requests` limits the number.
        http2_max_requests: Option<MaxRequests> = none, [HTTP | SERVER] 1, syntax "number";
        /// Obsolete and without effect: `client_header_timeout` limits the time.
        http2_recv_timeout: Option<ReceiveTimeout> = none, [HTTP | SERVER] 1, syntax "time";
    }
}

/// The values of directives that nginx has given up: each says so, and has no effect.
macro_rules! obsolete {
    ($($id:ident $sentence:literal)*) => {$(
        #[doc = concat!("A directive without effect: ", $sentence, ".")]
        #[derive(Debug, Clone, Copy)]
        pub struct $id;

        impl Value for $id {
            const SYNTAX: &'static str = "value";

            fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
                scope.warn(args[0].error(&Problem::new($sentence)));
                Ok(Self)
            }

            // As nginx, it may stand several times.
            fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
                *slot = Some(Self::parse(args, scope)?);
                Ok(())
            }
        }
    )*};
}

obsolete! {
    IdleTimeout "the \"http2_idle_timeout\" directive is obsolete, use the \"keepalive_timeout\" directive instead"
    MaxConcurrentPushes "the \"http2_max_concurrent_pushes\" directive is obsolete, ignored"
    MaxFieldSize "the \"http2_max_field_size\" directive is obsolete, use the \"large_client_header_buffers\" directive instead"
    MaxHeaderSize "the \"http2_max_header_size\" directive is obsolete, use the \"large_client_header_buffers\" directive instead"
    MaxRequests "the \"http2_max_requests\" directive is obsolete, use the \"keepalive_requests\" directive instead"
    ReceiveTimeout "the \"http2_recv_timeout\" directive is obsolete, use the \"client_header_timeout\" directive instead"
    Push "the \"http2_push\" directive is obsolete, ignored"
    PushPreload "the \"http2_push_preload\" directive is obsolete, ignored"
}

impl Http2Settings {
    /// What a connection is begun with; without the limits of heads.
    #[must_use]
    pub fn session(&self) -> SessionConfig {
        SessionConfig {
            streams_max: self.http2_max_concurrent_streams.0,
            stream_window: self.http2_body_preread_size.0,
            // RFC 8441: WebSocket, where a location passes upgrades on.
            allows_protocol: true,
            ..SessionConfig::default()
        }
    }
}

/// `http2_max_concurrent_streams`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams(pub u32);

impl Value for Streams {
    const SYNTAX: &'static str = "number";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let wanted = Number::parse(args, scope)?.0;
        if wanted > SLOTS_MAX as u64 {
            scope.warn(args[0].error(&Problem::new(format!(
                "a connection carries at most {SLOTS_MAX} requests at a time"
            ))));
        }
        Ok(Self(wanted.min(SLOTS_MAX as u64) as u32))
    }
}

/// `http2_body_preread_size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preread(pub u32);

impl Value for Preread {
    const SYNTAX: &'static str = "size";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let wanted = Size::parse(args, scope)?.0;
        if wanted > u64::from(MAX_31) {
            return Err(Problem::new(format!(
                "the maximum body preread buffer size is {MAX_31}"
            )));
        }
        if wanted > WINDOW_MAX {
            scope.warn(args[0].error(&Problem::new(
                "no more than 16m of a body are ever read ahead",
            )));
        }
        Ok(Self(wanted.min(WINDOW_MAX) as u32))
    }
}

/// `http2_recv_buffer_size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received(usize);

impl Received {
    /// The bytes of a read, never fewer than a whole frame.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.0.max(session::INPUT_MAX)
    }
}

impl Value for Received {
    const SYNTAX: &'static str = "size";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let size = Size::parse(args, scope)?;
        match size.0 <= RECEIVED_MIN {
            true => Err(Problem::new("value is too small")),
            false => Ok(Self(size.bytes())),
        }
    }
}
