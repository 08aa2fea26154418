//! Starts a worker process: this program again, with a channel to the master as standard input.
//!
//! `fork` is followed by `exec`: the worker begins with a clean memory and its own environment, and needs no unsafe
//! code. Not here: the messages of master and worker. Invariant: the worker inherits no descriptor but the standard
//! ones.
#![expect(clippy::disallowed_methods, reason = "the master runs no loop")]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bytes::Bytes;

use super::frame::Channel;

/// The argument that makes a process a worker; not for users.
pub(crate) const WORKER: &str = "--worker-process";
/// Maximum number of freed blocks of each size that a thread of the worker keeps for reuse, where glibc keeps 7: about
/// as many requests of a loop wait for a response at once, each with its own (glibc's manual, "Memory Allocation
/// Tunables").
const MALLOC: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=64");
/// The running program, also when its file was replaced or removed.
const SELF: &str = "/proc/self/exe";

/// Starts a worker.
///
/// # Errors
/// That of socketpair(2), fork(2) or execve(2).
pub(crate) fn worker(env: &[Bytes]) -> io::Result<(Child, Channel)> {
    let (ours, theirs) = Channel::pair()?;
    let program = if Path::new(SELF).exists() {
        PathBuf::from(SELF)
    } else {
        std::env::current_exe()?
    };
    let child = Command::new(program)
        .arg0("freewheel: worker process")
        .arg(WORKER)
        .env_clear()
        .envs(environment(env))
        .stdin(Stdio::from(theirs.into_socket()))
        .spawn()?;
    Ok((child, ours))
}

/// The worker's environment: `TZ`, the stall test's variable, the allocator's settings, and the variables that `env`
/// keeps or sets.
fn environment(env: &[Bytes]) -> Vec<(OsString, OsString)> {
    let keep = |name: &OsStr| std::env::var_os(name).map(|value| (name.to_owned(), value));
    let always = [
        "TZ",
        super::hold::VARIABLE,
        super::hold::CPU_VARIABLE,
        super::hold::FAULT_VARIABLE,
    ];
    let mut all: Vec<_> = always
        .iter()
        .filter_map(|name| keep(OsStr::new(name)))
        .collect();
    all.push((MALLOC.0.into(), MALLOC.1.into()));
    for line in env {
        let mut parts = line.splitn(2, |&byte| byte == b'=');
        let name = OsStr::from_bytes(parts.next().unwrap_or_default());
        if name.is_empty() {
            continue;
        }
        match parts.next() {
            Some(value) => all.push((name.to_owned(), OsStr::from_bytes(value).to_owned())),
            None => all.extend(keep(name)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_keeps_and_sets() {
        let lines = [
            Bytes::from_static(b"PATH"),
            Bytes::from_static(b"A=b=c"),
            Bytes::from_static(b"NOSUCH_"),
        ];
        let all = environment(&lines);
        assert!(all.contains(&("A".into(), "b=c".into())));
        assert!(all.iter().any(|(name, _)| name == "PATH"));
        assert!(
            !all.iter()
                .any(|(name, _)| name == "NOSUCH_" || name == "HOME")
        );
    }
}
