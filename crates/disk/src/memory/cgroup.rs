//! How much of a control group's or the machine's memory is taken for good: memory that the kernel cannot reclaim at
//! once.
//!
//! The kernel can reclaim its cache of files, except pages that are still to be written. It cannot reclaim anonymous
//! memory, `memfd`s and most of its own memory (without swap, which a server should not run from).
//!
//! Invariant: as in `limits`.

use super::limits::{Groups, number_of, read};
use super::unwritten::room_of;
use std::path::{Path, PathBuf};

/// One part in this many of the kernel's own memory counts as taken where the kernel does not say how much of it is
/// reclaimable (version 1): most of it are dentries and inodes.
const KERNEL_TAKEN: u64 = 4;

/// A limit whose usage can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bounded {
    /// A group of the unified hierarchy (version 2).
    Unified(PathBuf),
    /// A group of version 1.
    Memory(PathBuf),
    /// The machine, with the path of /proc.
    Machine(PathBuf),
}

/// How much of a limit is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The limit in bytes.
    pub limit: u64,
    /// Bytes that cannot be reclaimed at once.
    pub taken: u64,
    /// Bytes that may be written to files until much of it waits to be on a disk; `u64::MAX` for the machine, where the
    /// kernel holds writers back itself.
    pub unwritten_room: u64,
}

/// The machine, and the groups that have a limit now.
#[must_use]
pub fn bounded(groups: &Groups, proc: &Path) -> Vec<Bounded> {
    let unified = groups.unified.iter().cloned().map(Bounded::Unified);
    let memory = groups.memory.iter().cloned().map(Bounded::Memory);
    let machine = std::iter::once(Bounded::Machine(proc.to_owned()));
    unified
        .chain(memory)
        .chain(machine)
        .filter(|bounded| bounded.usage().is_some())
        .collect()
}

impl std::fmt::Display for Bounded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bounded::Unified(group) | Bounded::Memory(group) => {
                write!(formatter, "{}", group.display())
            }
            Bounded::Machine(_) => write!(formatter, "the machine"),
        }
    }
}

impl Bounded {
    /// How much is taken; `None`: there is no limit.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        match self {
            Bounded::Unified(group) => of_unified(group),
            Bounded::Memory(group) => of_memory(group),
            Bounded::Machine(proc) => of_machine(proc),
        }
    }

    /// How often the kernel has killed because this process's memory was short: of the process's own group the processes in it
    /// and below; of a group above it the times that its own limit was reached, which another group's want is not.
    #[must_use]
    pub fn kills(&self, groups: &Groups) -> u64 {
        let (group, file, name) = match self {
            Bounded::Unified(group) if groups.unified.first() == Some(group) => {
                (group, "memory.events", "oom_kill")
            }
            // Since Linux 5.2.
            Bounded::Unified(group) => (group, "memory.events.local", "oom"),
            Bounded::Memory(group) => (group, "memory.oom_control", "oom_kill"),
            Bounded::Machine(_) => return 0,
        };
        number_of(&read(&group.join(file)), name).unwrap_or(0)
    }
}

fn of_unified(group: &Path) -> Option<Usage> {
    let limit = |name| read(&group.join(name)).trim().parse().ok();
    let limits: [Option<u64>; 2] = [limit("memory.max"), limit("memory.high")];
    let limit = limits.into_iter().flatten().min()?;
    let stat = read(&group.join("memory.stat"));
    let number = |name| number_of(&stat, name).unwrap_or(0);
    let kernel = match number_of(&stat, "kernel") {
        Some(kernel) => kernel,
        // Before Linux 5.18.
        None => number("kernel_stack") + number("pagetables") + number("slab"),
    };
    let in_use = number("file_dirty") + number("file_writeback");
    let clean = (number("active_file") + number("inactive_file")).saturating_sub(in_use);
    let kernel = kernel.saturating_sub(free_of_kernel(number("slab_reclaimable"), clean));
    let files = number("unevictable") + in_use;
    let taken = number("anon") + number("shmem") + files + kernel + number("sock");
    Some(Usage {
        limit,
        taken,
        unwritten_room: room_of(limit, in_use),
    })
}

fn of_memory(group: &Path) -> Option<Usage> {
    let stat = read(&group.join("memory.stat"));
    let limit = number_of(&stat, "hierarchical_memory_limit").filter(|limit| *limit < 1 << 62)?;
    let number = |name| number_of(&stat, name).unwrap_or(0);
    let kernel = read(&group.join("memory.kmem.usage_in_bytes"));
    let kernel: u64 = kernel.trim().parse().unwrap_or(0);
    let in_use = number("total_dirty") + number("total_writeback");
    let cached = number("total_active_file") + number("total_inactive_file");
    let of_kind = kernel - kernel / KERNEL_TAKEN;
    let kernel = kernel - free_of_kernel(of_kind, cached.saturating_sub(in_use));
    let files = number("total_unevictable") + in_use;
    let taken = number("total_rss") + number("total_shmem") + files + kernel;
    Some(Usage {
        limit,
        taken,
        unwritten_room: room_of(limit, in_use),
    })
}

/// Bytes that the kernel could free of `of_kind` bytes of its own reclaimable memory, while `clean` bytes of its cache
/// of files are clean. Inodes in use count as reclaimable, too, but stay, and the kernel does not say how many they
/// are. But it reclaims both kinds in proportion: where little of the cache is left, much of the other is in use,
/// perhaps half of it.
fn free_of_kernel(of_kind: u64, clean: u64) -> u64 {
    of_kind.min(clean).max(of_kind / 2)
}

