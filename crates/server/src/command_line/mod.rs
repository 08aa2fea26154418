//! The command line: nginx's flags, read exactly as nginx reads them, and our own words `serve`, `proxy`, `top`,
//! `migrate` and `--explain`.
//!
//! Not here: what they do ([`crate::process::start`]). Invariant: every argument list that begins with a flag is
//! understood as nginx would, or refused with its sentence; nginx accepts none of our own words.

mod first_certificate;
mod flags;
mod made;
mod migrate;
mod proxy;
mod question;
mod serve;
mod top;
mod version;
mod words;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(crate) use flags::Flags;

use crate::process::load::Origin;
use crate::process::start::{self, Options};
use crate::process::{directories, spawn, worker};
use config::default_paths::{CONFIGURATION, ERROR_LOG, PREFIX};
use httpcore::handler::Modules;

/// Runs the program, with modules from outside (or none), as its arguments ask.
///
/// The worker process is the same program started again, so that it has the same modules.
#[must_use]
pub fn main(modules: Modules) -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let args: Vec<OsString> = args.by_ref().collect();
    let first = args.first().map(|word| word.to_string_lossy().into_owned());
    match first.as_deref() {
        Some(spawn::WORKER) => worker::run(modules),
        Some("serve") => serve::run(&args, modules),
        Some("proxy") => proxy::run(&args, modules),
        Some("top") => top::run(&args),
        Some("migrate") => migrate::run(&args, modules),
        Some("--explain") => explain(args.get(1), modules),
        Some("--help") => tell(version::help()),
        Some("--version") => tell(version::version()),
        Some(word) if !word.starts_with('-') => words::answer(word),
        _ => as_nginx(args, modules),
    }
}

fn as_nginx(mut args: Vec<OsString>, modules: Modules) -> ExitCode {
    let is_bare = args.is_empty();
    let question = match question::take(&mut args) {
        Ok(question) => question,
        Err(sentence) => {
            eprintln!("freewheel: {sentence}");
            return ExitCode::FAILURE;
        }
    };
    let flags = match flags::parse(args.into_iter().map(OsString::into_vec)) {
        Ok(flags) => flags,
        Err(sentence) => {
            eprintln!("nginx: {sentence}");
            return ExitCode::FAILURE;
        }
    };
    if flags.shows_version {
        eprint!("{}", version::version());
        if flags.shows_help {
            eprint!("{}", version::help());
        }
        if flags.shows_configure {
            eprint!("{}", version::configure());
        }
        if !flags.tests {
            return ExitCode::SUCCESS;
        }
    }
    let options = options(&flags, modules);
    if let Some(question) = question {
        return question::answer(&options, &question);
    }
    if let Some(signal) = &flags.signal {
        return start::send_signal(&options, signal);
    }
    let mut made = match flags.prefix {
        None => directories::lay_out(&options.origin.prefix),
        Some(_) => directories::Made::default(),
    };
    let first_log = options.error_log.clone();
    let code = match flags.tests {
        true => start::test(&options, flags.dumps),
        false => start::serve(options),
    };
    if code == ExitCode::SUCCESS {
        made.keep();
    } else if is_bare {
        eprintln!("freewheel: to serve without a configuration: freewheel serve DIR");
    }
    directories::forget(made, first_log.as_deref());
    code
}

fn options(flags: &Flags, modules: Modules) -> Options {
    let prefix = match &flags.prefix {
        Some(prefix) if prefix.ends_with(b"/") => path(prefix),
        Some(prefix) => path(&[prefix, &b"/"[..]].concat()),
        None => Path::new(PREFIX).join(""),
    };
    let root = flags
        .configuration
        .as_deref()
        .map_or_else(|| PathBuf::from(CONFIGURATION), path);
    let error_log = match flags.error_log.as_deref() {
        Some(b"stderr") => None,
        Some(name) => Some(prefix.join(path(name))),
        None if ERROR_LOG == "stderr" => None,
        None => Some(prefix.join(ERROR_LOG)),
    };
    let origin = Origin {
        root: prefix.join(root),
        prefix,
        globals: flags.globals.clone(),
    };
    Options {
        origin,
        instead: None,
        error_log,
        is_quiet: flags.is_quiet,
        modules,
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    Path::new(std::ffi::OsStr::new("")).join(OsString::from_vec(bytes.to_vec()))
}

fn tell(text: impl AsRef<str>) -> ExitCode {
    let told = std::io::stdout().write_all(text.as_ref().as_bytes());
    if told.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn explain(name: Option<&OsString>, modules: Modules) -> ExitCode {
    let Some(name) = name else {
        eprintln!("freewheel: --explain takes the name of a directive or a variable");
        return ExitCode::FAILURE;
    };
    let name = name.to_string_lossy();
    match crate::manual::explain(modules, &name) {
        Ok(text) => tell(text),
        Err(sentence) => {
            eprintln!("freewheel: {sentence}");
            ExitCode::FAILURE
        }
    }
}
