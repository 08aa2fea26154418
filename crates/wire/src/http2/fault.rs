//! What can be wrong with the bytes of an HTTP/2 peer: error codes (RFC 9113, 7) and reasons.
//!
//! Not here: who finds a fault, and what becomes of the connection. Invariant: every reason has one code, one name for
//! metrics and one sentence for the log.

use std::fmt;

/// An error code (RFC 9113, 7), as sent in RST_STREAM and GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

#[rustfmt::skip]
#[expect(missing_docs, reason = "the names of RFC 9113, 7")]
impl ErrorCode {
    pub const NO_ERROR: ErrorCode = ErrorCode(0);
    pub const PROTOCOL_ERROR: ErrorCode = ErrorCode(1);
    pub const INTERNAL_ERROR: ErrorCode = ErrorCode(2);
    pub const FLOW_CONTROL_ERROR: ErrorCode = ErrorCode(3);
    pub const SETTINGS_TIMEOUT: ErrorCode = ErrorCode(4);
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(5);
    pub const FRAME_SIZE_ERROR: ErrorCode = ErrorCode(6);
    pub const REFUSED_STREAM: ErrorCode = ErrorCode(7);
    pub const CANCEL: ErrorCode = ErrorCode(8);
    pub const COMPRESSION_ERROR: ErrorCode = ErrorCode(9);
    pub const CONNECT_ERROR: ErrorCode = ErrorCode(10);
    pub const ENHANCE_YOUR_CALM: ErrorCode = ErrorCode(11);
    pub const INADEQUATE_SECURITY: ErrorCode = ErrorCode(12);
    pub const HTTP_1_1_REQUIRED: ErrorCode = ErrorCode(13);
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])? $id:ident $code:ident $text:literal)*) => {
        /// Why a stream or a connection is ended. The text completes "client …" or "upstream …".
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $(#[doc = concat!("The peer ", $text, ".")] $id,)*
        }

        impl Reason {
            /// All of them, for a table of counters.
            pub const ALL: &[Reason] = &[$(Reason::$id),*];

            /// The code to send.
            pub fn code(self) -> ErrorCode {
                match self { $(Reason::$id => ErrorCode::$code,)* }
            }

            /// The predicate of the log's sentence, without its subject.
            pub fn text(self) -> &'static str {
                match self { $(Reason::$id => $text,)* }
            }

            /// The name for metrics.
            pub fn name(self) -> &'static str {
                match self { $(Reason::$id => stringify!($id),)* }
            }
        }
    };
}

