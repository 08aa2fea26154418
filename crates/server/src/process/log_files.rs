//! The files of all logs, and the process's own log lines. The master opens the files, also those that the worker's
//! user could not open, and hands the descriptors over.
//!
//! The master writes its few lines itself; the worker has a thread for logs ([`logs::Logs`]).
//!
//! Not here: the format of lines, logs with variables in their names. Invariant: a path is opened once, however many
//! lines name it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::{Directive, Error, Problem, Scope, Tree, Value};
use logs::directives::{Destination, ErrorLine};
use logs::getaddrinfo::Hosts;
use logs::process_log::{Level, error_log, set_sink};
use logs::syslog::Peer;
use logs::{Buffer, ErrorLogs, FileSet, LineForm, Logs, Sink, Target};
use rustix::fs::{FileType, Mode, OFlags};

use super::bundle::Bundle;
use super::frame::{Reader, Writer};
use super::load::Loaded;
use super::trust::Refusal;
use crate::process::trust;

/// Maximum number of log files that one configuration may name: half of what Linux lets a process have open (fs.nr_open).
pub(crate) const FILES_MAX: usize = 500_000;
/// Maximum time that an ending worker waits for its log lines to be written: a log may be on a dead disk.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Open logs by path.
pub(crate) type Opened = Vec<(PathBuf, Arc<OwnedFd>)>;

/// The logs of a configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// The error logs of the process, with full paths: the lines `error_log` outside of every block; where none of them is
    /// a file or stderr, also the log of `-e`, as in nginx.
    pub main: Vec<ErrorLine>,
    files: FileSet,
    /// Whether an `error_log` is stderr, in whatever block.
    has_stderr: bool,
    /// The addresses of syslog servers' names.
    pub hosts: Hosts,
}

impl Wanted {
    /// The log of `-e` alone; none if that is stderr.
    #[must_use]
    pub(crate) fn first(default: Option<&Path>, level: Level) -> Self {
        let mut wanted = Self::default();
        if let Some(path) = default {
            wanted.main.push(default_line(default, level));
            wanted.files.add(path.to_owned());
        }
        wanted
    }

    /// Reads the lines `error_log` outside of every block. `default`: the log of `-e`; `None` is stderr.
    ///
    /// # Errors
    /// A wrong line, at its place.
    pub(crate) fn main(
        tree: &Tree,
        prefix: &Path,
        hosts: &Hosts,
        default: Option<&Path>,
    ) -> Result<Self, Error> {
        let mut wanted = Self {
            hosts: hosts.clone(),
            has_stderr: has_stderr(&tree.directives),
            ..Self::default()
        };
        let (mut main, mut scope) = (Vec::new(), Scope::new());
        for line in tree
            .directives
            .iter()
            .filter(|line| line.name == "error_log")
        {
            let parsed = ErrorLine::parse(&line.args, &mut scope).map_err(|p| line.error(&p))?;
            let destination = match parsed.destination {
                Destination::File(path) => {
                    Destination::File(bytes(&prefix.join(OsStr::from_bytes(&path))))
                }
                other => other,
            };
            main.push(ErrorLine {
                destination,
                ..parsed
            });
        }
        let is_file = |line: &ErrorLine| {
            matches!(line.destination, Destination::File(_) | Destination::Stderr)
        };
        if !main.iter().any(is_file) {
            main.push(default_line(default, Level::Error));
        }
        for line in &main {
            if let Destination::File(path) = &line.destination {
                wanted.add(path_of(path).to_owned(), None)?;
            }
        }
        wanted.main = main;
        Ok(wanted)
    }

    /// The same, and the files of all logs below `http`.
    ///
    /// # Errors
    /// A wrong line, at its place; more than [`FILES_MAX`] files.
    pub(crate) fn all(
        loaded: &Loaded,
        prefix: &Path,
        default: Option<&Path>,
    ) -> Result<Self, Error> {
        let mut wanted = Self::main(&loaded.tree, prefix, &loaded.circumstances.hosts, default)?;
        for (path, buffer) in loaded.settings.log_files()?.files() {
            wanted.add(path.clone(), *buffer)?;
        }
        Ok(wanted)
    }

