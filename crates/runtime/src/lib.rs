//! What a server of any protocol runs on: event loops, listening sockets, and what is counted of them.
//!
//! * [`loops`]: the loops, their threads, accepting; the [`Service`] that a server gives them.
//! * [`timing`]: the tasks of a loop, each poll of which is timed, and the counters of a loop.
//! * [`metrics`]: families of metrics, a page of samples, and the formats in which it is written.
//! * [`listen`]: the directive, the table of addresses, and the sockets.
//! * [`cpu_pool`]: threads for work that needs the processor and no disk, and for handshakes.
//! * [`direct_mapped`]: a small cache of one loop.
//!
//! Not here: any protocol (of `wire` only the clock, timers and buffers of a loop are used), and any configuration but
//! `listen`. Invariant: a loop never waits for anything but events.

#![warn(unreachable_pub)]

pub mod cpu_pool;
pub mod direct_mapped;
pub mod listen;
pub mod loops;
pub mod metrics;
pub mod timing;

pub use loops::ledger::{Ledger, PARTS};
pub use loops::{
    Accepted, Configuration, Datagrams, Errand, Idle, IdleEntry, IdleList, InFlight, LOOP,
    LOOPS_MAX, Listener, Loop, LoopHandle, LoopThreads, Seat, Service, Serving, Shared, SocketType,
    Stage, Start, Waiting,
};
pub use timing::{Kind, LoopFigures, spawn, spawn_begun};
