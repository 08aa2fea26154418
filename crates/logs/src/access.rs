//! Access logs of a location: built from its lines, and written at the end of a request.
//!
//! Not the thread that writes. Invariant: `write` never waits; `log` waits for room in the ring, at most a second.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use config::{Error, Problem, Template};
use hashbrown::HashMap;

use super::Logs;
use super::directives::{
    AccessLine, AccessLog as Section, AccessTo, Destination, ErrorLine, FormatName,
};
use super::error::{ErrorLogs, LOGS_MAX};
use super::file::Buffer;
use super::format::{Format, Formats, JSON};
use super::ring::Feed;
use super::sink::Target;
use super::syslog::Peer;
use crate::getaddrinfo::Hosts;
use crate::template::{Variables, evaluate, is_true};

/// Maximum bytes of a log's path (Linux: PATH_MAX without its NUL).
const PATH_BYTES_MAX: usize = 4095;

/// The log files of one configuration, gathered while it is read: the master must open them before the worker can build
/// its logs.
#[derive(Debug, Clone)]
pub struct LogFiles {
    prefix: PathBuf,
    hosts: Hosts,
    files: FileSet,
}

/// Log files by their paths, each once, in the order first named, with its buffer.
#[derive(Debug, Clone, Default)]
pub struct FileSet {
    files: Vec<(PathBuf, Option<Buffer>)>,
    /// The index of each path in `files`.
    by_path: HashMap<PathBuf, usize>,
}

impl FileSet {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[(PathBuf, Option<Buffer>)] {
        &self.files
    }

    /// The buffer of a file; `None`: it is none of these.
    #[must_use]
    pub fn buffer(&self, path: &Path) -> Option<Option<Buffer>> {
        self.by_path.get(path).map(|at| self.files[*at].1)
    }

    /// Adds a file, unless it is one of these; its buffer, to be set.
    pub fn add(&mut self, path: PathBuf) -> &mut Option<Buffer> {
        let at = *self.by_path.entry(path.clone()).or_insert_with(|| {
            self.files.push((path, None));
            self.files.len() - 1
        });
        &mut self.files[at].1
    }
}

impl LogFiles {
    /// No files yet. Relative paths are relative to `prefix`; `hosts` has the addresses of syslog servers' names.
    #[must_use]
    pub fn new(prefix: &Path, hosts: &Hosts) -> Self {
        Self {
            prefix: prefix.to_owned(),
            hosts: hosts.clone(),
            files: FileSet::default(),
        }
    }

    /// The full path of a log.
    #[must_use]
    pub fn full(&self, path: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStrExt as _;
        self.prefix.join(std::ffi::OsStr::from_bytes(path))
    }

    /// Adds the files of `access_log` lines, and checks the lines against the whole configuration.
    ///
    /// # Errors
    /// An unknown format; a file that is buffered in two ways.
    pub fn add_access(&mut self, lines: &[AccessLine], formats: &Formats) -> Result<(), Error> {
        for line in lines {
            let AccessLine::On(to) = line else { continue };
            let error = |sentence: String| Error::at(sentence, &to.place);
            if let FormatName::Named(name, place) = &to.format
                && formats.find(name).is_none()
            {
                let name = String::from_utf8_lossy(name);
                return Err(Error::at(format!("unknown log format \"{name}\""), place));
            }
            if let Destination::File(path) = &to.destination {
                self.add(path, to.buffer).map_err(|Conflict| {
                    let name = String::from_utf8_lossy(&to.name);
                    error(format!(
                        "access_log \"{name}\" already defined with conflicting parameters"
                    ))
                })?;
            }
        }
        Ok(())
    }

    /// Adds the files of `error_log` lines.
    pub fn add_errors(&mut self, lines: &[ErrorLine]) {
        for line in lines {
            if let Destination::File(path) = &line.destination {
                // Without a buffer of its own it cannot be in conflict with another.
                let _ = self.add(path, None);
            }
        }
    }

    /// Every file once, in the order first named, with its buffer: to be opened for appending (0644), and given to
    /// [`Logs::file`].
    #[must_use]
    pub fn files(&self) -> &[(PathBuf, Option<Buffer>)] {
        self.files.all()
    }

    fn add(&mut self, path: &[u8], buffer: Option<Buffer>) -> Result<(), Conflict> {
        let path = self.full(path);
        let known = self.files.add(path);
        match (*known, buffer) {
            (Some(one), Some(other)) if one != other => return Err(Conflict),
            (one, other) => *known = one.or(other),
        }
        Ok(())
    }
}

/// A file is buffered in two ways.
struct Conflict;

/// The access logs of a place of the configuration.
#[derive(Debug, Clone, Default)]
pub struct AccessLogs {
    logs: Arc<[AccessLog]>,
}

#[derive(Debug)]
struct AccessLog {
    target: Target,
    /// For a log with variables in its path.
    path: Option<(Bytes, Template)>,
    format: Arc<Format>,
    condition: Option<Template>,
}

impl AccessLogs {
    /// Builds the logs of a place. All files must be known to `logs` ([`Logs::file`]); `errors`: the error logs of the same
    /// place. May resolve names: not for a loop.
    ///
    /// # Errors
    /// A syslog server whose name is not found; a file that was not opened; an unknown format.
    pub fn build(
        section: &Section,
        formats: &Formats,
        files: &LogFiles,
        logs: &Logs,
        errors: &ErrorLogs,
    ) -> Result<Self, Error> {
        let lines = &section.access_log;
        if lines.iter().any(|line| matches!(line, AccessLine::Off)) {
            return Ok(Self::default());
        }
        let cache = section.open_log_file_cache.0;
        let mut built = Vec::new();
        for line in lines.iter() {
            let AccessLine::On(to) = line else { continue };
            let error = |problem: Problem| Error::at(problem.sentence_for("access_log"), &to.place);
            let target = match &to.destination {
                Destination::Named(_) => logs.named(cache, errors),
                other => target(other, files, logs).map_err(error)?,
            };
            built.push(AccessLog {
                target,
                path: named_path(to, files),
                format: find_format(&to.format, formats).map_err(error)?,
                condition: to.condition.clone(),
            });
        }
        Ok(Self { logs: built.into() })
    }

