//! The worker's identity and limits: user, groups, resource limits, priority, working directory.
//!
//! Not here: what must be opened before root's rights are given up (the worker does that first). Invariant: after
//! [`Account::become_it`] succeeded there is no way back: real, effective and saved ids are set.

use std::ffi::CString;
use std::io;
use std::path::Path;

use disk::memory;
use logs::process_log::{Level, error_log};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Group, Uid, User, initgroups, setgid, setuid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities};
use wire::of_call;

use super::directives;
use super::load::Loaded;
use config::default_paths;

/// The unprivileged user that systems provide.
const NOBODY: &str = "nobody";
/// Its group, on most systems; on others it is `nogroup`.
const GROUPS_OF_NOBODY: [&str; 2] = ["nobody", "nogroup"];

/// A user and a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    /// The user's name, for its further groups.
    pub name: String,
    /// The user's id.
    pub uid: u32,
    /// The group's id.
    pub gid: u32,
}

/// Whether this process may change its user.
#[must_use]
pub(crate) fn is_root() -> bool {
    Uid::effective().is_root()
}

impl Account {
    /// The user of a configuration's worker.
    ///
    /// # Errors
    /// nginx's sentence (`getpwnam("X") failed`), at the place of the line `user`.
    pub(crate) fn of(loaded: &Loaded) -> Result<Option<Self>, config::Error> {
        if !is_root() {
            return Ok(None);
        }
        let found = Self::find(loaded.main.processes.user.as_ref());
        found.map(Some).map_err(|why| placed(&loaded.tree, why))
    }

    /// What this machine lacks of the user and group of a worker, whoever asks: the error that root gets.
    pub(crate) fn missing(tree: &config::Tree, main: &directives::Main) -> Option<config::Error> {
        let found = Self::find(main.processes.user.as_ref());
        found.err().map(|why| placed(tree, why))
    }

    /// Looks the names up.
    ///
    /// # Errors
    /// nginx's sentence: `getpwnam("X") failed`.
    fn find(wanted: Option<&directives::User>) -> Result<Self, String> {
        let name = wanted.map_or(default_paths::USER, |user| &user.name);
        let user = User::from_name(name).map_err(|error| failed("getpwnam", name, error))?;
        let user = user.ok_or_else(|| format!("getpwnam(\"{name}\") failed"))?;
        let gid = match wanted.map(|wanted| wanted.group.as_deref()) {
            Some(Some(name)) => {
                group(name)?.ok_or_else(|| format!("getgrnam(\"{name}\") failed"))?
            }
            // Where no group has the user's name nginx refuses to start; the user's own group is meant.
            Some(None) => group(name)?.unwrap_or(user.gid),
            None => group_of_build(default_paths::USER, default_paths::GROUP)?.unwrap_or(user.gid),
        };
        Ok(Self {
            name: name.to_owned(),
            uid: user.uid.as_raw(),
            gid: gid.as_raw(),
        })
    }

    /// Gives up root's rights for this user's, all but the one to send from foreign addresses if that is kept.
    ///
    /// # Errors
    /// nginx's sentence: the call that failed. The process must not go on then.
    pub(crate) fn become_it(&self, keeps_raw: bool) -> Result<(), String> {
        if keeps_raw {
            set_keep_capabilities(true)
                .map_err(|error| of_call("prctl(PR_SET_KEEPCAPS, 1)")(error.into()).to_string())?;
        }
        let gid = Gid::from_raw(self.gid);
        setgid(gid).map_err(|error| format!("setgid({}) failed ({})", self.gid, text_of(error)))?;
        let name = CString::new(self.name.as_str())
            .map_err(|_| "a user's name with a zero byte".to_owned())?;
        initgroups(&name, gid).map_err(|error| {
            format!(
                "initgroups({}, {}) failed ({})",
                self.name,
                self.gid,
                text_of(error)
            )
        })?;
        setuid(Uid::from_raw(self.uid))
            .map_err(|error| format!("setuid({}) failed ({})", self.uid, text_of(error)))?;
        if keeps_raw {
            let sets = CapabilitySets {
                effective: CapabilitySet::NET_RAW,
                permitted: CapabilitySet::NET_RAW,
                inheritable: CapabilitySet::empty(),
            };
            set_capabilities(None, sets)
                .map_err(|error| of_call("capset()")(error.into()).to_string())?;
        }
        Ok(())
    }
}

