//! The kernel's alarms for the memory thread: triggers of pressure stall information (Linux's `accounting/psi.rst`) of
//! the worker's control group and of the machine, and with cgroup v1 the group's pressure level
//! (`cgroup-v1/memory.rst`).
//!
//! Invariant: they are opened before the worker gives up root's rights (with version 1 only root may); without an alarm
//! that cannot be opened, the thread polls.
#![expect(
    clippy::disallowed_methods,
    reason = "procfs and control groups: no disk is behind them, and no loop runs yet"
)]

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use disk::memory::limits::Groups;
use rustix::event::{EventfdFlags, PollFd, PollFlags};

/// Fires when all tasks of a group waited for memory for a tenth of two seconds (an ordinary user may ask for that,
/// too).
const TRIGGER: &[u8] = b"full 200000 2000000\0";
/// For cgroup v1: fires when the kernel finds hardly anything to reclaim.
const LEVEL: &str = "critical";

/// The alarms that are open.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    /// Of the group.
    group: Option<Alarm>,
    /// Of the machine: a reason to look, for others may be short of memory.
    machine: Option<Alarm>,
}

#[derive(Debug)]
enum Alarm {
    /// A trigger, polled for POLLPRI.
    Trigger(File),
    /// An eventfd.
    Counter(OwnedFd),
}

impl Alarms {
    /// Those of this process.
    #[must_use]
    pub(crate) fn set() -> Self {
        let groups = Groups::of(Path::new("/proc"));
        // Where version 1 has the memory, the unified group is that of something else, and tells of the machine.
        let has_memory = |group: &&PathBuf| group.join("memory.max").exists();
        let unified = groups.unified.first().filter(has_memory);
        let trigger = unified.and_then(|group| trigger(&group.join("memory.pressure")));
        Self {
            group: trigger.or_else(|| level(groups.memory.first()?)),
            machine: trigger_of_machine(),
        }
    }

    /// The events to wait for: the group's first.
    pub(crate) fn events(&self) -> Vec<PollFd<'_>> {
        let all = self.group.iter().chain(&self.machine);
        all.map(Alarm::event).collect()
    }

    /// Whether the group's alarm has fired. `revents`: the results for [`Alarms::events`].
    pub(crate) fn is_of_group(&self, revents: &[PollFlags]) -> bool {
        let rung = revents.first().copied().unwrap_or(PollFlags::empty());
        let Some(group) = &self.group else {
            return false;
        };
        let has_rung = rung.intersects(PollFlags::PRI | PollFlags::IN);
        if let (Alarm::Counter(counter), true) = (group, has_rung) {
            let _ = rustix::io::read(counter, &mut [0; 8]);
        }
        has_rung && !rung.contains(PollFlags::ERR)
    }

    /// Forgets alarms that cannot fire any more (their group is gone).
    pub(crate) fn forget_broken(&mut self, revents: &[PollFlags]) {
        if revents.iter().any(|rung| rung.contains(PollFlags::ERR)) {
            *self = Self::default();
        }
    }
}

impl Alarm {
    fn event(&self) -> PollFd<'_> {
        match self {
            Self::Trigger(file) => PollFd::from_borrowed_fd(file.as_fd(), PollFlags::PRI),
            Self::Counter(counter) => PollFd::from_borrowed_fd(counter.as_fd(), PollFlags::IN),
        }
    }
}

fn trigger_of_machine() -> Option<Alarm> {
    trigger(Path::new("/proc/pressure/memory"))
}

fn trigger(path: &Path) -> Option<Alarm> {
    let mut file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    file.write_all(TRIGGER).ok()?;
    Some(Alarm::Trigger(file))
}

fn level(group: &Path) -> Option<Alarm> {
    let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
    let counter = rustix::event::eventfd(0, flags).ok()?;
    let file = File::open(group.join("memory.pressure_level")).ok()?;
    let line = format!("{} {} {LEVEL}", counter.as_raw_fd(), file.as_raw_fd());
    fs::write(group.join("cgroup.event_control"), line).ok()?;
    Some(Alarm::Counter(counter))
}
