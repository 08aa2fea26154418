//! The master: holds the sockets and the last good configuration, starts workers, obeys signals.
//!
//! It runs no loop and no thread, and waits in one place, for signals and for messages of its workers.
//!
//! Not here: the start ([`super::start`]). Invariant: the sockets, the pid file and the configuration that the master
//! holds are those of a bundle that a worker serves; a reload that fails in the master or in the worker changes none of
//! them.

use std::os::fd::OwnedFd;
use std::process::{Child, ExitCode};
use std::time::Instant;

use logs::process_log::{Level, error_log};
use nix::sys::signal::{Signal, kill};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::acme::AcmeThreads;
use super::bundle::Bundle;
use super::certificate_watch::CertificateWatch;
use super::devices::Devices;
use super::directories::Made;
use super::frame::{Frame, Reader, Received};
use super::load::Kept;
use super::log_files::{Opened, Wanted};
use super::obstacles;
use super::pid::PidFile;
use super::privileges::Account;
use super::remains::Remains;
use super::signals::{Signals, note};
use super::sockets::Sockets;
use super::start::{Options, help};
use super::supervise::{Stage, TERM_PATIENCE, Worker, pid_of};
use super::upgrade::{Predecessor, StartCommand, UPGRADE_UNDER_WAY};
use super::word;
use super::{notify, title};
use crate::process::log_files;

/// A configuration that a worker is to serve.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Its number.
    pub generation: u64,
    /// The configuration as it was read.
    pub kept: Kept,
    /// The worker's user; `None`: the master's.
    pub account: Option<Account>,
    /// The sockets.
    pub sockets: Sockets,
    /// The destinations of error log lines, and the open files.
    pub logs: (Wanted, Opened),
    /// The block devices of its caches.
    pub devices: Devices,
    /// Directories that are removed if it is not served.
    pub made: Made,
}

/// The master's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It keeps a worker serving.
    Serving,
    /// It serves no more (WINCH), until HUP.
    Paused,
    /// QUIT: it ends with its last worker.
    Quitting,
    /// TERM: as fast as possible.
    Terminating { since: Instant, is_killed: bool },
}

/// The master process.
#[derive(Debug)]
pub(crate) struct Master {
    /// The options of the command line.
    pub options: Options,
    /// The configuration that is served.
    pub current: Candidate,
    /// The signals that this process takes.
    pub signals: Signals,
    /// Written to when everything is ready, for the command that waits.
    pub ready: Option<OwnedFd>,
    /// `Some` as soon as everything is listening.
    pub pid_file: Option<PidFile>,
    /// A reload in progress.
    pub(super) pending: Option<Candidate>,
    /// The worker that `pending` was sent to, by its process.
    pub(super) holder: u32,
    pub(super) is_reload_wanted: bool,
    /// Certificates that are taken when they change.
    pub(super) watch: CertificateWatch,
    /// What gets certificates by ACME.
    pub(super) acme: AcmeThreads,
    /// Whether logs must be reopened once more when no bundle is on its way to a worker.
    is_reopen_wanted: bool,
    pub(super) workers: Vec<Worker>,
    /// What is left of workers that have ended.
    pub(super) remains: Remains,
    pub(super) purpose: Purpose,
    /// The exit code once it ends by its purpose: success where a signal told it to, however early.
    exit_code: ExitCode,
    pub(super) short_lives: u32,
    /// When a worker is started, while none serves or is about to.
    pub(super) start_at: Option<Instant>,
    /// The command for an upgrade.
    pub(super) command: StartCommand,
    /// The master that started this one in its place.
    pub(super) predecessor: Option<Predecessor>,
    /// The master that this one has started in its place.
    pub(super) successor: Option<Child>,
    is_upgrade_wanted: bool,
    /// When the workers are told to leave.
    pub(super) dismiss_at: Option<Instant>,
}

impl Candidate {
    /// The message for a worker; `begun_ns`: the time when its preparation began, by
    /// [`now_ns`](runtime::timing::poll_timing::now_ns).
    #[must_use]
    pub(crate) fn bundle(&self, options: &Options, begun_ns: u64) -> Bundle {
        let processes = &self.kept.main.processes;
        Bundle {
            generation: self.generation,
            begun_ns,
            prefix: options.origin.prefix.clone(),
            root: options.origin.root.clone(),
            globals: options.origin.globals.clone(),
            circumstances: self.kept.circumstances.clone(),
            texts: self.kept.texts.clone(),
            account: self.account.clone(),
            is_daemon: processes.daemon,
            sockets: self
                .sockets
                .0
                .iter()
                .map(|bound| (bound.address.clone(), bound.sockets.clone()))
                .collect(),
            error_log: options.error_log.clone(),
            logs: self.logs.1.clone(),
            devices: self.devices.0.clone(),
        }
    }
}