/// An error at the place of the line `user`, if there is one.
fn placed(tree: &config::Tree, sentence: String) -> config::Error {
    let line = tree.directives.iter().find(|line| line.name == "user");
    match line {
        Some(line) => line.error(&config::Problem::new(sentence).at(0)),
        None => config::Error::without_place(sentence),
    }
}

/// The group when there is no `user` line, from the build's options: nginx's `configure` takes the user's name for the
/// group's, and for `nobody` the group that systems provide. `None`: the user's own.
fn group_of_build(user: &str, told: &str) -> Result<Option<Gid>, String> {
    if !told.is_empty() {
        let found = group(told)?;
        return found
            .map(Some)
            .ok_or_else(|| format!("getgrnam(\"{told}\") failed"));
    }
    match user {
        NOBODY => Ok(GROUPS_OF_NOBODY
            .iter()
            .find_map(|name| group(name).ok().flatten())),
        user => group(user),
    }
}

fn group(name: &str) -> Result<Option<Gid>, String> {
    let group = Group::from_name(name).map_err(|error| failed("getgrnam", name, error))?;
    Ok(group.map(|group| group.gid))
}

fn failed(call: &str, name: &str, error: nix::Error) -> String {
    format!("{call}(\"{name}\") failed ({})", text_of(error))
}

fn text_of(error: nix::Error) -> String {
    wire::errno(&error.into())
}

/// Maximum number of descriptors of the worker by `worker_rlimit_nofile`. nginx's limit is that of each worker process; here one
/// process has the work of all.
pub(crate) fn descriptors(wanted: &directives::Processes) -> Option<u64> {
    let loops = wanted.worker_processes.count() as u64;
    let of_one = wanted.worker_rlimit_nofile?;
    Some(of_one.0.saturating_mul(loops))
}

/// Sets limits, priority and core dumps as the configuration asks; a refusal of the system is logged.
pub(crate) fn set_limits(main: &directives::Main) {
    let wanted = &main.processes;
    let loops = wanted.worker_processes.count() as u64;
    let limit = |resource, name: &str, value: u64| {
        if let Err(error) = setrlimit(resource, value, value) {
            let text = text_of(error);
            error_log(
                Level::Alert,
                format_args!("setrlimit({name}, {value}) failed ({text})"),
            );
        }
    };
    match descriptors(wanted) {
        Some(all) => {
            if limit_descriptors(all).is_err() {
                limit(Resource::RLIMIT_NOFILE, "RLIMIT_NOFILE", all / loops);
            }
        }
        // For the same reason the hard limit is used, not only the soft one.
        None => {
            if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
                let _ = limit_descriptors(hard);
            }
        }
    }
    let connections = u64::from(main.events.worker_connections.0).saturating_mul(loops);
    if let Ok((files, _)) = getrlimit(Resource::RLIMIT_NOFILE)
        && connections > files
    {
        error_log(
            Level::Warn,
            format_args!(
                "{connections} worker_connections (of all loops) exceed open file resource limit: {files}"
            ),
        );
    }
    make_room_for_descriptors(connections, loops);
    if let Some(core) = wanted.worker_rlimit_core {
        limit(Resource::RLIMIT_CORE, "RLIMIT_CORE", core.0);
    }
    let priority = wanted.worker_priority.0;
    if priority != 0
        && let Err(error) = rustix::process::setpriority_process(None, priority)
    {
        let text = wire::errno(&error.into());
        error_log(
            Level::Alert,
            format_args!("setpriority({priority}) failed ({text})"),
        );
    }
}

