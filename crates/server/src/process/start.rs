//! From the command line to a running master: what nginx does before it serves.
//!
//! Not here: the running master ([`super::master`]). Invariant: a start that fails before everything is listening
//! leaves nothing behind: no pid file, no process, no file of a unix socket.
#![expect(clippy::disallowed_methods, reason = "no loop runs in this process")]

use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use logs::process_log::{Level, error_log};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runtime::listen::bind;
use sys::process::{Forked, fork_single_threaded};
use wire::of_call;

use super::load::{Loaded, Origin};
use super::log_files::{Opened, Wanted};
use super::master::{Candidate, Master};
use super::obstacles;
use super::pid;
use super::privileges::{Account, is_root};
use super::signals::Signals;
use super::sockets::{CannotBind, Sockets};
use super::source::Files;
use super::upgrade::Inherited;
use super::{devices, directories, single};
use crate::process::load;
use crate::process::log_files;
use crate::settings::circumstances::Circumstances;
use httpcore::handler::Modules;

/// The options of the command line.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The place of the configuration.
    pub origin: Origin,
    /// The text that is served without a configuration file.
    pub instead: Option<Instead>,
    /// `-e`: the error log until the configuration names one; `None` is stderr.
    pub error_log: Option<PathBuf>,
    /// `-q`: a test prints only errors.
    pub is_quiet: bool,
    /// The modules from outside.
    pub modules: Modules,
}

/// The replacement for a configuration file (`freewheel serve`). Closing the terminal ends such a server: it has no
/// file to read again.
#[derive(Debug, Clone)]
pub(crate) struct Instead {
    /// The file's text.
    pub text: Vec<u8>,
    /// The text that is written to stderr when everything listens.
    pub greeting: String,
    /// A socket that listens already on an address of the configuration.
    pub listening: Option<Arc<OwnedFd>>,
}

impl Options {
    /// The files that are read for a configuration.
    #[must_use]
    pub(crate) fn files(&self) -> Files {
        let stands_for = |instead: &Instead| (self.origin.root.clone(), instead.text.clone());
        Files {
            instead: self.instead.as_ref().map(stands_for),
        }
    }

    /// The socket that listens already.
    fn listening(&self) -> Option<Arc<OwnedFd>> {
        self.instead.as_ref()?.listening.clone()
    }

    /// Opens the log of `-e`, for lines of this level and worse before the configuration names a log. Reads the time zone
    /// for them.
    fn open_first_log(&self, level: Level) {
        logs::wall_clock::refresh_zone();
        let wanted = Wanted::first(self.error_log.as_deref(), level);
        match wanted.open() {
            Ok(opened) => log_files::use_them(&wanted, &opened),
            Err(sentence) => {
                eprintln!("nginx: [alert] could not open error log file: {sentence}");
                help(obstacles::about_sentence(&sentence));
                log_files::use_them(&wanted, &Opened::new());
            }
        }
    }

    /// Reads the configuration. Prints errors, and the warnings that the purpose asks for.
    ///
    /// # Errors
    /// The error, which was printed already.
    pub(crate) fn load(&self, purpose: Purpose) -> Result<Loaded, Told> {
        match load::load(
            &self.origin,
            &Circumstances::here(),
            &mut self.files(),
            self.modules,
        ) {
            Ok(loaded) => {
                self.warn(&loaded.warnings, purpose);
                Ok(loaded)
            }
            Err(refused) => {
                self.warn(&refused.warnings, purpose);
                self.tell(refused.errors());
                Err(Told)
            }
        }
    }

    fn warn(&self, warnings: &[config::Error], purpose: Purpose) {
        if purpose == Purpose::Test {
            return self.tell(warnings);
        }
        let (useless, others): (Vec<_>, Vec<_>) = warnings.iter().cloned().partition(has_no_effect);
        self.tell(&others);
        if purpose == Purpose::Start
            && let Some(sentence) = sum(&useless)
        {
            eprintln!("freewheel: [warn] {sentence}");
        }
    }

