//! A reload, from the texts to the worker: nothing existing changes before a worker serves the new configuration.
//!
//! Not here: what follows when a worker serves or refuses it ([`super::master`]).

use logs::process_log::{Level, error_log};
use runtime::timing::poll_timing::now_ns;

use super::bundle::Bundle;
use super::directives::Processes;
use super::load::Loaded;
use super::master::{Candidate, Master, Purpose};
use super::pid::PidFile;
use super::privileges::{Account, descriptors};
use super::sockets::CannotBind;
use super::start::Options;
use super::supervise::Stage;
use super::word;
use super::{devices, directories, notify, pid};
use crate::process::start;
use crate::settings::circumstances::Circumstances;

/// Why a configuration that was read anew is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unready {
    /// For this, which the log does not say yet.
    Because(String),
    /// The log says it already.
    Told,
}

impl From<String> for Unready {
    fn from(sentence: String) -> Self {
        Self::Because(sentence)
    }
}

impl Unready {
    /// Tells it in the log, once.
    pub(crate) fn tell(&self) {
        if let Self::Because(sentence) = self {
            error_log(Level::Emerg, format_args!("{sentence}"));
        }
    }
}

impl Master {
    /// Begins one, unless one is on its way.
    pub(super) fn reload(&mut self) {
        if self.pending.is_some() && self.has_worker() {
            // One at a time: this one begins when the other is served or refused.
            self.is_reload_wanted = true;
            return;
        }
        // It waits for a worker: what is read now is newer.
        self.drop_pending();
        logs::wall_clock::refresh_zone();
        error_log(Level::Notice, format_args!("reconfiguring"));
        let begun_ns = now_ns();
        notify::reloading();
        match self.prepare() {
            Ok(next) => self.send(next, begun_ns),
            Err(unready) => {
                unready.tell();
                notify::ready();
            }
        }
        // The settings were built to check them.
        sys::trim_heap();
    }

    /// Reads the configuration anew and gets everything that it needs, without touching what there is.
    ///
    /// # Errors
    /// The lines that say why it cannot be served.
    pub(crate) fn prepare(&self) -> Result<Candidate, Unready> {
        let options = &self.options;
        let is_single = self.current.kept.settings.is_some();
        let loaded = options.read_again()?;
        let processes = &loaded.main.processes;
        let account = Account::of(&loaded).map_err(|error| error.to_string())?;
        let pid_file = processes.pid.resolve(&options.origin.prefix);
        let present = self.pid_file.as_ref().map(PidFile::path);
        if present.is_some_and(|path| path != pid_file) {
            pid::test(&pid_file)?;
        }
        let logs = options
            .open_logs(&loaded)
            .map_err(|error| error.to_string())?;
        let made = directories::make(
            &directories::named(&loaded.tree, &options.origin.prefix),
            account.as_ref(),
        )?;
        let devices = devices::named(&loaded.tree, &options.origin.prefix);
        let devices = self.current.devices.next(&devices)?;
        let sockets = self
            .current
            .sockets
            .next(&loaded.settings.listens, processes.worker_processes.count());
        let sockets = sockets.map_err(|CannotBind(hint)| {
            if let Some(hint) = hint {
                error_log(Level::Emerg, format_args!("{hint}"));
            }
            Unready::Told
        })?;
        Ok(Candidate {
            generation: self.current.generation + 1,
            kept: loaded.keep(is_single),
            account,
            sockets,
            logs,
            devices,
            made,
        })
    }

    /// Sends a new configuration to the worker that serves; where it needs a new process, to that.
    pub(super) fn send(&mut self, next: Candidate, begun_ns: u64) {
        self.prepare_acme(&next.kept.acme);
        if self.purpose == Purpose::Paused {
            // A worker that has yet to be dismissed leaves what waits to the next one.
            self.dismiss_at = None;
            self.dismiss_workers(true);
        }
        let bundle = next.bundle(&self.options, begun_ns);
        let is_same_process = next.account == self.current.account
            && !needs_new_process(&self.current.kept.main.processes, &next.kept.main.processes);
        self.pending = Some(next);
        let is_sent = is_same_process && self.send_to_serving(&bundle);
        if !is_sent && !self.start_with(&bundle) {
            self.keep_current();
            self.watch.forget();
        }
    }

    /// False: no worker serves, or it cannot be reached.
    fn send_to_serving(&mut self, bundle: &Bundle) -> bool {
        let mut workers = self.workers.iter();
        let Some(worker) = workers.find(|worker| worker.stage == Stage::Serving) else {
            return false;
        };
        let (body, descriptors) = bundle.pack();
        match worker.channel.send(word::CONFIGURE, &body, &descriptors) {
            Ok(()) => {
                self.holder = worker.child.id();
                true
            }
            Err(error) => {
                let error = wire::errno(&error);
                error_log(Level::Alert, format_args!("sendmsg() failed ({error})"));
                false
            }
        }
    }
}

/// Whether a change touches what a process can have only from its start.
fn needs_new_process(old: &Processes, new: &Processes) -> bool {
    old.env.0 != new.env.0
        || old.working_directory != new.working_directory
        || old.worker_priority != new.worker_priority
        || descriptors(old) != descriptors(new)
        || old.worker_rlimit_core != new.worker_rlimit_core
}

/// For the command's process, which has no log of its own yet.
impl Options {
    fn read_again(&self) -> Result<Loaded, Unready> {
        match super::load::load(
            &self.origin,
            &Circumstances::here(),
            &mut self.files(),
            self.modules,
        ) {
            Ok(loaded) => {
                let (useless, others): (Vec<_>, Vec<_>) = loaded
                    .warnings
                    .iter()
                    .cloned()
                    .partition(start::has_no_effect);
                for warning in &others {
                    error_log(Level::Warn, format_args!("{warning}"));
                }
                if let Some(sentence) = start::sum(&useless) {
                    error_log(Level::Warn, format_args!("{sentence}"));
                }
                Ok(loaded)
            }
            Err(refused) => {
                for error in refused.errors() {
                    error_log(Level::Emerg, format_args!("{error}"));
                }
                Err(Unready::Told)
            }
        }
    }
}
