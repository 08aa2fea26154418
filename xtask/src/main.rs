//! Project tasks that need more than cargo: `cargo xtask tidy | layers | modules | manual | book | conformance | differential | repeats | cache-faults |
//! instructions | dashboard | installed | upgrade | package | pgo | acme | forbidden`.
//!
//! Not part of the program, and nothing here decides how it behaves. Invariant: a task that could not be carried out ends with a
//! status other than 0 and says so; "not measured" is never "passed".
#![expect(
    clippy::disallowed_methods,
    reason = "a tool without an event loop: it may wait for files and processes"
)]

mod acme;
mod blackbox;
mod book;
mod browser;
mod conformance;
mod dashboard;
mod differential;
mod faults;
mod forbidden;
mod installed;
mod instructions;
mod layers;
mod manual;
mod modules;
mod package;
mod pgo;
mod repeats;
mod running;
mod scope;
mod source;
mod tidy;
mod upgrade;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

const USAGE: &str = "\
usage: cargo xtask TASK

  tidy
      house rules that neither rustc nor clippy knows
  layers
      imports inside the crates that run back from a lower folder to a higher one, and circles of files: within their limits
  modules
      files outside of a module's own that name it, for ten modules: within their limit
  manual
      writes docs/reference/ again, from the tables of directives
  book [--check] [--mdbook PROGRAM]
      the documents: every page is in docs/SUMMARY.md and every link leads somewhere; without --check, target/book/html of them, by mdBook
  conformance --suite-git DIR --binary BIN [--yardsticks DIR] [--files LIST] [--list] [--verbose]
      nginx's public test suite: the files whose configuration needs nothing that is not built yet
  differential --nginx PATH [--binary BIN] [--port N] [--jobs N] [--verbose] [CASE…]
      configurations and requests through nginx 1.31.5 and freewheel, answers compared; CASE is the beginning of a name
  repeats --nginx PATH [--record]
      every directive twice in each of its contexts, `-t` of nginx 1.31.5 and ours compared; --record: writes down what nginx says, which
      `cargo test` compares with (crates/server/tests/repeats)
  cache-faults
      the cache on disks that are full, read-only or fail, and `max_size` under a steady stream; root (mounts images), a minute
  instructions [--binary BIN] [--record | --figures | [--functions] [--only TEXT]]
      what a loop spends on one hot request, counted in single steps: a fault when it is 5 % more than is recorded; --figures: when it is
      3 % more than without figures (builds such a program)
  dashboard [--binary BIN] [--chromium PROGRAM] [--port N] [--seconds N] [--screenshot FILE] [--phone FILE]
      the dashboard in a headless Chromium: load moves its charts, a held pool shows its queue, who keeps a loop is named, nothing is on
      the console; needs `cargo build -p blackbox --bin told-module` (freewheel with a module that can keep a loop)
  installed [--binary BIN] [--root DIR] [--conf FILE] [--port N] [-- ARGUMENTS]
      the program as installed: master as root, worker as nobody, files of root; until it is interrupted
  upgrade --nginx PATH [--binary BIN] [--rounds N]
      the program replaced under load, N times each: freewheel by freewheel, nginx 1.31.5 by freewheel by nginx, nginx by nginx; and
      processes killed amid it: requests lost, by the server that had the connection, entries fetched again, wrong bytes; needs root
      and curl, some seconds a round
  package [deb] [rpm] [tar] [--quick] [--profile FILE] [--binary BIN] [--revision N] [--check]
      packages, symbols, components, licences, the profile and checksums into target/package (all formats, unless some are named);
      --quick: without the optimization over all crates, and without a profile; --profile: that of an earlier run; --check: makes all
      twice, the second time from a copy of the source in another directory, and compares the bytes
  package --reproduce [--quick] [--profile FILE]
      only the program, built here and from a copy of the source in another directory: the same bytes, symbols included?
  package --try [--quick] [--binary BIN] [--root DIR]
      a Debian 12 with systemd in a container (DIR: such a root to start from): installed, reloaded, upgraded under load, removed,
      purged; needs root, debootstrap and systemd-nspawn
  pgo [--profile FILE]
      the program by profile-guided optimization, for this machine, into target/pgo/release: built, trained for half a minute (or by the
      profile of an earlier run), and built again; needs rustup's component llvm-tools
  acme --pebble PATH [--binary BIN]
      certificates by ACME from Pebble, with its faults on: both challenges, keys, accounts, renewal, a wrong clock; needs
      pebble-challtestsrv beside Pebble, openssl and faketime, some minutes
  forbidden [--calls NAME,…] [--missing] [--all] [--binary BIN] [FILTER]
      the black-box tests without each of the system calls that a seccomp profile may forbid (EPERM; --missing: ENOSYS), minutes each;
      --all: every test target, and not only tests/behaviour
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((task, rest)) if task == "tidy" && rest.is_empty() => tidy::run(&project()),
        Some((task, rest)) if task == "layers" && rest.is_empty() => layers::run(&project()),
        Some((task, rest)) if task == "modules" && rest.is_empty() => modules::run(&project()),
        Some((task, rest)) if task == "manual" && rest.is_empty() => manual::run(&project()),
        Some((task, rest)) if task == "book" => book::run(&project(), rest),
        Some((task, rest)) if task == "conformance" => conformance::run(&project(), rest),
        Some((task, rest)) if task == "differential" => differential::run(&project(), rest),
        Some((task, rest)) if task == "repeats" => repeats::run(&project(), rest),
        Some((task, rest)) if task == "cache-faults" && rest.is_empty() => faults::run(&project()),
        Some((task, rest)) if task == "instructions" => instructions::run(&project(), rest),
        Some((task, rest)) if task == "dashboard" => dashboard::run(&project(), rest),
        Some((task, rest)) if task == "installed" => installed::run(&project(), rest),
        Some((task, rest)) if task == "upgrade" => upgrade::run(&project(), rest),
        Some((task, rest)) if task == "forbidden" => forbidden::run(&project(), rest),
        Some((task, rest)) if task == "package" => package::run(&project(), rest),
        Some((task, rest)) if task == "pgo" => pgo::run(&project(), rest),
        Some((task, rest)) if task == "acme" => acme::run(&project(), rest),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{}", message.trim_end());
            ExitCode::FAILURE
        }
    }
}

