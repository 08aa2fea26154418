//! Accepts connections on a listening socket, and chooses the loop that keeps each one.
//!
//! SO_REUSEPORT spreads by hash: 250 connections over 16 sockets came as 7 to 24. So a loop that has noticeably more
//! connections than the least loaded one hands a new connection over to that one. A unix socket has one loop that
//! accepts, which hands over in the same way. Each socket is watched by one loop only, so a connection wakes no more
//! than one (no thundering herd).
//!
//! Not here: how sockets are bound ([`crate::listen::bind`]). Invariant: a connection is counted at the loop that keeps
//! it before the next one is assigned.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use disk::memory;
use logs::process_log::{Level, error_log};
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;

use super::loop_threads::Command;
use super::{
    Accepted, Datagrams, Kind, Listener, Loop, LoopHandle, REUSED_AT_ONCE_MAX, Seat, ServingLoop,
    SocketType, spawn,
};
use crate::listen::bind;

/// Maximum of connections accepted in a row before other tasks get their turn.
const BATCH_MAX: usize = 64;
/// Pause when descriptors have run out: nginx's `accept_mutex_delay`.
const PAUSE: Duration = Duration::from_millis(500);
/// Pause between connections while memory is scarce. Some are accepted all the same: one that waits may be the one that
/// ends what takes the memory.
const SCARCE_PAUSE: Duration = Duration::from_millis(50);
/// Maximum of connections accepted in a row while memory is scarce.
const SCARCE_BATCH: usize = 8;
/// Pause after connections were told to close, each of which needs a turn to do so, and while the service takes none.
const TURN: Duration = Duration::from_millis(1);

/// Connections of the worker so far, for nginx's connection numbers.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// A listening socket of one loop.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its address.
    pub listener: Arc<Listener>,
    /// The socket; the master holds it too. If it does not listen yet, it does once a loop watches it.
    pub socket: Arc<OwnedFd>,
    /// Maximum number of connections that wait at it then, by which it begins to listen.
    pub backlog: i32,
}

/// Watches one socket until the task is aborted. Aborting loses nothing: a connection is never held
/// across an `await`.
pub(super) fn start(host: &Rc<ServingLoop>, source: Source) -> io::Result<JoinHandle<()>> {
    match source.listener.socket_type {
        SocketType::Stream => accept(host, source),
        SocketType::Datagram => {
            let Source {
                listener, socket, ..
            } = source;
            let received = host.service.receive(Datagrams { socket, listener });
            Ok(spawn(Kind::Accept, received))
        }
    }
}

/// Accepts the connections of a socket.
fn accept(host: &Rc<ServingLoop>, source: Source) -> io::Result<JoinHandle<()>> {
    if !rustix::net::sockopt::socket_acceptconn(&source.socket)? {
        let Source {
            listener,
            socket,
            backlog,
        } = &source;
        bind::listen(socket, &listener.address, *backlog).map_err(io::Error::other)?;
    }
    #[expect(
        deprecated,
        reason = "deprecated for types whose descriptor may change; an Arc<OwnedFd> keeps it open"
    )]
    let watched = AsyncFd::with_interest(Arc::clone(&source.socket), Interest::READABLE)?;
    let host = Rc::clone(host);
    let wheel = Rc::clone(&host.loop_.wire.wheel);
    Ok(spawn(Kind::Accept, async move {
        loop {
            let Ok(mut ready) = watched.readable().await else {
                return;
            };
            if !host.service.may_accept(&source.listener) {
                wheel.sleep(TURN).await;
                continue;
            }
            match take_batch(&host, &source) {
                Batch::Full => tokio::task::yield_now().await,
                Batch::NoMemory => wheel.sleep(SCARCE_PAUSE).await,
                Batch::Empty => ready.clear_ready(),
                Batch::NoDescriptors if host.loop_.give_descriptors() => wheel.sleep(TURN).await,
                Batch::NoDescriptors | Batch::Failed => wheel.sleep(PAUSE).await,
            }
        }
    }))
}

/// Accepts every queued connection, before the socket is closed for good.
pub(super) fn drain(host: &ServingLoop, source: &Source) {
    if source.listener.socket_type == SocketType::Datagram {
        return;
    }
    while let Batch::Full | Batch::NoMemory = take_batch(host, source) {}
}

/// The reason why a batch ended.
#[derive(Debug, PartialEq, Eq)]
enum Batch {
    /// There may be more.
    Full,
    /// The queue is empty.
    Empty,
    /// EMFILE or ENFILE.
    NoDescriptors,
    /// There may be more, and memory is scarce.
    NoMemory,
    /// Another error, after which there may be more: the kernel has no memory, say.
    Failed,
}

