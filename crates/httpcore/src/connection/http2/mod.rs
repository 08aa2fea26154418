//! An HTTP/2 connection: many requests at a time, each in a task of its own, and one driver that reads and writes.
//!
//! Not here: frames and states (`wire::http2`), a stream as its request sees it ([`crate::transport::http2`]), how a request
//! is answered (`connection::answer`). Invariant: only the driver touches the socket, and what the requests of one turn have
//! to send leaves in one write.

mod detect;
mod driver;
mod events;
mod figures;
mod request;
mod send_ahead;
mod serve;

pub use detect::{Spoken, detect, may_come};
pub use figures::METRICS;
pub use serve::start;