/// The project's directory: xtask stands in it.
fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask stands in the project")
        .to_owned()
}

/// Whether a test of the server's package passes, when it is run with these variables in its environment.
fn passes(project: &Path, test: &str, variables: &[(&str, &OsStr)]) -> Result<bool, String> {
    let status = Command::new(env!("CARGO"))
        .args(["test", "--quiet", "--package", "freewheel", "--test", test])
        .envs(variables.iter().copied())
        .current_dir(project)
        .status();
    let status = status.map_err(|error| format!("cargo: {error}"))?;
    Ok(status.success())
}

/// Runs a command to its end, and fails with what it said.
fn output(command: &mut Command) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
    Err(format!(
        "{name} {}: {}\n{}{}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Runs a command to its end, which says itself what it has to say.
fn succeed(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status();
    let status = status.map_err(|error| format!("{name}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{name}: {status}")),
    }
}

/// The value behind `--name`, taken out of `arguments`.
fn option(arguments: &mut Vec<String>, name: &str) -> Result<Option<String>, String> {
    let Some(at) = arguments.iter().position(|argument| argument == name) else {
        return Ok(None);
    };
    if at + 1 == arguments.len() {
        return Err(format!("{name} needs a value"));
    }
    arguments.remove(at);
    Ok(Some(arguments.remove(at)))
}

/// Whether `--name` is there, taken out of `arguments`.
fn flag(arguments: &mut Vec<String>, name: &str) -> bool {
    let before = arguments.len();
    arguments.retain(|argument| argument != name);
    arguments.len() < before
}
