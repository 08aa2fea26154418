//! The limits of this process's memory: those of its control groups up to the visible root, its own, and the machine's.
//!
//! The process's group is the path in /proc/self/cgroup below the hierarchy's mount in /proc/self/mountinfo
//! (cgroups(7)). Where that path is the host's and the mount shows only the container's part, the mount itself is the
//! group.
//!
//! Invariant: reads only files without a disk; the caller may wait for the kernel.
#![expect(
    clippy::disallowed_methods,
    reason = "procfs and control groups: no disk is behind them, and no loop asks"
)]

use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};

/// Control groups that are read, from the process's own upwards.
const GROUPS_MAX: usize = 32;
/// A limit of version 1 from here on means no limit (the kernel writes a multiple of a page a little under 2^63).
const UNLIMITED: u64 = 1 << 62;

/// The directories of a process's memory control groups: its own first, then those above it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Of the unified hierarchy (version 2).
    pub unified: Vec<PathBuf>,
    /// Of the memory controller of version 1.
    pub memory: Vec<PathBuf>,
}

impl Groups {
    /// The groups of this process. `proc`: /proc.
    #[must_use]
    pub fn of(proc: &Path) -> Groups {
        let about = read(&proc.join("self/cgroup"));
        let mounts = read(&proc.join("self/mountinfo"));
        let mut groups = Groups::default();
        for line in about.lines() {
            let Some((controllers, path)) = line
                .split_once(':')
                .and_then(|(_, rest)| rest.split_once(':'))
            else {
                continue;
            };
            let is_unified = controllers.is_empty();
            if !is_unified && !controllers.split(',').any(|name| name == "memory") {
                continue;
            }
            let mut found = mounts.lines().filter_map(CgroupMount::parse);
            let Some(mount) = found.find(|mount| mount.is_unified == is_unified) else {
                continue;
            };
            let directories = mount.groups(path);
            match is_unified {
                true => groups.unified = directories,
                false => groups.memory = directories,
            }
        }
        groups
    }
}

/// The mount of a hierarchy with the memory controller, from a line of mountinfo:
/// `ID PARENT MAJ:MIN ROOT POINT OPTIONS … - TYPE SOURCE SUPEROPTIONS`.
struct CgroupMount {
    root: String,
    point: PathBuf,
    is_unified: bool,
}

impl CgroupMount {
    fn parse(line: &str) -> Option<CgroupMount> {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let is_unified = match kind.next()? {
            "cgroup2" => true,
            "cgroup" if kind.nth(1)?.split(',').any(|word| word == "memory") => false,
            _ => return None,
        };
        let mut place = place.split(' ').skip(3);
        Some(CgroupMount {
            root: unescaped(place.next()?),
            point: PathBuf::from(unescaped(place.next()?)),
            is_unified,
        })
    }

    /// The directories of a group and of those above it, up to the mount.
    fn groups(&self, path: &str) -> Vec<PathBuf> {
        let own = Path::new(path)
            .strip_prefix(&self.root)
            .ok()
            .map(|below| self.point.join(below))
            .filter(|own| own.is_dir());
        // In a container the path may be the host's; the mount's top is then the container's own group.
        let own = own.unwrap_or_else(|| self.point.clone());
        let all = own.ancestors().take(GROUPS_MAX);
        all.take_while(|group| group.starts_with(&self.point))
            .map(Path::to_owned)
            .collect()
    }
}

/// Decodes a field of mountinfo, which writes blanks and the like as `\040`.
fn unescaped(word: &str) -> String {
    word.replace("\\040", " ").replace("\\134", "\\")
}

/// The source of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The machine has no more.
    Machine,
    /// The process may have no more: RLIMIT_AS or RLIMIT_DATA.
    Process(&'static str),
    /// A control group, by the file that says so.
    Group(PathBuf),
}

impl std::fmt::Display for LimitSource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LimitSource::Machine => write!(formatter, "the machine has no more"),
            LimitSource::Process(name) => write!(formatter, "{name}"),
            LimitSource::Group(file) => write!(formatter, "{}", file.display()),
        }
    }
}

/// A limit and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
    /// Its source.
    pub of: LimitSource,
}

/// The least of all limits.
#[must_use]
pub fn least(groups: &Groups) -> MemoryLimit {
    let process = [("RLIMIT_AS", Resource::As), ("RLIMIT_DATA", Resource::Data)];
    let own = process.into_iter().filter_map(|(name, resource)| {
        let bytes = getrlimit(resource).current?;
        Some(MemoryLimit {
            bytes,
            of: LimitSource::Process(name),
        })
    });
    let all = std::iter::once(of_machine())
        .chain(own)
        .chain(of_groups(groups));
    all.min_by_key(|limit| limit.bytes)
        .unwrap_or_else(of_machine)
}

/// The least limit of the memory that can cache this process's files: limits of address space do not count.
pub(crate) fn least_for_files(groups: &Groups) -> u64 {
    let machine = of_machine().bytes;
    of_groups(groups).map_or(machine, |limit| limit.bytes.min(machine))
}

fn of_machine() -> MemoryLimit {
    let system = rustix::system::sysinfo();
    let bytes = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit.max(1)));
    MemoryLimit {
        bytes,
        of: LimitSource::Machine,
    }
}

