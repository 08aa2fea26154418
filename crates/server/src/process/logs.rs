//! The files of the error log: the master opens them, also where the worker's user could not, and hands
//! them on.
//!
//! Not here: the format of lines, access logs. Invariant: a path is opened once, however many lines name
//! it.
#![expect(
    clippy::disallowed_methods,
    reason = "files are opened by the master only"
)]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use config::{Error, Problem, Tree};

use super::bundle::Bundle;
use super::frame::{Reader, Writer};
use super::report::{Level, set_sink};

/// Files of logs that one configuration may name.
pub const LOGS_MAX: usize = 10_000;

/// Logs by path.
pub type Opened = Vec<(PathBuf, Arc<OwnedFd>)>;

/// Where lines of which severity go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Lines of this level and of more severe ones.
    pub level: Level,
    /// The file; `None` is stderr.
    pub path: Option<PathBuf>,
}

/// The lines `error_log` outside of every block; without one, the log of `-e`.
///
/// # Errors
/// An unknown level.
pub fn wanted(tree: &Tree, prefix: &Path, default: Option<&Path>) -> Result<Vec<Wanted>, Error> {
    let mut all = Vec::new();
    for line in tree
        .directives
        .iter()
        .filter(|line| line.name == "error_log" && !line.args.is_empty())
    {
        let mut level = Level::Error;
        if let Some(word) = line.args.get(1) {
            let invalid = || {
                line.error(&Problem::new(format!("invalid log level \"{}\"", word.display())).at(1))
            };
            level = level_of(word.bytes()).ok_or_else(invalid)?;
        }
        let path = match &line.args[0].bytes()[..] {
            b"stderr" => None,
            bytes => Some(prefix.join(std::ffi::OsStr::from_bytes(bytes))),
        };
        all.push(Wanted { level, path });
    }
    if all.is_empty() {
        all.push(Wanted {
            level: Level::Error,
            path: default.map(Path::to_owned),
        });
    }
    Ok(all)
}

fn level_of(name: &[u8]) -> Option<Level> {
    Some(match name {
        b"emerg" => Level::Emerg,
        b"alert" => Level::Alert,
        b"crit" => Level::Crit,
        b"error" => Level::Error,
        b"warn" => Level::Warn,
        b"notice" => Level::Notice,
        // No debug line is ever written.
        b"info" | b"debug" => Level::Info,
        _ => return None,
    })
}

/// Opens all files.
///
/// # Errors
/// nginx's sentence: `open() "X" failed (13: Permission denied)`.
pub fn open(wanted: &[Wanted]) -> Result<Opened, String> {
    let mut opened = Opened::new();
    for path in wanted.iter().filter_map(|log| log.path.as_ref()) {
        if opened.iter().any(|(known, _)| known == path) {
            continue;
        }
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.map_err(|error| {
            format!(
                "open() \"{}\" failed ({})",
                path.display(),
                crate::listen::bind::errno(&error)
            )
        })?;
        opened.push((path.clone(), Arc::new(file.into())));
    }
    Ok(opened)
}

static LOGS: RwLock<(Vec<Wanted>, Opened)> = RwLock::new((Vec::new(), Vec::new()));

/// Lets lines go to these logs from now on.
pub fn use_them(wanted: Vec<Wanted>, opened: Opened) {
    if let Ok(mut logs) = LOGS.write() {
        *logs = (wanted, opened);
    }
    set_sink(Box::new(|level, text| {
        let now = jiff::Zoned::now().strftime("%Y/%m/%d %H:%M:%S").to_string();
        let (process, thread) = (
            std::process::id(),
            rustix::thread::gettid().as_raw_nonzero(),
        );
        let line = format!("{now} [{}] {process}#{thread}: {text}\n", level.name());
        let Ok(logs) = LOGS.read() else { return };
        let (wanted, opened) = &*logs;
        for log in wanted.iter().filter(|log| level <= log.level) {
            match log
                .path
                .as_ref()
                .and_then(|path| opened.iter().find(|(known, _)| known == path))
            {
                Some((_, file)) => drop(rustix::io::write(file, line.as_bytes())),
                None => drop(rustix::io::write(rustix::stdio::stderr(), line.as_bytes())),
            }
        }
    }));
}

/// In the worker: takes the logs of a bundle.
pub fn take_over(bundle: &Bundle) {
    use_them(bundle.wanted_logs.clone(), bundle.logs.clone());
}

/// The message that brings the worker the files anew.
#[must_use]
pub fn reopened(opened: &Opened) -> Vec<u8> {
    let mut out = Writer::default();
    for (path, _) in opened {
        out.bytes(path.as_os_str().as_bytes());
    }
    out.0
}

/// In the worker: takes files that were opened anew.
pub fn reopen(body: &[u8], descriptors: Vec<OwnedFd>) {
    let mut from = Reader(body);
    let named = descriptors.into_iter().map_while(|file| {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(from.bytes()?));
        Some((path, Arc::new(file)))
    });
    let opened: Opened = named.collect();
    if let Ok(mut logs) = LOGS.write() {
        logs.1 = opened;
    }
}

/// Before the process ends: waits until what was logged is written.
pub fn drain() {}

/// Sends what the process writes to stderr to the first log, as nginx does when it serves.
///
/// # Errors
/// That of dup2(2).
pub fn redirect_stderr(wanted: &[Wanted], opened: &Opened) -> io::Result<()> {
    if let (Some(Wanted { path: Some(_), .. }), Some((_, file))) = (wanted.first(), opened.first())
    {
        rustix::stdio::dup2_stderr(file)?;
    }
    Ok(())
}
