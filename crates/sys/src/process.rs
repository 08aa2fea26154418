//! `fork(2)` for daemonising, and the two TCP options of listening sockets that no safe crate offers.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The process in which [`fork_single_threaded`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forked {
    /// In the process that called.
    Parent {
        /// The process id of the child.
        child: i32,
    },
    /// In the new process.
    Child,
}

/// `fork(2)` in a process with a single thread.
///
/// # Errors
/// That of fork(2); `InvalidInput` when the process has more than one thread (locks held by the
/// others would stay locked in the child for ever).
pub fn fork_single_threaded() -> io::Result<Forked> {
    check_single_threaded("fork with several threads")?;
    // SAFETY: one thread only, so no lock of the allocator or the library is held by another thread.
    match crate::checked(unsafe { libc::fork() })? {
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent { child }),
    }
}

/// Fails with `InvalidInput` and this sentence when the process has more than one thread.
pub(crate) fn check_single_threaded(sentence: &'static str) -> io::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "/proc, and no loop runs in a process with one thread"
    )]
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
    if threads.is_ok_and(|count| count != 1) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    Ok(())
}

/// Sets TCP_DEFER_ACCEPT (tcp(7)): connections are accepted only when data has arrived, or after `seconds`.
///
/// # Errors
/// That of setsockopt(2).
pub fn set_defer_accept(socket: impl AsFd, seconds: i32) -> io::Result<()> {
    set_tcp_option(socket, libc::TCP_DEFER_ACCEPT, seconds)
}

/// Sets TCP_FASTOPEN (RFC 7413) on a listening socket, with at most `queue` connections that have not finished the
/// handshake.
///
/// # Errors
/// That of setsockopt(2).
pub fn set_fastopen(socket: impl AsFd, queue: i32) -> io::Result<()> {
    set_tcp_option(socket, libc::TCP_FASTOPEN, queue)
}

fn set_tcp_option(socket: impl AsFd, option: i32, value: i32) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `value`, which lives until the call returns.
    crate::checked(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            length,
        )
    })
    .map(drop)
}
