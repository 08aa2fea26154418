//! The event loops: threads that serve connections and never wait for anything but events.
//!
//! * [`Loop`]: what everything on one loop can reach; it never leaves its thread.
//! * [`accept`]: accepts connections and spreads them over the loops.
//! * [`held`]: loops that do not come back from a poll.
//! * [`idle`]: connections that wait for their client and can be told to close.
//! * `malloc_arena`: the memory of a loop's thread, made before it runs.
//! * [`loop_threads`]: all loops of the worker: start, new settings, more or fewer loops, shutdown.
//! * `pinning`: the processors of a loop's thread.
//! * [`service`]: the server above the loops, as a loop sees it.
//! * `shed`: what a loop gives up when memory is scarce.
//! * [`Ledger`]: the list of a worker's loops; [`sums`]: their metrics, added up.
//!
//! Not here: what a connection does, what the loops are told to do, and how tasks are timed ([`crate::timing`]). A loop
//! knows no protocol.
//! Invariant: everything in a [`Loop`] belongs to its thread; only its [`LoopHandle`] is shared.

pub mod accept;
pub mod held;
pub mod idle;
pub mod ledger;
pub mod loop_threads;
mod malloc_arena;
mod pinning;
pub mod service;
mod shed;
pub mod sums;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use disk::Disk;
use logs::process_log::{Level, error_log};
use logs::wall_clock::Clock;
use logs::{Feed, Logs, Sleep};
use wire::{KernelTimer, Wheel};

use crate::listen::Address;
use crate::timing::{Kind, LoopFigures, poll_timing, spawn};
pub use idle::{Idle, IdleEntry, IdleList, InFlight, Waiting};
pub use ledger::{Ledger, PARTS};
pub use loop_threads::LoopThreads;
pub use service::{Configuration, Datagrams, Service, Serving, Start};

/// Maximum of waiting connections told to close at once when `worker_connections` or descriptors run out, as in nginx.
const REUSED_AT_ONCE_MAX: usize = 32;

/// Types with a value in [`Loop::state`].
pub static LOOP: slots::Family = slots::Family::new();

/// Maximum number of the types of [`LOOP`].
const STATES_MAX: usize = 16;

/// Closes descriptors that a loop keeps for later use. Returns whether there were any.
pub type Spare = fn(&Loop) -> bool;

/// Frees memory that a loop uses without need.
type SpareMemory = Box<dyn Fn(&Loop)>;

/// Maximum of `worker_processes`.
pub const LOOPS_MAX: usize = 1024;

/// A connection that was accepted, on its way to the task that serves it.
#[derive(Debug)]
pub struct Accepted {
    /// Its place in the count of the loop that keeps it.
    pub seat: Seat,
    /// The socket: non-blocking, close-on-exec.
    pub socket: OwnedFd,
    /// The client; `None` at unix sockets.
    pub peer: Option<SocketAddr>,
    /// The address that accepted it.
    pub listener: Arc<Listener>,
    /// nginx's connection number: counts all connections of the worker, from 1.
    pub number: u64,
}

/// A socket's address, shared by the sockets of all loops.
#[derive(Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address that was bound; may be a wildcard.
    pub address: Address,
    /// What arrives at it.
    pub socket_type: SocketType,
}

/// What arrives at a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SocketType {
    /// Connections (SOCK_STREAM), each of which any loop can serve.
    Stream,
    /// Datagrams (SOCK_DGRAM), which the service of the socket's loop reads itself.
    Datagram,
}

/// Resources that all loops of a worker share.
#[derive(Debug, Clone)]
pub struct Shared {
    /// The logs and their thread.
    pub logs: Logs,
    /// The disk layer and its pools.
    pub disk: Arc<Disk>,
    /// The metrics.
    pub ledger: Arc<Ledger>,
}

/// Lifecycle state of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It accepts.
    Serving,
    /// There are to be fewer loops: it accepts no more, and its next responses say `Connection: close`. Idle
    /// connections stay until they send a request or time out, so that no request is lost.
    Retiring,
    /// The worker leaves: idle connections are closed, requests in flight are finished.
    ShuttingDown,
}

/// The part of a loop that other threads see.
#[derive(Debug)]
#[repr(align(64))]
pub struct LoopHandle {
    /// Current connections, including those on their way in [`LoopHandle::inbox`].
    connections: AtomicU32,
    /// Those of them that are other work ([`Loop::seat`]).
    work: AtomicU32,
    inbox: UnboundedSender<loop_threads::Command>,
    /// Whether the loop was told to free memory and has not begun.
    is_shedding: AtomicBool,
}

impl LoopHandle {
    /// Tells the loop that memory is scarce; at most once until the loop has seen it.
    pub fn tell_to_shed(&self) {
        if !self.is_shedding.swap(true, Ordering::Relaxed) {
            let _ = self.inbox.send(loop_threads::Command::Shed);
        }
    }

    /// Current connections.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Those of them that a client has.
    #[must_use]
    pub fn clients(&self) -> u32 {
        let work = self.work.load(Ordering::Relaxed);
        self.connections().saturating_sub(work)
    }
}

