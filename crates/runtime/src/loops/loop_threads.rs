//! The loops of a worker: their threads, and the commands that they get.
//!
//! Not here: where a configuration comes from, what a connection does. Invariant: while the worker
//! serves, every socket is watched by one loop. A loop lets go of a socket only after another one watches it, and
//! closes none that the next configuration listens on (closing one of a SO_REUSEPORT group resets the connections
//! queued at it).

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use logs::process_log::{Level, error_log};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use wire::KernelTimer;

use super::accept::{self, Source};
use super::{Accepted, Configuration, Ledger, Loop, LoopHandle, ServingLoop, Shared, Stage, Start};
use super::{SocketType, malloc_arena, pinning, shed};
use crate::timing::poll_timing::{self, spawn, timed};
use crate::timing::{Kind, tsc_clock};
use wire::{errno, of_call};

/// Interval at which a leaving loop checks whether its connections have ended.
const LEAVING_TICK: Duration = Duration::from_millis(10);
/// Maximum time that the worker waits for a loop to carry out a command, of those that a loop carries out without
/// waiting.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// A command to one loop.
pub(super) enum Command {
    /// Serve a connection that another loop accepted; it is counted already.
    Keep(Accepted),
    /// Take a configuration, and watch these sockets and no others.
    Take(Box<Take>),
    /// Memory is scarce: free what is not needed.
    Shed,
    /// Accept no more, and end after the last connection.
    Retire(mpsc::Sender<()>),
    /// Finish what is in flight, close idle connections, then end.
    ShutDown,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keep(_) => "Keep",
            Self::Take(..) => "Take",
            Self::Shed => "Shed",
            Self::Retire(_) => "Retire",
            Self::ShutDown => "ShutDown",
        })
    }
}

/// One loop's part of a configuration.
pub(super) struct Take {
    number: u64,
    configuration: Configuration,
    connections_max: u32,
    sources: Vec<Source>,
    handles: Vec<Arc<LoopHandle>>,
    /// CPUs that the loop may run on; empty: those of the process.
    cpus: Vec<usize>,
    /// Whether other loops have taken it, so that this one has to: it watches the sockets that it can.
    is_decided: bool,
    /// Set by the loop that begins to take it, or by the worker that waits no longer: the first decides.
    is_settled: Arc<AtomicBool>,
    done: mpsc::Sender<io::Result<()>>,
}

/// A configuration's settings for the loops.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The configuration's number.
    pub number: u64,
    /// The configuration.
    pub configuration: Configuration,
    /// `worker_processes`.
    pub loops: usize,
    /// `worker_connections`.
    pub connections_max: u32,
    /// All listening sockets: one or more per TCP address, one per unix address.
    pub sources: Vec<Source>,
    /// `stall_threshold` in nanoseconds; 0: none.
    pub stall_ns: u64,
    /// CPUs per loop (`worker_cpu_affinity`). The last one applies to all further loops; empty: none.
    pub cpus: Vec<Vec<usize>>,
}

/// The loops of a worker. Lives on the worker's main thread, which may block; no loop ever waits for it.
pub struct LoopThreads {
    start: Start,
    shared: Shared,
    members: Vec<LoopThread>,
    /// Loops that are ending.
    retired: Vec<LoopThread>,
    /// Configurations that connections may still use. Kept so that the last reference is dropped here: freeing a large
    /// one, and closing its files, takes longer than a loop may be blocked.
    configurations: Vec<Configuration>,
    /// As [`COMMAND_TIMEOUT`].
    pub(super) patience: Duration,
}

#[derive(Debug)]
struct LoopThread {
    handle: Arc<LoopHandle>,
    thread: thread::JoinHandle<()>,
}

impl LoopThread {
    fn command(&self, command: Command) -> bool {
        self.handle.inbox.send(command).is_ok()
    }
}

impl LoopThreads {
    /// No loops yet; `start` makes the service of each.
    #[must_use]
    pub fn new(start: Start, shared: Shared) -> Self {
        tsc_clock::trust();
        Self {
            start,
            shared,
            members: Vec::new(),
            retired: Vec::new(),
            configurations: Vec::new(),
            patience: COMMAND_TIMEOUT,
        }
    }

