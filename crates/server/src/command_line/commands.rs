//! The commands: first words that are no flags.
//!
//! A line of [`COMMANDS`] is all that a new command needs here: from it come the call, `-h`, the list behind an unknown word, the man
//! page and the completions. Not here: what a command does, and its arguments, which are clap's. Invariant: none is a flag of nginx.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;

use super::{cache, migrate, proxy, serve, top};
use httpcore::handler::Modules;

/// Runs a command with its arguments (the command's word first).
type Run = fn(&[OsString], Modules) -> ExitCode;

/// A command.
pub(super) struct Command {
    /// Its word.
    pub word: &'static str,
    /// Its arguments, with what `--help` says of them.
    pub arguments: fn() -> clap::Command,
    /// Its work.
    pub run: Run,
}

/// All commands, in the order in which they are listed.
pub(super) const COMMANDS: &[Command] = &[
    of::<serve::Arguments>("serve", serve::run),
    of::<proxy::Arguments>("proxy", proxy::run),
    of::<top::Arguments>("top", |args, _| top::run(args)),
    of::<cache::Arguments>("cache", cache::run),
    of::<migrate::Arguments>("migrate", migrate::run),
];

const fn of<A: CommandFactory>(word: &'static str, run: Run) -> Command {
    Command {
        word,
        arguments: A::command,
        run,
    }
}

/// The command of a word.
pub(super) fn find(word: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.word == word)
}
