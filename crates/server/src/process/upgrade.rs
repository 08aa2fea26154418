//! Replacing the program while it serves, as nginx does it ("Upgrading Executable on the Fly"): USR2 starts the program's
//! file again with the listening sockets, beside this master, which then leaves (QUIT) or stays (HUP).
//!
//! The two programs share nothing but the sockets, by their numbers in the variable [`VARIABLE`], the devices of caches in
//! the same way ([`DEVICES_VARIABLE`]), and the names of the pid file. So each of them may be an nginx.
//!
//! Not here: the order of the signals ([`super::master`]), and what becomes of the caches: their owner gives them up
//! when it is told to leave. Invariant: whatever becomes of either process, the other one serves on, and the pid file
//! without an ending is that of a running master.
#![expect(clippy::disallowed_methods, reason = "the master runs no loop")]

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use logs::process_log::{Level, error_log};
use nix::unistd::{Pid, getppid};
use rustix::io::{FdFlags, fcntl_setfd};

use super::devices::Devices;
use super::master::{Master, Purpose};
use super::pid;
use super::sockets::{Held, Sockets};
use super::supervise::note_end;

/// The variable with the numbers of block devices, in the same form. nginx has none.
const DEVICES_VARIABLE: &str = "FREEWHEEL_DEVICES";
/// nginx's variable with the numbers of the sockets, each followed by a semicolon.
const VARIABLE: &str = "NGINX";
/// Maximum length of its value, in bytes: Linux takes 128 KiB for a variable (MAX_ARG_STRLEN, execve(2)), with its name.
const VARIABLE_BYTES_MAX: usize = 120 << 10;
/// How long connections to sockets that no other process has are still accepted after new ones go elsewhere: the time
/// that a handshake under way may take.
const LAST_CONNECTIONS: Duration = Duration::from_secs(1);
/// The log's second line, as in nginx, about a USR2 that comes while two programs run.
pub(super) const UPGRADE_UNDER_WAY: &str = "the changing binary signal is ignored: you should shutdown or terminate \
     before either old or new binary's process";

/// The sockets that the program before this one has given to this one.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// The sockets, each open in both.
    sockets: Vec<OwnedFd>,
    /// The variable's value, where it is set.
    text: Option<OsString>,
    /// What is wrong with it, in nginx's words.
    problem: Option<String>,
    /// The block devices of caches.
    devices: Vec<OwnedFd>,
}

impl Inherited {
    /// Takes them over. To be called before anything else listens.
    #[must_use]
    pub(crate) fn take() -> Self {
        let Some(text) = std::env::var_os(VARIABLE) else {
            return Self::default();
        };
        let (numbers, problem) = numbers(text.as_bytes());
        Self {
            sockets: sys::process::take_inherited_listeners(&numbers),
            text: Some(text),
            problem,
            devices: inherited_devices(),
        }
    }

    /// The block devices.
    #[must_use]
    pub(crate) fn devices(&mut self) -> Devices {
        Devices::adopt(std::mem::take(&mut self.devices))
    }

    /// Whether this program was started by one that it is to replace.
    #[must_use]
    pub(crate) fn is_upgrade(&self) -> bool {
        self.text.is_some()
    }

    /// Logs what was inherited, in nginx's words, and makes it usable. `pid`: the path of the pid file; `own`: a socket of
    /// this program that listens already.
    #[must_use]
    pub(crate) fn adopt(
        self,
        pid: &Path,
        own: Option<Arc<OwnedFd>>,
    ) -> (Sockets, Option<Predecessor>) {
        let mut sockets = Sockets::default();
        sockets.add(own);
        let Some(text) = self.text else {
            return (sockets, None);
        };
        let text = text.to_string_lossy();
        error_log(
            Level::Notice,
            format_args!("using inherited sockets from \"{text}\""),
        );
        if let Some(problem) = self.problem {
            error_log(Level::Emerg, format_args!("{problem}"));
        }
        let predecessor = Predecessor {
            parent: getppid(),
            pid_file: Some(pid::old_name(pid)).filter(|old| old.exists()),
        };
        sockets.add(self.sockets.into_iter().map(Arc::new));
        (sockets, Some(predecessor))
    }
}