reasons! {
    Preface PROTOCOL_ERROR "sent an invalid connection preface"
    FirstFrame PROTOCOL_ERROR "sent another frame where its first SETTINGS were expected"
    FrameTooLarge FRAME_SIZE_ERROR "sent a frame above SETTINGS_MAX_FRAME_SIZE"
    FrameLength FRAME_SIZE_ERROR "sent a frame of a length that its type does not have"
    FrameOnConnection PROTOCOL_ERROR "sent a frame on stream 0 that belongs to a stream"
    FrameOnStream PROTOCOL_ERROR "sent a frame on a stream that belongs to the connection"
    PaddingLength PROTOCOL_ERROR "sent a frame with more padding than payload"
    StreamIdentifier PROTOCOL_ERROR "sent a frame with an incorrect stream identifier"
    IdleStream PROTOCOL_ERROR "sent a frame on a stream that was never opened"
    ClosedStream STREAM_CLOSED "sent a frame on a stream that it had closed"
    Dependency PROTOCOL_ERROR "made a stream depend on itself"
    Push PROTOCOL_ERROR "sent a PUSH_PROMISE frame"
    Continuation PROTOCOL_ERROR "sent a CONTINUATION frame without a header block"
    BlockInterrupted PROTOCOL_ERROR "sent another frame within a header block"
    SettingsAckLength FRAME_SIZE_ERROR "sent an acknowledgement of SETTINGS with a payload"
    SettingsPush PROTOCOL_ERROR "sent an invalid SETTINGS_ENABLE_PUSH"
    SettingsWindow FLOW_CONTROL_ERROR "sent an invalid SETTINGS_INITIAL_WINDOW_SIZE"
    SettingsFrameSize PROTOCOL_ERROR "sent an invalid SETTINGS_MAX_FRAME_SIZE"
    SettingsConnect PROTOCOL_ERROR "sent an invalid SETTINGS_ENABLE_CONNECT_PROTOCOL"
    SettingsPriorities PROTOCOL_ERROR "sent an invalid SETTINGS_NO_RFC7540_PRIORITIES"
    IncrementZero PROTOCOL_ERROR "sent a WINDOW_UPDATE frame with an increment of 0"
    WindowOverflow FLOW_CONTROL_ERROR "raised a window above 2^31-1"
    WindowExceeded FLOW_CONTROL_ERROR "sent more DATA than the window allowed"
    Compression COMPRESSION_ERROR "sent a header block that cannot be decoded"
    FieldTooLarge ENHANCE_YOUR_CALM "sent a too large header field"
    BlockTooLarge ENHANCE_YOUR_CALM "sent a too large header block"
    PseudoUnknown PROTOCOL_ERROR "sent an unknown pseudo-header"
    PseudoDuplicate PROTOCOL_ERROR "sent a duplicate pseudo-header"
    PseudoOrder PROTOCOL_ERROR "sent out of order pseudo-headers"
    PseudoMissing PROTOCOL_ERROR "sent no :method, :scheme or :path header"
    PseudoEmpty PROTOCOL_ERROR "sent an empty pseudo-header"
    PseudoConnect PROTOCOL_ERROR "sent pseudo-headers that CONNECT must not have"
    Protocol PROTOCOL_ERROR "sent an invalid :protocol header"
    Scheme PROTOCOL_ERROR "sent an invalid :scheme header"
    Status PROTOCOL_ERROR "sent an invalid :status header"
    Method PROTOCOL_ERROR "sent an invalid method"
    Path PROTOCOL_ERROR "sent an invalid :path header"
    Authority PROTOCOL_ERROR "sent an invalid :authority header"
    Host PROTOCOL_ERROR "sent an invalid host header"
    HostMissing PROTOCOL_ERROR "sent neither \":authority\" nor \"Host\" header"
    HostDiffers PROTOCOL_ERROR "sent \":authority\" and \"Host\" headers with different values"
    FieldName PROTOCOL_ERROR "sent an invalid header name"
    FieldValue PROTOCOL_ERROR "sent a header with an invalid value"
    ConnectionField PROTOCOL_ERROR "sent a connection-specific header"
    Te PROTOCOL_ERROR "sent an invalid \"TE\" header"
    FieldDuplicate PROTOCOL_ERROR "sent a duplicate header line"
    FieldCount NO_ERROR "sent too many header lines"
    MethodConnect NO_ERROR "sent CONNECT method"
    MethodTrace NO_ERROR "sent TRACE method"
    ContentLength PROTOCOL_ERROR "sent an invalid \"Content-Length\" header"
    LengthDiffers PROTOCOL_ERROR "sent a body of another length than its \"Content-Length\" header"
    TrailersOpen PROTOCOL_ERROR "sent trailers that do not end the stream"
    UnexpectedData PROTOCOL_ERROR "sent DATA where no body may be"
    InterimEnd PROTOCOL_ERROR "ended a stream with an interim response"
    TooManyStreams REFUSED_STREAM "exceeded the number of concurrent streams"
    TooManyAtOnce REFUSED_STREAM "sent too many streams at once"
    TooManyHeads REFUSED_STREAM "sent too large headers on concurrent streams"
    TooManyRefused NO_ERROR "sent too many refused streams"
    TooManyMalformed NO_ERROR "sent too many malformed requests"
    TooManyResets ENHANCE_YOUR_CALM "had too many streams reset"
    TooManyGlitches ENHANCE_YOUR_CALM "sent too many frames without use"
    TooManyContinuations ENHANCE_YOUR_CALM "sent too many CONTINUATION frames"
    TooManyUpdates ENHANCE_YOUR_CALM "sent too many WINDOW_UPDATE frames"
    TooManyAnswers ENHANCE_YOUR_CALM "asked for control frames without reading them"
    Flood NO_ERROR "sent far more bytes than payload"
    TimedOut PROTOCOL_ERROR "timed out within a frame"
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Reason {
    /// Whether a message is malformed (RFC 9113, 8.1.1), so that its stream must be reset.
    pub fn is_malformed(self) -> bool {
        self.code() != ErrorCode::NO_ERROR
    }
}

/// A fault and how far it reaches (RFC 9113, 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The connection ends with GOAWAY.
    #[error("{0}")]
    Connection(Reason),
    /// This stream ends with RST_STREAM; the connection goes on.
    #[error("stream {0}: {1}")]
    Stream(u32, Reason),
}

impl Fault {
    /// The reason.
    pub fn reason(self) -> Reason {
        match self {
            Fault::Connection(reason) | Fault::Stream(_, reason) => reason,
        }
    }
}
