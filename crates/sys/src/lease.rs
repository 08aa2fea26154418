//! Leases of files (fcntl(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// asm-generic/fcntl.h; libc has it for musl only.
const F_SETSIG: libc::c_int = 10;

/// Takes a write lease on a file that was opened for writing. It is granted to the file's owner only, and only while no
/// other descriptor or mapping of the file exists. Further opens then wait (or get EWOULDBLOCK) until the lease ends
/// with the last `close` of the descriptor.
///
/// # Errors
/// EAGAIN: the file is open elsewhere. EACCES: it belongs to another user. EINVAL: the file system has no leases.
pub fn lease(file: BorrowedFd<'_>) -> io::Result<()> {
    let set = |command, argument: libc::c_int| {
        // SAFETY: both commands take a number and touch no memory of ours.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // The signal that an open waits is SIGIO by default, which ends a process without a handler; SIGURG is ignored.
    set(F_SETSIG, libc::SIGURG)?;
    set(libc::F_SETLEASE, libc::F_WRLCK)
}