impl Master {
    /// A master that holds everything and has no worker yet.
    #[must_use]
    pub(crate) fn new(
        options: Options,
        current: Candidate,
        signals: Signals,
        ready: Option<OwnedFd>,
        predecessor: Option<Predecessor>,
    ) -> Self {
        Self {
            options,
            current,
            signals,
            ready,
            pid_file: None,
            pending: None,
            holder: 0,
            is_reload_wanted: false,
            watch: CertificateWatch::default(),
            acme: AcmeThreads::default(),
            is_reopen_wanted: false,
            workers: Vec::new(),
            remains: Remains::new(),
            purpose: Purpose::Serving,
            exit_code: ExitCode::SUCCESS,
            short_lives: 0,
            start_at: None,
            command: StartCommand::here(),
            predecessor,
            successor: None,
            is_upgrade_wanted: false,
            dismiss_at: None,
        }
    }

    /// Runs the master until its end.
    #[must_use]
    pub(crate) fn run(mut self) -> ExitCode {
        title::be_master();
        error_log(Level::Notice, format_args!("start worker processes"));
        self.begin_acme();
        if !self.start_worker() {
            return self.end(ExitCode::FAILURE);
        }
        sys::trim_heap();
        loop {
            self.wait();
            while let Some(received) = self.signals.take() {
                self.obey(received);
            }
            self.listen_to_workers();
            self.reap();
            self.settle_acme();
            self.pass_acme_on();
            self.reap_successor();
            self.dismiss_if_due();
            match self.purpose {
                Purpose::Serving | Purpose::Paused
                    if self.workers.is_empty() && self.pid_file.is_none() =>
                {
                    return self.end(ExitCode::FAILURE);
                }
                Purpose::Quitting | Purpose::Terminating { .. } if self.workers.is_empty() => {
                    let code = self.exit_code;
                    return self.end(code);
                }
                _ => {}
            }
            self.press();
            if self.is_reopen_wanted && !self.is_bundle_on_its_way() {
                self.is_reopen_wanted = false;
                self.reopen_logs();
            }
            if std::mem::take(&mut self.is_reload_wanted) {
                self.reload();
            }
            // Behind the reload, as in nginx, and not amid it: it may change the sockets.
            if self.pending.is_none()
                && std::mem::take(&mut self.is_upgrade_wanted)
                && self.goes_on()
            {
                self.change_binary();
            }
            self.watch_certificates();
            self.restart();
        }
    }

    fn wait(&self) {
        let mut events = vec![PollFd::new(&self.signals, PollFlags::IN)];
        events.extend(
            self.workers
                .iter()
                .map(|worker| PollFd::new(&worker.channel, PollFlags::IN)),
        );
        let bell = self.acme.bell();
        events.extend(bell.map(|bell| PollFd::new(bell, PollFlags::IN)));
        let until = match self.purpose {
            Purpose::Terminating {
                since,
                is_killed: false,
            } => Some(since + TERM_PATIENCE),
            _ => self.start_at,
        };
        let until = until.into_iter().chain(self.dismiss_at);
        let until = until.chain(self.watch.due());
        let until = until.chain(Some(self.remains.due())).min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let _ = poll(&mut events, timeout.as_ref());
    }

    fn obey(&mut self, received: super::signals::ReceivedSignal) {
        match received.signal {
            Signal::SIGTERM | Signal::SIGINT => self.terminate(received),
            Signal::SIGQUIT => {
                note(received, "shutting down");
                if !matches!(self.purpose, Purpose::Terminating { .. }) {
                    self.stop_reloading();
                    self.purpose = Purpose::Quitting;
                    self.tell_stopping();
                    self.retire();
                }
            }
            Signal::SIGHUP if self.options.instead.is_some() => self.terminate(received),
            Signal::SIGHUP if self.successor.is_some() => {
                // As nginx: back to this program, with the configuration that it has.
                note(received, "reconfiguring");
                if self.goes_on() {
                    self.serve_again();
                }
            }
            Signal::SIGHUP => {
                note(received, "reconfiguring");
                self.is_reload_wanted = self.goes_on();
            }
            Signal::SIGUSR1 => {
                note(received, "reopening logs");
                self.rotate_logs();
            }
            Signal::SIGUSR2 => {
                let (action, is_wanted) = self.wants_upgrade();
                note(received, action);
                if self.has_other_program() {
                    error_log(Level::Crit, format_args!("{UPGRADE_UNDER_WAY}"));
                }
                self.is_upgrade_wanted |= is_wanted;
            }
            Signal::SIGWINCH if self.takes_winch(received) => {
                note(received, "stop accepting connections");
                if self.goes_on() {
                    self.stop_reloading();
                    self.purpose = Purpose::Paused;
                    self.retire();
                }
            }
            Signal::SIGCHLD | Signal::SIGALRM | Signal::SIGIO => note(received, ""),
            _ => {}
        }
    }