fn of_machine(proc: &Path) -> Option<Usage> {
    let about = read(&proc.join("meminfo"));
    let bytes = |name| {
        let line = about.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
        Some(kib << 10)
    };
    let (limit, free): (u64, u64) = (bytes("MemTotal:")?, bytes("MemAvailable:")?);
    let taken = limit.saturating_sub(free);
    Some(Usage {
        limit,
        taken,
        unwritten_room: u64::MAX,
    })
}

/// Bytes of this process's anonymous memory: without files, and without `memfd`s that are not mapped.
#[must_use]
pub fn anonymous() -> u64 {
    let about = read(Path::new("/proc/self/statm"));
    let mut words = about.split(' ').skip(1);
    let mut pages = || words.next()?.parse::<u64>().ok();
    let (resident, files) = (pages().unwrap_or(0), pages().unwrap_or(0));
    resident.saturating_sub(files) * sys::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::super::limits::tests::Tree;
    use super::*;

    fn usages(tree: &Tree) -> Vec<Usage> {
        let proc = tree.0.path().join("proc");
        let all = bounded(&tree.groups(), &proc);
        all.iter().filter_map(Bounded::usage).collect()
    }

    #[test]
    fn a_kill_in_another_group_at_its_own_limit_is_none_here() {
        let tree = Tree::new("0::/a/b\n", "/", "/");
        tree.write("unified/a/b/memory.max", "max\n");
        let groups = tree.groups();
        let kills = |name: &str| Bounded::Unified(tree.0.path().join(name)).kills(&groups);
        tree.write("unified/a/b/memory.events", "low 0\noom 3\noom_kill 2\n");
        tree.write("unified/a/b/memory.events.local", "oom 1\noom_kill 1\n");
        assert_eq!(kills("unified/a/b"), 2);
        tree.write("unified/a/memory.events", "low 0\noom 9\noom_kill 8\n");
        tree.write("unified/a/memory.events.local", "oom 0\noom_kill 0\n");
        assert_eq!(kills("unified/a"), 0);
        tree.write("unified/a/memory.events.local", "oom 1\noom_kill 0\n");
        assert_eq!(kills("unified/a"), 1);
    }

    #[test]
    fn what_is_taken_of_version_2() {
        let tree = Tree::new("0::/a/b\n", "/", "/");
        tree.write("unified/a/b/memory.max", "max\n");
        tree.write("unified/a/memory.max", "5000\n");
        tree.write("unified/a/memory.high", "4000\n");
        tree.write(
            "unified/a/memory.stat",
            "anon 1000\nfile 2000\nkernel 500\nsock 7\nshmem 200\nactive_file 250\ninactive_file 100\nfile_dirty 30\nfile_writeback 4\nslab_reclaimable 300\nunevictable 60\n",
        );
        let used = |taken, unwritten: u64| Usage {
            limit: 4000,
            taken,
            unwritten_room: 400 - unwritten,
        };
        let taken = 1000 + 200 + 200 + 7 + 34 + 60;
        assert_eq!(usages(&tree), [used(taken, 34)]);
        // Hardly any of the cache is left: of what the kernel has of its own, more is in use.
        tree.write(
            "unified/a/memory.stat",
            "anon 1000\nkernel 500\nactive_file 20\nfile_dirty 12\nslab_reclaimable 300\n",
        );
        assert_eq!(usages(&tree), [used(1000 + 350 + 12, 12)]);
    }

    #[test]
    fn what_is_taken_of_version_1() {
        let tree = Tree::new("4:memory:/a\n", "/", "/");
        tree.write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   4 kB\n");
        tree.write(
            "memory/a/memory.stat",
            "cache 1\nrss 2\nhierarchical_memory_limit 5000\ntotal_rss 700\ntotal_shmem 20\ntotal_dirty 3\ntotal_writeback 2\ntotal_unevictable 1\ntotal_active_file 400\n",
        );
        tree.write("memory/a/memory.kmem.usage_in_bytes", "400\n");
        tree.write("memory/a/memory.oom_control", "under_oom 0\noom_kill 1\n");
        let group = Usage {
            limit: 5000,
            taken: 826,
            unwritten_room: 500 - 5,
        };
        let machine = Usage {
            limit: 9 << 10,
            taken: 5 << 10,
            unwritten_room: u64::MAX,
        };
        assert_eq!(usages(&tree), [group, machine]);
        // Hardly any of the cache is left.
        tree.write(
            "memory/a/memory.stat",
            "hierarchical_memory_limit 5000\ntotal_rss 700\ntotal_inactive_file 10\n",
        );
        assert_eq!(usages(&tree)[0].taken, 700 + 250);
        tree.write(
            "memory/a/memory.stat",
            "hierarchical_memory_limit 5000\ntotal_dirty 501\n",
        );
        assert_eq!(usages(&tree)[0].unwritten_room, 0);
        let own = Bounded::Memory(tree.0.path().join("memory/a"));
        assert_eq!(own.kills(&tree.groups()), 1);
    }

    #[test]
    fn a_process_has_memory_of_its_own() {
        assert!(anonymous() > 64 << 10);
    }
}
