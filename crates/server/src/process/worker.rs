//! The worker process: takes bundles from the master, runs the loops, gives up root's rights.
//!
//! Its main thread waits for the master, for signals and for the results of helper threads; it serves no request, so it
//! may wait.
//!
//! Not here: the loops ([`runtime::loops::loop_threads`]). Invariant: a bundle that cannot be served is answered with the
//! reason, and the previous configuration stays in service.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use disk::Disk;
use logs::Logs;
use logs::process_log::{Level, error_log};
use nix::sys::signal::Signal;
use runtime::Shared;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::{errno, of_call};

use super::build::{self, BuiltBundle, BuiltSettings, LARGE_BYTES};
use super::bundle::Bundle;
use super::deadline::Deadline;
use super::frame::{Channel, Frame, Received, Writer, is_gone};
use super::log_files::Wanted;
use super::plan::plan;
use super::pools::{define_new_pools, define_pools};
use super::privileges::{self, Beyond};
use super::signals::{ReceivedSignal, Signals, note};
use super::title;
use super::word;
use crate::http_server::HttpServer;
use crate::memory::alarms::Alarms;
use crate::memory::{score, watch};
use crate::monitoring;
use crate::process::load;
use crate::process::pools;
use httpcore::connection::panic_guard;
use httpcore::handler::Modules;
use proxy::caching::caches::registry::Registry;
use proxy::settings::bind::needs_right;

/// Exit code of a worker that could not start, as nginx's.
pub(crate) const FATAL: u8 = 2;
/// Interval at which a leaving worker checks whether its loops have ended.
const LEAVING_TICK: Duration = Duration::from_millis(5);

/// Interval at which a worker checks whether an old configuration is still in use.
const FORGETTING_TICK: Duration = Duration::from_secs(1);

/// Maximum time that a leaving worker waits for the journals of its caches; what is not merged by then is read by the
/// next worker.
pub(crate) const CLOSING_PATIENCE: Duration = Duration::from_secs(2);

/// The life of a worker process: its standard input is the channel to the master.
#[must_use]
pub(crate) fn run(modules: Modules) -> ExitCode {
    match start(modules) {
        Ok(code) => code,
        Err(sentence) => fail(&sentence),
    }
}

fn fail(sentence: &str) -> ExitCode {
    error_log(Level::Emerg, format_args!("{sentence}"));
    ExitCode::from(FATAL)
}

