//! Keeps the program's own code and constants in memory.
//!
//! They are file pages like others. Where memory is short (a container's limit, and cached files that want all of it),
//! the kernel drops those that were not used for a while, and the next loop that runs into one waits for the disk.
//! Under bench/mixed that kept loops for up to 170 ms, in code as common as accepting a connection.
//!
//! Where the whole program would be more than a small part of the available memory, only the pages in use stay: code
//! that never runs (most of it) would take the room of code that does. Code that runs for the first time may then wait
//! for the disk, once.
//!
//! Invariant: done once, before the loops run and before root's rights are given up. Where the kernel refuses
//! (RLIMIT_MEMLOCK: 8 MiB for ordinary users as a rule), what fits is kept, code first.

use std::ops::Range;
use std::path::Path;

use disk::memory::limits::{self, Groups};
use logs::process_log::{Level, error_log};
use rustix::process::{Resource, getrlimit, setrlimit};

/// Lines of /proc/self/maps that are looked at: a program and its libraries have about 30.
const MAPPINGS_MAX: usize = 1000;
/// Up to this part of the memory that there may be, all of the program stays there, used or not.
const WHOLE_SHARE: u64 = 16;

/// Keeps them, as far as the kernel lets it.
pub(super) fn keep_program() {
    let mut limit = getrlimit(Resource::Memlock);
    limit.current = limit.maximum;
    // Refused, it stays as it is.
    let _ = setrlimit(Resource::Memlock, limit);
    #[expect(
        clippy::disallowed_methods,
        reason = "no disk is behind /proc, and no loop runs yet"
    )]
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let (mut left_out, mut refused) = (0, None);
    let parts = of_files(&maps);
    let limit = limits::least(&Groups::of(Path::new("/proc"))).bytes;
    let lock = match is_small(&parts, limit) {
        true => sys::lock,
        false => sys::lock_on_fault,
    };
    for addresses in parts {
        let len = addresses.len();
        if let Err(error) = lock(addresses) {
            left_out += len;
            refused.get_or_insert(error);
        }
    }
    if let Some(error) = refused {
        error_log(
            Level::Info,
            format_args!(
                "{} KiB of the program may be dropped from memory and be read again when they are needed: mlock() failed ({}; RLIMIT_MEMLOCK?)",
                left_out / 1024,
                wire::errno(&error)
            ),
        );
    }
}

/// May all of it stay in memory, of which there may be so much?
fn is_small(parts: &[Range<usize>], limit: u64) -> bool {
    let bytes: usize = parts.iter().map(Range::len).sum();
    bytes as u64 <= limit / WHOLE_SHARE
}

/// The mappings of files, code first.
fn of_files(maps: &str) -> Vec<Range<usize>> {
    let lines = maps.lines().take(MAPPINGS_MAX);
    let mut found: Vec<(bool, Range<usize>)> = lines.filter_map(of_file).collect();
    found.sort_by_key(|(is_code, _)| !is_code);
    found.into_iter().map(|(_, addresses)| addresses).collect()
}

/// A line of proc_pid_maps(5), if it is that of a file and can be read: whether it is code, and where.
fn of_file(line: &str) -> Option<(bool, Range<usize>)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let path = words.nth(3)?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let addresses = address(start)?..address(end)?;
    let is_file = path.starts_with('/') && rights.starts_with('r');
    is_file.then(|| (rights.contains('x'), addresses))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_files_is_found_and_code_comes_first() {
        let maps = "\
1000-3000 r--p 00000000 fe:00 12 /usr/sbin/freewheel
3000-9000 r-xp 00002000 fe:00 12 /usr/sbin/freewheel
9000-a000 ---p 00000000 00:00 0 /guard
a000-b000 rw-p 00000000 00:00 0
b000-c000 rw-p 00000000 00:00 0 [heap]
c000-d000 r-xp 00000000 fe:00 13 /lib/with a blank.so
e000-f000 r-xp 00000000 00:00 0 [vdso]
nonsense
";
        let found = of_files(maps);
        let addresses = [0x3000..0x9000, 0xc000..0xd000, 0x1000..0x3000];
        assert_eq!(found, addresses);
    }

    #[test]
    fn where_memory_is_little_only_what_is_used_stays() {
        let parts = [0..10 << 20, 64 << 20..68 << 20];
        assert!(is_small(&parts, 224 << 20));
        assert!(!is_small(&parts, 223 << 20));
    }

    #[test]
    fn this_program_is_found() {
        #[expect(clippy::disallowed_methods, reason = "a test")]
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let here = keep_program as *const () as usize;
        assert!(
            of_files(&maps)[0..]
                .iter()
                .any(|range| range.contains(&here))
        );
    }
}
