//! The directives of logs, and what their lines mean. Pure: opens nothing.
//!
//! Invariant: everything that nginx refuses about a log line by itself is refused here, with nginx's words; what needs
//! the whole configuration (unknown formats, conflicting buffers) is checked by `access` and `files`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::{
    List, Problem, Scope, Template, TextPlace, Value, Word, parse_msec, parse_sec, parse_size,
};

use super::error::LineForm;
use super::file::Buffer;
use super::format::{COMBINED, Format, Formats, JSON};
use super::level::Level;
use super::named::OpenLogFileCache;
use super::syslog::Peer;

config::directives! {
    /// Error log of the process.
    ///
    /// It has the messages about starting, stopping and reloading, and those of all levels that set no log of their
    /// own.
    pub struct ProcessErrorLog in Main {
        /// Sets an error log and its lowest level. May be repeated: a message goes to every log whose level includes
        /// it.
        ///
        /// The first argument is a file, `stderr`, or `syslog:server=…` (see `access_log`). The levels are, most severe
        /// first, `emerg`, `alert`, `crit`, `error`, `warn`, `notice`, `info`, `debug`; a log takes its own level and
        /// all more severe ones. There are no messages of the level `debug`. `memory:` is refused, as by an nginx built
        /// without `--with-debug`.
        ///
        /// With `json` (not in nginx) each line is a JSON object: `time`, `level`, `pid`, `tid`, `connection` (if there is one)
        /// and `message`, the text with what nginx puts behind it (`client`, `server`, `request` …).
        error_log: List<ErrorLine> = none, [MAIN] 1.., syntax "file | stderr | syslog:server=address[,parameter=value] [level] [json]";
    }
}

config::directives! {
    /// Error logs of servers and locations.
    pub struct ErrorLog in Location {
        /// Sets an error log and its lowest level, in place of the logs of the outer level.
        error_log: List<ErrorLine> = none, [HTTP | SERVER | LOCATION] 1..,
            syntax "file | stderr | syslog:server=address[,parameter=value] [level] [json]";
    }
}

config::directives! {
    /// Formats of access logs.
    pub struct LogFormats in Http {
        /// Defines a format for `access_log`.
        ///
        /// Its texts are concatenated. Values of variables are escaped: with `escape=default` the characters `"`, `\`,
        /// those below 32 and those above 126 as `\xXX`, and a missing value as `-`; with `escape=json` as in JSON
        /// strings; with `escape=none` not at all. `combined` is predefined, and `json` (not in nginx) unless a line defines it.
        log_format: Formats = none, [HTTP] 2.., syntax "name [escape=default|json|none] text …";
    }
}

config::directives! {
    /// Access logs.
    ///
    /// One line per request, written by a thread of its own: an event loop never waits for a log. Up to 16 MiB of lines
    /// wait in memory; when these are full, the end of a request waits up to a second, then its line is dropped and
    /// counted.
    pub struct AccessLog in Location {
        /// Sets an access log, its format (`combined` by default) and how it is written. May be repeated: each line of
        /// the same level is a log. `off` switches all of them off.
        ///
        /// `buffer=` collects lines, `flush=` limits for how long, `gzip` compresses what was collected (64k by
        /// default), each time as a complete gzip member. `if=` logs only if its value is neither empty nor `0`. A path
        /// with variables is opened by the worker for each line (see `open_log_file_cache`), if the request's root
        /// directory exists. `syslog:server=ADDRESS[:PORT]|unix:PATH` takes `facility=`, `severity=`, `tag=`,
        /// `nohostname`, separated by commas.
        ///
        /// The format `json` (not in nginx), where no `log_format` has that name, writes a JSON object: `time`, `msec`,
        /// `remote_addr`, `remote_user`, `method`, `scheme`, `host`, `uri` (with arguments, as it came), `protocol`, `request`
        /// (the request line), `status`, `body_bytes_sent`, `bytes_sent`, `request_length`, `request_time`, `referer`,
        /// `user_agent`, `forwarded_for`, `connection`, `upstream_addr`, `upstream_status`, `upstream_response_time`,
        /// `upstream_cache_status`. What has no value is left out. Times, sizes, the status and the connection are
        /// numbers; those of upstreams are texts, since there may be several. Bytes that are not UTF-8 become U+FFFD.
        access_log: List<AccessLine> = (config::default_paths::HTTP_LOG),
            [HTTP | SERVER | LOCATION | LOCATION_IF | LIMIT_EXCEPT] 1..,
            syntax "off | path | syslog:… [format [buffer=size] [gzip[=level]] [flush=time] [if=condition]]";
        /// Keeps log files with variables in their paths open: at most `max` of them; a file not used for the time
        /// `inactive` is closed, only files used `min_uses` times are kept, and after `valid` the path is checked
        /// again.
        open_log_file_cache: OpenFiles = "off", [HTTP | SERVER | LOCATION] 1..=4,
            syntax "off | max=N [inactive=time] [min_uses=N] [valid=time]";
    }
}

