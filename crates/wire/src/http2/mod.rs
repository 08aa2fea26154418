//! HTTP/2 as a state machine on byte slices (RFC 9113), with HPACK (RFC 7541), extensible priorities (RFC 9218) and
//! extended CONNECT (RFC 8441), for the server's connections and those to upstreams.
//!
//! Knows no socket, no clock and no task: bytes and times come in as arguments, events and one output buffer come out.
//! Not here: server push, which is neither offered nor accepted; the priority trees of RFC 7540, which are ignored.

pub mod fault;
mod field_class;
pub mod flow;
pub mod frame;
pub mod head_writer;
pub mod hpack;
pub mod limits;
pub mod priority;
pub mod request_head;
pub mod response_head;
pub mod session;
pub mod settings;
mod streams;

pub use fault::{ErrorCode, Fault, Reason};
pub use field_class::{NameKind, Pseudo};
pub use priority::Priority;
pub use session::{Event, ResetCause, Role, Session, SessionConfig};
pub use streams::StreamKey;
