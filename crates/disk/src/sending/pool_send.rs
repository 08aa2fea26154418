//! Sending ranges that are not proven to be in memory: from the disk to the socket in one `sendfile`, on a pool thread.
//!
//! Filling a window, mapping it, proving it and then sending it costs twice the work per byte, and more when the window
//! is evicted again; for a file that is requested once, that is wasted. So a pool thread reads and sends at once. A
//! window that it finds in memory was requested before (or is the rest of what a slow socket did not take), and one
//! that another task waits for will be requested again: those are mapped, and from then on proven and sent by the loops
//! (see `residency::window`).
//!
//! Invariant: a pool thread waits here for the disk, never for the socket, which does not block.

use crate::access::Access;
use crate::files::open_file::{Handle, OpenFile};
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use crate::pool::{Lane, Overflow};
use crate::residency::fill::FillError;
use crate::residency::mappings::MappingUse;
use crate::residency::window::{FillJob, STEP, WINDOW, will_need};
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Windows read and sent in one job, unless `read_ahead` wants more. As many as a disk takes in one request (1 MiB
/// without large folios); with all threads at work they stay few enough not to evict each other.
pub(crate) const PART_WINDOWS: u64 = 2;

/// A duplicate of a request's socket for the pool's threads; made when the request first has to wait for the disk.
#[derive(Debug)]
pub(crate) struct PoolSender(Arc<OwnedFd>);

/// Why a job stopped sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendEnd {
    /// The whole range was sent.
    Sent,
    /// The socket takes no more now.
    Full,
    /// The file ends here.
    Truncated,
    /// This file or socket does not support `sendfile`.
    Unsupported,
    /// The disk failed.
    Disk(Errno),
    /// The socket failed.
    Socket(Errno),
}

impl PoolSender {
    /// A sender to a socket.
    ///
    /// # Errors
    /// EMFILE: descriptors have run out.
    pub(crate) fn new(socket: BorrowedFd<'_>) -> Result<PoolSender, Errno> {
        let socket = rustix::io::fcntl_dupfd_cloexec(socket, 0)?;
        Ok(PoolSender(Arc::new(socket)))
    }

    /// Has the pool send bytes `from .. until` of adjacent claimed windows. Returns how many were sent, and why it
    /// stopped. If the future is dropped while the job runs, the job may send more bytes, which are not counted.
    ///
    /// # Errors
    /// The pool is full.
    pub(crate) async fn send(
        &self,
        jobs: Vec<FillJob>,
        file: &OpenFile,
        (from, until): (u64, u64),
        access: &Access<'_>,
    ) -> Result<(u64, SendEnd), Overflow> {
        let (handle, socket) = (file.handle.clone(), self.0.clone());
        let work = move || part(jobs, &handle, &socket, from, until);
        access.pool.run(Lane::Read, work).await
    }
}

fn part(
    jobs: Vec<FillJob>,
    handle: &Handle,
    socket: &OwnedFd,
    from: u64,
    until: u64,
) -> (u64, SendEnd) {
    let before = sys::blocks_read();
    // Explicit ranges only: a page with a readahead marker would start I/O on a loop, and pages on their way outside
    // any fill might be taken for present.
    let _ = fadvise(handle, 0, None, Advice::Random);
    let begun = Instant::now();
    let (at, end) = send(handle, socket, from, until);
    let errno = match end {
        SendEnd::Disk(errno) => Some(errno),
        _ => None,
    };
    call_times::done_on(Operation::Send, begun, handle.as_fd(), at - from, errno);
    let was_asked_for = sys::blocks_read() == before;
    let (mut offset, mut is_awaited) = (from, false);
    for mut job in jobs {
        let stop = until.min((offset / WINDOW + 1) * WINDOW);
        // A task that waits for one window will want those behind it.
        is_awaited |= job.is_awaited();
        if is_awaited || (was_asked_for && offset < at) {
            let rest = at.clamp(offset, stop);
            if rest == stop || job.touch(handle, rest, stop - rest).is_ok() {
                job.map(handle, offset, stop - offset, MappingUse::Made);
            }
        }
        job.finish(match end {
            SendEnd::Disk(errno) => Err(FillError::Read(errno)),
            _ => Ok(()),
        });
        offset = stop;
    }
    (at - from, end)
}

fn send(file: &Handle, socket: &OwnedFd, from: u64, until: u64) -> (u64, SendEnd) {
    let mut at = from;
    will_need(file, at, until);
    while at < until {
        let before = sys::blocks_read();
        let step = (until - at).min(STEP) as usize;
        if let Some(errno) = call_times::fault(Operation::Send) {
            return (at, SendEnd::Disk(errno));
        }
        match rustix::fs::sendfile(socket, file, Some(&mut at), step) {
            Ok(0) => return (at, SendEnd::Truncated),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return (at, SendEnd::Full),
            Err(Errno::INVAL) => return (at, SendEnd::Unsupported),
            Err(Errno::IO) => return (at, SendEnd::Disk(Errno::IO)),
            Err(errno) => return (at, SendEnd::Socket(errno)),
        }
        // The kernel's readahead gives up where memory is short, and evicts what it read: it would then go on page by
        // page.
        if sys::blocks_read() != before {
            will_need(file, at, until);
        }
    }
    (at, SendEnd::Sent)
}
