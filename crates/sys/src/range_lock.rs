//! Locks on parts of files (fcntl(2), `F_SETLK`), which belong to the process and not to a descriptor.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How a part of a file is to be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeLock {
    /// Together with other processes.
    Shared,
    /// By this process alone.
    Exclusive,
    /// Not any more.
    Free,
}

/// Locks `len` bytes from `start` on, or lets them go, without waiting. The locks of a process on a file end with the
/// first of its descriptors of that file that is closed.
///
/// # Errors
/// EAGAIN or EACCES: another process has a lock that excludes this one.
pub fn lock_range(file: BorrowedFd<'_>, lock: RangeLock, start: u64, len: u64) -> io::Result<()> {
    let kind = match lock {
        RangeLock::Shared => libc::F_RDLCK,
        RangeLock::Exclusive => libc::F_WRLCK,
        RangeLock::Free => libc::F_UNLCK,
    };
    let out_of_range = |_| io::Error::from_raw_os_error(libc::EINVAL);
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut wish: libc::flock = unsafe { std::mem::zeroed() };
    wish.l_type = kind as libc::c_short;
    wish.l_whence = libc::SEEK_SET as libc::c_short;
    wish.l_start = libc::off_t::try_from(start).map_err(out_of_range)?;
    wish.l_len = libc::off_t::try_from(len).map_err(out_of_range)?;
    // SAFETY: the descriptor is open for as long as it is borrowed; the call reads the value, which outlives it.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const wish) };
    crate::checked(done).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_process_excludes_itself_from_nothing_and_a_range_must_be_one() {
        let file = tempfile::tempfile().unwrap();
        lock_range(file.as_fd(), RangeLock::Shared, 0, 4096).unwrap();
        lock_range(file.as_fd(), RangeLock::Exclusive, 0, 4096).unwrap();
        lock_range(file.as_fd(), RangeLock::Free, 0, 4096).unwrap();
        assert!(lock_range(file.as_fd(), RangeLock::Shared, u64::MAX, 1).is_err());
    }
}
