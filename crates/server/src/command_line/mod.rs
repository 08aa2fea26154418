//! The command line: nginx's flags, read exactly as nginx reads them, our own commands (`serve`, `proxy`, `top`, `cache`, `migrate`) and options (`--explain`).
//!
//! Not here: what they do ([`crate::process::start`]). Invariant: every argument list that begins with a flag is
//! understood as nginx would, or refused with its sentence; nginx accepts none of our own words.

mod cache;
mod commands;
mod domain;
mod first_certificate;
mod flags;
mod generate;
mod made;
mod migrate;
mod options;
mod outline;
mod printing;
mod proxy;
mod question;
mod serve;
mod start_options;
mod top;
mod version;
mod words;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use printing::tell;

use crate::process::start;
use crate::process::{directories, spawn, worker};
use httpcore::handler::Modules;

/// Runs the program, with modules from outside (or none), as its arguments ask.
///
/// The worker process is the same program started again, so that it has the same modules.
#[must_use]
pub fn main(modules: Modules) -> ExitCode {
    // As Rust's start-up code does it with SIGPIPE: a log that has reached its limit ends no process.
    let _ = sys::process::ignore_file_size_signal();
    let mut args = std::env::args_os().skip(1);
    let args: Vec<OsString> = args.by_ref().collect();
    let first = args.first().map(|word| word.to_string_lossy().into_owned());
    match first.as_deref() {
        Some(spawn::WORKER) => worker::run(modules),
        Some("--explain") => explain(args.get(1), modules),
        Some("--generate") => generate::run(args.get(1), modules),
        Some("--help") => tell(version::help()),
        Some("--version") => tell(version::version()),
        Some(word) if !word.starts_with('-') => match commands::find(word) {
            Some(command) => (command.run)(&args, modules),
            None => words::answer(word),
        },
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
    let options = start_options::of(&flags, modules);
    if let Some(question) = question {
        return question::answer(&options, &question);
    }
    // As in nginx a test does nothing else.
    if let Some(signal) = &flags.signal
        && !flags.tests
    {
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