/// How much gathers when `gzip` is said without `buffer=`.
const GZIP_BUFFER: usize = 64 << 10;
/// The most that may be asked to gather.
const BUFFER_BYTES_MAX: u64 = 1 << 30;

/// Where a log is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Standard error: `stderr` of an error log, and an empty name, as in nginx.
    Stderr,
    /// A file, relative to the prefix.
    File(Bytes),
    /// A file whose path depends on the request, relative to the prefix.
    Named(Template),
    /// A syslog server.
    Syslog(Peer),
}

/// A line of `error_log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorLine {
    /// Where lines go.
    pub destination: Destination,
    /// The least grave level that it takes.
    pub level: Level,
    /// The form of its lines.
    pub form: LineForm,
}

/// A line of `access_log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLine {
    /// No log.
    Off,
    /// A log.
    On(Box<AccessTo>),
}

/// A line of `access_log` that is not `off`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessTo {
    /// Where lines go.
    pub destination: Destination,
    /// The destination as written.
    pub name: Bytes,
    /// What a line says.
    pub format: FormatName,
    /// How lines gather.
    pub buffer: Option<Buffer>,
    /// `if=`.
    pub condition: Option<Template>,
    /// Where it was written.
    pub place: TextPlace,
}

/// Which format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormatName {
    /// The one that is always there.
    Combined(Arc<Format>),
    /// One that the configuration names, and where it does.
    Named(Bytes, TextPlace),
    /// `json`: the one that the configuration defines under this name, or else the predefined one.
    Json(Arc<Format>),
}

/// `open_log_file_cache`; `None` is `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles(pub Option<OpenLogFileCache>);

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn invalid(what: &str, value: &[u8], argument: usize) -> Problem {
    Problem::new(format!("invalid {what} \"{}\"", lossy(value))).at(argument)
}

fn syslog(text: &[u8]) -> Result<Peer, Problem> {
    Peer::parse(text).map_err(|problem| Problem::new(problem.to_string()).at(0))
}

impl Value for ErrorLine {
    const SYNTAX: &'static str =
        "file | stderr | syslog:server=address[,parameter=value] [level] [json]";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        let Some((first, levels)) = args.split_first() else {
            return Err(Problem::argument_count("error_log"));
        };
        let (levels, form) = match levels.split_last() {
            Some((last, before)) if last.bytes() == JSON => (before, LineForm::Json),
            _ => (levels, LineForm::Text),
        };
        let destination = match first.bytes().as_ref() {
            b"stderr" | b"" => Destination::Stderr,
            text if text.starts_with(b"memory:") => {
                return Err(Problem::new("nginx was built without debug support")
                    .at(0)
                    .hint_that("a log in memory is for debugging nginx itself; name a file"));
            }
            [b's', b'y', b's', b'l', b'o', b'g', b':', rest @ ..] => {
                Destination::Syslog(syslog(rest)?)
            }
            _ => Destination::File(first.bytes().clone()),
        };
        Ok(Self {
            destination,
            level: parse_levels(levels)?,
            form,
        })
    }
}