fn start(modules: Modules) -> Result<ExitCode, String> {
    let _ = rustix::thread::set_name(c"freewheel");
    title::be_worker();
    let text = |call: &str, error: io::Error| of_call(call)(error).to_string();
    let signals = Signals::open().map_err(|error| text("signalfd()", error))?;
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let socket = socket.map_err(|error| text("fcntl(F_DUPFD_CLOEXEC)", error))?;
    #[expect(clippy::disallowed_methods, reason = "no loop runs yet")]
    let null = rustix::fs::openat(
        rustix::fs::CWD,
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    if let Ok(null) = null {
        let _ = rustix::stdio::dup2_stdin(null);
    }
    let channel = Channel::from_socket(socket);
    let channel = channel.map_err(|error| text("the master's channel", error))?;
    log_panics();
    let logs =
        Logs::start().map_err(|error| format!("the log thread cannot be started ({error})"))?;
    let (built, results) = mpsc::channel();
    let bell = rustix::event::eventfd(0, BELL_FLAGS);
    let bell = Arc::new(bell.map_err(|error| text("eventfd()", error.into()))?);
    let worker = Worker {
        channel,
        signals,
        server: None,
        disk: None,
        caches: None,
        modules,
        logs: logs.clone(),
        built,
        bell,
        deadline: Deadline::default(),
        pools: pools::Kept::default(),
        has_rights: true,
        beyond: None,
        lacks_raw: false,
        is_daemon: false,
        stderr: None,
        was_large: false,
    };
    Ok(worker.run(&results).unwrap_or_else(|sentence| {
        let code = fail(&sentence);
        // The log thread ends with this process.
        super::log_files::drain(&logs);
        code
    }))
}

const BELL_FLAGS: rustix::event::EventfdFlags =
    rustix::event::EventfdFlags::NONBLOCK.union(rustix::event::EventfdFlags::CLOEXEC);

struct Worker {
    channel: Channel,
    signals: Signals,
    /// `Some` as soon as root's rights are given up.
    server: Option<HttpServer>,
    disk: Option<Arc<Disk>>,
    caches: Option<Registry>,
    modules: Modules,
    logs: Logs,
    built: mpsc::Sender<BuiltBundle>,
    /// Signalled when a helper thread has built something.
    bell: Arc<OwnedFd>,
    deadline: Deadline,
    pools: pools::Kept,
    /// Whether root's rights (if there were any) are still held.
    has_rights: bool,
    /// While a new configuration is built.
    beyond: Option<Beyond>,
    /// Whether the right to send from foreign addresses was given up.
    lacks_raw: bool,
    is_daemon: bool,
    /// The log that takes the output to stderr.
    stderr: Option<PathBuf>,
    /// Whether there has been a configuration of [`LARGE_BYTES`].
    was_large: bool,
}

/// The event that ended the worker's wait.
enum WorkerEvent {
    Goes,
    Quits {
        /// Whether another process waits for the caches.
        has_heir: bool,
    },
    Ends,
}

impl Worker {
    fn run(mut self, results: &mpsc::Receiver<BuiltBundle>) -> Result<ExitCode, String> {
        loop {
            if self.server.as_mut().map_or(0, HttpServer::forget_old) > 0 && self.was_large {
                sys::trim_heap();
            }
            let has_old = self.server.as_ref().is_some_and(HttpServer::has_old);
            self.wait(has_old.then_some(FORGETTING_TICK))?;
            let mut next = self.obey_signals();
            if let WorkerEvent::Goes = next {
                next = self.obey_master()?;
            }
            match next {
                WorkerEvent::Goes => {}
                // Nothing is taken over any more: the master may have gone.
                WorkerEvent::Quits { has_heir } => return Ok(self.leave(has_heir)),
                WorkerEvent::Ends => return Ok(self.end()),
            }
            while let Ok(built) = results.try_recv() {
                self.take_over(built)?;
            }
        }
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<(), String> {
        let mut events = [
            PollFd::new(&self.channel, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.bell, PollFlags::IN),
        ];
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut events, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(of_call("poll()")(error.into()).to_string()),
        }
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        Ok(())
    }

    fn obey_signals(&self) -> WorkerEvent {
        // The master starts another worker then.
        let quits = || {
            let _ = self.channel.send(word::LEAVING, &[], &[]);
            WorkerEvent::Quits { has_heir: true }
        };
        while let Some(received) = self.signals.take() {
            match received.signal {
                Signal::SIGTERM | Signal::SIGINT => {
                    note(received, "exiting");
                    return WorkerEvent::Ends;
                }
                Signal::SIGQUIT => {
                    note(received, "shutting down");
                    return quits();
                }
                Signal::SIGWINCH if self.is_daemon => {
                    note(received, "shutting down");
                    return quits();
                }
                Signal::SIGUSR1 => self.ask_for_logs(received),
                Signal::SIGHUP | Signal::SIGUSR2 => note(received, "ignoring"),
                _ => {}
            }
        }
        WorkerEvent::Goes
    }

    /// USR1: the master opens the logs again, which this process's user may not be able to.
    fn ask_for_logs(&self, received: ReceivedSignal) {
        note(received, "reopening logs");
        let _ = self.channel.send(word::ROTATED, &[], &[]);
    }

    fn obey_master(&mut self) -> Result<WorkerEvent, String> {
        if !self.has_orders() {
            return Ok(WorkerEvent::Goes);
        }
        // The first bundle comes before any connection, and brings the limit itself. While a configuration is built, the
        // room is there already.
        let has_room = self.has_rights || self.beyond.is_some();
        let beyond = if has_room { None } else { Beyond::begin() };
        let received = self.channel.receive();
        let frame = match received.map_err(|error| of_call("recvmsg()")(error).to_string())? {
            Received::Whole(frame) => frame,
            Received::Part => return Ok(WorkerEvent::Goes),
            Received::Gone => {
                // Without a master this worker could not be stopped or reloaded, and a new master could not bind.
                error_log(Level::Alert, format_args!("the master process has gone"));
                return Ok(WorkerEvent::Quits { has_heir: true });
            }
        };
        if frame.lacks_descriptors {
            self.do_without(&frame)?;
            return Ok(WorkerEvent::Goes);
        }
        match frame.kind {
            word::CONFIGURE => {
                let bundle = Bundle::unpack(&frame.body, frame.descriptors);
                if self.begin(bundle.ok_or("the master's bundle cannot be read")?)? {
                    self.beyond = self.beyond.take().or(beyond);
                }
            }
            word::QUIT => {
                let has_heir = frame.body == [1];
                return Ok(WorkerEvent::Quits { has_heir });
            }
            word::ACME => {
                if let Some(answer) = super::acme::take(&frame)? {
                    self.answer(word::TAKEN, &answer)?;
                }
            }
            word::REOPEN => {
                self.reopen(frame);
                if let (Some(server), Some(disk)) = (&self.server, &self.disk) {
                    super::metrics_log::write(server.ledger(), disk, &self.logs);
                }
                if let Some(caches) = &self.caches {
                    super::metrics_log::write_caches(&caches.all());
                }
            }
            other => error_log(
                Level::Alert,
                format_args!("unknown message {other} from the master"),
            ),
        }
        Ok(WorkerEvent::Goes)
    }

    fn reopen(&self, frame: Frame) {
        let stderr = self.stderr.as_deref();
        super::log_files::reopen(&frame.body, frame.descriptors, &self.logs, stderr);
    }

    /// Of what the master says to a worker that leaves, only the log files matter. False: the master has gone.
    fn obey_last_orders(&self) -> bool {
        if !self.has_orders() {
            return true;
        }
        let _beyond = Beyond::begin();
        match self.channel.receive() {
            Ok(Received::Whole(frame)) if frame.kind == word::REOPEN => {
                match frame.lacks_descriptors {
                    true => drop(self.do_without(&frame)),
                    false => self.reopen(frame),
                }
                true
            }
            Ok(Received::Whole(_) | Received::Part) => true,
            Ok(Received::Gone) | Err(_) => false,
        }
    }

    /// Whether the master has said something.
    fn has_orders(&self) -> bool {
        let mut events = [PollFd::new(&self.channel, PollFlags::IN)];
        matches!(poll(&mut events, Some(&Timespec::default())), Ok(1..))
    }

    /// A message whose descriptors this process may not have: what is served and written to goes on as it is.
    fn do_without(&self, frame: &Frame) -> Result<(), String> {
        if frame.kind != word::CONFIGURE {
            error_log(
                Level::Emerg,
                format_args!("log files are not opened again: {NO_DESCRIPTORS}"),
            );
            return Ok(());
        }
        let generation = Bundle::generation_of(&frame.body).filter(|_| !self.has_rights);
        let generation = generation.ok_or(NO_DESCRIPTORS)?;
        let sentence = format!("the configuration is not taken: {NO_DESCRIPTORS}");
        self.refuse(generation, &sentence)
    }

    /// Tells the master why a bundle is not served.
    fn refuse(&self, generation: u64, sentence: &str) -> Result<(), String> {
        let mut body = Writer::default();
        body.number(generation);
        body.bytes(sentence.as_bytes());
        self.answer(word::REFUSED, &body.0)
    }

    /// Answers the master. One that has gone is noticed where it is listened to.
    fn answer(&self, kind: u8, body: &[u8]) -> Result<(), String> {
        match self.channel.send(kind, body, &[]) {
            Err(error) if !is_gone(&error) => Err(of_call("sendmsg()")(error).to_string()),
            _ => Ok(()),
        }
    }

    /// Begins to build a bundle's settings, on a helper thread: names and files may keep it waiting. False: it could not
    /// begin, which the master knows.
    fn begin(&mut self, bundle: Bundle) -> Result<bool, String> {
        self.is_daemon = bundle.is_daemon;
        let is_first = std::mem::take(&mut self.has_rights);
        if is_first {
            let alarms = Alarms::set();
            score::lower();
            let (disk, keeps_raw) = prepare(&bundle, &self.logs, self.modules)?;
            self.lacks_raw = bundle.account.is_some() && !keeps_raw;
            self.disk = Some(Arc::clone(&disk));
            self.caches = Some(Registry::new(Arc::clone(&disk)));
            let shared = Shared {
                logs: self.logs.clone(),
                ledger: monitoring::begin(self.logs.clone(), Arc::clone(&disk), self.modules),
                disk,
            };
            watch::begin(&shared.ledger, alarms);
            self.server = Some(HttpServer::new(shared));
        }
        self.was_large |= bundle.texts.bytes() >= LARGE_BYTES;
        let generation = bundle.generation;
        let begun = build::begin(
            bundle,
            build::Around {
                former: self.server.as_ref().and_then(HttpServer::settings),
                logs: self.logs.clone(),
                disk: self.disk.clone(),
                modules: self.modules,
            },
            build::Done {
                built: self.built.clone(),
                bell: Arc::clone(&self.bell),
            },
        );
        let Err(error) = begun else { return Ok(true) };
        let sentence = format!("a helper thread cannot be started ({})", errno(&error));
        match is_first {
            true => Err(sentence),
            false => self.refuse(generation, &sentence).map(|()| false),
        }
    }

    fn take_over(&mut self, built: BuiltBundle) -> Result<(), String> {
        let BuiltBundle { bundle, outcome } = built;
        // Until the end: what is opened for the new configuration has room, too.
        let _beyond = self.beyond.take();
        let outcome = outcome.and_then(
            |BuiltSettings {
                 main,
                 settings,
                 needs_right,
                 wanted,
                 main_logs,
                 held,
             }| {
                if self.lacks_raw && needs_right {
                    return Err(RIGHT_IS_GONE.to_owned());
                }
                if let Some(disk) = &self.disk {
                    define_new_pools(&main.processes, disk);
                }
                if let Some(caches) = &self.caches {
                    caches.equip(&settings, &bundle.devices)?;
                }
                let plan = plan(&bundle, &main, &settings);
                let server = self.server.as_mut().ok_or("a worker without loops")?;
                server.apply(&plan).map_err(|error| error.to_string())?;
                // Only now does anything of what is served change.
                self.caches
                    .iter()
                    .for_each(|caches| caches.settle(&settings));
                httpcore::tls::acme::retain();
                self.deadline = Deadline::of(&main, &bundle);
                if let Some(disk) = &self.disk {
                    define_pools(&main.processes, disk);
                    self.pools.accept(&main.processes, disk);
                }
                super::log_files::settle(&bundle.logs, &wanted, main_logs, &self.logs);
                drop(held);
                self.stderr = wanted.of_stderr().filter(|_| self.is_daemon);
                let _ = super::log_files::redirect_stderr(self.stderr.as_deref(), &bundle.logs);
                Ok(())
            },
        );
        match outcome {
            Ok(()) => {
                let mut body = Writer::default();
                body.number(bundle.generation);
                self.answer(word::SERVED, &body.0)
            }
            Err(sentence) => self.refuse(bundle.generation, &sentence),
        }
    }

    /// Finishes the requests in flight, then ends.
    fn leave(mut self, has_heir: bool) -> ExitCode {
        error_log(Level::Notice, format_args!("gracefully shutting down"));
        title::be_leaving();
        let Some(mut server) = self.server.take() else {
            return self.end();
        };
        server.shut_down();
        if let Some(caches) = self.caches.as_ref().filter(|_| has_heir) {
            caches.give_up();
        }
        let deadline = self.deadline.begin();
        let mut has_master = true;
        while server.is_running() {
            if self.wait(Some(LEAVING_TICK)).is_err()
                || deadline.is_some_and(|deadline| Instant::now() >= deadline)
            {
                break;
            }
            while let Some(received) = self.signals.take() {
                match received.signal {
                    Signal::SIGTERM | Signal::SIGINT => {
                        note(received, "exiting");
                        return self.end();
                    }
                    Signal::SIGUSR1 => self.ask_for_logs(received),
                    _ => {}
                }
            }
            has_master = has_master && self.obey_last_orders();
            // The channel stays readable once the master is gone: do not spin on it.
            thread::park_timeout(LEAVING_TICK);
        }
        self.deadline.end(|| server.is_running());
        if let Some(caches) = &self.caches {
            caches.close(CLOSING_PATIENCE);
        }
        self.end()
    }

    /// Ends at once; joins no thread, since one may hang on a dead disk.
    fn end(self) -> ExitCode {
        error_log(Level::Notice, format_args!("exiting"));
        error_log(Level::Notice, format_args!("exit"));
        super::log_files::drain(&self.logs);
        std::process::exit(0)
    }
}

const NO_DESCRIPTORS: &str =
    "the worker process may not have more open files (\"worker_rlimit_nofile\", RLIMIT_NOFILE)";

/// A reload that comes with the first `proxy_bind … transparent`.
const RIGHT_IS_GONE: &str = "\"transparent\" of \"proxy_bind\" and its kin needs a right that the worker gave up when it was started without such a line: \
     stop the server and start it again";

/// The one-time preparations with root's rights, and giving those up; tells whether the right to send from foreign
/// addresses was kept.
fn prepare(bundle: &Bundle, logs: &Logs, modules: Modules) -> Result<(Arc<Disk>, bool), String> {
    let origin = bundle.origin();
    let (tree, main) = load::main(
        &origin,
        &bundle.circumstances,
        &mut bundle.texts.clone(),
        modules,
    )
    .map_err(|error| error.to_string())?;
    let hosts = &bundle.circumstances.hosts;
    let wanted = Wanted::main(&tree, &bundle.prefix, hosts, bundle.error_log.as_deref());
    let wanted = wanted.map_err(|error| error.to_string())?;
    let _held = super::log_files::make_known(bundle, &wanted, logs);
    super::log_files::use_thread(super::log_files::threaded(&wanted, logs)?, logs);
    privileges::set_limits(&main);
    crate::memory::heaps::bound();
    super::pinned::keep_program();
    let prepared = Disk::prepare();
    let keeps_raw = needs_right(&tree.directives);
    if let Some(account) = &bundle.account {
        account.become_it(keeps_raw)?;
    }
    privileges::set_dumpable();
    if let Some(directory) = &main.processes.working_directory {
        privileges::change_directory(&directory.resolve(Path::new("")))?;
    }
    let disk = Disk::new(prepared);
    super::hold::watch(&disk);
    Ok((disk, keeps_raw))
}

/// Logs every panic in one line: of a connection at the connection, which ends alone, of all others here.
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        if !panic_guard::take(panic) {
            error_log(Level::Alert, format_args!("{}", panic_guard::line(panic)));
        }
    }));
}
