//! `freewheel cache ls|show|why|verify|purge|convert|format|disk`: what is in a cache's directory, whether a server runs or not.
//!
//! * [`place`]: the directory, and the process that owns it. * [`files`]: walking it, reading entries. * [`request`]: what
//!   a cache is asked for a request. * `text`: figures for readers. The commands: [`list`], [`show`], [`why`], [`verify`], [`purge`],
//!   [`convert`], [`format`], [`disk`].
//!
//! Not here: the format of entries and of the journal ([`cache`]). Invariant: a directory that a server owns is changed
//! by that server only, which is asked over its control socket; one without an owner is changed under its lock.

mod convert;
mod disk;
mod files;
mod format;
mod list;
mod place;
mod purge;
mod request;
mod show;
mod text;
mod verify;
mod why;

use std::ffi::OsString;
use std::process::ExitCode;

use super::made::{arguments_or, refuse};
use httpcore::handler::Modules;

/// The exit code where the command could not be carried out, or is none.
const NOT_DONE: u8 = 2;

/// Shows, checks and purges what a cache has stored, whether its server runs or not.
#[derive(Debug, clap::Parser)]
#[command(
    name = "freewheel cache",
    bin_name = "freewheel cache",
    disable_help_subcommand = true
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Lists the entries, as they are found
    Ls(list::Wishes),
    /// Shows one entry: its head, its times, its checksums
    Show(show::Wishes),
    /// Says whether a request would be answered from the cache now, and why
    Why(why::Wishes),
    /// Reads every entry and compares its checksums
    Verify(verify::Wishes),
    /// Purges by key, by prefix or by tag
    Purge(purge::Wishes),
    /// Moves small entries to where store= puts them: into segments, or out of them
    Convert(convert::Wishes),
    /// Makes a block device one for a cache
    Format(format::Wishes),
    /// Tells the state of its disk, and the latest changes with their reasons
    Disk(disk::Wishes),
}

/// Runs the command.
#[must_use]
pub(super) fn run(args: &[OsString], modules: Modules) -> ExitCode {
    let wishes: Arguments = match arguments_or(args, ExitCode::from(NOT_DONE)) {
        Ok(wishes) => wishes,
        Err(code) => return code,
    };
    let done = match &wishes.command {
        Command::Ls(wishes) => list::run(wishes, modules),
        Command::Show(wishes) => show::run(wishes, modules),
        Command::Why(wishes) => why::run(wishes, modules),
        Command::Verify(wishes) => verify::run(wishes, modules),
        Command::Purge(wishes) => purge::run(wishes, modules),
        Command::Convert(wishes) => convert::run(wishes, modules),
        Command::Format(wishes) => format::run(wishes),
        Command::Disk(wishes) => disk::run(wishes, modules),
    };
    done.unwrap_or_else(|sentence| {
        if !sentence.is_empty() {
            let _ = refuse(&sentence);
        }
        ExitCode::from(NOT_DONE)
    })
}