/// One loop, as seen by the tasks on it.
pub struct Loop {
    /// Its number: `loop 0`, `loop 1`, …
    pub index: usize,
    /// Connections that wait for their client.
    pub idle: IdleList,
    /// Its own metrics.
    pub figures: Arc<LoopFigures>,
    /// The metrics of the whole worker.
    pub ledger: Arc<Ledger>,
    /// Its part of the disk layer.
    pub disk: disk::Local,
    /// Its timeouts and buffers.
    pub wire: Rc<wire::Loop>,
    /// Its connection to the log thread, and its clock.
    pub feed: Rc<Feed>,
    /// Values of modules whose types it does not know.
    pub state: slots::Table<STATES_MAX>,
    /// What closes descriptors that are open without need; at most one for each value of `state`.
    spares: RefCell<Vec<Spare>>,
    /// What frees memory that is used without need; at most one for each value of `state`, and one of the service.
    spare_memory: RefCell<Vec<SpareMemory>>,
    /// `worker_connections`.
    connections_max: Cell<u32>,
    stage: Cell<Stage>,
    /// Whether its thread was given processors of its own.
    is_pinned: Cell<bool>,
    /// See [`Errand`].
    errands: Cell<u32>,
    /// The second in which it was last logged that idle connections are closed to make room.
    reuse_told: Cell<Option<u64>>,
    /// The same for connections that cannot be watched.
    unwatched_told: Cell<Option<u64>>,
    /// The same for descriptors that a connection lacks.
    scarcity_told: Cell<Option<u64>>,
    handle: Arc<LoopHandle>,
    /// All loops that accept, for spreading; empty with a single loop.
    handles: RefCell<Rc<[Arc<LoopHandle>]>>,
    random: RefCell<Random>,
}

impl std::fmt::Debug for Loop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "loop {}", self.index)
    }
}

/// A buffer of random bytes for several uses.
#[derive(Debug)]
struct Random {
    bytes: [u8; RANDOM_BYTES],
    used: usize,
}

/// Random bytes fetched at once.
const RANDOM_BYTES: usize = 512;

impl Loop {
    /// The loop of this thread, inside its runtime. Starts the tasks that every loop has.
    fn new(
        index: usize,
        handle: Arc<LoopHandle>,
        connections_max: u32,
        shared: &Shared,
        figures: Arc<LoopFigures>,
        timer: KernelTimer,
    ) -> Rc<Self> {
        let wire = wire::Loop::new();
        let wheel = Rc::clone(&wire.wheel);
        let sleep = Sleep::by(move |time| sleep(Rc::clone(&wheel), time));
        let loop_ = Rc::new(Self {
            index,
            idle: IdleList::default(),
            figures,
            ledger: Arc::clone(&shared.ledger),
            disk: disk::Local::new(&shared.disk),
            wire,
            feed: Rc::new(shared.logs.feed(Rc::new(Clock::new()), sleep)),
            state: slots::Table::default(),
            spares: RefCell::default(),
            spare_memory: RefCell::default(),
            connections_max: Cell::new(connections_max),
            stage: Stage::Serving.into(),
            is_pinned: Cell::new(false),
            errands: Cell::new(0),
            reuse_told: Cell::new(None),
            unwatched_told: Cell::new(None),
            scarcity_told: Cell::new(None),
            handle,
            handles: RefCell::new(Vec::new().into()),
            random: RefCell::new(Random {
                bytes: [0; RANDOM_BYTES],
                used: RANDOM_BYTES,
            }),
        });
        let driven = Rc::clone(&loop_.wire.wheel).run(timer);
        drop(spawn(Kind::Timers, driven));
        drop(spawn(Kind::Sweep, sweep(Rc::downgrade(&loop_))));
        drop(spawn(Kind::Log, Rc::clone(&loop_.feed).run()));
        loop_
    }

    /// Logs that the kernel does not watch a new connection (fs.epoll.max_user_watches), at most once per second.
    pub fn tell_unwatched(&self, error: &io::Error) {
        let second = wire::loop_clock::monotonic_ms() / 1000;
        if self.unwatched_told.replace(Some(second)) != Some(second) {
            let text = wire::errno(error);
            error_log(
                Level::Alert,
                format_args!("epoll_ctl() failed ({text}), a new connection is closed"),
            );
        }
    }

    /// A loop on this thread that belongs to no worker, to evaluate a request without serving it (`--explain-url`).
    ///
    /// # Errors
    /// There is no descriptor or no memory left.
    pub fn alone(shared: &Shared) -> io::Result<Rc<Self>> {
        let timer = KernelTimer::new()?;
        let (inbox, _) = tokio::sync::mpsc::unbounded_channel();
        let handle = Arc::new(LoopHandle {
            connections: AtomicU32::new(0),
            work: AtomicU32::new(0),
            is_shedding: AtomicBool::new(false),
            inbox,
        });
        let figures = shared.ledger.begin_loop(0);
        poll_timing::enter(Arc::clone(&figures));
        Ok(Self::new(0, handle, 1, shared, figures, timer))
    }

