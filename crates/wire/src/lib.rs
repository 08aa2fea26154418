//! Bytes ↔ messages: sockets, reading and writing HTTP/1, body framing, the gateway protocols, and the timeouts of a
//! loop.
//!
//! The pure parts (`http1`, `http2`, `fastcgi`, `gateway`, `rate`) work on byte slices only; `socket`, `stream`, `connection` and
//! `exchange` connect them to sockets. Invariants: an idle connection holds no buffer; nothing here blocks; everything
//! read is bounded.

#![warn(unreachable_pub)]

pub mod answer;
mod call_error;
mod connection;
mod event_loop;
pub mod exchange;
pub mod fastcgi;
pub mod gateway;
pub mod http1;
pub mod http2;
mod kernel_timer;
pub mod loop_clock;
pub mod rate;
mod read_buffers;
mod socket;
mod stream;
mod timers;
mod tls_layer;
pub mod turn;

pub use call_error::{call_failed, errno, numbered, of_call};
pub use connection::{Connection, Error, Input};
pub use event_loop::Loop;
pub use exchange::connect;
pub use exchange::{Exchange, SharedConnection, UpstreamConnection};
pub use kernel_timer::KernelTimer;
pub use socket::{Listener, Peer};
pub use stream::Stream;
pub use timers::{Elapsed, Timer, Wheel};
pub use tls_layer::TlsLayer;