    fn tell<'e>(&self, errors: impl IntoIterator<Item = &'e config::Error>) {
        for error in errors {
            let is_warning = error.severity() == config::Severity::Warn;
            if !(is_warning && self.is_quiet) {
                eprint!("{}", error.render(io::stderr().is_terminal()));
            }
            let level = if is_warning {
                Level::Warn
            } else {
                Level::Emerg
            };
            error_log(level, format_args!("{error}"));
        }
    }

    /// The user of a configuration's worker.
    fn account(&self, loaded: &Loaded) -> Result<Option<Account>, Told> {
        Account::of(loaded).map_err(|error| self.refuse(error))
    }

    /// The logs of a configuration.
    ///
    /// # Errors
    /// A wrong level, at its place; a file that cannot be opened.
    pub(crate) fn open_logs(&self, loaded: &Loaded) -> Result<(Wanted, Opened), config::Error> {
        log_files::find_servers(&loaded.tree.directives, &loaded.circumstances.hosts)?;
        let wanted = Wanted::all(loaded, &self.origin.prefix, self.error_log.as_deref())?;
        let opened = wanted.open().map_err(|sentence| {
            let hint = obstacles::about_sentence(&sentence);
            config::Error::without_place(sentence).with_hint(hint.as_deref())
        })?;
        Ok((wanted, opened))
    }

    fn refuse(&self, error: config::Error) -> Told {
        self.tell([&error]);
        Told
    }
}

/// The purpose for which a configuration is read; it selects the warnings that are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To test it: all warnings.
    Test,
    /// To serve it: one line with the number of directives that have no effect.
    Start,
    /// To find the process that serves it, which has printed them already.
    Signal,
}

pub(super) fn has_no_effect(warning: &config::Error) -> bool {
    warning.voice() == config::Voice::NoEffect
}

/// One line for all directives that have no effect.
pub(super) fn sum(useless: &[config::Error]) -> Option<String> {
    match useless.len() {
        0 => None,
        1 => Some("1 directive has no effect here; freewheel -t shows it".to_owned()),
        count => Some(format!(
            "{count} directives have no effect here; freewheel -t shows them"
        )),
    }
}

/// An error that the user has seen already.
#[derive(Debug)]
pub(crate) struct Told;

fn emerg(sentence: impl std::fmt::Display) -> Told {
    eprintln!("nginx: [emerg] {sentence}");
    help(obstacles::about_sentence(&sentence.to_string()));
    error_log(Level::Emerg, format_args!("{sentence}"));
    Told
}

/// Prints a hint on stderr, below the error.
pub(super) fn help(hint: Option<String>) {
    if let Some(hint) = hint {
        eprintln!("  = help: {hint}");
    }
}

