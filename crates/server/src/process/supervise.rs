//! Workers as the master sees them: started, told to finish, ended, and restarted when they die.
//!
//! Not here: configurations and reloads ([`super::master`]). Invariant: as long as the master is to serve, a worker
//! serves the last good bundle on the master's sockets, or one is about to be started.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use logs::process_log::{Level, error_log};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runtime::timing::poll_timing::now_ns;

use super::bundle::Bundle;
use super::frame::Channel;
use super::master::{Master, Purpose};
use super::remains;
use super::spawn;
use super::word;
use crate::process::worker;

/// A worker that dies sooner than this is not started again at once.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// The first pause then; it doubles with every further short life.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long workers may take to obey TERM before they get KILL, as in nginx.
pub(super) const TERM_PATIENCE: Duration = Duration::from_secs(1);

/// The stage of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has a bundle and has not served it yet.
    Starting,
    /// It serves.
    Serving,
    /// It was told to finish.
    Leaving,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) child: Child,
    pub(super) channel: Channel,
    pub(super) stage: Stage,
    pub(super) started: Instant,
    /// Whether its main thread had ended at the last look ([`super::remains`]).
    pub(super) has_ended: bool,
}

impl Master {
    /// Starts a worker for the current configuration; false when that cannot be.
    pub(super) fn start_worker(&mut self) -> bool {
        let bundle = self.current.bundle(&self.options, now_ns());
        self.start_with(&bundle)
    }

    /// Starts a worker for this bundle, which is that of `pending` or of `current`; false when that cannot be.
    pub(super) fn start_with(&mut self, bundle: &Bundle) -> bool {
        let env = &self.candidate(bundle.generation).kept.main.processes.env;
        let started = spawn::worker(env).and_then(|(child, channel)| {
            match self.tell_first(&channel, bundle) {
                Ok(()) => Ok((child, channel)),
                Err(error) => {
                    self.remains.kill(child);
                    Err(error)
                }
            }
        });
        match started {
            Ok((child, channel)) => {
                error_log(
                    Level::Notice,
                    format_args!("start worker process {}", child.id()),
                );
                let pending = self.pending.as_ref();
                if pending.is_some_and(|pending| pending.generation == bundle.generation) {
                    self.holder = child.id();
                }
                self.workers.push(Worker {
                    child,
                    channel,
                    stage: Stage::Starting,
                    started: Instant::now(),
                    has_ended: false,
                });
                true
            }
            Err(error) => {
                let text = wire::errno(&error);
                error_log(
                    Level::Alert,
                    format_args!("a worker process cannot be started ({text})"),
                );
                false
            }
        }
    }

    /// Tells a new worker what it needs to serve this bundle.
    fn tell_first(&self, channel: &Channel, bundle: &Bundle) -> io::Result<()> {
        if let Some(known) = self.acme.whole() {
            channel.send(word::ACME, &known, &[])?;
        }
        let (body, descriptors) = bundle.pack();
        channel.send(word::CONFIGURE, &body, &descriptors)
    }

    /// A worker that was not told to finish; `None` for all others, which have no say any more.
    pub(super) fn member(&mut self, process: u32) -> Option<&mut Worker> {
        self.workers
            .iter_mut()
            .find(|worker| worker.child.id() == process && worker.stage != Stage::Leaving)
    }

    /// Whether a worker serves or is about to.
    pub(super) fn has_worker(&self) -> bool {
        let mut workers = self.workers.iter();
        workers.any(|worker| worker.stage != Stage::Leaving)
    }

    /// Tells all workers to finish. `has_heir`: another process waits for their caches.
    pub(super) fn dismiss_workers(&mut self, has_heir: bool) {
        self.dismiss_others(0, has_heir);
    }

    pub(super) fn dismiss_others(&mut self, kept: u32, has_heir: bool) {
        for worker in self
            .workers
            .iter_mut()
            .filter(|worker| worker.child.id() != kept)
        {
            if worker.stage != Stage::Leaving {
                worker.stage = Stage::Leaving;
                let _ = worker.channel.send(word::QUIT, &[u8::from(has_heir)], &[]);
            }
        }
    }

    pub(super) fn signal_workers(&self, signal: Signal) {
        for worker in &self.workers {
            let _ = kill(pid_of(&worker.child), signal);
        }
    }

    /// Gives those who do not obey TERM what they cannot disobey.
    pub(super) fn press(&mut self) {
        if let Purpose::Terminating {
            since,
            is_killed: false,
        } = self.purpose
            && since.elapsed() >= TERM_PATIENCE
        {
            self.signal_workers(Signal::SIGKILL);
            self.purpose = Purpose::Terminating {
                since,
                is_killed: true,
            };
        }
    }