    /// 16 random bytes, from getrandom(2), which waits only before the kernel has its first entropy.
    #[must_use]
    pub fn random_16(&self) -> [u8; 16] {
        let random = &mut *self.random.borrow_mut();
        if random.used == RANDOM_BYTES {
            let filled =
                rustix::rand::getrandom(&mut random.bytes, rustix::rand::GetRandomFlags::empty());
            // A call for more than 256 bytes may return fewer when a signal arrives: use what came.
            random.used = RANDOM_BYTES - filled.unwrap_or(RANDOM_BYTES) / 16 * 16;
            random.bytes.rotate_right(random.used);
        }
        let start = random.used.min(RANDOM_BYTES - 16);
        random.used = start + 16;
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&random.bytes[start..start + 16]);
        bytes
    }

    /// The loop's lifecycle state.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// Whether a connection's next response is its last.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.stage.get() != Stage::Serving
    }

    /// Current connections of this loop.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.handle.connections()
    }

    /// A place among this loop's connections for other work; `None`: there are `worker_connections` of them.
    #[must_use]
    pub fn take_seat(&self) -> Option<Seat> {
        if self.connections() >= self.connections_max.get() {
            return None;
        }
        Some(self.seat())
    }

    /// The same, however many there are.
    #[must_use]
    pub fn seat(&self) -> Seat {
        self.handle.work.fetch_add(1, Ordering::Relaxed);
        let mut seat = Seat::at(&self.handle);
        seat.is_work = true;
        seat
    }

    /// Closes descriptors that are open without need, since descriptors have run out. `false`: there are none.
    pub fn give_descriptors(&self) -> bool {
        let has_files = self.disk.give_descriptors();
        let has_spares = self.close_spares();
        let told = self.idle.close_oldest(REUSED_AT_ONCE_MAX);
        has_files || has_spares || told > 0 || self.idle.close_stalled(REUSED_AT_ONCE_MAX) > 0
    }

    /// Adds what is to be closed when descriptors run out, and when the loop leaves.
    pub fn add_spare(&self, spare: Spare) {
        self.spares.borrow_mut().push(spare);
    }

    /// Adds what is to be freed when memory is scarce.
    pub fn add_spare_memory(&self, free: impl Fn(&Loop) + 'static) {
        self.spare_memory.borrow_mut().push(Box::new(free));
    }

    /// Frees memory that is used without need.
    fn free_spare_memory(&self) {
        self.spare_memory
            .borrow()
            .iter()
            .for_each(|free| free(self));
    }

    /// Closes descriptors that are kept for later use. `false`: there are none.
    fn close_spares(&self) -> bool {
        let mut has_any = false;
        for close in self.spares.borrow().iter() {
            has_any |= close(self);
        }
        has_any
    }

    /// Work that this loop finishes before it ends.
    #[must_use]
    pub fn begin_errand(self: &Rc<Self>) -> Errand {
        self.errands.set(self.errands.get() + 1);
        Errand(Rc::clone(self))
    }

    /// Whether there is work that must be finished before the loop ends.
    fn is_busy(&self) -> bool {
        self.connections() > 0 || self.errands.get() > 0
    }
}

/// Waits on a loop's wheel.
async fn sleep(wheel: Rc<Wheel>, time: Duration) {
    wheel.sleep(time).await;
}

/// Sweeps the loop's part of the disk layer at intervals, as long as the loop lives.
async fn sweep(loop_: Weak<Loop>) {
    while let Some(wheel) = loop_.upgrade().map(|loop_| Rc::clone(&loop_.wire.wheel)) {
        wheel.sleep(disk::SWEEP_EVERY).await;
        if let Some(loop_) = loop_.upgrade() {
            // As a task of its own, so that one that panics is not the last.
            let _ = spawn(Kind::Sweep, async move { loop_.disk.sweep().await }).await;
        }
    }
}

/// A loop that serves.
struct ServingLoop {
    loop_: Rc<Loop>,
    service: Box<dyn Service>,
}

/// A connection's place in the count of its loop, or that of other work that the worker waits for when it leaves.
/// Released before the socket is closed, so that a client that sees the close finds the connection counted on no loop.
#[derive(Debug)]
pub struct Seat {
    handle: Arc<LoopHandle>,
    is_work: bool,
}

impl Seat {
    fn at(handle: &Arc<LoopHandle>) -> Self {
        handle.connections.fetch_add(1, Ordering::Relaxed);
        Self {
            handle: Arc::clone(handle),
            is_work: false,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.is_work {
            self.handle.work.fetch_sub(1, Ordering::Relaxed);
        }
        self.handle.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Work that a loop finishes before it ends and that is no connection: it never takes a connection's place.
#[derive(Debug)]
pub struct Errand(Rc<Loop>);

impl Drop for Errand {
    fn drop(&mut self) {
        self.0.errands.set(self.0.errands.get() - 1);
    }
}