    /// Whether nothing is logged here.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.logs.is_empty()
    }

    /// Writes a request's line to each log. Waits for room if it must, at most a second; then the lines are dropped and
    /// counted. `root` appends the request's root directory, unless it is known to exist; only logs with variables in
    /// their paths ask.
    pub async fn log(&self, feed: &Feed, request: &impl Variables, root: impl Fn(&mut Vec<u8>)) {
        if !self.is_off() && (feed.has_room() || feed.room(self.logs.len() as u64).await) {
            self.write(feed, request, root);
        }
    }

    /// As [`AccessLogs::log`], for a caller that has asked [`Feed::has_room`].
    pub fn write(&self, feed: &Feed, request: &impl Variables, root: impl Fn(&mut Vec<u8>)) {
        feed.clock().tick();
        for log in self.logs.iter() {
            if log
                .condition
                .as_ref()
                .is_some_and(|condition| !holds(condition, request))
            {
                continue;
            }
            match (&log.path, log.target.syslog_head()) {
                (None, None) => feed.line(&log.target, |out| {
                    log.format.append(request, out);
                    out.push(b'\n');
                }),
                (None, Some(head)) => feed.line(&log.target, |out| {
                    head.append(head.severity(), feed.clock(), out);
                    log.format.append(request, out);
                }),
                (Some((prefix, path)), _) => feed.named_line(&log.target, |out| {
                    let names = append_names(prefix, path, request, &root, out);
                    log.format.append(request, out);
                    out.push(b'\n');
                    names
                }),
            }
        }
    }
}

fn holds(condition: &Template, request: &impl Variables) -> bool {
    let mut value = Vec::new();
    evaluate(condition, request, &mut value);
    is_true(&value)
}

fn append_names(
    prefix: &[u8],
    path: &Template,
    request: &impl Variables,
    root: &impl Fn(&mut Vec<u8>),
    out: &mut Vec<u8>,
) -> (u16, u16) {
    root(out);
    out.truncate(PATH_BYTES_MAX);
    let after_root = out.len();
    out.extend_from_slice(prefix);
    evaluate(path, request, out);
    // Without its end, a path that is too long would be that of another file: one byte over the maximum is kept, so
    // that the kernel answers ENAMETOOLONG.
    out.truncate(after_root + PATH_BYTES_MAX + 1);
    let length = |bytes: usize| u16::try_from(bytes).expect("PATH_BYTES_MAX fits");
    (length(after_root), length(out.len() - after_root))
}

fn named_path(to: &AccessTo, files: &LogFiles) -> Option<(Bytes, Template)> {
    use std::os::unix::ffi::OsStrExt as _;
    let Destination::Named(path) = &to.destination else {
        return None;
    };
    let prefix = if path.source().starts_with(b"/") {
        &[][..]
    } else {
        files.prefix.as_os_str().as_bytes()
    };
    let mut prefix = prefix.to_vec();
    if prefix.last().is_some_and(|last| *last != b'/') {
        prefix.push(b'/');
    }
    Some((prefix.into(), path.clone()))
}

fn find_format(name: &FormatName, formats: &Formats) -> Result<Arc<Format>, Problem> {
    match name {
        FormatName::Combined(format) => Ok(Arc::clone(format)),
        FormatName::Json(format) => Ok(Arc::clone(formats.find(JSON).unwrap_or(format))),
        FormatName::Named(name, _) => formats.find(name).cloned().ok_or_else(|| {
            Problem::new(format!(
                "unknown log format \"{}\"",
                String::from_utf8_lossy(name)
            ))
        }),
    }
}

fn target(destination: &Destination, files: &LogFiles, logs: &Logs) -> Result<Target, Problem> {
    match destination {
        Destination::Stderr => Ok(logs.stderr()),
        Destination::File(path) => {
            let full = files.full(path);
            logs.find(&full)
                .ok_or_else(|| Problem::new(format!("log \"{}\" was not opened", full.display())))
        }
        Destination::Syslog(peer) => {
            let mut peer: Peer = peer.clone();
            peer.resolve(&files.hosts)
                .map_err(|problem| Problem::new(problem.to_string()))?;
            Ok(logs.syslog(&peer))
        }
        Destination::Named(_) => Err(Problem::new(
            "an error log cannot have variables in its name",
        )),
    }
}

/// Builds the error logs of a place from its lines; a place without lines has `outer`'s. As [`AccessLogs::build`].
///
/// # Errors
/// A syslog server whose name is not found; a file that was not opened; too many lines.
pub fn build_error_logs(
    lines: &[ErrorLine],
    outer: &ErrorLogs,
    files: &LogFiles,
    logs: &Logs,
) -> Result<ErrorLogs, Problem> {
    if lines.is_empty() {
        return Ok(outer.clone());
    }
    if lines.len() > LOGS_MAX {
        return Err(Problem::directive(format!(
            "is repeated too often, there may be {LOGS_MAX}"
        )));
    }
    let built: Result<_, Problem> = lines
        .iter()
        .map(|line| {
            Ok((
                line.level,
                target(&line.destination, files, logs)?,
                line.form,
            ))
        })
        .collect();
    Ok(ErrorLogs::with_forms(built?))
}