fn inherited_devices() -> Vec<OwnedFd> {
    let text = std::env::var_os(DEVICES_VARIABLE).unwrap_or_default();
    let (numbers, _) = numbers(text.as_bytes());
    sys::process::take_inherited_devices(&numbers)
}

/// The numbers in the variable, and what is wrong with it.
fn numbers(text: &[u8]) -> (Vec<RawFd>, Option<String>) {
    let invalid = |rest: &[u8], ignored: &str| {
        let rest = String::from_utf8_lossy(rest).into_owned();
        format!(
            "invalid socket number \"{rest}\" in {VARIABLE} environment variable, ignoring{ignored}"
        )
    };
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.iter().position(|byte| b":;".contains(byte)) {
        let is_number = end > 0 && rest[..end].iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(&rest[..end])
            .ok()
            .filter(|_| is_number)
            .and_then(|text| text.parse().ok());
        let Some(number) = number else {
            return (all, Some(invalid(rest, " the rest of the variable")));
        };
        all.push(number);
        rest = &rest[end + 1..];
    }
    let problem = (!rest.is_empty()).then(|| invalid(rest, ""));
    (all, problem)
}

/// The master that started this one.
#[derive(Debug)]
pub(crate) struct Predecessor {
    parent: Pid,
    /// Its pid file, where it has the same one as this master.
    pid_file: Option<PathBuf>,
}

impl Predecessor {
    /// Whether it still runs: an orphan gets another parent. That it removes its pid file is the last thing that it does.
    fn is_there(&self) -> bool {
        getppid() == self.parent && self.pid_file.as_ref().is_none_or(|file| file.exists())
    }
}

/// The command that this program was started with.
#[derive(Debug)]
pub(crate) struct StartCommand {
    /// The file to be started in its place: the same name, which may be another file by then.
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl StartCommand {
    /// That of this process. To be called before its title changes.
    #[must_use]
    pub(crate) fn here() -> Self {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let name = arguments.first().cloned().unwrap_or_default();
        let program = program(&name).or_else(|| std::env::current_exe().ok());
        Self {
            program: program.unwrap_or_default(),
            arguments,
        }
    }

    /// Starts the program with these sockets and devices. Only for a process with one thread: another one could start a process
    /// that inherits them, too.
    fn start(&self, sockets: &[&Arc<OwnedFd>], devices: &Devices) -> io::Result<Child> {
        let devices: Vec<_> = devices.0.iter().map(|(_, device)| device).collect();
        let mut command = Command::new(&self.program);
        if let Some((name, rest)) = self.arguments.split_first() {
            command.arg0(name).args(rest);
        }
        command.env(VARIABLE, listed(sockets));
        command.env_remove(DEVICES_VARIABLE);
        if !devices.is_empty() {
            command.env(DEVICES_VARIABLE, listed(&devices));
        }
        let mark = |flags: FdFlags| -> io::Result<()> {
            let mut all = sockets.iter().chain(&devices);
            all.try_for_each(|fd| Ok(fcntl_setfd(fd, flags)?))
        };
        let started = mark(FdFlags::empty()).and_then(|()| command.spawn());
        mark(FdFlags::CLOEXEC)?;
        started
    }
}

/// The value of a variable with sockets or devices.
fn listed(all: &[&Arc<OwnedFd>]) -> String {
    let numbers = all.iter().map(|fd| fd.as_raw_fd());
    numbers.map(|number| format!("{number};")).collect()
}

/// The sockets that another program gets, of those of each address: all, or as many of each as its variable has room for. It
/// binds the others of its loops itself, beside these.
fn given<'a>(addresses: &[&'a [Arc<OwnedFd>]]) -> Vec<&'a Arc<OwnedFd>> {
    let mut each = addresses.iter().map(|all| all.len()).max().unwrap_or(0);
    loop {
        let first = addresses.iter().flat_map(|all| all.iter().take(each));
        let first: Vec<_> = first.collect();
        if each <= 1 || listed(&first).len() <= VARIABLE_BYTES_MAX {
            return first;
        }
        each /= 2;
    }
}