    fn add(&mut self, path: PathBuf, buffer: Option<Buffer>) -> Result<(), Error> {
        if self.files.all().len() >= FILES_MAX && self.files.buffer(&path).is_none() {
            let sentence = format!("too many log files, there may be {FILES_MAX}");
            return Err(Error::without_place(sentence));
        }
        let known = self.files.add(path);
        *known = known.or(buffer);
        Ok(())
    }

    /// Opens all files.
    ///
    /// # Errors
    /// nginx's sentence: `open() "X" failed (13: Permission denied)`.
    pub(crate) fn open(&self) -> Result<Opened, String> {
        let mut opened = Opened::with_capacity(self.files.all().len());
        for (path, _) in self.files.all() {
            opened.push((path.clone(), Arc::new(open_or_tell(path)?)));
        }
        Ok(opened)
    }

    /// Opens all files again. A file that cannot be opened stays the one from `before`, and the log says so, as in
    /// nginx.
    #[must_use]
    pub(crate) fn reopen(&self, before: &Opened) -> Opened {
        let before: HashMap<_, _> = before.iter().map(|(path, file)| (path, file)).collect();
        let again = |path: &PathBuf| match open_or_tell(path) {
            Ok(file) => Some(Arc::new(file)),
            Err(sentence) => {
                error_log(Level::Emerg, format_args!("{sentence}"));
                before.get(path).map(|file| Arc::clone(file))
            }
        };
        let files = self.files.all().iter();
        files
            .filter_map(|(path, _)| Some((path.clone(), again(path)?)))
            .collect()
    }

    /// The log that gets the stderr output of a process in the background: of the files of `error_log` the first one with
    /// the lowest level, as in nginx. `None`: stderr is a log itself, of any place of the configuration.
    #[must_use]
    pub(crate) fn of_stderr(&self) -> Option<PathBuf> {
        let files = self.main.iter().filter_map(|line| match &line.destination {
            Destination::File(path) => Some((line.level, path)),
            _ => None,
        });
        let file = files.rev().max_by_key(|(level, _)| *level);
        file.filter(|_| !self.has_stderr)
            .map(|(_, path)| path_of(path).to_owned())
    }

    /// The logs of the process: in the master written at once.
    fn direct(&self, opened: &Opened) -> ErrorLogs {
        let file = |path: &Path| {
            let (_, file) = opened.iter().find(|(known, _)| known == path)?;
            Some(Sink::file(path, Arc::clone(file), None))
        };
        let target = |line: &ErrorLine| match &line.destination {
            Destination::Stderr => Some(Sink::stderr()),
            Destination::File(path) => file(path_of(path)),
            Destination::Syslog(peer) => {
                let mut peer = peer.clone();
                peer.resolve(&self.hosts).ok().map(|()| Sink::syslog(&peer))
            }
            Destination::Named(_) => None,
        };
        let logs = self.main.iter();
        let logs = logs.filter_map(|line| Some((line.level, target(line)?, line.form)));
        ErrorLogs::with_forms(logs.collect())
    }
}

/// The log of `-e` as a line of the configuration; `None` is stderr.
fn default_line(default: Option<&Path>, level: Level) -> ErrorLine {
    ErrorLine {
        destination: default.map_or(Destination::Stderr, |path| Destination::File(bytes(path))),
        level,
        form: LineForm::Text,
    }
}

fn bytes(path: &Path) -> Bytes {
    Bytes::copy_from_slice(path.as_os_str().as_bytes())
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Whether a line `error_log` here or in a block is stderr.
fn has_stderr(lines: &[Directive]) -> bool {
    lines.iter().any(|line| {
        let is_it = line.name == "error_log" && line.args.first().is_some_and(|to| *to == "stderr");
        is_it || has_stderr(line.children())
    })
}

fn open_or_tell(path: &Path) -> Result<OwnedFd, String> {
    open(path).map_err(|refusal| format!("open() \"{}\" failed ({refusal})", path.display()))
}

/// Opens a log. The names of the standard streams mean the streams themselves: if reopened, a socket (systemd's
/// journal) would be refused, and a file would have two write positions.
fn open(path: &Path) -> Result<OwnedFd, Refusal> {
    match path.to_str() {
        Some("/dev/stderr") => Ok(io::stderr().as_fd().try_clone_to_owned()?),
        Some("/dev/stdout") => Ok(io::stdout().as_fd().try_clone_to_owned()?),
        _ => {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
            let file = trust::open(path, flags, Mode::from_raw_mode(0o644))?;
            if is_own_pipe(&file)? {
                // Its reader may stop, and other processes may fill it.
                rustix::fs::fcntl_setfl(&file, OFlags::APPEND | OFlags::NONBLOCK)?;
            }
            Ok(file)
        }
    }
}

/// Whether this is a pipe that was opened by its name. A link may lead to one of the standard streams, whose flags are those of
/// other processes, too.
fn is_own_pipe(file: &OwnedFd) -> Result<bool, Refusal> {
    let stat = rustix::fs::fstat(file)?;
    let is_it = |stream: BorrowedFd<'_>| {
        rustix::fs::fstat(stream)
            .is_ok_and(|known| (known.st_dev, known.st_ino) == (stat.st_dev, stat.st_ino))
    };
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Fifo
        && !is_it(io::stdout().as_fd())
        && !is_it(io::stderr().as_fd()))
}

