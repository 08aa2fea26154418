//! Leases of files (fcntl(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// asm-generic/fcntl.h; libc has it for musl only.
const F_SETSIG: libc::c_int = 10;

/// Takes a write lease on a file that was opened for writing: it can be had only while nobody else has the file open or mapped, and
/// whoever opens it then waits (or gets EWOULDBLOCK) until it ends with the last `close` of the descriptor. For the file's owner.
///
/// # Errors
/// EAGAIN: somebody has it open. EACCES: it is another user's. EINVAL: the file system has no leases.
pub fn lease(file: BorrowedFd<'_>) -> io::Result<()> {
    let set = |command, argument: libc::c_int| {
        // SAFETY: both commands take a number and touch no memory of ours.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // The news that somebody waits would be SIGIO, which ends a process that does not expect it; SIGURG is ignored.
    set(F_SETSIG, libc::SIGURG)?;
    set(libc::F_SETLEASE, libc::F_WRLCK)
}