/// One level, or several words about debugging, which all come to `debug`; not both.
fn parse_levels(words: &[Word]) -> Result<Level, Problem> {
    const DEBUG: [&str; 7] = [
        "debug_core",
        "debug_alloc",
        "debug_mutex",
        "debug_event",
        "debug_http",
        "debug_mail",
        "debug_stream",
    ];
    let mut level = None;
    let mut has_level = false;
    for (at, word) in words.iter().enumerate() {
        let is_debug = DEBUG.iter().any(|name| *word == **name);
        let found = if is_debug {
            Some(Level::Debug)
        } else {
            Level::from_name(word.bytes())
        };
        let found = found.ok_or_else(|| invalid("log level", word.bytes(), at + 1))?;
        match level {
            Some(_) if !is_debug => {
                return Err(
                    Problem::new(format!("duplicate log level \"{}\"", word.display())).at(at + 1),
                );
            }
            Some(_) if has_level => {
                return Err(invalid("log level", word.bytes(), at + 1));
            }
            _ => (level, has_level) = (Some(found), !is_debug),
        }
    }
    Ok(level.unwrap_or(Level::Error))
}

impl Value for AccessLine {
    const SYNTAX: &'static str =
        "off | path | syslog:… [format [buffer=size] [gzip[=level]] [flush=time] [if=condition]]";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let Some((first, rest)) = args.split_first() else {
            return Err(Problem::argument_count("access_log"));
        };
        if *first == "off" {
            return match rest.first() {
                None => Ok(Self::Off),
                Some(extra) => Err(invalid("parameter", extra.bytes(), 1)),
            };
        }
        let destination = match first.bytes().strip_prefix(b"syslog:") {
            Some(rest) => Destination::Syslog(syslog(rest)?),
            None => {
                let path = Template::of_word(first, scope).map_err(|problem| problem.at(0))?;
                match path.literal() {
                    Some(path) if path.is_empty() => Destination::Stderr,
                    Some(path) => Destination::File(path.clone()),
                    None => Destination::Named(path),
                }
            }
        };
        let format = match rest.first() {
            Some(name) if name.bytes() == JSON => FormatName::Json(Arc::new(Format::json(scope)?)),
            Some(name) if !name.bytes().eq_ignore_ascii_case(COMBINED) => {
                FormatName::Named(name.bytes().clone(), name.place())
            }
            _ => FormatName::Combined(Arc::new(Format::combined(scope)?)),
        };
        let parameters = Parameters::parse(rest.get(1..).unwrap_or_default(), scope)?;
        let name = first.bytes().clone();
        Ok(Self::On(Box::new(AccessTo {
            buffer: parameters.buffer(&destination, &name)?,
            destination,
            name,
            format,
            condition: parameters.condition,
            place: first.place(),
        })))
    }
}

/// What stands behind the format.
#[derive(Default)]
struct Parameters {
    size: Option<usize>,
    flush: Option<Duration>,
    gzip: Option<u8>,
    condition: Option<Template>,
}

impl Parameters {
    fn parse(words: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let mut found = Self::default();
        for (at, word) in words.iter().enumerate() {
            let (at, text) = (at + 2, word.bytes());
            if let Some(value) = text.strip_prefix(b"buffer=") {
                let size = parse_size(value).filter(|size| (1..=BUFFER_BYTES_MAX).contains(size));
                let size = size.ok_or_else(|| invalid("buffer size", value, at))?;
                found.size = Some(usize::try_from(size).expect("a gigabyte fits"));
            } else if let Some(value) = text.strip_prefix(b"flush=") {
                let flush = parse_msec(value).filter(|flush| *flush > 0);
                found.flush = Some(Duration::from_millis(
                    flush.ok_or_else(|| invalid("flush time", value, at))?,
                ));
            } else if text.as_ref() == b"gzip" {
                found.gzip = Some(1);
            } else if let Some(value) = text.strip_prefix(b"gzip=") {
                match value {
                    [digit @ b'1'..=b'9'] => found.gzip = Some(digit - b'0'),
                    _ => return Err(invalid("compression level", value, at)),
                }
            } else if text.starts_with(b"if=") {
                found.condition = Some(
                    Template::parse(&text.slice(3..), &word.place(), scope)
                        .map_err(|problem| problem.at(at))?,
                );
            } else {
                return Err(invalid("parameter", text, at));
            }
        }
        Ok(found)
    }

