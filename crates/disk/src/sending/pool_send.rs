//! Sending ranges that are not proven to be in memory: from the disk to the socket in one `sendfile`, on a pool thread.
//!
//! Filling a window, mapping it, proving it and then sending it costs twice the work per byte, and more when the window
//! is evicted again; for a file that is requested once, that is wasted. So a pool thread reads and sends at once. A
//! window that it finds in memory was requested before (or is the rest of what a slow socket did not take), and one
//! that another task waits for will be requested again: those are mapped, and from then on proven and sent by the loops
//! (see `residency::window`).
//!
//! A disk may hang, and its caller then leave: a job has the socket only for as long as the caller waits ([`SendTurn`]),
//! so that neither the queue nor a thread keeps a connection open. From a disk that is watched, the caller may have the
//! rest from elsewhere: a thread that comes back later must not send behind that. So bytes of such a disk are waited for
//! first, then sent.
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
use parking_lot::Mutex;
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Instant;

/// A duplicate of a request's socket for the pool's threads; made when the request first has to wait for the disk.
#[derive(Clone, Debug)]
pub(crate) struct PoolSender(Arc<OwnedFd>);

/// The bit of [`SendTurn`] that is set while the thread is in a call that sends.
const SENDING: u64 = 1 << 63;
/// The bit that is set once the caller waits no more.
const LEFT: u64 = 1 << 62;

/// What a job that sends and its caller agree on: the number of bytes that were sent, whether the thread is in a call
/// that sends more, and whether the caller has left, after which nothing is sent. It has the socket, which a thread that
/// hangs, or a queue behind it, would hold open.
pub(crate) struct SendTurn {
    state: AtomicU64,
    socket: Mutex<Option<Arc<OwnedFd>>>,
    /// The windows that are claimed for the job, until it begins: a caller that leaves before that gives them up at once,
    /// wherever the job is in the queue.
    claims: Mutex<Vec<FillJob>>,
    /// Whether bytes are waited for before a call that sends them, which then is short.
    waits_first: bool,
}

/// A caller's hold on the turn of its job: a caller that is dropped leaves, too.
pub(crate) struct Caller(pub(crate) Arc<SendTurn>);

impl SendTurn {
    /// The turn of a job that sends to this socket, from windows that are claimed for it.
    pub(crate) fn new(sender: &PoolSender, claims: Vec<FillJob>, waits_first: bool) -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU64::new(0),
            socket: Mutex::new(Some(Arc::clone(&sender.0))),
            claims: Mutex::new(claims),
            waits_first,
        })
    }

    /// Whether a call that sends is short, so that it is worth waiting for its end.
    pub(crate) fn waits_first(&self) -> bool {
        self.waits_first
    }

    /// Begins a call that sends. None: the caller has left.
    fn begin(&self) -> Option<Arc<OwnedFd>> {
        match self.state.fetch_or(SENDING, AcqRel) & LEFT {
            0 => self.socket.lock().clone(),
            _ => None,
        }
    }

    /// Ends the call; `sent`: bytes sent so far.
    fn end(&self, sent: u64) {
        self.state.store(sent, Release);
    }

    /// Has nothing more sent, and returns the number of bytes that were. None: the thread is in a call that sends.
    pub(crate) fn leave(&self) -> Option<u64> {
        let state = self.state.load(Acquire);
        let is_left = state & SENDING == 0
            && self
                .state
                .compare_exchange(state, state | LEFT, AcqRel, Relaxed)
                .is_ok();
        is_left.then(|| {
            drop(self.socket.lock().take());
            state
        })
    }

    /// Takes the socket away. In the middle of a call that sends, which keeps it until the disk answers, both of its
    /// directions end: what was queued is still sent, and nothing behind it.
    fn cut(&self) {
        let socket = self.socket.lock().take();
        if let Some(socket) = socket
            && self.state.load(Acquire) & SENDING != 0
        {
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.cut();
        drop(std::mem::take(&mut *self.0.claims.lock()));
    }
}

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
    /// The caller has left.
    Left,
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

    /// Has the pool send bytes `from .. until` of the adjacent windows that its `turn` has claimed. Returns how many were sent, and why it
    /// stopped. If the future is dropped while the job runs, the job may send more bytes, which are not counted, unless
    /// its `turn` was [left](SendTurn::leave); its [`Caller`] is dropped with it.
    ///
    /// # Errors
    /// The pool is full.
    pub(crate) async fn send(
        &self,
        file: &OpenFile,
        (from, until): (u64, u64),
        turn: Arc<SendTurn>,
        access: &Access<'_>,
    ) -> Result<(u64, SendEnd), Overflow> {
        let handle = file.handle.clone();
        let work = move || part(&handle, &turn, from, until);
        access.pool.run(Lane::Read, work).await
    }
}