/// Raises the master's limit of descriptors as far as the system lets it: it holds a socket of each address for each loop,
/// where nginx's holds one of each address. What it starts gets the same limit.
pub(crate) fn raise_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Descriptors beyond the limit for what the master sends: sockets, logs, devices of a new configuration.
const BEYOND: u64 = 4096;

/// Sets the limit that holds (the soft one); the hard one is higher by [`BEYOND`], as far as the system lets it.
fn limit_descriptors(soft: u64) -> nix::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, soft, soft.saturating_add(BEYOND))
        .or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, soft, hard.max(soft)))
}

/// While it lives, the process may have as many descriptors as its hard limit allows, so that a worker whose
/// connections have taken all others can be configured anew, and gets its logs.
#[derive(Debug)]
pub(crate) struct Beyond {
    soft: u64,
    hard: u64,
}

impl Beyond {
    /// `None`: the system does not tell the limits.
    pub(crate) fn begin() -> Option<Beyond> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok()?;
        Some(Beyond { soft, hard })
    }
}

impl Drop for Beyond {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, self.soft, self.hard);
    }
}

/// Minimum and maximum number of descriptors that the table has room for: 8 bytes each.
const ROOM: std::ops::Range<u64> = 4096..262_144;

/// Makes the kernel enlarge its table of descriptors, once, to the size that will be needed (two for each connection, and
/// those of kept files). Where threads share the table, each later doubling makes the call that needs it (`accept4`,
/// `openat2`) wait for all processors to pass through the scheduler (`synchronize_rcu` in the kernel's fs/file.c): 10 to
/// 50 ms, on a loop.
fn make_room_for_descriptors(connections: u64, loops: u64) {
    let Ok((most, _)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    let limit = memory::limits::least(&memory::limits::Groups::of(Path::new("/proc")));
    let files = memory::files_of(memory::of_limit(limit.bytes))
        .min(loops.saturating_mul(disk::FILES_MAX as u64))
        .min(most / 2);
    let wanted = (connections.saturating_mul(2))
        .saturating_add(files)
        .clamp(ROOM.start, ROOM.end);
    let last = i32::try_from(wanted.min(most).saturating_sub(1)).unwrap_or(0);
    // The table does not shrink when this is closed. If it is refused, the table grows on demand.
    drop(rustix::io::fcntl_dupfd_cloexec(
        rustix::stdio::stderr(),
        last,
    ));
}

/// Lets a process that changed its user leave core files, and read its own `/proc/self` (proof 2 of the
/// disk layer needs that).
pub(crate) fn set_dumpable() {
    if let Err(error) =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
    {
        let text = wire::errno(&error.into());
        error_log(
            Level::Alert,
            format_args!("prctl(PR_SET_DUMPABLE) failed ({text})"),
        );
    }
}

/// `working_directory`.
///
/// # Errors
/// nginx's sentence.
pub(crate) fn change_directory(path: &Path) -> Result<(), String> {
    rustix::process::chdir(path).map_err(|error| {
        let text = wire::errno(&io::Error::from(error));
        format!("chdir(\"{}\") failed ({text})", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_was_told_only_a_user_means_his_group_and_one_that_is_told_must_be_there() {
        let number = |name: &str| group(name).unwrap();
        assert_eq!(group_of_build("daemon", "").unwrap(), number("daemon"));
        assert_eq!(group_of_build("root", "daemon").unwrap(), number("daemon"));
        let none = "no-group-of-that-name";
        assert_eq!(group_of_build(none, ""), Ok(None));
        assert_eq!(
            group_of_build("root", none),
            Err(format!("getgrnam(\"{none}\") failed"))
        );
        let nobody = GROUPS_OF_NOBODY.map(number);
        assert_eq!(group_of_build(NOBODY, ""), Ok(nobody[0].or(nobody[1])));
    }
}