/// Sends the master's lines to these logs from now on.
pub(crate) fn use_them(wanted: &Wanted, opened: &Opened) {
    let logs = wanted.direct(opened);
    set_sink(Box::new(move |level, text| {
        logs.write_now(level, |out| {
            let _ = io::Write::write_fmt(out, text);
        });
    }));
}

/// Sends the master's lines to these logs, and warnings and worse to stderr too, unless a log is stderr already.
pub(crate) fn use_both(wanted: &Wanted, opened: &Opened) {
    let logs = wanted.direct(opened);
    let is_stderr = |line: &ErrorLine| matches!(line.destination, Destination::Stderr);
    let is_logged_to_stderr = wanted.main.iter().any(is_stderr);
    set_sink(Box::new(move |level, text| {
        if level <= Level::Warn && !is_logged_to_stderr {
            eprintln!("nginx: [{}] {text}", level.name());
        }
        logs.write_now(level, |out| {
            let _ = io::Write::write_fmt(out, text);
        });
    }));
}

/// Looks up the syslog servers of all logs, as a start must: a name that is not found is reported at its line.
///
/// # Errors
/// nginx's sentence: `host not found in syslog server "x"`.
pub(crate) fn find_servers(lines: &[Directive], hosts: &Hosts) -> Result<(), Error> {
    for line in lines {
        if matches!(&line.name.bytes()[..], b"access_log" | b"error_log")
            && let Some(target) = line.args.first()
            && let Some(server) = target.bytes().strip_prefix(b"syslog:")
        {
            let found = Peer::parse(server).and_then(|mut peer| peer.resolve(hosts));
            found.map_err(|problem| line.error(&Problem::new(problem.to_string()).at(0)))?;
        }
        find_servers(line.children(), hosts)?;
    }
    Ok(())
}

/// In the worker: makes the wanted files of a bundle known, so that settings can be built on them. Those that are written
/// already stay as they are until [`settle`]. The builder holds the result until it is done: the log thread closes files without
/// a holder.
pub(crate) fn make_known(bundle: &Bundle, wanted: &Wanted, logs: &Logs) -> Vec<Target> {
    let known = bundle.logs.iter().filter_map(|(path, file)| {
        let buffer = wanted.files.buffer(path)?;
        let written = logs.find(path);
        Some(written.unwrap_or_else(|| logs.file(path, Arc::clone(file), buffer)))
    });
    known.collect()
}

/// In the worker: the logs of the process, written by the log thread. Their files must be known.
///
/// # Errors
/// A file that was not opened, a syslog server whose name is not found.
pub(crate) fn threaded(wanted: &Wanted, logs: &Logs) -> Result<ErrorLogs, String> {
    let files = logs::LogFiles::new(Path::new(""), &wanted.hosts);
    let none = ErrorLogs::default();
    logs::build_error_logs(&wanted.main, &none, &files, logs)
        .map_err(|problem| problem.sentence_for("error_log"))
}

/// In the worker: sends the process's lines to these logs from now on, through the log thread.
pub(crate) fn use_thread(main: ErrorLogs, logs: &Logs) {
    logs.set_main(main);
    let logs = logs.clone();
    set_sink(Box::new(move |level, text| {
        logs.error(level, |out| {
            let _ = io::Write::write_fmt(out, text);
        });
    }));
}