fn part(handle: &Handle, turn: &SendTurn, from: u64, until: u64) -> (u64, SendEnd) {
    let jobs = std::mem::take(&mut *turn.claims.lock());
    let before = sys::blocks_read();
    // Explicit ranges only: a page with a readahead marker would start I/O on a loop, and pages on their way outside
    // any fill might be taken for present.
    let _ = fadvise(handle, 0, None, Advice::Random);
    let begun = Instant::now();
    let (at, end) = match (turn.waits_first, jobs.first()) {
        (false, _) => send(handle, turn, from, until),
        (true, Some(job)) => touch_and_send(job, handle, turn, from, until),
        (true, None) => (from, SendEnd::Unsupported),
    };
    let errno = match end {
        SendEnd::Disk(errno) => Some(errno),
        _ => None,
    };
    call_times::done_on(Operation::Send, begun, handle.as_fd(), at - from, errno);
    let was_asked_for = sys::blocks_read() == before;
    finish(jobs, handle, (from, until), (at, errno), was_asked_for);
    (at - from, end)
}

/// Ends the fills of windows of which bytes up to `at` were sent, where the disk failed if there is an `errno`: then
/// that is the result of the window which `at` lies in, and of no other.
fn finish(
    jobs: Vec<FillJob>,
    handle: &Handle,
    (from, until): (u64, u64),
    (at, errno): (u64, Option<Errno>),
    was_asked_for: bool,
) {
    let (mut offset, mut is_awaited) = (from, false);
    for mut job in jobs {
        let stop = until.min((offset / WINDOW + 1) * WINDOW);
        // A task that waits for one window will want those behind it.
        is_awaited |= job.is_awaited();
        let failed = errno.filter(|_| at < stop).map(|errno| match at < offset {
            true => FillError::Abandoned,
            false => FillError::Read(errno),
        });
        if failed.is_none() && (is_awaited || (was_asked_for && offset < at)) {
            let rest = at.clamp(offset, stop);
            if rest == stop || job.touch(handle, rest, stop - rest).is_ok() {
                job.map(handle, offset, stop - offset, MappingUse::Made);
            }
        }
        job.finish(failed.map_or(Ok(()), Err));
        offset = stop;
    }
}

fn send(file: &Handle, turn: &SendTurn, from: u64, until: u64) -> (u64, SendEnd) {
    let mut at = from;
    will_need(file, at, until);
    while at < until {
        let before = sys::blocks_read();
        let step = (until - at).min(STEP) as usize;
        if let Some(errno) = call_times::fault(Operation::Send) {
            return (at, SendEnd::Disk(errno));
        }
        if let Some(end) = send_in_turn(file, turn, from, &mut at, step) {
            return (at, end);
        }
        // The kernel's readahead gives up where memory is short, and evicts what it read: it would then go on page by
        // page.
        if sys::blocks_read() != before {
            will_need(file, at, until);
        }
    }
    (at, SendEnd::Sent)
}

/// One call, if the caller is still there; why it was the last one, if it was.
fn send_in_turn(
    file: &Handle,
    turn: &SendTurn,
    from: u64,
    at: &mut u64,
    len: usize,
) -> Option<SendEnd> {
    let Some(socket) = turn.begin() else {
        return Some(SendEnd::Left);
    };
    let end = send_once(file, &socket, at, len);
    drop(socket);
    turn.end(*at - from);
    end
}

fn send_once(file: &Handle, socket: &OwnedFd, at: &mut u64, len: usize) -> Option<SendEnd> {
    match rustix::fs::sendfile(socket, file, Some(at), len) {
        Ok(0) => Some(SendEnd::Truncated),
        Ok(_) | Err(Errno::INTR) => None,
        Err(Errno::AGAIN) => Some(SendEnd::Full),
        Err(Errno::INVAL) => Some(SendEnd::Unsupported),
        Err(errno) if is_of_socket(errno) => Some(SendEnd::Socket(errno)),
        Err(errno) => Some(SendEnd::Disk(errno)),
    }
}

