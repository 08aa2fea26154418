//! When a read makes the kernel record a file's time of access, for which a file system with a journal may have to wait until
//! that has been written to the disk: such a read is not for a loop, though all bytes are in memory.
//!
//! Not here: O_NOATIME, which caches use. Limits: a file that stays open for more than a day is read on a loop all the
//! same, as one is of an overlay, or of a file system that is mounted with `strictatime`. One of which the kernel records
//! nothing (chattr(1), `+A`) is always due, so that the pool opens it whenever it is not kept open.

use rustix::fs::Stat;
use rustix::time::{ClockId, clock_gettime};

/// Age in seconds from which a time of access is recorded anew, whatever else happened to the file (`relatime`, mount(8)).
const DAY: i64 = 24 * 60 * 60;

/// Whether the next read of a file records its time of access, on a file system that is mounted with `relatime`, as they
/// are by default: the first after each change, and one a day.
pub(crate) fn is_due(stat: &Stat) -> bool {
    let now = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
    let accessed = (stat.st_atime, stat.st_atime_nsec);
    accessed <= (stat.st_mtime, stat.st_mtime_nsec)
        || accessed <= (stat.st_ctime, stat.st_ctime_nsec)
        || now - stat.st_atime >= DAY
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::FileTimes;
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_first_read_after_a_change_and_one_a_day_record_it() {
        let mut file = tempfile::tempfile().unwrap();
        let mut is_due_when = |accessed: SystemTime| {
            let times = FileTimes::new().set_accessed(accessed);
            std::io::Write::write_all(&mut file, b"changed").unwrap();
            file.set_times(times).unwrap();
            is_due(&rustix::fs::fstat(&file).unwrap())
        };
        let now = SystemTime::now();
        assert!(is_due_when(now - Duration::from_secs(1)));
        assert!(is_due_when(now - Duration::from_secs(2 * DAY as u64)));
        assert!(!is_due_when(now + Duration::from_secs(1)));
    }
}
