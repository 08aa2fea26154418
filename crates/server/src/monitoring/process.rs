//! The kernel's figures of this process: memory, descriptors, processor time; and where disks are mounted.
//!
//! **Blocks** on reading /proc, which has no disk behind it: for the threads that gather metrics only.
#![expect(clippy::disallowed_methods, reason = "procfs, in a thread of its own")]

use std::collections::HashMap;

use runtime::families;
use runtime::metrics::Page;

families! {
    /// The memory of the process.
    pub(super) MEMORY;
    PROCESS_MEMORY Gauge "freewheel_process_memory_bytes" "bytes" ["kind"] "Memory of the worker: anonymous (its own), resident (in use), virtual (addresses).";
}

families! {
    /// Other counters of the kernel for the process.
    pub(super) PROCESS;
    PROCESS_DESCRIPTORS Gauge "freewheel_process_descriptors" "" ["state"] "Descriptors of the worker: open, and their limit (max).";
    PROCESS_THREADS Gauge "freewheel_process_threads" "" [] "Threads of the worker.";
    PROCESS_CPU Counter "freewheel_process_cpu_seconds" "seconds" [] "Processor time of the worker.";
}

/// Maximum number of descriptors that are counted one by one, where the kernel does not tell their number.
const DESCRIPTORS_MAX: usize = 1 << 20;

/// The kernel's figures of the process.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Process {
    /// Bytes of anonymous memory.
    pub anonymous_bytes: u64,
    /// Bytes of resident memory.
    pub resident_bytes: u64,
    /// Bytes of address space.
    pub virtual_bytes: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Maximum number of open descriptors.
    pub descriptors_max: u64,
    /// Threads.
    pub threads: u64,
    /// Processor time in nanoseconds.
    pub cpu_ns: u64,
}

impl Process {
    /// Reads them.
    #[must_use]
    pub(super) fn look() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
        };
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Self {
            anonymous_bytes: number("RssAnon:") << 10,
            resident_bytes: number("VmRSS:") << 10,
            virtual_bytes: number("VmSize:") << 10,
            descriptors: open_descriptors(),
            descriptors_max: limit.current.unwrap_or(u64::MAX),
            threads: number("Threads:"),
            cpu_ns: used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64,
        }
    }
}

impl Process {
    /// Shows them.
    pub(super) fn show(&self, page: &mut Page) {
        let memory = [
            ("anonymous", self.anonymous_bytes),
            ("resident", self.resident_bytes),
            ("virtual", self.virtual_bytes),
        ];
        for (kind, bytes) in memory {
            page.whole(&PROCESS_MEMORY, &[kind], bytes);
        }
        page.whole(&PROCESS_DESCRIPTORS, &["open"], self.descriptors);
        let max = self.descriptors_max;
        page.whole(&PROCESS_DESCRIPTORS, &["max"], max);
        page.whole(&PROCESS_THREADS, &[], self.threads);
        page.nanoseconds(&PROCESS_CPU, &[], self.cpu_ns);
    }
}

/// Since Linux 6.2 the directory's size is their number; to count 100 000 of them takes 30 ms.
fn open_descriptors() -> u64 {
    const DIRECTORY: &str = "/proc/self/fd";
    let told = std::fs::metadata(DIRECTORY).map_or(0, |about| about.len());
    if told > 0 {
        return told;
    }
    let all = std::fs::read_dir(DIRECTORY);
    // Without the descriptor that reads the directory.
    all.map_or(0, |all| {
        (all.take(DESCRIPTORS_MAX).count() as u64).saturating_sub(1)
    })
}

/// The mount point of each device by `MAJOR:MINOR`, the first of several.
#[must_use]
pub(super) fn mount_points() -> HashMap<String, String> {
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
