//! The errors of this crate.

use crate::metrics::call_times::HasErrno;
use crate::pool::Overflow;
use std::io;

/// Steps that one change ([`crate::BatchStep`]) has at most: a thread of a pool is busy with it for as long as they
/// take.
pub const STEPS_MAX: usize = 64;

/// The answer is not in memory: call the `async` twin, which goes through a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not in memory")]
pub struct WouldBlock;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused. `call` is its name, for a line of a log ("open()", "read()", …).
    #[error("{call} failed ({}: {})", .errno.raw_os_error(), message(*.errno))]
    System {
        /// The call, with its parentheses.
        call: &'static str,
        /// Why.
        errno: rustix::io::Errno,
    },
    /// The pool's queue is full, or the disk is out; the caller decides what that means.
    #[error(transparent)]
    Overflow(#[from] Overflow),
    /// What was asked for is not in memory, and the caller wants nothing else ([`crate::AioMode::Memory`]).
    #[error(transparent)]
    NotInMemory(#[from] WouldBlock),
    /// The disk took longer than the caller waits.
    #[error("the disk has not answered within {0:?}")]
    Late(std::time::Duration),
    /// The disk took longer than the caller waits, and a thread that hangs on it may still send to the socket: nothing
    /// else may go on with that.
    #[error("the disk has not answered within {0:?}, in the middle of a call that sends")]
    Held(std::time::Duration),
    /// The file ended before the range that was to be sent: it was truncated meanwhile.
    #[error("file was truncated: nothing comes behind {len} bytes")]
    Truncated {
        /// An upper bound of the file's new length, in bytes.
        len: u64,
    },
    /// The socket failed, not the disk.
    #[error("socket: {0}")]
    Socket(io::Error),
    /// A directory has more entries than [`crate::READDIR_MAX`].
    #[error("directory has more than {0} entries")]
    TooManyEntries(usize),
    /// A change has more than [`crate::STEPS_MAX`] steps; none was taken.
    #[error("more than {STEPS_MAX} steps")]
    TooManySteps,
}

impl Error {
    pub(crate) fn system(call: &'static str, errno: rustix::io::Errno) -> Error {
        Error::System { call, errno }
    }

    pub(crate) fn io(call: &'static str, error: &io::Error) -> Error {
        let errno = rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO);
        Error::System { call, errno }
    }

    /// The kernel's error number, if the kernel refused.
    #[must_use]
    pub fn errno(&self) -> Option<rustix::io::Errno> {
        match self {
            Error::System { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}

impl HasErrno for Error {
    fn of(errno: rustix::io::Errno) -> Self {
        Error::system("a call", errno)
    }

    fn errno(&self) -> Option<rustix::io::Errno> {
        Error::errno(self)
    }
}

/// strerror's text, without the number that std adds.
pub fn message(errno: rustix::io::Errno) -> String {
    let text = io::Error::from(errno).to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}
