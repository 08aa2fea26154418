//! Runs a program to which a system call is forbidden, as a seccomp profile of a container may do it:
//!
//! `forbidding CALL ERROR PROGRAM ARGUMENTS…`
//!
//! CALL is one of [`CALLS`], ERROR the number that the call fails with (1: EPERM, 38: ENOSYS; 0: it returns 0). PROGRAM may
//! be this program again, for a further call.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// cachestat(2), the same number on every architecture with the common table.
const CACHESTAT: i64 = 451;
/// PAGEMAP_SCAN, a request of ioctl(2).
const PAGEMAP_SCAN: u64 = 0xc060_6610;

/// MADV_POPULATE_READ (Linux 5.14), an advice of madvise(2).
const MADV_POPULATE_READ: u64 = 22;

/// RWF_NOWAIT, a flag of preadv2(2).
const RWF_NOWAIT: u64 = 8;

/// The names, and the calls' numbers.
const CALLS: &[(&str, &[i64])] = &[
    ("openat2", &[libc::SYS_openat2]),
    ("cachestat", &[CACHESTAT]),
    ("PAGEMAP_SCAN", &[libc::SYS_ioctl]),
    ("MADV_POPULATE_READ", &[libc::SYS_madvise]),
    // Both ways to bring pages into the page table.
    (
        "populating",
        &[libc::SYS_madvise, libc::SYS_process_vm_readv],
    ),
    ("RWF_NOWAIT", &[libc::SYS_preadv2]),
    ("memfd_create", &[libc::SYS_memfd_create]),
    ("inotify", &[libc::SYS_inotify_init1]),
    ("statx", &[libc::SYS_statx]),
    ("close_range", &[libc::SYS_close_range]),
    ("sched_setaffinity", &[libc::SYS_sched_setaffinity]),
    // The call that reads a limit as well, which has no new one then.
    ("setrlimit", &[libc::SYS_prlimit64]),
    ("mlock", &[libc::SYS_mlock, libc::SYS_mlock2]),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(call), Some(error), Some(program)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: forbidding CALL ERROR PROGRAM ARGUMENTS…".into());
    };
    let error: u32 = error.to_string_lossy().parse()?;
    let known = CALLS.iter().find(|(name, _)| call == *name);
    let (_, numbers) = known.ok_or("no such call")?;
    let mut rules = BTreeMap::new();
    for number in *numbers {
        // Of some, one argument only; of a limit, any new one (a pointer).
        let only = match *number {
            libc::SYS_ioctl => Some((1, SeccompCmpOp::Eq, PAGEMAP_SCAN)),
            libc::SYS_madvise => Some((2, SeccompCmpOp::Eq, MADV_POPULATE_READ)),
            libc::SYS_preadv2 => Some((5, SeccompCmpOp::Eq, RWF_NOWAIT)),
            libc::SYS_prlimit64 => Some((2, SeccompCmpOp::Ne, 0)),
            _ => None,
        };
        let only = only.map(|(index, compared, value)| {
            let length = SeccompCmpArgLen::Dword;
            SeccompRule::new(vec![SeccompCondition::new(index, length, compared, value)?])
        });
        let only = only.into_iter().collect::<Result<_, _>>()?;
        rules.insert(*number, only);
    }
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(error),
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?;
    seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?;
    Err(Command::new(program).args(arguments).exec().into())
}
