//! System calls that the kernel refuses to this process, as a container's seccomp profile makes it do, and what is done
//! in their place.
//!
//! Not here: `openat2` and PAGEMAP_SCAN, which [`crate::Probe`] tells of, root by root. Invariant: each call is tried on
//! something that it would succeed for.

use std::fmt;
use std::os::fd::AsFd;

use rustix::fs::MemfdFlags;
use rustix::fs::inotify::{self, CreateFlags};
use rustix::io::Errno;

use crate::files::error::message;

/// A call that is refused; its text is the line for the log.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    call: &'static str,
    error: Errno,
    instead: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (error, number) = (message(self.error), self.error.raw_os_error());
        write!(
            formatter,
            "{} is refused ({number}: {error}): {}",
            self.call, self.instead
        )
    }
}

/// Tries them. Makes descriptors and closes them again: before the loops run, or on a thread that may wait.
#[must_use]
pub fn refusals() -> Vec<Refusal> {
    let memory = rustix::fs::memfd_create("freewheel", MemfdFlags::CLOEXEC).map(drop);
    let events = inotify::init(CreateFlags::CLOEXEC).map(drop);
    let tried = [
        (
            "memfd_create(2)",
            memory,
            "bodies of small files are copied to each client, not sent by the page",
        ),
        (
            "inotify_init1(2)",
            events,
            "each use of a file looks at its path again",
        ),
    ];
    let refused = |(call, outcome, instead): (_, Result<(), Errno>, _)| {
        let error = outcome.err().filter(|error| is_refusal(*error))?;
        Some(Refusal {
            call,
            error,
            instead,
        })
    };
    tried.into_iter().filter_map(refused).collect()
}

/// Whether cachestat(2) is refused even for a file that is this process's own.
pub(crate) fn is_cachestat_refused() -> bool {
    let Ok((own, _)) = std::io::pipe() else {
        return false;
    };
    let error = sys::cachestat(own.as_fd(), 0, 0).err();
    let error = error.as_ref().and_then(Errno::from_io_error);
    error.is_some_and(is_refusal)
}

/// Whether an error is that of a call which is forbidden or not there: not one of a limit.
fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::PERM | Errno::ACCESS | Errno::NOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_call_the_error_and_what_is_done() {
        let refusal = Refusal {
            call: "x(2)",
            error: Errno::PERM,
            instead: "y",
        };
        assert_eq!(
            refusal.to_string(),
            "x(2) is refused (1: Operation not permitted): y"
        );
        assert!(!is_refusal(Errno::MFILE), "a limit is no refusal");
    }
}