    pub(super) fn reap(&mut self) {
        let mut gone = Vec::new();
        for (index, worker) in self.workers.iter_mut().enumerate() {
            if let Ok(Some(status)) = worker.child.try_wait() {
                gone.push((index, status));
            }
        }
        for (index, status) in gone.into_iter().rev() {
            let worker = self.workers.remove(index);
            note_end("worker process", worker.child.id(), status);
            self.lost(&worker, &status.to_string());
        }
        self.remains.reap();
        self.give_up_remains();
    }

    /// Workers that have ended but for threads that wait for a disk are gone as well.
    fn give_up_remains(&mut self) {
        if !self.remains.takes_look() {
            return;
        }
        let is_gone = |worker: &mut Worker| {
            let had_ended = worker.has_ended;
            worker.has_ended = remains::has_ended(worker.child.id());
            had_ended && worker.has_ended
        };
        let gone: Vec<Worker> = self.workers.extract_if(.., is_gone).collect();
        for worker in gone {
            let process = worker.child.id();
            error_log(
                Level::Alert,
                format_args!(
                    "worker process {process} has ended, but for threads that wait for a disk; it counts as gone"
                ),
            );
            self.lost(&worker, "its threads wait for a disk");
            self.remains.keep(worker.child);
        }
    }

    /// A worker died; `status`: how, where it was to serve.
    fn lost(&mut self, worker: &Worker, status: &str) {
        let is_ending = matches!(
            self.purpose,
            Purpose::Quitting | Purpose::Terminating { .. }
        );
        if worker.stage == Stage::Leaving || is_ending {
            return;
        }
        let process = worker.child.id();
        if self.pid_file.is_none() {
            error_log(
                Level::Alert,
                format_args!("worker process {process} could not start ({status})"),
            );
            return;
        }
        self.gave_up(process, worker.stage, worker.started);
    }

    /// A worker that serves, or was about to, tells that a signal has told it to finish.
    pub(super) fn leaves(&mut self, process: u32) {
        if let Some(worker) = self.member(process) {
            let stage = std::mem::replace(&mut worker.stage, Stage::Leaving);
            let started = worker.started;
            self.gave_up(process, stage, started);
        }
    }

    /// A worker neither serves nor will, and was not told so by the master. `stage`: where it was.
    pub(super) fn gave_up(&mut self, process: u32, stage: Stage, started: Instant) {
        // One that served before may have gone for another reason: then a new process tries the new configuration.
        if stage == Stage::Starting && self.is_holder(process) {
            self.keep_current();
        }
        self.short_lives = if started.elapsed() < SHORT_LIFE {
            self.short_lives.saturating_add(1)
        } else {
            0
        };
    }

    /// Starts a worker with the newest configuration, where none serves or is about to: at once, or after a pause when
    /// workers have had short lives.
    pub(super) fn restart(&mut self) {
        if self.purpose != Purpose::Serving || self.pid_file.is_none() || self.has_worker() {
            self.start_at = None;
            return;
        }
        let pause = match self.short_lives {
            0 => Duration::ZERO,
            lives => (PAUSE_FIRST * 2_u32.saturating_pow(lives.min(10) - 1)).min(PAUSE_MAX),
        };
        let now = Instant::now();
        if *self.start_at.get_or_insert(now + pause) > now {
            return;
        }
        let newest = self.pending.as_ref().unwrap_or(&self.current);
        let bundle = newest.bundle(&self.options, now_ns());
        if self.start_with(&bundle) {
            self.start_at = None;
            return;
        }
        self.start_at = Some(now + PAUSE_MAX);
        if self.pending.is_some() {
            self.keep_current();
            self.watch.forget();
        }
    }
}

pub(super) fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// Logs the end of a process; `name`: nginx's word for what it was.
pub(super) fn note_end(name: &str, process: u32, status: ExitStatus) {
    match (status.code(), status.signal()) {
        (Some(code), _) => {
            error_log(
                Level::Notice,
                format_args!("{name} {process} exited with code {code}"),
            );
            if code == i32::from(worker::FATAL) {
                error_log(
                    Level::Alert,
                    format_args!("{name} {process} exited with fatal code {code}"),
                );
            }
        }
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            let core = if status.core_dumped() {
                " (core dumped)"
            } else {
                ""
            };
            error_log(
                Level::Alert,
                format_args!("{name} {process} exited on signal {signal}{core}"),
            );
        }
    }
}
