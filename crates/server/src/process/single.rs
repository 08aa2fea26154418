//! `master_process off`: master and worker in one process, for development.
//!
//! Not here: what both do ([`super::master`], [`super::worker`]). Invariant: root's rights are not given up, and
//! nothing is restarted.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use disk::Disk;
use logs::Logs;
use logs::process_log::{Level, error_log};
use nix::sys::signal::Signal;
use runtime::Shared;
use runtime::timing::poll_timing::now_ns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::master::{Candidate, Master};
use super::pid::PidFile;
use super::plan::plan;
use super::pools::{define_new_pools, define_pools};
use super::reload::Unready;
use super::signals::note;
use super::{privileges, worker};
use crate::http_server::HttpServer;
use crate::memory::alarms::Alarms;
use crate::memory::watch;
use crate::monitoring;
use crate::process::pools;
use proxy::caching::caches::registry::Registry;

/// How often a process that leaves looks whether its loops have ended.
const LEAVING_TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// Serves until a signal ends it.
#[must_use]
pub(crate) fn run(mut master: Master) -> ExitCode {
    privileges::set_limits(&master.current.kept.main);
    crate::memory::heaps::bound();
    super::pinned::keep_program();
    master.begin_acme();
    match start(&mut master) {
        Ok((server, shared, caches)) => obey(master, server, &shared, &caches),
        Err(sentence) => {
            error_log(Level::Emerg, format_args!("{sentence}"));
            ExitCode::FAILURE
        }
    }
}

fn start(master: &mut Master) -> Result<(HttpServer, Shared, Registry), String> {
    let logs =
        Logs::start().map_err(|error| format!("the log thread cannot be started ({error})"))?;
    worker::log_panics();
    let disk = Disk::new(Disk::prepare());
    let modules = master.options.modules;
    let ledger = monitoring::begin(logs.clone(), Arc::clone(&disk), modules);
    watch::begin(&ledger, Alarms::set());
    let shared = Shared { logs, disk, ledger };
    let mut server = HttpServer::new(shared.clone());
    let caches = Registry::new(Arc::clone(&shared.disk));
    let first = (&master.current, now_ns());
    apply(&mut server, &caches, master, first, &shared)?;
    let processes = &master.current.kept.main.processes;
    let path = processes.pid.resolve(&master.options.origin.prefix);
    master.pid_file = Some(PidFile::write(&path)?);
    master.current.made.keep();
    master.tell_ready();
    Ok((server, shared, caches))
}

fn obey(
    mut master: Master,
    mut server: HttpServer,
    shared: &Shared,
    caches: &Registry,
) -> ExitCode {
    let Shared { logs, disk, ledger } = shared;
    let mut pools = pools::Kept::default();
    pools.accept(&master.current.kept.main.processes, disk);
    loop {
        let _ = poll(&mut [PollFd::new(&master.signals, PollFlags::IN)], None);
        while let Some(received) = master.signals.take() {
            match received.signal {
                Signal::SIGTERM | Signal::SIGINT => {
                    note(received, "exiting");
                    return end(master, logs);
                }
                Signal::SIGQUIT => {
                    note(received, "shutting down");
                    leave(&mut server, &master);
                    caches.close(worker::CLOSING_PATIENCE);
                    return end(master, logs);
                }
                Signal::SIGHUP => {
                    note(received, "reconfiguring");
                    reload(&mut server, caches, &mut master, shared);
                    pools.accept(&master.current.kept.main.processes, disk);
                }
                Signal::SIGUSR1 => {
                    note(received, "reopening logs");
                    reopen(&mut master, logs);
                    super::metrics_log::write(ledger, disk, logs);
                    super::metrics_log::write_caches(&caches.all());
                }
                Signal::SIGUSR2 => note(
                    received,
                    "ignoring: without a master the program is not upgraded",
                ),
                _ => {}
            }
        }
    }
}

fn apply(
    server: &mut HttpServer,
    caches: &Registry,
    master: &Master,
    (candidate, begun_ns): (&Candidate, u64),
    shared: &Shared,
) -> Result<(), String> {
    let Shared { logs, disk, .. } = shared;
    let bundle = candidate.bundle(&master.options, begun_ns);
    let _held = super::log_files::make_known(&bundle, &candidate.logs.0, logs);
    let settings = candidate.kept.settings.as_ref();
    let settings = settings.ok_or("there is nothing to serve")?;
    let main_logs = super::log_files::threaded(&candidate.logs.0, logs)?;
    settings
        .equip(logs, &main_logs)
        .map_err(|error| error.to_string())?;
    define_new_pools(&candidate.kept.main.processes, disk);
    caches.equip(settings, &bundle.devices)?;
    server
        .apply(&plan(&bundle, &candidate.kept.main, settings))
        .map_err(|error| error.to_string())?;
    define_pools(&candidate.kept.main.processes, disk);
    caches.settle(settings);
    let (wanted, opened) = &candidate.logs;
    super::log_files::settle(opened, wanted, main_logs, logs);
    Ok(())
}

fn reload(server: &mut HttpServer, caches: &Registry, master: &mut Master, shared: &Shared) {
    error_log(Level::Notice, format_args!("reconfiguring"));
    let begun_ns = now_ns();
    let outcome = master.prepare().and_then(|next| {
        match apply(server, caches, master, (&next, begun_ns), shared) {
            Ok(()) => Ok(next),
            Err(sentence) => {
                master.current.sockets.remove_files_of_others(&next.sockets);
                Err(Unready::Because(sentence))
            }
        }
    });
    match outcome {
        Ok(next) => {
            let held = master.held_by_others();
            next.sockets.replace(&master.current.sockets, &held);
            let mut next = next;
            next.sockets.settle();
            next.made.keep();
            let old = std::mem::replace(&mut master.current, next).generation;
            master.write_pid_file();
            master.begin_acme();
            httpcore::tls::acme::retain();
            let process = std::process::id();
            error_log(
                Level::Notice,
                format_args!(
                    "configuration {} is served now (for scripts: worker process {process} generation {old} exited with code 0)",
                    old + 1
                ),
            );
        }
        Err(unready) => unready.tell(),
    }
}

fn reopen(master: &mut Master, logs: &Logs) {
    error_log(Level::Notice, format_args!("reopening logs"));
    let (wanted, before) = &master.current.logs;
    let opened = wanted.reopen(before);
    for (path, file) in &opened {
        logs.reopen(path, Arc::clone(file));
    }
    logs.forget_named();
    master.current.logs.1 = opened;
}

fn leave(server: &mut HttpServer, master: &Master) {
    error_log(Level::Notice, format_args!("gracefully shutting down"));
    server.shut_down();
    let timeout = super::deadline::shutdown_timeout(&master.current.kept.main);
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    while server.is_running() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
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
fn end(mut master: Master, logs: &Logs) -> ExitCode {
    master.end_listening();
    if let Some(file) = &master.pid_file {
        let _ = rustix::fs::unlink(file.path());
    }
    error_log(Level::Notice, format_args!("exit"));
    super::log_files::drain(logs);
    std::process::exit(0)
}