/// The file that a name means, as for a shell.
fn program(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(Path::new(name).to_owned());
    }
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|place| place.join(name));
    places.find(|place| {
        rustix::fs::access(place, rustix::fs::Access::EXEC_OK).is_ok() && place.is_file()
    })
}

impl Master {
    /// Whether the program before this one still runs.
    pub(super) fn has_predecessor(&self) -> bool {
        let before = self.predecessor.as_ref();
        before.is_some_and(Predecessor::is_there)
    }

    /// Whether a program before this one or after it runs, too.
    pub(super) fn has_other_program(&self) -> bool {
        self.successor.is_some() || self.has_predecessor()
    }

    /// USR2: the text for the log, and whether the program is to be started again.
    pub(super) fn wants_upgrade(&self) -> (&'static str, bool) {
        if self.options.instead.is_some() {
            return (
                "ignoring: a server without a configuration file is not upgraded",
                false,
            );
        }
        if self.has_other_program() || !self.goes_on() {
            return ("ignoring", false);
        }
        ("changing binary", self.pid_file.is_some())
    }

    /// Starts the program's file again, beside this process.
    pub(super) fn change_binary(&mut self) {
        error_log(Level::Notice, format_args!("changing binary"));
        let program = self.command.program.display().to_string();
        let Some(file) = &mut self.pid_file else {
            return;
        };
        if let Err(sentence) = file.set_old(true) {
            error_log(
                Level::Alert,
                format_args!("{sentence} before executing new binary process \"{program}\""),
            );
            return;
        }
        let addresses = self.current.sockets.0.iter();
        let addresses: Vec<_> = addresses.map(|bound| &bound.sockets[..]).collect();
        let sockets = given(&addresses);
        match self.command.start(&sockets, &self.current.devices) {
            Ok(child) => {
                let process = child.id();
                error_log(
                    Level::Notice,
                    format_args!("start new binary process {process}"),
                );
                self.successor = Some(child);
            }
            Err(error) => {
                let error = wire::errno(&error);
                error_log(
                    Level::Alert,
                    format_args!(
                        "execve() failed while executing new binary process \"{program}\" ({error})"
                    ),
                );
                self.be_current(&format!(
                    "after an attempt to execute new binary process \"{program}\""
                ));
            }
        }
    }

    /// The pid file gets its own name back.
    fn be_current(&mut self, when: &str) {
        let file = self.pid_file.as_mut();
        if let Some(Err(sentence)) = file.map(|file| file.set_old(false)) {
            error_log(Level::Alert, format_args!("{sentence} {when}"));
        }
    }

    /// Notices the end of the new program: this one serves on, or again.
    pub(super) fn reap_successor(&mut self) {
        let Some(child) = &mut self.successor else {
            return;
        };
        let process = child.id();
        let Ok(Some(status)) = child.try_wait() else {
            return;
        };
        note_end("new binary process", process, status);
        self.successor = None;
        self.be_current(&format!("after the new binary process {process} exited"));
        self.current.sockets.serve_all();
        match self.purpose {
            Purpose::Serving | Purpose::Paused => self.serve_again(),
            // What it had kept beside the new program has no other listener any more.
            Purpose::Quitting if self.dismiss_at.is_none() => self.leave_sockets(),
            Purpose::Quitting | Purpose::Terminating { .. } => {}
        }
    }

    /// The master keeps a worker serving again, without a pause before the first.
    pub(super) fn serve_again(&mut self) {
        self.purpose = Purpose::Serving;
        self.dismiss_at = None;
        self.short_lives = 0;
        self.current.sockets.serve_all();
    }

    /// Lets the workers leave. Where another program has taken some of the sockets of an address and not all, those that
    /// wait in the queues of the others are served first.
    pub(super) fn retire(&mut self) {
        let now = Instant::now();
        let has_some = self.current.sockets.leave_to(&self.held_by_others());
        let wait = if has_some {
            LAST_CONNECTIONS
        } else {
            Duration::ZERO
        };
        self.dismiss_at.get_or_insert(now + wait);
        self.dismiss_if_due();
    }

