//! `master_process off`: master and worker in one process, for development.
//!
//! Not here: what both do ([`super::master`], [`super::worker`]). Invariant: rights are not given up, and
//! nothing is restarted.

use std::process::ExitCode;
use std::time::Instant;

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::master::{Candidate, Master};
use super::pid::PidFile;
use super::report::{Level, error_log};
use super::signals::note;
use super::{logs, privileges, worker};
use crate::loops::Crew;

/// How often a process that leaves looks whether its loops have ended.
const LEAVING_TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// Serves until a signal ends it.
#[must_use]
pub fn run(mut master: Master) -> ExitCode {
    privileges::set_limits(&master.current.loaded.main.processes);
    let mut crew = Crew::new(master.options.serve);
    if let Err(sentence) = apply(&mut crew, &master, &master.current) {
        error_log(Level::Emerg, format_args!("{sentence}"));
        return ExitCode::FAILURE;
    }
    let path = master
        .current
        .loaded
        .main
        .processes
        .pid
        .resolve(&master.options.origin.prefix);
    match PidFile::write(&path) {
        Ok(file) => master.pid_file = Some(file),
        Err(error) => {
            let text = crate::listen::bind::errno(&error);
            error_log(
                Level::Emerg,
                format_args!("open() \"{}\" failed ({text})", path.display()),
            );
            return ExitCode::FAILURE;
        }
    }
    if let Some(ready) = master.ready.take() {
        let _ = rustix::io::write(&ready, b"1");
    }
    loop {
        let _ = poll(&mut [PollFd::new(&master.signals, PollFlags::IN)], None);
        while let Some(received) = master.signals.take() {
            match received.signal {
                Signal::SIGTERM | Signal::SIGINT => {
                    note(received, "exiting");
                    return end(&master);
                }
                Signal::SIGQUIT => {
                    note(received, "shutting down");
                    leave(&mut crew, &master);
                    return end(&master);
                }
                Signal::SIGHUP => {
                    note(received, "reconfiguring");
                    reload(&mut crew, &mut master);
                }
                Signal::SIGUSR1 => {
                    note(received, "reopening logs");
                    reopen(&mut master);
                    worker::tell_figures(&crew);
                }
                Signal::SIGUSR2 => note(received, "ignoring"),
                _ => {}
            }
        }
    }
}

fn apply(crew: &mut Crew, master: &Master, candidate: &Candidate) -> Result<(), String> {
    let plan = worker::plan(&candidate.bundle(&master.options), &candidate.loaded);
    crew.apply(&plan).map_err(|error| error.to_string())
}

fn reload(crew: &mut Crew, master: &mut Master) {
    error_log(Level::Notice, format_args!("reconfiguring"));
    let outcome = master
        .prepare()
        .and_then(|next| apply(crew, master, &next).map(|()| next));
    match outcome {
        Ok(next) => {
            next.sockets.remove_files_of_others(&master.current.sockets);
            logs::use_them(next.logs.0.clone(), next.logs.1.clone());
            let old = std::mem::replace(&mut master.current, next).generation;
            let process = std::process::id();
            error_log(
                Level::Notice,
                format_args!("worker process {process} generation {old} exited with code 0"),
            );
        }
        Err(sentence) => error_log(Level::Emerg, format_args!("{sentence}")),
    }
}

fn reopen(master: &mut Master) {
    error_log(Level::Notice, format_args!("reopening logs"));
    match logs::open(&master.current.logs.0) {
        Ok(opened) => {
            logs::use_them(master.current.logs.0.clone(), opened.clone());
            master.current.logs.1 = opened;
        }
        Err(sentence) => error_log(Level::Emerg, format_args!("{sentence}")),
    }
}

fn leave(crew: &mut Crew, master: &Master) {
    error_log(Level::Notice, format_args!("gracefully shutting down"));
    crew.shut_down();
    let timeout = master.current.loaded.main.processes.worker_shutdown_timeout;
    let deadline = timeout.map(|timeout| Instant::now() + timeout.duration());
    while crew.is_running() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        let _ = poll(
            &mut [PollFd::new(&master.signals, PollFlags::IN)],
            Some(&LEAVING_TICK),
        );
        if master
            .signals
            .take()
            .is_some_and(|received| received.signal == Signal::SIGTERM)
        {
            return;
        }
    }
}

/// Ends at once; joins no thread, since one may hang on a dead disk.
fn end(master: &Master) -> ExitCode {
    master.current.sockets.remove_files();
    if let Some(file) = &master.pid_file {
        let _ = rustix::fs::unlink(file.path());
    }
    error_log(Level::Notice, format_args!("exit"));
    logs::drain();
    std::process::exit(0)
}
