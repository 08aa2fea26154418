//! `freewheel migrate [PATH] [--long | --steps | --json]`.
//!
//! Not here: the page ([`crate::migrate`]).

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueHint};

use super::made;
use crate::migrate::{self, Form, Wish};
use httpcore::handler::Modules;

/// Says whether a configuration of nginx runs here, and how to switch.
///
/// One page: whether it runs, what is ignored or refused and what to do, how much is the same, and the differences that it meets. Nothing
/// is changed. Status: 0 it runs unchanged, 1 something is refused, 2 there is no configuration, or the call is wrong,
/// 3 something is missing, or could not be judged here.
#[derive(Debug, Parser)]
#[command(name = "freewheel migrate", bin_name = "freewheel migrate")]
pub(super) struct Arguments {
    /// The configuration, or its directory. Unless it is said, /etc/nginx/nginx.conf.
    #[arg(value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
    path: Option<PathBuf>,
    /// The page with everything: each directive, differences whole, what gets better, the commands.
    #[arg(long)]
    long: bool,
    /// Only the commands: to try it beside nginx, to switch without a lost connection, to go back.
    #[arg(long, conflicts_with = "long")]
    steps: bool,
    /// Everything, as a JSON document.
    #[arg(long, conflicts_with_all = ["long", "steps"])]
    json: bool,
}

/// Runs the command; `args` begins with its name.
pub(super) fn run(args: &[OsString], modules: Modules) -> ExitCode {
    match made::arguments_or::<Arguments>(args, ExitCode::from(migrate::UNREADABLE)) {
        Ok(arguments) => {
            let form = match (arguments.long, arguments.steps, arguments.json) {
                (true, _, _) => Form::Long,
                (_, true, _) => Form::Steps,
                (_, _, true) => Form::Json,
                _ => Form::Page,
            };
            migrate::run(&Wish::of(arguments.path.as_deref(), form), modules)
        }
        Err(code) => code,
    }
}
