//! `fork(2)` for daemonising, descriptors that were inherited, and the options of listening sockets that no safe crate
//! offers.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Gives SIGCHLD its default disposition (signal(7)): one that is ignored outlives exec(2), and the kernel then reaps
/// children that nothing has waited for.
///
/// # Errors
/// That of sigaction(2); it has none for this signal.
pub fn keep_children() -> io::Result<()> {
    // SAFETY: no handler is installed.
    match unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Ignores SIGXFSZ (signal(7)): a write beyond the limit of a file's size (`RLIMIT_FSIZE`) then fails with EFBIG and does
/// not end the process. Programs that this one starts ignore it, too.
///
/// # Errors
/// That of sigaction(2); it has none for this signal.
pub fn ignore_file_size_signal() -> io::Result<()> {
    // SAFETY: no handler is installed.
    match unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
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

/// Takes over listening sockets that this process was started with, by their numbers, and marks them close-on-exec.
/// Numbers of standard descriptors, of closed ones and of anything else than a listening socket are left out, as are
/// repeated ones. To be called before this program has listening sockets of its own; a second call returns nothing.
#[must_use]
pub fn take_inherited_listeners(numbers: &[RawFd]) -> Vec<OwnedFd> {
    static ARE_TAKEN: AtomicBool = AtomicBool::new(false);
    match ARE_TAKEN.swap(true, Ordering::Relaxed) {
        true => Vec::new(),
        // SAFETY: this program has made no listening socket yet, and this is the first call.
        false => unsafe { take_inherited(numbers, is_listening) },
    }
}

/// Takes over block devices (or files in their places), opened with O_DIRECT, that this process was started with, by
/// their numbers, and marks them close-on-exec. All other numbers are left out. To be called before this program has
/// such descriptors of its own; a second call returns nothing.
#[must_use]
pub fn take_inherited_devices(numbers: &[RawFd]) -> Vec<OwnedFd> {
    static ARE_TAKEN: AtomicBool = AtomicBool::new(false);
    match ARE_TAKEN.swap(true, Ordering::Relaxed) {
        true => Vec::new(),
        // SAFETY: this program has opened nothing for direct I/O yet, and this is the first call.
        false => unsafe { take_inherited(numbers, is_direct) },
    }
}

/// # Safety
/// This program has made no descriptor yet of those that `is_it` is true for, and none of them was taken before.
unsafe fn take_inherited(numbers: &[RawFd], is_it: fn(RawFd) -> bool) -> Vec<OwnedFd> {
    let mut seen = HashSet::new();
    let mut taken = Vec::new();
    for &number in numbers {
        if number <= libc::STDERR_FILENO || !seen.insert(number) || !is_it(number) {
            continue;
        }
        // SAFETY: the descriptor is open, and has no owner, as the caller says; each number is taken once.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        if rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC).is_ok() {
            taken.push(descriptor);
        }
    }
    taken
}

/// Whether a number is an open descriptor for direct I/O (open(2), O_DIRECT).
fn is_direct(number: RawFd) -> bool {
    // SAFETY: the kernel checks the number; the call takes no pointer.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_DIRECT != 0
}

/// Whether a number is an open descriptor of a listening socket (socket(7), SO_ACCEPTCONN).
fn is_listening(number: RawFd) -> bool {
    let mut value: i32 = 0;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel checks the number, and writes at most `length` bytes to `value`.
    let result = unsafe {
        libc::getsockopt(
            number,
            libc::SOL_SOCKET,
            libc::SO_ACCEPTCONN,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    result == 0 && value == 1
}

/// Sends all new connections of a socket's group (SO_REUSEPORT) to the group's socket number `index`, counted in the
/// order in which they began to listen (socket(7), SO_ATTACH_REUSEPORT_CBPF; for TCP since Linux 4.6).
///
/// # Errors
/// That of setsockopt(2).
pub fn steer_to(socket: impl AsFd, index: u32) -> io::Result<()> {
    // One instruction: return this number (linux/filter.h, BPF_RET | BPF_K).
    let mut program = [libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: index,
    }];
    let program = libc::sock_fprog {
        len: 1,
        filter: program.as_mut_ptr(),
    };
    checked_option(socket.as_fd(), libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Ends what [`steer_to`] began (Linux 5.3).
///
/// # Errors
/// That of setsockopt(2): ENOENT where nothing was begun.
pub fn end_steering(socket: impl AsFd) -> io::Result<()> {
    checked_option(socket.as_fd(), libc::SO_DETACH_REUSEPORT_BPF, &0_i32)
}

/// An option of SOL_SOCKET.
fn checked_option<T>(socket: BorrowedFd<'_>, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which lives until the call returns.
    crate::checked(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(drop)
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