/// The least limit of all groups.
fn of_groups(groups: &Groups) -> Option<MemoryLimit> {
    let files = |directories: &[PathBuf], names: &'static [&'static str]| {
        let all = directories.iter();
        all.flat_map(|group| names.iter().map(|name| group.join(name)))
            .collect::<Vec<_>>()
    };
    let mut all = files(&groups.unified, &["memory.max", "memory.high"]);
    all.extend(files(&groups.memory, &["memory.limit_in_bytes"]));
    let said = all.into_iter().filter_map(|file| {
        let bytes = read(&file).trim().parse().ok()?;
        Some(MemoryLimit {
            bytes,
            of: LimitSource::Group(file),
        })
    });
    // In version 1 a group also knows the limits above it that a container does not see.
    let above = groups.memory.first().and_then(|group| {
        let file = group.join("memory.stat");
        let bytes = number_of(&read(&file), "hierarchical_memory_limit")?;
        Some(MemoryLimit {
            bytes,
            of: LimitSource::Group(file),
        })
    });
    said.chain(above)
        .filter(|limit| limit.bytes < UNLIMITED)
        .min_by_key(|limit| limit.bytes)
}

/// The number after a word at the start of a line.
pub(super) fn number_of(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, number) = lines.find(|(word, _)| *word == name)?;
    number.trim().parse().ok()
}

pub(super) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tree of files in place of /proc and of the mounts of control groups.
    pub(crate) struct Tree(pub(crate) tempfile::TempDir);

    impl Tree {
        pub(crate) fn new(cgroup: &str, unified_root: &str, memory_root: &str) -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            let path = tree.0.path().display().to_string();
            tree.write("proc/self/cgroup", cgroup);
            tree.write(
                "proc/self/mountinfo",
                &format!(
                    "21 1 0:5 / /proc rw - proc proc rw\n\
                     30 1 0:26 {unified_root} {path}/unified rw,nosuid shared:1 - cgroup2 cgroup2 rw,nsdelegate\n\
                     31 1 0:27 / {path}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                     32 1 0:28 {memory_root} {path}/memory rw - cgroup cgroup rw,memory\n"
                ),
            );
            tree.write("memory/x", "");
            tree.write("unified/x", "");
            tree
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        pub(crate) fn groups(&self) -> Groups {
            Groups::of(&self.0.path().join("proc"))
        }

        fn limit(&self) -> Option<(u64, String)> {
            let limit = of_groups(&self.groups())?;
            let LimitSource::Group(file) = limit.of else {
                panic!("{limit:?}")
            };
            let file = file.strip_prefix(self.0.path()).unwrap();
            Some((limit.bytes, file.display().to_string()))
        }
    }

    #[test]
    fn the_least_limit_up_to_the_root_of_version_2() {
        let tree = Tree::new("0::/a/b\n", "/", "/");
        tree.write("unified/a/b/memory.max", "max\n");
        assert_eq!(tree.limit(), None);
        tree.write("unified/a/memory.max", "5000\n");
        tree.write("unified/a/b/memory.max", "7000\n");
        let found = |bytes, file: &str| Some((bytes, file.to_owned()));
        assert_eq!(tree.limit(), found(5000, "unified/a/memory.max"));
        tree.write("unified/a/b/memory.high", "4000\n");
        assert_eq!(tree.limit(), found(4000, "unified/a/b/memory.high"));
    }

    #[test]
    fn the_least_limit_up_to_the_root_of_version_1() {
        let tree = Tree::new("4:memory:/a/b\n3:cpu,cpuacct:/c\n0::/\n", "/", "/");
        let none = "9223372036854771712\n";
        tree.write("memory/memory.limit_in_bytes", none);
        tree.write("memory/a/memory.limit_in_bytes", "6000\n");
        tree.write("memory/a/b/memory.limit_in_bytes", none);
        let found = |bytes, file: &str| Some((bytes, file.to_owned()));
        assert_eq!(tree.limit(), found(6000, "memory/a/memory.limit_in_bytes"));
        tree.write(
            "memory/a/b/memory.stat",
            "cache 1\nhierarchical_memory_limit 5000\n",
        );
        assert_eq!(tree.limit(), found(5000, "memory/a/b/memory.stat"));
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_top() {
        // The host's path, and a mount of the container's part: by its root, or (without a namespace) by a path that is
        // not there.
        let tree = Tree::new("4:memory:/docker/1\n0::/docker/1\n", "/docker/1", "/");
        tree.write("unified/memory.max", "3000\n");
        assert_eq!(tree.limit(), Some((3000, "unified/memory.max".to_owned())));
        tree.write("memory/memory.limit_in_bytes", "2000\n");
        assert_eq!(
            tree.limit(),
            Some((2000, "memory/memory.limit_in_bytes".to_owned()))
        );
    }

    #[test]
    fn without_groups_it_is_the_machine_s() {
        let tree = tempfile::tempdir().unwrap();
        let groups = Groups::of(tree.path());
        assert_eq!(groups, Groups::default());
        assert!(least(&groups).bytes > 0);
        assert_eq!(least_for_files(&groups), of_machine().bytes);
    }
}