/// `-t` and `-T`: reads, opens and binds as a start would, and leaves.
#[must_use]
pub(crate) fn test(options: &Options, is_dumped: bool) -> ExitCode {
    let root = options.origin.root.display();
    options.open_first_log(Level::Error);
    let outcome = options.load(Purpose::Test).and_then(|loaded| {
        if !options.is_quiet {
            eprintln!("nginx: the configuration file {root} syntax is ok");
        }
        let pid = loaded.main.processes.pid.resolve(&options.origin.prefix);
        pid::test(&pid).map_err(emerg)?;
        options
            .open_logs(&loaded)
            .map_err(|error| options.refuse(error))?;
        let account = options.account(&loaded)?;
        let mut made = directories::make(
            &directories::named(&loaded.tree, &options.origin.prefix),
            account.as_ref(),
        )
        .map_err(emerg)?;
        devices::test(&devices::named(&loaded.tree, &options.origin.prefix)).map_err(emerg)?;
        for entry in loaded.settings.listens.sockets() {
            bind::test(&entry.address, &entry.options).map_err(|error| {
                let told = emerg(&error);
                help(obstacles::about_address(&error, &Sockets::default()));
                told
            })?;
        }
        // As nginx's test, which makes them too.
        made.keep();
        Ok(loaded)
    });
    let Ok(loaded) = outcome else {
        eprintln!("nginx: configuration file {root} test failed");
        return ExitCode::FAILURE;
    };
    if !options.is_quiet {
        eprintln!("nginx: configuration file {root} test is successful");
    }
    if is_dumped && io::stdout().write_all(&loaded.tree.dump()).is_err() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// `-s`: sends a signal to the master whose number is in the pid file. Opens no log of the configuration, as nginx: a new one
/// would get the umask of whoever sends the signal, and not the master's.
#[must_use]
pub(crate) fn send_signal(options: &Options, name: &str) -> ExitCode {
    options.open_first_log(Level::Notice);
    let Ok(loaded) = options.load(Purpose::Signal) else {
        return ExitCode::FAILURE;
    };
    let signal = match name {
        "stop" => Signal::SIGTERM,
        "quit" => Signal::SIGQUIT,
        "reopen" => Signal::SIGUSR1,
        _ => Signal::SIGHUP,
    };
    error_log(Level::Notice, format_args!("signal process started"));
    let path = loaded.main.processes.pid.resolve(&options.origin.prefix);
    let number = match pid::read(&path) {
        Ok(number) => number,
        Err(sentence) => {
            eprintln!("nginx: [error] {sentence}");
            error_log(Level::Error, format_args!("{sentence}"));
            return ExitCode::FAILURE;
        }
    };
    match kill(Pid::from_raw(number), signal) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!(
                "kill({number}, {}) failed ({})",
                signal as i32,
                wire::errno(&error.into())
            );
            eprintln!("nginx: [alert] {text}");
            error_log(Level::Alert, format_args!("{text}"));
            ExitCode::FAILURE
        }
    }
}

/// Starts serving; returns when the master ends, or in the command's process when the master has gone into
/// the background.
#[must_use]
pub(crate) fn serve(options: Options) -> ExitCode {
    match start(options) {
        Ok(code) => code,
        Err(Told) => ExitCode::FAILURE,
    }
}

fn start(options: Options) -> Result<ExitCode, Told> {
    super::privileges::raise_descriptors();
    let mut inherited = Inherited::take();
    let is_upgrade = inherited.is_upgrade();
    options.open_first_log(Level::Error);
    let loaded = options.load(Purpose::Start)?;
    options.tell(&useless_user(&loaded));
    let account = options.account(&loaded)?;
    let (wanted, opened) = options
        .open_logs(&loaded)
        .map_err(|error| options.refuse(error))?;
    let directories = directories::named(&loaded.tree, &options.origin.prefix);
    let pid = loaded.main.processes.pid.resolve(&options.origin.prefix);
    pid::test(&pid).map_err(emerg)?;
    let mut made = directories::make(&directories, account.as_ref()).map_err(emerg)?;
    let devices = devices::named(&loaded.tree, &options.origin.prefix);
    let devices = inherited.devices().next(&devices).map_err(emerg)?;
    // What bind(2) refuses is told on stderr and in the log, as by nginx.
    log_files::use_both(&wanted, &opened);
    let processes = &loaded.main.processes;
    let (inherited, predecessor) = inherited.adopt(&pid, options.listening());
    let sockets = inherited.next(&loaded.settings.listens, processes.worker_processes.count());
    // Those that this configuration does not name stay open in the program before this one.
    drop(inherited);
    log_files::use_them(&wanted, &opened);
    log_warnings(&loaded);
    let sockets = settled(sockets)?;
    let is_single = !processes.master_process;
    let mut ready = None;
    // The program that this one replaces is in the background already, or meant to stay in the foreground.
    if processes.daemon && !is_upgrade {
        match daemonise().map_err(emerg)? {
            // They are the other one's to keep or to remove.
            Daemon::Command(code) => {
                made.keep();
                return Ok(code);
            }
            Daemon::Itself(pipe) => ready = Some(pipe),
        }
    }
    let signals = Signals::open().map_err(|error| emerg(of_call("signalfd()")(error)))?;
    if processes.daemon {
        log_files::redirect_stderr(wanted.of_stderr().as_deref(), &opened)
            .map_err(of_call("dup2(STDERR)"))
            .map_err(emerg)?;
    }
    error_log(
        Level::Notice,
        format_args!("using the \"epoll\" event method"),
    );
    error_log(
        Level::Notice,
        format_args!("freewheel/{}", env!("CARGO_PKG_VERSION")),
    );
    let first = Candidate {
        generation: 1,
        kept: loaded.keep(is_single),
        account,
        sockets,
        logs: (wanted, opened),
        devices,
        made,
    };
    let master = Master::new(options, first, signals, ready, predecessor);
    Ok(if is_single {
        single::run(master)
    } else {
        master.run()
    })
}