fn take_batch(host: &ServingLoop, source: &Source) -> Batch {
    let is_scarce = memory::level::level() >= memory::MemoryLevel::Accept;
    let batch = if is_scarce { SCARCE_BATCH } else { BATCH_MAX };
    for _ in 0..batch {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match acceptfrom_with(source.socket.as_fd(), flags) {
            Ok((socket, peer)) => {
                place(host, source, socket, peer);
                if is_nearly_full(&host.loop_) {
                    // Connections that were told to close, or not looked at yet, get their turn before the next one is
                    // judged.
                    return Batch::Full;
                }
            }
            Err(Errno::AGAIN) => return Batch::Empty,
            Err(Errno::INTR) => {}
            Err(error) => {
                let level = match error {
                    Errno::CONNABORTED => Level::Error,
                    Errno::MFILE | Errno::NFILE => Level::Crit,
                    _ => Level::Alert,
                };
                let lacks_descriptors = matches!(error, Errno::MFILE | Errno::NFILE);
                // What closing others gives is asked for again a moment later.
                if !lacks_descriptors || is_first_in_second(&host.loop_.scarcity_told) {
                    let text = wire::errno(&error.into());
                    let address = &source.listener.address;
                    error_log(
                        level,
                        format_args!(
                            "accept4() failed ({text}) while accepting new connection on {address}"
                        ),
                    );
                }
                match error {
                    Errno::MFILE | Errno::NFILE => return Batch::NoDescriptors,
                    Errno::CONNABORTED => {}
                    _ => return Batch::Failed,
                }
            }
        }
    }
    match is_scarce {
        true => Batch::NoMemory,
        false => Batch::Full,
    }
}

fn place(host: &ServingLoop, source: &Source, socket: OwnedFd, peer: Option<SocketAddrAny>) {
    let loop_ = &host.loop_;
    let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed) + 1;
    loop_.figures.accepted.add(1);
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    let other = less_loaded(loop_);
    let accepted = Accepted {
        seat: Seat::at(other.as_ref().unwrap_or(&loop_.handle)),
        socket,
        peer,
        listener: Arc::clone(&source.listener),
        number,
    };
    let Some(other) = other else {
        return seat(host, accepted);
    };
    if let Err(back) = other.inbox.send(Command::Keep(accepted)) {
        // That loop has just ended.
        if let Command::Keep(mut accepted) = back.0 {
            accepted.seat = Seat::at(&loop_.handle);
            seat(host, accepted);
        }
    }
}

/// A loop that should rather keep the next connection: one with 1/8 fewer, and at least 2 fewer.
fn less_loaded(loop_: &Loop) -> Option<Arc<LoopHandle>> {
    let handles = loop_.handles.borrow();
    let mine = loop_.handle.connections();
    let least = handles.iter().min_by_key(|handle| handle.connections())?;
    let theirs = least.connections();
    (mine > theirs + 1 + theirs / 8).then(|| Arc::clone(least))
}

/// Whether connections must be closed to make room for others.
fn is_nearly_full(loop_: &Loop) -> bool {
    let max = loop_.connections_max.get();
    max.saturating_sub(loop_.handle.connections()) <= max / 16
}

/// Serves a connection that is counted at this loop already, unless `worker_connections` is reached.
pub(super) fn seat(host: &ServingLoop, accepted: Accepted) {
    let loop_ = &host.loop_;
    let before = loop_.handle.connections().saturating_sub(1);
    let max = loop_.connections_max.get();
    let leaving = loop_.idle.leaving();
    let taken = before.saturating_sub(u32::try_from(leaving).unwrap_or(u32::MAX));
    let free = max.saturating_sub(taken);
    if free <= max / 16 {
        let waiting = loop_.idle.len().saturating_sub(leaving);
        let count = (waiting / 8).clamp(1, REUSED_AT_ONCE_MAX);
        let mut told = loop_.idle.close_oldest(count);
        if told == 0 && free == 0 {
            told = loop_.idle.close_stalled(count);
        }
        if told > 0 {
            tell_reuse(loop_, max);
        } else if free == 0 {
            drop(accepted);
            error_log(
                Level::Alert,
                format_args!("{max} worker_connections are not enough"),
            );
            return;
        }
    }
    drop(spawn(Kind::Connection, host.service.serve(accepted)));
}

/// Logs that connections run out, at most once per second.
fn tell_reuse(loop_: &Loop, max: u32) {
    if is_first_in_second(&loop_.reuse_told) {
        let text = "worker_connections are not enough, reusing connections";
        error_log(Level::Warn, format_args!("{max} {text}"));
    }
}

/// Whether nothing was told in this second yet; `told` is the last one in which something was.
fn is_first_in_second(told: &Cell<Option<u64>>) -> bool {
    let second = wire::loop_clock::monotonic_ms() / 1000;
    told.replace(Some(second)) != Some(second)
}