/// The same for a configuration that is in force from now on: its logs have the files that were opened for it, and its buffers.
/// Logs that it does not name keep no lines back.
pub(crate) fn settle(opened: &Opened, wanted: &Wanted, main: ErrorLogs, logs: &Logs) {
    for (path, file) in opened {
        if let Some(buffer) = wanted.files.buffer(path) {
            logs.file(path, Arc::clone(file), buffer);
        }
    }
    use_thread(main, logs);
    logs.keep_only(&wanted.files.all().iter().map(|(path, _)| &**path).collect());
}

/// The message that brings the worker the reopened files.
#[must_use]
pub(crate) fn reopened(opened: &Opened) -> Vec<u8> {
    let mut out = Writer::default();
    for (path, _) in opened {
        out.bytes(path.as_os_str().as_bytes());
    }
    out.0
}

/// In the worker: takes over reopened files; the one of `stderr` also gets the output written there.
pub(crate) fn reopen(body: &[u8], descriptors: Vec<OwnedFd>, logs: &Logs, stderr: Option<&Path>) {
    let mut from = Reader(body);
    for file in descriptors {
        let Some(path) = from.bytes() else { break };
        let path = Path::new(OsStr::from_bytes(path));
        if Some(path) == stderr {
            let _ = rustix::stdio::dup2_stderr(&file);
        }
        logs.reopen(path, file);
    }
    logs.forget_named();
}

/// Waits until all logged lines are written, before a worker ends.
pub(crate) fn drain(logs: &Logs) {
    logs.drain(DRAIN_MAX);
}

/// Sends what a process in the background writes to stderr to the log of [`Wanted::of_stderr`].
///
/// # Errors
/// That of dup2(2).
pub(crate) fn redirect_stderr(to: Option<&Path>, opened: &Opened) -> io::Result<()> {
    let file = opened.iter().find(|(path, _)| Some(&**path) == to);
    if let Some((_, file)) = file {
        rustix::stdio::dup2_stderr(file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn main(text: &str) -> Wanted {
        let tree = config::parse_bytes(text.as_bytes()).unwrap();
        Wanted::main(
            &tree,
            Path::new("/p"),
            &Hosts::default(),
            Some(Path::new("/p/e")),
        )
        .unwrap()
    }

    #[test]
    fn a_file_that_is_named_twice_is_opened_once() {
        let wanted = main("error_log a info; error_log a error; error_log stderr; events { }");
        assert_eq!(wanted.files.all(), [(PathBuf::from("/p/a"), None)]);
        assert_eq!(wanted.main.len(), 3);
    }

    #[test]
    fn stderr_goes_to_the_first_file_of_error_log_unless_it_is_one() {
        let of = |text: &str| main(text).of_stderr();
        assert_eq!(
            of("error_log a; error_log b; events { }"),
            Some("/p/a".into())
        );
        assert_eq!(of("error_log a; error_log stderr; events { }"), None);
        assert_eq!(
            of("error_log a error; error_log b info; events { }"),
            Some("/p/b".into())
        );
        assert_eq!(
            of("error_log a; events { } http { server { error_log stderr; } }"),
            None
        );
        assert_eq!(
            of("error_log syslog:server=127.0.0.1; events { }"),
            Some("/p/e".into())
        );
        assert_eq!(of("events { }"), Some("/p/e".into()));
    }

    #[test]
    fn without_a_file_the_log_of_the_command_line_is_used() {
        let syslog = "error_log syslog:server=127.0.0.1 warn;";
        for (lines, files) in [
            ("", &["/p/e"][..]),
            (syslog, &["/p/e"]),
            ("error_log stderr;", &[]),
            ("error_log a;", &["/p/a"]),
        ] {
            let wanted = main(&format!("{lines} events {{ }}"));
            let named = wanted
                .files
                .all()
                .iter()
                .map(|(path, _)| path.to_str().unwrap());
            assert_eq!(named.collect::<Vec<_>>(), files, "{lines}");
        }
        let levels = main(&format!("{syslog} events {{ }}")).main;
        let levels: Vec<_> = levels.iter().map(|line| line.level).collect();
        assert_eq!(levels, [Level::Warn, Level::Error]);
    }

    #[test]
    fn a_log_file_too_many_is_an_error() {
        let mut wanted = Wanted::default();
        let mut add = |number: usize| wanted.add(format!("/{number}").into(), None);
        (0..FILES_MAX).for_each(|number| add(number).unwrap());
        assert!(add(0).is_ok() && add(FILES_MAX).is_err());
    }
}
