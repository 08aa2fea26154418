//! What wakes a thread that waits for events: a timer, or something else.
//!
//! A loop's timer is a descriptor among the others (timerfd_create(2)), or the timeout of the wait. Invariant: a wake by
//! a timer alone is never taken for a request's.

use nix::libc::{SYS_epoll_pwait, SYS_epoll_wait, epoll_event, user_regs_struct};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::io::IoSliceMut;
use std::path::Path;

/// Maximum of events looked at in one wake.
const EVENTS_MAX: usize = 64;

/// A wake of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// Whether it is for anything but timers.
    pub has_events: bool,
    /// Whether it is also, or only, for a timer.
    pub is_by_timer: bool,
}

/// What the timers of a process are called in its events.
pub struct Wakes {
    timers: HashSet<u64>,
}

impl Wakes {
    /// Those of a process, which has made its timers already.
    pub fn of(process: Pid) -> Result<Self, String> {
        let fault = |path: &Path, error| format!("{}: {error}", path.display());
        let folder = format!("/proc/{process}/fd");
        let folder = Path::new(&folder);
        let (mut timers, mut polls) = (HashSet::new(), Vec::new());
        for entry in std::fs::read_dir(folder)
            .map_err(|error| fault(folder, error))?
            .flatten()
        {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            let number = entry.file_name().to_string_lossy().into_owned();
            match target.to_str() {
                Some("anon_inode:[timerfd]") => drop(timers.insert(number)),
                Some("anon_inode:[eventpoll]") => polls.push(number),
                _ => {}
            }
        }
        let mut found = HashSet::new();
        for poll in polls {
            let text = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{poll}"));
            found.extend(watched(&text.unwrap_or_default(), &timers));
        }
        Ok(Wakes { timers: found })
    }

    /// Where the step was a wait for events: what ended it.
    pub fn find(
        &self,
        thread: Pid,
        before: &user_regs_struct,
        after: &user_regs_struct,
    ) -> Option<Wake> {
        // A system call leaves the address behind it in rcx (syscall instruction, Intel SDM), its result in rax.
        let is_call = after.rcx == after.rip && before.rip + 2 == after.rip;
        let is_wait = [SYS_epoll_wait, SYS_epoll_pwait].contains(&(before.rax.cast_signed()));
        let count = usize::try_from(after.rax.cast_signed()).unwrap_or(0);
        (is_call && is_wait).then(|| self.wake(&names(thread, before.rsi, count), count))
    }

    /// The wake by so many events, of which these names are known.
    fn wake(&self, names: &[u64], count: usize) -> Wake {
        let timers = names.iter().filter(|name| self.timers.contains(name));
        let timers = timers.count();
        Wake {
            has_events: count > timers,
            is_by_timer: timers > 0 || count == 0,
        }
    }
}

/// The names of events at an address of another process (epoll_wait(2)). None where they cannot be read.
fn names(thread: Pid, address: u64, count: usize) -> Vec<u64> {
    let mut bytes = vec![0; count.min(EVENTS_MAX) * size_of::<epoll_event>()];
    if bytes.is_empty() {
        return Vec::new();
    }
    let there = RemoteIoVec {
        base: address as usize,
        len: bytes.len(),
    };
    let here = &mut [IoSliceMut::new(&mut bytes)];
    if process_vm_readv(thread, here, &[there]).is_err() {
        return Vec::new();
    }
    let name = |event: &[u8]| {
        let at = std::mem::offset_of!(epoll_event, u64);
        let name = event.get(at..at + size_of::<u64>())?;
        Some(u64::from_le_bytes(name.try_into().ok()?))
    };
    bytes
        .chunks_exact(size_of::<epoll_event>())
        .filter_map(name)
        .collect()
}

/// The names that these descriptors have in an instance of epoll (proc(5), `fdinfo`).
fn watched(text: &str, descriptors: &HashSet<String>) -> Vec<u64> {
    let name = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == "tfd:").then_some(())?;
        let number = words.next()?;
        let mut words = words.skip_while(|word| *word != "data:").skip(1);
        let name = u64::from_str_radix(words.next()?, 16).ok()?;
        descriptors.contains(number).then_some(name)
    };
    text.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_found_in_what_the_kernel_says() {
        let text = "pos:\t0\nflags:\t02\n\
             tfd:        6 events: 80000019 data:     7f0000000040  pos:0 ino:2094 sdev:f\n\
             tfd:       11 events: 80000019 data:               a1  pos:0 ino:2094 sdev:f\n";
        let timers = HashSet::from(["11".to_owned(), "7".to_owned()]);
        assert_eq!(watched(text, &timers), [0xa1]);
    }

    #[test]
    fn a_wake_by_a_timer_alone_is_no_requests() {
        let wakes = Wakes {
            timers: HashSet::from([7]),
        };
        let wake = |has_events, is_by_timer| Wake {
            has_events,
            is_by_timer,
        };
        assert_eq!(wakes.wake(&[], 0), wake(false, true));
        assert_eq!(wakes.wake(&[7], 1), wake(false, true));
        assert_eq!(wakes.wake(&[7, 8], 2), wake(true, true));
        assert_eq!(wakes.wake(&[8], 1), wake(true, false));
        // Of events that could not be read none is a timer's.
        assert_eq!(wakes.wake(&[], 1), wake(true, false));
    }
}