    /// Makes a configuration the current one: more or fewer loops, their sockets, their settings. Returns when every
    /// loop has taken over; one that is held by something does as soon as it goes on, which is logged.
    ///
    /// # Errors
    /// When a thread or an epoll instance cannot be had, or the first loop cannot watch a socket or does not answer; all
    /// loops then go on with what they have.
    pub fn apply(&mut self, plan: &Plan) -> io::Result<()> {
        self.forget_old();
        let before = self.members.len();
        let wanted = plan.loops.clamp(1, super::LOOPS_MAX);
        let surplus = self.members.split_off(wanted.min(before));
        let applied = self
            .start_missing(wanted, plan)
            .and_then(|()| self.hand_out(plan));
        if let Err(error) = applied {
            let added = self.members.split_off(before.min(self.members.len()));
            self.retire(added);
            self.members.extend(surplus);
            // A loop may have it still; it is no older than the one that is served, and not the last one.
            let at = self.configurations.len().saturating_sub(1);
            let refused = Arc::clone(&plan.configuration);
            self.configurations.insert(at, refused);
            return Err(error);
        }
        self.configurations.push(Arc::clone(&plan.configuration));
        self.retire(surplus);
        self.shared.ledger.stalls.configure(plan.stall_ns);
        Ok(())
    }

    /// Starts the loops that are missing.
    fn start_missing(&mut self, wanted: usize, plan: &Plan) -> io::Result<()> {
        while self.members.len() < wanted {
            self.members.push(self.start_one(self.members.len(), plan)?);
        }
        Ok(())
    }

    /// Has these loops accept no more, and end.
    fn retire(&mut self, surplus: Vec<LoopThread>) {
        let (done, retired) = mpsc::channel();
        for member in surplus {
            member.command(Command::Retire(done.clone()));
            self.retired.push(member);
        }
        drop(done);
        while retired.recv_timeout(COMMAND_TIMEOUT).is_ok() {}
        self.retired.retain(|member| !member.thread.is_finished());
    }

    /// The first loop decides: what it cannot take, no loop does.
    fn hand_out(&self, plan: &Plan) -> io::Result<()> {
        let (done, taken) = mpsc::channel();
        let is_settled = Arc::new(AtomicBool::new(false));
        let first = self.part(plan, 0, &is_settled, done);
        self.members[0].command(Command::Take(Box::new(first)));
        let answer = taken.recv_timeout(self.patience);
        match answer {
            Ok(answer) => answer?,
            // It begins just now: its answer follows.
            Err(_) if is_settled.swap(true, Ordering::AcqRel) => {
                taken.recv().map_err(|_| does_not_answer())??;
            }
            Err(_) => return Err(does_not_answer()),
        }
        let (done, taken) = mpsc::channel();
        for (index, member) in self.members.iter().enumerate().skip(1) {
            let part = self.part(plan, index, &Arc::default(), done.clone());
            member.command(Command::Take(Box::new(part)));
        }
        drop(done);
        let deadline = Instant::now() + self.patience;
        for late in (1..self.members.len()).rev() {
            let left = deadline.saturating_duration_since(Instant::now());
            match taken.recv_timeout(left) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => error_log(Level::Alert, format_args!("{error}")),
                Err(_) => {
                    error_log(
                        Level::Alert,
                        format_args!(
                            "{late} of the event loops have not taken the configuration yet"
                        ),
                    );
                    break;
                }
            }
        }
        Ok(())
    }

    /// A loop's part of a configuration.
    fn part(
        &self,
        plan: &Plan,
        index: usize,
        is_settled: &Arc<AtomicBool>,
        done: mpsc::Sender<io::Result<()>>,
    ) -> Take {
        let handles = self.members.iter().filter(|_| self.members.len() > 1);
        let cpus = plan.cpus.get(index).or(plan.cpus.last());
        Take {
            number: plan.number,
            configuration: Arc::clone(&plan.configuration),
            connections_max: plan.connections_max,
            sources: share(&plan.sources, index, self.members.len()),
            handles: handles.map(|member| Arc::clone(&member.handle)).collect(),
            cpus: cpus.cloned().unwrap_or_default(),
            is_decided: index > 0,
            is_settled: Arc::clone(is_settled),
            done,
        }
    }

    fn start_one(&self, index: usize, plan: &Plan) -> io::Result<LoopThread> {
        let (inbox, commands) = unbounded_channel();
        let handle = Arc::new(LoopHandle {
            connections: AtomicU32::new(0),
            work: AtomicU32::new(0),
            is_shedding: AtomicBool::new(false),
            inbox,
        });
        let first = First {
            index,
            number: plan.number,
            configuration: Arc::clone(&plan.configuration),
            connections_max: plan.connections_max,
        };
        let start = Arc::clone(&self.start);
        let shared = self.shared.clone();
        let (started, is_started) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(format!("loop {index}"))
            .spawn({
                let handle = Arc::clone(&handle);
                move || {
                    run(first, handle, &start, shared, commands, &started);
                }
            })
            .map_err(|error| {
                io::Error::other(format!("the thread of a loop cannot be started ({error})"))
            })?;
        let member = LoopThread { handle, thread };
        match is_started.recv_timeout(COMMAND_TIMEOUT) {
            Ok(answer) => answer.map(|()| member),
            Err(_) => {
                // It ends if it comes after all.
                member.command(Command::Retire(mpsc::channel().0));
                Err(io::Error::other("a loop does not start"))
            }
        }
    }

    /// The metrics.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.shared.ledger
    }

    /// The configuration that was handed out last.
    #[must_use]
    pub fn configuration(&self) -> Option<Configuration> {
        self.configurations.last().cloned()
    }

    /// Frees configurations that are no longer used, and returns how many there were.
    pub fn forget_old(&mut self) -> usize {
        let before = self.configurations.len();
        self.configurations
            .retain(|configuration| Arc::strong_count(configuration) > 1);
        before - self.configurations.len()
    }

    /// Whether an older configuration than the current one is still in use.
    #[must_use]
    pub fn has_old(&self) -> bool {
        self.configurations.len() > 1
    }

    /// Tells all loops to finish and end.
    pub fn shut_down(&mut self) {
        for member in self.members.iter().chain(&self.retired) {
            member.command(Command::ShutDown);
        }
    }

    /// Whether a loop still runs; also removes those that have ended.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.retired.retain(|member| !member.thread.is_finished());
        self.members.retain(|member| !member.thread.is_finished());
        !(self.members.is_empty() && self.retired.is_empty())
    }
}

