//! What the kernel says of this process: memory, descriptors, processor time; and where disks are mounted.
//!
//! **Waits** for /proc, which no disk is behind: for the thread of the figures alone.
#![expect(clippy::disallowed_methods, reason = "procfs, in a thread of its own")]

use std::collections::HashMap;

/// Descriptors of a process are counted up to here.
const DESCRIPTORS_MAX: usize = 1 << 20;

/// What is known of the process.
#[derive(Debug, Default, Clone, Copy)]
pub struct Process {
    /// Bytes of memory that are its own (not of files).
    pub anonymous_bytes: u64,
    /// Bytes of memory that it has in use.
    pub resident_bytes: u64,
    /// Bytes of addresses.
    pub virtual_bytes: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// As many as it may have.
    pub descriptors_max: u64,
    /// Threads.
    pub threads: u64,
    /// Processor time in nanoseconds.
    pub cpu_ns: u64,
}

impl Process {
    /// Looks.
    #[must_use]
    pub fn look() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
        };
        let descriptors = std::fs::read_dir("/proc/self/fd");
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Self {
            anonymous_bytes: number("RssAnon:") << 10,
            resident_bytes: number("VmRSS:") << 10,
            virtual_bytes: number("VmSize:") << 10,
            // Not the one that looks.
            descriptors: descriptors.map_or(0, |all| {
                (all.take(DESCRIPTORS_MAX).count() as u64).saturating_sub(1)
            }),
            descriptors_max: limit.current.unwrap_or(u64::MAX),
            threads: number("Threads:"),
            cpu_ns: used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64,
        }
    }
}

/// Where each device is mounted, the first place of several: by `MAJOR:MINOR`.
#[must_use]
pub fn mount_points() -> HashMap<String, String> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let mut points = HashMap::new();
    for line in table.lines().take(disk::MOUNTS_MAX) {
        // proc_pid_mountinfo(5): ID PARENT MAJOR:MINOR ROOT POINT …
        let mut words = line.split(' ').skip(2);
        if let (Some(device), Some(point)) = (words.next(), words.nth(1)) {
            points
                .entry(device.to_owned())
                .or_insert_with(|| point.to_owned());
        }
    }
    points
}
