//! `freewheel migrate [PATH] [--json] [--long]`.
//!
//! Not here: the page ([`crate::migrate`]).

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueHint};

use super::made;
use crate::migrate::{self, Wish};
use httpcore::handler::Modules;

/// Says whether a configuration of nginx runs here, and how to switch.
///
/// One page: what is the same here, what is ignored or refused, the differences that it meets, how to try it, to switch and to go back.
/// Nothing is changed. Status: 0 it runs unchanged, 1 something is refused, 2 there is no configuration, 3 something could not be
/// judged here.
#[derive(Debug, Parser)]
#[command(name = "freewheel migrate", bin_name = "freewheel migrate")]
pub(super) struct Arguments {
    /// The configuration, or its directory. Unless it is said, /etc/nginx/nginx.conf.
    #[arg(value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
    path: Option<PathBuf>,
    /// The page as a JSON document.
    #[arg(long)]
    json: bool,
    /// Differences with their whole texts.
    #[arg(long)]
    long: bool,
}

/// Runs the command; `args` begins with its name.
pub(super) fn run(args: &[OsString], modules: Modules) -> ExitCode {
    match made::arguments::<Arguments>(args) {
        Ok(arguments) => {
            let path = arguments.path.as_deref();
            migrate::run(&Wish::of(path, arguments.json, arguments.long), modules)
        }
        Err(code) => code,
    }
}