/// The sockets of loop `index`: of every address, each socket goes to one loop, in turns; unix sockets
/// are dealt out by their position, so that they do not all fall to the first loop.
fn share(sources: &[Source], index: usize, loops: usize) -> Vec<Source> {
    let mut seen: HashMap<(&crate::listen::Address, SocketType), usize> = HashMap::new();
    let mut mine = Vec::new();
    for source in sources {
        let address = &source.listener.address;
        let offset = if address.unix_path().is_some() {
            seen.len()
        } else {
            0
        };
        let key = (address, source.listener.socket_type);
        let count = seen.entry(key).or_insert(offset);
        if *count % loops == index {
            mine.push(source.clone());
        }
        *count += 1;
    }
    mine
}

/// What a loop begins with.
struct First {
    index: usize,
    number: u64,
    configuration: Configuration,
    connections_max: u32,
}

/// The main function of a loop thread.
fn run(
    first: First,
    handle: Arc<LoopHandle>,
    start: &Start,
    shared: Shared,
    commands: UnboundedReceiver<Command>,
    started: &mpsc::Sender<io::Result<()>>,
) {
    malloc_arena::reserve();
    let runtime = Builder::new_current_thread()
        .enable_io()
        .build_local(Default::default());
    let made = runtime.and_then(|runtime| {
        let timer = runtime.block_on(async { KernelTimer::new() })?;
        Ok((runtime, timer))
    });
    let (runtime, timer) = match made {
        Ok(made) => made,
        Err(error) => {
            let told = format!(
                "event loop {} cannot be started ({})",
                first.index,
                errno(&error)
            );
            let _ = started.send(Err(io::Error::other(told)));
            return;
        }
    };
    let First {
        index,
        number,
        configuration,
        connections_max,
    } = first;
    let figures = shared.ledger.begin_loop(index);
    shared.ledger.run_loop(&figures, &handle);
    poll_timing::enter(Arc::clone(&figures));
    let _ = started.send(Ok(()));
    runtime.block_on(timed(Kind::Control, async move {
        let loop_ = Loop::new(index, handle, connections_max, &shared, figures, timer);
        let service = start(&loop_, number, configuration);
        let host = ServingLoop {
            loop_: Rc::clone(&loop_),
            service,
        };
        obey(Rc::new(host), commands).await;
        // The log lines of the last requests must not be lost.
        loop_.feed.finish().await;
    }));
}