/// The sockets with their options.
fn settled(sockets: Result<Sockets, CannotBind>) -> Result<Sockets, Told> {
    let mut sockets = sockets.map_err(|CannotBind(hint)| {
        help(hint);
        Told
    })?;
    sockets.settle();
    Ok(sockets)
}

/// The warnings, which were told on stderr, in the log; one line for all directives that have no effect.
fn log_warnings(loaded: &Loaded) {
    let (useless, others): (Vec<_>, Vec<_>) =
        loaded.warnings.iter().cloned().partition(has_no_effect);
    for one in others.iter().chain(&useless_user(loaded)) {
        error_log(Level::Warn, format_args!("{one}"));
    }
    if let Some(sentence) = sum(&useless) {
        error_log(Level::Warn, format_args!("{sentence}"));
    }
}

/// nginx's warning about a `user` that this process cannot become.
fn useless_user(loaded: &Loaded) -> Vec<config::Error> {
    let lines = loaded
        .tree
        .directives
        .iter()
        .filter(|line| line.name == "user");
    let sentence = "the \"user\" directive makes sense only if the master process runs with super-user privileges, \
                    ignored";
    let warning = |line: &config::Directive| line.warning(&config::Problem::new(sentence));
    lines.filter(|_| !is_root()).map(warning).collect()
}

/// On which side of the fork a process is.
enum Daemon {
    /// The command that the user typed.
    Command(ExitCode),
    /// The master in the background; it says through the pipe that it is ready.
    Itself(OwnedFd),
}

/// Goes into the background. The command waits until the master is ready, so that the pid file is there
/// when it returns.
fn daemonise() -> io::Result<Daemon> {
    let (mut told, tells) = io::pipe().map_err(of_call("pipe()"))?;
    match fork_single_threaded().map_err(of_call("fork()"))? {
        Forked::Parent { .. } => {
            drop(tells);
            let mut byte = [0];
            let is_ready = io::Read::read(&mut told, &mut byte)? == 1;
            Ok(Daemon::Command(if is_ready {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }))
        }
        Forked::Child => {
            drop(told);
            nix::unistd::setsid().map_err(|error| of_call("setsid()")(error.into()))?;
            // As nginx: files get the permissions that the configuration says, whatever the umask of the shell.
            rustix::process::umask(rustix::fs::Mode::empty());
            let null: OwnedFd = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/null")
                .map_err(of_call("open(\"/dev/null\")"))?
                .into();
            rustix::stdio::dup2_stdin(&null)
                .map_err(|error| of_call("dup2(STDIN)")(error.into()))?;
            rustix::stdio::dup2_stdout(&null)
                .map_err(|error| of_call("dup2(STDOUT)")(error.into()))?;
            Ok(Daemon::Itself(tells.into()))
        }
    }
}