    /// Whether it was not told to end.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self.purpose, Purpose::Serving | Purpose::Paused)
    }

    /// Whether a WINCH is meant for a server. In the foreground it is the terminal's, whose size has changed; but of two
    /// programs, one the other's successor, a process may mean what nginx means.
    fn takes_winch(&self, received: super::signals::ReceivedSignal) -> bool {
        let is_one_of_two = self.predecessor.is_some() || self.successor.is_some();
        self.current.kept.main.processes.daemon || (is_one_of_two && received.sender != 0)
    }

    /// Tells the service manager that the server ends, unless another program goes on.
    fn tell_stopping(&self) {
        if self.successor.is_none() && !self.has_predecessor() {
            notify::stopping();
        }
    }

    fn terminate(&mut self, received: super::signals::ReceivedSignal) {
        note(received, "exiting");
        if !matches!(self.purpose, Purpose::Terminating { .. }) {
            self.stop_reloading();
            self.tell_stopping();
            self.purpose = Purpose::Terminating {
                since: Instant::now(),
                is_killed: false,
            };
            self.signal_workers(Signal::SIGTERM);
        }
    }

    /// The master ends, or serves no more: a reload that was requested or begun is dropped.
    fn stop_reloading(&mut self) {
        self.is_reload_wanted = false;
        self.drop_pending();
    }

    pub(super) fn candidate(&self, generation: u64) -> &Candidate {
        self.pending
            .as_ref()
            .filter(|pending| pending.generation == generation)
            .unwrap_or(&self.current)
    }

    fn listen_to_workers(&mut self) {
        let mut heard = Vec::new();
        for worker in &self.workers {
            let mut events = [PollFd::new(&worker.channel, PollFlags::IN)];
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            if matches!(poll(&mut events, Some(&now)), Ok(1..))
                && let Ok(Received::Whole(frame)) = worker.channel.receive()
            {
                heard.push((worker.child.id(), frame));
            }
        }
        for (process, frame) in heard {
            self.hear(process, &frame);
        }
    }

    fn hear(&mut self, process: u32, frame: &Frame) {
        let mut from = Reader(&frame.body);
        let generation = from.number().unwrap_or_default();
        match frame.kind {
            word::SERVED => self.served(process, generation),
            word::LEAVING => self.leaves(process),
            word::TAKEN => self.acme_taken(process, generation),
            word::ROTATED => self.rotate_logs(),
            word::REFUSED => {
                let reason = String::from_utf8_lossy(from.bytes().unwrap_or_default()).into_owned();
                self.refused(process, &reason);
            }
            _ => {}
        }
    }

    /// A worker serves a bundle: only now does the master's state change.
    fn served(&mut self, process: u32, generation: u64) {
        let Some(worker) = self.member(process) else {
            return;
        };
        let was_starting = std::mem::replace(&mut worker.stage, Stage::Serving) == Stage::Starting;
        let is_reload = self
            .pending
            .as_ref()
            .is_some_and(|pending| pending.generation == generation);
        if is_reload && let Some(next) = self.pending.take() {
            let previous = std::mem::replace(&mut self.current, next);
            log_files::use_them(&self.current.logs.0, &self.current.logs.1);
            self.redirect_stderr();
            let held = self.held_by_others();
            self.current.sockets.replace(&previous.sockets, &held);
            self.current.sockets.settle();
            self.set_acme(false);
            self.write_pid_file();
            if was_starting {
                self.dismiss_others(process, true);
            } else {
                let old = previous.generation;
                // Scripts wait for "exited with code" to know that the old configuration is gone.
                error_log(
                    Level::Notice,
                    format_args!(
                        "configuration {generation} is served now; connections of configuration {old} are finished by the same process \
                         (for scripts: worker process {process} generation {old} exited with code 0)"
                    ),
                );
            }
            if self.purpose == Purpose::Paused {
                self.purpose = Purpose::Serving;
                self.dismiss_at = None;
                self.current.sockets.serve_all();
            }
            notify::ready();
        }
        if self.pid_file.is_none() && self.write_pid_file() {
            self.tell_ready();
        }
        if self.pid_file.is_some() {
            self.current.made.keep();
        }
    }

    /// Everything listens and the pid file is written: tells the command that waits, or the terminal.
    pub(super) fn tell_ready(&mut self) {
        // The manager listens to the main process alone, which the program before this one still is.
        if !self.has_predecessor() {
            notify::ready();
        }
        if let Some(ready) = self.ready.take() {
            let _ = rustix::io::write(&ready, b"1");
        }
        if let Some(instead) = &self.options.instead {
            eprint!("{}", instead.greeting);
        }
    }

    pub(super) fn write_pid_file(&mut self) -> bool {
        let path = self
            .current
            .kept
            .main
            .processes
            .pid
            .resolve(&self.options.origin.prefix);
        if self
            .pid_file
            .as_ref()
            .is_some_and(|file| file.path() == path)
        {
            return true;
        }
        match PidFile::write(&path) {
            Ok(file) => {
                self.pid_file = Some(file);
                true
            }
            Err(sentence) => {
                error_log(Level::Emerg, format_args!("{sentence}"));
                if self.pid_file.is_none() {
                    eprintln!("nginx: [emerg] {sentence}");
                    help(obstacles::about_sentence(&sentence));
                    self.exit_code = ExitCode::FAILURE;
                    self.purpose = Purpose::Terminating {
                        since: Instant::now(),
                        is_killed: false,
                    };
                    self.signal_workers(Signal::SIGTERM);
                }
                false
            }
        }
    }

    fn refused(&mut self, process: u32, reason: &str) {
        error_log(Level::Emerg, format_args!("{reason}"));
        if self.pid_file.is_none() {
            eprintln!("nginx: [emerg] {reason}");
        }
        let Some(worker) = self.member(process) else {
            return;
        };
        if worker.stage == Stage::Starting {
            worker.stage = Stage::Leaving;
            let _ = kill(pid_of(&worker.child), Signal::SIGTERM);
            let started = worker.started;
            self.gave_up(process, Stage::Starting, started);
        } else if self.is_holder(process) {
            self.keep_current();
        }
    }

    /// Whether this worker is to serve `pending`.
    pub(super) fn is_holder(&self, process: u32) -> bool {
        self.pending.is_some() && self.holder == process
    }

    /// Discards the configuration that was to be served next, and says so.
    pub(super) fn keep_current(&mut self) {
        self.discard_pending();
        error_log(
            Level::Alert,
            format_args!("the new configuration is not served, the old one goes on"),
        );
    }

    /// Discards it because of what was wanted since. Certificates that it had are read once more.
    pub(super) fn drop_pending(&mut self) {
        if self.pending.is_some() {
            self.discard_pending();
            self.watch.forget();
            error_log(
                Level::Notice,
                format_args!("the new configuration is not served"),
            );
        }
    }

    fn discard_pending(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.current
                .sockets
                .remove_files_of_others(&pending.sockets);
            notify::ready();
        }
    }

    fn rotate_logs(&mut self) {
        self.reopen_logs();
        self.is_reopen_wanted = self.is_bundle_on_its_way();
    }

    fn reopen_logs(&mut self) {
        logs::wall_clock::refresh_zone();
        error_log(Level::Notice, format_args!("reopening logs"));
        let (wanted, before) = &self.current.logs;
        let opened = wanted.reopen(before);
        log_files::use_them(wanted, &opened);
        let body = log_files::reopened(&opened);
        let files: Vec<_> = opened
            .iter()
            .map(|(_, file)| std::os::fd::AsFd::as_fd(file))
            .collect();
        for worker in &self.workers {
            let _ = worker.channel.send(word::REOPEN, &body, &files);
        }
        self.current.logs.1 = opened;
        self.redirect_stderr();
    }

    /// Whether files that were opened before a rename may still be on their way to a worker, and would arrive after
    /// those that are opened now.
    fn is_bundle_on_its_way(&self) -> bool {
        let mut stages = self.workers.iter().map(|worker| worker.stage);
        self.pending.is_some() || stages.any(|stage| stage == Stage::Starting)
    }

    fn redirect_stderr(&self) {
        if self.current.kept.main.processes.daemon {
            let (wanted, opened) = &self.current.logs;
            let _ = log_files::redirect_stderr(wanted.of_stderr().as_deref(), opened);
        }
    }

    fn end(mut self, code: ExitCode) -> ExitCode {
        self.end_listening();
        if let Some(successor) = &self.successor {
            notify::main_process(successor.id());
        }
        drop(self.pid_file);
        error_log(Level::Notice, format_args!("exit"));
        code
    }
}