/// Carries out commands until the loop ends.
async fn obey(host: Rc<ServingLoop>, mut commands: UnboundedReceiver<Command>) {
    let loop_ = &host.loop_;
    let mut watches = Watches::default();
    while loop_.stage.get() == Stage::Serving {
        let Some(command) = commands.recv().await else {
            return;
        };
        carry_out(&host, &mut watches, command);
    }
    while loop_.is_busy() {
        let next = loop_.wire.wheel.timeout(LEAVING_TICK, commands.recv());
        if let Ok(Some(command)) = next.await {
            carry_out(&host, &mut watches, command);
        }
    }
    // From now on other loops keep what they accept. What they have sent since the last look is served.
    commands.close();
    while let Some(command) = commands.recv().await {
        carry_out(&host, &mut watches, command);
    }
    while loop_.is_busy() {
        loop_.wire.wheel.sleep(LEAVING_TICK).await;
    }
}

fn carry_out(host: &Rc<ServingLoop>, watches: &mut Watches, command: Command) {
    let loop_ = &host.loop_;
    match command {
        Command::Keep(accepted) => accept::seat(host, accepted),
        Command::Take(take) => {
            let done = take.done.clone();
            let _ = done.send(take_over(host, watches, *take));
        }
        Command::Shed => {
            loop_.handle.is_shedding.store(false, Ordering::Relaxed);
            drop(spawn(Kind::Control, shed::run(Rc::clone(loop_))));
        }
        Command::Retire(done) => {
            loop_.stage.set(Stage::Retiring);
            watches.stop_but(&[]);
            loop_.close_spares();
            let _ = done.send(());
        }
        Command::ShutDown => {
            loop_.stage.set(Stage::ShuttingDown);
            watches.close(host);
            loop_.idle.close_all();
            loop_.close_spares();
        }
    }
}

fn take_over(host: &Rc<ServingLoop>, watches: &mut Watches, take: Take) -> io::Result<()> {
    let loop_ = &host.loop_;
    if take.is_settled.swap(true, Ordering::AcqRel) {
        return Err(does_not_answer());
    }
    let before: Vec<_> = watches.0.keys().copied().collect();
    let watched = watches.add(host, &take.sources);
    if watched.is_err() && !take.is_decided {
        watches.stop_but(&before);
        return watched;
    }
    pinning::set_cpus(loop_, &take.cpus);
    host.service.configure(take.number, take.configuration);
    loop_.connections_max.set(take.connections_max);
    *loop_.handles.borrow_mut() = take.handles.into();
    watches.keep_only(host, &take.sources);
    watched
}

fn does_not_answer() -> io::Error {
    io::Error::other("a loop does not answer")
}

/// The sockets that a loop watches, by descriptor.
#[derive(Debug, Default)]
struct Watches(HashMap<i32, (Source, JoinHandle<()>)>);

impl Watches {
    /// Watches those of these sockets that can be.
    ///
    /// # Errors
    /// The last one's that cannot.
    fn add(&mut self, host: &Rc<ServingLoop>, sources: &[Source]) -> io::Result<()> {
        let mut outcome = Ok(());
        for source in sources {
            if let MapEntry::Vacant(place) = self.0.entry(source.socket.as_raw_fd()) {
                let call = format!("epoll_ctl() for {}", source.listener.address);
                match accept::start(host, source.clone()).map_err(of_call(&call)) {
                    Ok(task) => drop(place.insert((source.clone(), task))),
                    Err(error) => outcome = Err(error),
                }
            }
        }
        outcome
    }

    /// Releases the other sockets. Where no other holder is left (the address is gone from the configuration), the
    /// queued connections are served first.
    fn keep_only(&mut self, host: &ServingLoop, sources: &[Source]) {
        let kept = sources.iter().map(|source| source.socket.as_raw_fd());
        let kept: HashSet<i32> = kept.collect();
        let gone: Vec<_> = self
            .0
            .extract_if(|descriptor, _| !kept.contains(descriptor))
            .collect();
        for (_, (source, task)) in gone {
            task.abort();
            if Arc::strong_count(&source.socket) <= 2 {
                accept::drain(host, &source);
            }
        }
    }

    /// Releases all sockets but these without closing them: others have them, too.
    fn stop_but(&mut self, kept: &[i32]) {
        let gone = self.0.extract_if(|socket, _| !kept.contains(socket));
        gone.for_each(|(_, (_, task))| task.abort());
    }

    /// Serves what is queued, then lets go of all.
    fn close(&mut self, host: &ServingLoop) {
        for (_, (source, task)) in self.0.drain() {
            task.abort();
            accept::drain(host, &source);
        }
    }
}