    /// Dismisses the workers at the end of [`LAST_CONNECTIONS`].
    pub(super) fn dismiss_if_due(&mut self) {
        if self.dismiss_at.is_none_or(|at| Instant::now() < at) {
            return;
        }
        self.dismiss_at = None;
        self.dismiss_workers(self.successor.is_some() || self.has_predecessor());
        if self.purpose == Purpose::Quitting {
            self.leave_sockets();
        }
    }

    /// Closes the sockets, and removes the files of unix sockets, unless another program listens on them.
    fn leave_sockets(&mut self) {
        let held = self.held_by_others();
        self.current.sockets.remove_files(&held);
        self.current.sockets.let_go(&held);
    }

    /// The end of this program's listening, once no worker has the sockets any more.
    pub(super) fn end_listening(&mut self) {
        self.leave_sockets();
        self.current.sockets.serve_all();
    }

    /// The sockets that the program before this one, or after it, has open.
    pub(super) fn held_by_others(&self) -> Held {
        let before = self.has_predecessor().then(getppid);
        let after = self.successor.as_ref();
        let after = after.map(|child| Pid::from_raw(child.id().cast_signed()));
        let mut held = HashSet::new();
        for process in before.into_iter().chain(after) {
            match sockets_of(process) {
                Ok(all) => held.extend(all),
                Err(error) => {
                    error_log(
                        Level::Notice,
                        format_args!("the sockets of process {process} are not known ({error})"),
                    );
                    return None;
                }
            }
        }
        Some(held)
    }
}

/// The inodes of the sockets that a process has open (proc(5), `fd`).
fn sockets_of(process: Pid) -> io::Result<HashSet<u64>> {
    let mut all = HashSet::new();
    for entry in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        let Ok(target) = std::fs::read_link(entry?.path()) else {
            continue;
        };
        let number = |name: &str| {
            let number = name.strip_prefix("socket:[")?.strip_suffix(']')?;
            number.parse::<u64>().ok()
        };
        all.extend(target.to_str().and_then(number));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_nginx_reads_them() {
        assert_eq!(numbers(b"6;7:8;"), (vec![6, 7, 8], None));
        assert_eq!(numbers(b""), (Vec::new(), None));
        let (all, problem) = numbers(b"6;x7;8;");
        assert_eq!(all, [6]);
        assert_eq!(
            problem.unwrap(),
            "invalid socket number \"x7;8;\" in NGINX environment variable, ignoring the rest of the variable"
        );
        let (all, problem) = numbers(b"6;7");
        assert_eq!(all, [6]);
        assert_eq!(
            problem.unwrap(),
            "invalid socket number \"7\" in NGINX environment variable, ignoring"
        );
    }

    #[test]
    fn of_very_many_sockets_some_of_each_address_are_given() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Arc::new(OwnedFd::from(socket));
        let of_loops = vec![Arc::clone(&socket); 128];
        assert_eq!(given(&[&of_loops, &of_loops[..1]]).len(), 129);
        let addresses = vec![&of_loops[..]; 1000];
        let some = given(&addresses);
        assert!(listed(&some).len() <= VARIABLE_BYTES_MAX);
        assert!(some.len() >= 1000 && some.len().is_multiple_of(1000));
    }

    #[test]
    fn own_sockets_are_found_by_their_inodes() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = rustix::fs::fstat(&socket).unwrap().st_ino;
        assert!(sockets_of(Pid::this()).unwrap().contains(&inode));
        drop(socket);
        assert!(!sockets_of(Pid::this()).unwrap().contains(&inode));
    }

    #[test]
    fn a_name_is_found_as_a_shell_finds_it() {
        assert_eq!(program(OsStr::new("./x")), Some(PathBuf::from("./x")));
        assert!(program(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(program(OsStr::new("no-such-program-here")), None);
    }
}