    fn buffer(&self, destination: &Destination, name: &[u8]) -> Result<Option<Buffer>, Problem> {
        let size = self.size.or(self.gzip.map(|_| GZIP_BUFFER));
        let Some(size) = size else {
            return match self.flush {
                None => Ok(None),
                Some(_) => Err(Problem::new(format!(
                    "no buffer is defined for access_log \"{}\"",
                    lossy(name)
                ))
                .at(0)),
            };
        };
        match destination {
            Destination::Named(_) => {
                Err(Problem::new("buffered logs cannot have variables in name").at(0))
            }
            Destination::Syslog(_) => Err(Problem::new("logs to syslog cannot be buffered").at(0)),
            Destination::Stderr => Err(Problem::new("logs to stderr cannot be buffered").at(0)),
            _ => Ok(Some(Buffer {
                size,
                flush: self.flush,
                gzip: self.gzip,
            })),
        }
    }
}

impl Value for OpenFiles {
    const SYNTAX: &'static str = "off | max=N [inactive=time] [min_uses=N] [valid=time]";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        let (mut max, mut inactive, mut min_uses, mut valid, mut off) = (0, 10, 1, 60, false);
        for (at, word) in args.iter().enumerate() {
            let refuse = || {
                Problem::new(format!(
                    "invalid \"open_log_file_cache\" parameter \"{}\"",
                    word.display()
                ))
                .at(at)
            };
            let number = |value: &[u8]| config::parse_number(value).ok_or_else(refuse);
            let text = word.bytes();
            if let Some(value) = text.strip_prefix(b"max=") {
                max = number(value)?;
            } else if let Some(value) = text.strip_prefix(b"inactive=") {
                inactive = parse_sec(value).ok_or_else(refuse)?;
            } else if let Some(value) = text.strip_prefix(b"min_uses=") {
                min_uses = number(value)?;
            } else if let Some(value) = text.strip_prefix(b"valid=") {
                valid = parse_sec(value).ok_or_else(refuse)?;
            } else if *word == "off" {
                off = true;
            } else {
                return Err(refuse());
            }
        }
        if off {
            return Ok(Self(None));
        }
        if max == 0 {
            return Err(Problem::new(
                "\"open_log_file_cache\" must have \"max\" parameter",
            ));
        }
        Ok(Self(Some(OpenLogFileCache {
            max: usize::try_from(max).unwrap_or(usize::MAX),
            inactive: Duration::from_secs(inactive),
            min_uses,
            valid: Duration::from_secs(valid),
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Section as _;

    fn access(text: &str) -> Result<Vec<AccessLine>, String> {
        let (mut raw, mut scope) = (<AccessLog as config::Section>::Raw::default(), Scope::new());
        for directive in &config::parse_bytes(text.as_bytes())
            .map_err(|error| error.to_string())?
            .directives
        {
            let known = AccessLog::set(&mut raw, directive, &mut scope)
                .map_err(|error| error.sentence().to_owned())?;
            assert!(known, "{text}");
        }
        Ok(AccessLog::finish(raw, &mut scope).unwrap().access_log.0)
    }

    fn error(text: &str) -> Result<Vec<ErrorLine>, String> {
        let (mut raw, mut scope) = (<ErrorLog as config::Section>::Raw::default(), Scope::new());
        for directive in &config::parse_bytes(text.as_bytes())
            .map_err(|error| error.to_string())?
            .directives
        {
            ErrorLog::set(&mut raw, directive, &mut scope)
                .map_err(|error| error.sentence().to_owned())?;
        }
        Ok(ErrorLog::finish(raw, &mut scope).unwrap().error_log.0)
    }

    fn one(text: &str) -> Box<AccessTo> {
        match access(text).unwrap().remove(0) {
            AccessLine::On(to) => to,
            AccessLine::Off => panic!("{text} is off"),
        }
    }

    #[test]
    fn access_log_lines_are_read() {
        let log = one("");
        assert_eq!(
            log.destination,
            Destination::File(Bytes::from_static(b"logs/access.log"))
        );
        assert!(matches!(log.format, FormatName::Combined(_)));
        let log = one("access_log a.log main gzip flush=5m buffer=32k if=$x;");
        assert!(matches!(log.format, FormatName::Named(name, _) if name == "main"));
        let buffer = Buffer {
            size: 32 << 10,
            flush: Some(Duration::from_secs(300)),
            gzip: Some(1),
        };
        assert_eq!(log.buffer, Some(buffer));
        assert!(log.condition.is_some());
        assert_eq!(
            one("access_log a.log combined gzip=9;")
                .buffer
                .unwrap()
                .size,
            64 << 10
        );
        assert!(matches!(
            one("access_log /logs/$host.log;").destination,
            Destination::Named(_)
        ));
        assert!(matches!(
            one("access_log syslog:server=[::1]:5,tag=x;").destination,
            Destination::Syslog(_)
        ));
        assert_eq!(one("access_log '';").destination, Destination::Stderr);
        assert_eq!(access("access_log off;").unwrap(), [AccessLine::Off]);
        assert_eq!(access("access_log a; access_log a;").unwrap().len(), 2);
    }

    #[test]
    fn wrong_access_log_lines_are_refused_with_nginx_s_words() {
        for (line, words) in [
            ("off x", "invalid parameter \"x\""),
            ("a combined x", "invalid parameter \"x\""),
            ("a combined buffer=0", "invalid buffer size \"0\""),
            ("a combined buffer=32k flush=0", "invalid flush time \"0\""),
            ("a combined gzip=0", "invalid compression level \"0\""),
            ("a combined gzip=10", "invalid compression level \"10\""),
            (
                "a combined flush=1s",
                "no buffer is defined for access_log \"a\"",
            ),
            (
                "a$b combined buffer=1k",
                "buffered logs cannot have variables in name",
            ),
            (
                "syslog:server=1.1.1.1 combined gzip",
                "logs to syslog cannot be buffered",
            ),
            ("'' combined buffer=1k", "logs to stderr cannot be buffered"),
            ("syslog:tag=a", "no syslog server specified"),
        ] {
            assert_eq!(access(&format!("access_log {line};")).unwrap_err(), words);
        }
    }

    #[test]
    fn error_log_levels_are_read() {
        assert_eq!(error("error_log e;").unwrap()[0].level, Level::Error);
        assert_eq!(
            error("error_log stderr info;").unwrap()[0].destination,
            Destination::Stderr
        );
        assert_eq!(
            error("error_log '';").unwrap()[0].destination,
            Destination::Stderr
        );
        assert_eq!(
            error("error_log e debug_http debug_core;").unwrap()[0].level,
            Level::Debug
        );
        assert_eq!(error("error_log e warn; error_log e;").unwrap().len(), 2);
        for (line, words) in [
            ("e loud", "invalid log level \"loud\""),
            ("e warn info", "duplicate log level \"info\""),
            ("e warn debug_http", "invalid log level \"debug_http\""),
            ("e debug debug_http", "invalid log level \"debug_http\""),
            ("e debug_http debug", "duplicate log level \"debug\""),
            ("memory:1m", "nginx was built without debug support"),
        ] {
            assert_eq!(error(&format!("error_log {line};")).unwrap_err(), words);
        }
    }

    #[test]
    fn open_log_file_cache_is_read() {
        let cache = |text: &str| {
            let tree = config::parse_bytes(text.as_bytes()).unwrap();
            OpenFiles::parse(&tree.directives[0].args, &mut Scope::new())
                .map_err(|problem| problem.sentence_for("open_log_file_cache"))
        };
        assert_eq!(cache("open_log_file_cache off;").unwrap(), OpenFiles(None));
        let read = cache("open_log_file_cache max=3 inactive=20s valid=1m min_uses=2;")
            .unwrap()
            .0
            .unwrap();
        assert_eq!((read.max, read.min_uses), (3, 2));
        assert_eq!(
            (read.inactive, read.valid),
            (Duration::from_secs(20), Duration::from_secs(60))
        );
        let words = "\"open_log_file_cache\" must have \"max\" parameter";
        assert_eq!(cache("open_log_file_cache valid=1m;").unwrap_err(), words);
        let words = "invalid \"open_log_file_cache\" parameter \"max=x\"";
        assert_eq!(cache("open_log_file_cache max=x;").unwrap_err(), words);
    }
}