/// Whether an error of `sendfile` is the socket's: those are few, and what a file system may return is not known.
pub(super) fn is_of_socket(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PIPE
            | Errno::CONNRESET
            | Errno::CONNABORTED
            | Errno::CONNREFUSED
            | Errno::NOTCONN
            | Errno::SHUTDOWN
            | Errno::TIMEDOUT
            | Errno::HOSTUNREACH
            | Errno::HOSTDOWN
            | Errno::NETUNREACH
            | Errno::NETDOWN
            | Errno::NETRESET
            | Errno::NOBUFS
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::ACCESS
            | Errno::PERM
    )
}

/// The same for a disk that may hang: waits until a part is in memory, then sends it, if the caller is still there.
fn touch_and_send(
    job: &FillJob,
    file: &Handle,
    turn: &SendTurn,
    from: u64,
    until: u64,
) -> (u64, SendEnd) {
    let mut at = from;
    will_need(file, at, until);
    while at < until {
        let step = (until - at).min(STEP);
        match job.touch(file, at, step) {
            Ok(()) => {}
            // There is nothing to wait with.
            Err(FillError::Read(Errno::NODEV)) => return (at, SendEnd::Unsupported),
            Err(FillError::Read(errno)) => return (at, SendEnd::Disk(errno)),
            Err(_) => return (at, SendEnd::Unsupported),
        }
        if let Some(end) = send_in_turn(file, turn, from, &mut at, step as usize) {
            return (at, end);
        }
    }
    (at, SendEnd::Sent)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;
    use crate::Access;
    use crate::tests::{block_on, local};
    use std::io::Read;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn one_bad_window_fails_none_of_those_that_were_claimed_with_it() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("large");
            let len = 4 * WINDOW;
            std::fs::write(&path, vec![b'a'; len as usize]).unwrap();
            let path = path.as_os_str().as_bytes();
            let file = local.open(path, &Access::new(&pool)).await.unwrap();
            let windows = &local.disk().windows;
            let jobs: Vec<_> = (0..4)
                .map(|number| windows.claim(&file, number).ok().unwrap())
                .collect();
            let fills: Vec<_> = jobs.iter().map(|job| Arc::clone(&job.fill)).collect();
            let handle = file.handle.clone();
            // Two are sent, and the third fails in its midst.
            let failed = (2 * WINDOW + 4096, Some(Errno::IO));
            let work = move || finish(jobs, &handle, (0, len), failed, false);
            pool.run(Lane::Read, work).await.unwrap();
            let mut results = Vec::new();
            for fill in fills {
                results.push(fill.wait().await);
            }
            assert!(
                matches!(
                    results[..],
                    [
                        Ok(()),
                        Ok(()),
                        Err(FillError::Read(Errno::IO)),
                        Err(FillError::Abandoned)
                    ]
                ),
                "{results:?}"
            );
        });
    }

    #[test]
    fn what_a_file_system_returns_is_no_error_of_the_socket() {
        let of_disks = [
            Errno::IO,
            Errno::NOMEM,
            Errno::UCLEAN,
            Errno::BADMSG,
            Errno::NXIO,
            Errno::STALE,
            Errno::NODATA,
        ];
        assert!(!of_disks.into_iter().any(is_of_socket));
        assert!(is_of_socket(Errno::PIPE) && is_of_socket(Errno::CONNRESET));
    }

    #[test]
    fn a_caller_leaves_between_two_calls_that_send_and_nothing_is_sent_after_that() {
        let (socket, peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let sender = PoolSender::new(socket.as_fd()).unwrap();
        let turn = SendTurn::new(&sender, Vec::new(), true);
        drop((socket, sender));
        assert!(turn.begin().is_some());
        assert_eq!(turn.leave(), None);
        turn.end(7);
        assert!(turn.begin().is_some());
        turn.end(9);
        peer.set_nonblocking(true).unwrap();
        let is_open = || (&peer).read(&mut [0]).is_err();
        assert!(is_open());
        assert_eq!(turn.leave(), Some(9));
        assert!(!is_open(), "a thread that hangs holds no socket");
        assert!(turn.begin().is_none());
    }

    #[test]
    fn a_caller_that_is_dropped_in_the_middle_of_a_call_ends_the_connection() {
        let (socket, peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let sender = PoolSender::new(socket.as_fd()).unwrap();
        let caller = Caller(SendTurn::new(&sender, Vec::new(), false));
        let turn = Arc::clone(&caller.0);
        drop((socket, sender));
        let of_the_call = turn.begin().unwrap();
        drop(caller);
        assert_eq!((&peer).read(&mut [0]).unwrap(), 0);
        drop(of_the_call);
        turn.end(3);
        assert!(turn.begin().is_none());
    }
}
