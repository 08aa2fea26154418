//! Sending a range of a file to a socket, window by window.
//!
//! * A window that is proven resident goes out with an inline, non-blocking `sendfile`.
//! * One that is not is sent by a thread of the pool (see `pool_send`).
//! * Where the bytes must be transformed, the pool fills the window, and the next one while this one drains.
//! * A window that was evicted twice before a slow socket took it, and a file without a proof, are read into a bounded
//!   buffer and sent from there (see `copying`). So is a window that is proven, but likely to be evicted at any moment,
//!   as long as it is there, and one of a file that `sendfile` may wait for (see `writers`).
//!
//! Invariant: a loop calls `sendfile` only for what was proven since the task last waited ([`AioMode::Inline`] apart).

use crate::access::{Access, AioMode};
use crate::files::error::Error;
use crate::files::memfd_copies::MemfdCopy;
use crate::files::open_file::{OpenFile, SendingCount};
use crate::files::residency_memo::now_ns;
use crate::local::Local;
use crate::metrics::counters::Operation;
use crate::residency::ahead_limit::{AHEAD_MAX, WindowState};
use crate::residency::fill::{FillError, WindowFill};
use crate::residency::window::{PART_WINDOWS, Residency, WINDOW};
use crate::sending::copying::BUFFER_MAX;
use crate::sending::pool_send::{Caller, PoolSender, SendEnd, SendTurn, is_of_socket};
use crate::sending::sink::Sink;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Advice;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

/// Fills of one window before it is read into a buffer instead: by then it has been evicted twice.
const FILLS_MAX: u32 = 3;
/// Windows proven and sent in one call at most: 2 MiB.
const REACH_MAX: u64 = 4;
/// Windows tried in one call for a socket that did not take everything: as many as one send may touch, wherever in a
/// window it begins.
const REACH_MIN: u64 = 2;
/// Limits of waits that a caller lets pass at most before it leaves a thread in the middle of a call that sends.
const LEAVES_MAX: usize = 8;

/// A range that is being sent.
pub(super) struct FileSending<'a, S> {
    pub(super) local: &'a Local,
    pub(super) file: &'a Rc<OpenFile>,
    pub(super) offset: &'a mut u64,
    pub(super) end: u64,
    pub(super) sink: &'a S,
    pub(super) access: &'a Access<'a>,
    /// May the file's bytes go out unchanged?
    pub(super) straight: bool,
    /// The current window, and how often it was filled for this range.
    window: u64,
    fills: u32,
    state: WindowState,
    /// Windows before this one were filled for this range where they had to be, last at this time.
    filled: u64,
    filled_ns: u64,
    /// The fills of windows before this one have been requested.
    ahead: u64,
    /// Windows filled ahead.
    depth: u64,
    /// Bytes left before the loop's other tasks get their turn.
    turn: u64,
    /// Windows proven and sent in one call, as long as the socket takes them.
    reach: u64,
    /// Bytes of the next buffer at most: about as many as the socket took of the last.
    pub(super) taken: usize,
    /// Were others expected to write to the file, when that was last asked?
    has_writers: bool,
    /// Sends from the pool; None before it is needed.
    stream: Option<PoolSender>,
    copy: Option<Rc<MemfdCopy>>,
}

impl Local {
    /// Sends bytes `*offset .. end` of a file to a socket. `*offset` advances with what the socket has taken, also when
    /// this ends with an error or is dropped.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the file ends before `end`, [`Error::Socket`], [`Error::System`] (the disk),
    /// [`Error::Late`] ([`Sink::disk_limit`]), and [`Error::Overflow`]. After these, but for [`Error::Socket`] and
    /// [`Error::Held`], the caller may send what follows `*offset` itself, if the pool is for a disk: nothing else is
    /// sent any more. After a wait that was too long (`Late`, `Held`), or if this is dropped, no job keeps the socket open:
    /// one that is in the middle of a call that sends has it shut down.
    pub async fn send<S: Sink>(
        &self,
        file: &Rc<OpenFile>,
        offset: &mut u64,
        end: u64,
        sink: &S,
        access: &Access<'_>,
    ) -> Result<(), Error> {
        let own_pool = match file.handle.disk_pool() {
            Some(opener) => access.pool.for_disk_of(opener),
            None => return self.send_by(file, offset, end, sink, access).await,
        };
        let access = Access {
            pool: &own_pool,
            ..*access
        };
        self.send_by(file, offset, end, sink, &access).await
    }

    async fn send_by<S: Sink>(
        &self,
        file: &Rc<OpenFile>,
        offset: &mut u64,
        end: u64,
        sink: &S,
        access: &Access<'_>,
    ) -> Result<(), Error> {
        let mut sending = FileSending::new(self, file, (offset, end), sink, access);
        // Where bytes are transformed, the file's pages are read, of which direct reads make none.
        if sending.copy.is_some() && (sending.straight || !file.direct) {
            return sending.run().await;
        }
        let _counted = SendingCount::new(file);
        // Of a piece whose body has no copy yet, the descriptor is that of the whole segment.
        if file.direct || file.body().is_some() {
            return sending.copy_until(end).await;
        }
        if !file.random.replace(true) && access.mode != AioMode::Inline && file.is_inline() {
            // Only sets a flag of the descriptor: the kernel's readahead would start I/O on the loop.
            let _ = rustix::fs::fadvise(&**file, 0, None, Advice::Random);
        }
        sending.run().await
    }
}

impl<'a, S: Sink> FileSending<'a, S> {
    pub(super) fn new(
        local: &'a Local,
        file: &'a Rc<OpenFile>,
        (offset, end): (&'a mut u64, u64),
        sink: &'a S,
        access: &'a Access<'a>,
    ) -> Self {
        // The loop may drop its copy meanwhile; this send keeps it until the end.
        let copy = file.copy();
        let straight = (access.sendfile || copy.is_some()) && sink.socket().is_some();
        let turn = access.sendfile_max_chunk;
        Self {
            local,
            file,
            offset,
            end,
            sink,
            access,
            straight,
            window: u64::MAX,
            fills: 0,
            state: WindowState::Found,
            filled: 0,
            filled_ns: 0,
            ahead: 0,
            depth: (access.read_ahead.max(file.read_ahead()) / WINDOW).clamp(1, AHEAD_MAX),
            turn,
            reach: REACH_MAX,
            taken: BUFFER_MAX,
            has_writers: false,
            stream: None,
            copy,
        }
    }
}

impl<S: Sink> FileSending<'_, S> {
    async fn run(&mut self) -> Result<(), Error> {
        while *self.offset < self.end {
            let window = *self.offset / WINDOW;
            let until = self.end.min((window + 1) * WINDOW);
            if window != self.window {
                self.begin_window(window);
            }
            if self.straight
                && let Some(until) = self.proven_at_once()
            {
                self.sendfile(until).await?;
                continue;
            }
            match self.residency(until) {
                Residency::Present if self.straight => self.sendfile(until).await?,
                Residency::Present | Residency::Fleeting => {
                    if !self.straight {
                        self.fill_ahead();
                    }
                    if !self.copy_at_once(until).await? {
                        self.bring_in_evicted(until).await?;
                    }
                }
                Residency::Absent => self.bring_in(until).await?,
                Residency::Unprovable => {
                    if !self.copy_at_once(until).await? {
                        self.copy_once(until).await?;
                    }
                }
            }
        }
        Ok(())
    }

    fn begin_window(&mut self, window: u64) {
        let limit = &self.local.disk().windows.ahead;
        self.state = self.state.next(limit, window < self.filled);
        (self.window, self.fills) = (window, 0);
    }

    /// Has the pool send what is not in memory, or fill its window: as much as one request of the disk brings. (Read by
    /// buffers, a file would wait for its turn at a busy disk once for each 64 KiB.)
    async fn bring_in(&mut self, until: u64) -> Result<(), Error> {
        if self.streams() {
            self.stream().await
        } else if self.fills < FILLS_MAX {
            self.fill().await
        } else {
            self.copy_bounded(until).await
        }
    }

    /// The same for what was proven to be in memory, and could not be read there.
    async fn bring_in_evicted(&mut self, until: u64) -> Result<(), Error> {
        if self.has_writers {
            // A thread waits for the writer. To send there would mean to wait again for each 64 KiB.
            return self.copy_bounded(until).await;
        }
        // Of overlayfs, a loop reads only what is proven, and this is so no more.
        match self.straight || self.file.filesystem().reads_without_waiting() {
            true => self.bring_in(until).await,
            false => self.copy_once(until).await,
        }
    }

    /// Windows to fill ahead now.
    fn depth(&self) -> u64 {
        self.depth.min(self.local.disk().windows.ahead.windows())
    }

    /// Notes that windows before this one are filled for this request from now on.
    fn note_filled(&mut self, end: u64) {
        (self.filled, self.filled_ns) = (self.filled.max(end), now_ns());
    }

    /// The end of several windows that are all in memory, if the socket is fast enough for them.
    fn proven_at_once(&mut self) -> Option<u64> {
        if self.reach < 2 {
            return None;
        }
        let turn = match self.access.sendfile_max_chunk {
            0 => u64::MAX,
            _ => self.turn,
        };
        // All of them, though a turn may be shorter: it is one scan, and the next turns use its result.
        let until = self.end.min((self.window + self.reach) * WINDOW);
        if self.residency(until) == Residency::Present {
            return Some(until.min(self.offset.saturating_add(turn)));
        }
        self.reach = 1;
        None
    }

    fn residency(&mut self, until: u64) -> Residency {
        if self.access.mode == AioMode::Inline || self.copy.is_some() {
            return Residency::Present;
        }
        let (file, offset) = (self.file, *self.offset);
        let found = (self.local.disk().windows).residency(file, offset, until - offset);
        self.has_writers = found == Residency::Present
            && self.straight
            && self.local.0.writers.are_expected(file, offset);
        match self.has_writers {
            true => Residency::Fleeting,
            false => found,
        }
    }

    /// Sends once, then waits for the socket if it is full.
    async fn sendfile(&mut self, until: u64) -> Result<(), Error> {
        let Some(socket) = self.sink.socket() else {
            return self.copy_until(until).await;
        };
        let len = usize::try_from(until - *self.offset).unwrap_or(usize::MAX);
        let mut offset = *self.offset;
        let mut from_disk = false;
        let sent = self.sink.try_io(|| {
            let sent = match &self.copy {
                Some(copy) => copy.send(socket, offset, len),
                None => rustix::fs::sendfile(socket, &**self.file, Some(&mut offset), len),
            };
            sent.map_err(|errno| {
                from_disk = !is_of_socket(errno);
                io::Error::from(errno)
            })
        });
        match sent {
            Ok(0) => Err(Error::Truncated { len: *self.offset }),
            Ok(sent) => {
                self.local.0.counters.memory(Operation::Send);
                if sent == len {
                    self.reach = (self.reach * 2).min(REACH_MAX);
                    self.moved(sent).await;
                    return Ok(());
                }
                self.reach = self.reach.min(REACH_MIN);
                self.moved(sent).await;
                self.until_writable().await
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait_for_socket().await,
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            // The file system does not support sendfile.
            Err(error) if error.kind() == ErrorKind::InvalidInput => self.copy_until(until).await,
            Err(error) if from_disk => Err(Error::io("sendfile()", &error)),
            Err(error) => Err(Error::Socket(error)),
        }
    }

    /// Counts bytes that the socket took, and yields to the loop's other tasks after `sendfile_max_chunk`.
    pub(super) async fn moved(&mut self, sent: usize) {
        *self.offset += sent as u64;
        if self.access.sendfile_max_chunk == 0 {
            return;
        }
        self.turn = self.turn.saturating_sub(sent as u64);
        if self.turn == 0 && *self.offset < self.end {
            self.turn = self.access.sendfile_max_chunk;
            tokio::task::yield_now().await;
        }
    }

    /// May the pool's threads send to the socket? Makes the sender for it; without one (EMFILE) windows are filled
    /// instead.
    fn streams(&mut self) -> bool {
        if self.stream.is_none()
            && self.straight
            && let Some(socket) = self.sink.socket()
        {
            self.stream = PoolSender::new(socket).ok();
        }
        self.stream.is_some()
    }

    /// Waits for the disk, as long as the sink permits.
    pub(super) async fn within_limit<T>(&self, wait: impl Future<Output = T>) -> Result<T, Error> {
        let (mut wait, mut limit) = (pin!(wait), pin!(self.sink.disk_limit()));
        poll_fn(|cx| match wait.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => limit.as_mut().poll(cx).map(|limit| Err(Error::Late(limit))),
        })
        .await
    }

    /// Has the pool send what it can from here on. If another task is having the window filled, waits for that instead.
    async fn stream(&mut self) -> Result<(), Error> {
        if self.file.is_sent_to_many() && self.fills < FILLS_MAX {
            return self.hurry().await;
        }
        let windows = &self.local.disk().windows;
        let mut jobs = match windows.claim(self.file, self.window) {
            Ok(job) => vec![job],
            Err(running) => return self.wait(running).await,
        };
        let ahead = (self.access.read_ahead / WINDOW).clamp(PART_WINDOWS, AHEAD_MAX);
        let last = self.last_window().min(self.window + ahead - 1);
        let behind = self.window + 1..=last;
        jobs.extend(behind.map_while(|window| windows.claim_absent(self.file, window)));
        let until = self.end.min((self.window + jobs.len() as u64) * WINDOW);
        let Some(stream) = self.stream.clone() else {
            return Ok(());
        };
        let (begun, counters) = (Instant::now(), &self.local.0.counters);
        let from = *self.offset;
        let waits_first = self.access.pool.is_for_disk();
        let caller = Caller(SendTurn::new(&stream, jobs, waits_first));
        let turn = Arc::clone(&caller.0);
        let part = stream.send(self.file, (from, until), turn, self.access);
        let (sent, end) = match self.part_within_limit(part, &caller.0).await? {
            Ok(part) => part,
            Err(overflow) => {
                counters.overflowed(Operation::Send);
                return Err(overflow.into());
            }
        };
        counters.offloaded(Operation::Send, begun.elapsed());
        if sent > 0 {
            self.moved(sent as usize).await;
        }
        match end {
            SendEnd::Sent => Ok(()),
            SendEnd::Full => self.until_writable().await,
            SendEnd::Truncated => Err(Error::Truncated { len: *self.offset }),
            SendEnd::Unsupported => self.copy_until(until).await,
            SendEnd::Disk(errno) => Err(Error::system("sendfile()", errno)),
            SendEnd::Socket(errno) => Err(Error::Socket(errno.into())),
            SendEnd::Left => Err(Error::Socket(ErrorKind::NotConnected.into())),
        }
    }

    /// Waits for a job that sends, as long as the sink permits; then has it send nothing more, and counts what it has
    /// sent.
    async fn part_within_limit<T>(
        &mut self,
        part: impl Future<Output = T>,
        turn: &SendTurn,
    ) -> Result<T, Error> {
        let mut part = pin!(part);
        let mut leaves = 0;
        loop {
            let late = match self.within_limit(part.as_mut()).await {
                Ok(done) => return Ok(done),
                Err(late) => late,
            };
            if let Some(sent) = turn.leave() {
                *self.offset += sent;
                return Err(late);
            }
            if !turn.waits_first() {
                return Err(late);
            }
            leaves += 1;
            match late {
                Error::Late(limit) if leaves >= LEAVES_MAX => return Err(Error::Held(limit)),
                _ => {}
            }
        }
    }

    /// For a file that is being sent to many: has the pool fill the window in its shared lane, and the windows that
    /// follow with it, so that the whole file is in memory before its first part is evicted. Otherwise all of them
    /// would wait for each part in turn, behind everything else in the pool's queue, and find the first parts evicted
    /// each time. Together they get as much memory as each would have had alone.
    async fn hurry(&mut self) -> Result<(), Error> {
        self.fills += 1;
        let windows = u64::from(self.file.sendings.get()) * PART_WINDOWS;
        let last = self.window + windows.min(AHEAD_MAX) - 1;
        let windows = self.window..=last.min(self.last_window());
        let disk = self.local.disk();
        match disk.windows.hurry(self.file, windows, self.access.pool) {
            Ok(Some(fill)) => self.wait(fill).await,
            Ok(None) => Ok(()),
            Err(overflow) => {
                self.local.0.counters.overflowed(Operation::Send);
                Err(overflow.into())
            }
        }
    }

    /// Waits for a socket that took only a part of what it was given, or nothing from a pool thread. (It is polled
    /// again here, so that tokio clears its readiness in the right order: whatever becomes true after the poll is a new
    /// event. And poll(2) calls it writable only when a third of its buffer is free, where `sendfile` would go on with
    /// as little as a page, or return nothing for four times the price.)
    pub(super) async fn until_writable(&mut self) -> Result<(), Error> {
        let Some(socket) = self.sink.socket() else {
            return Ok(());
        };
        let asked = self.sink.try_io(|| {
            let mut wish = [PollFd::new(&socket, PollFlags::OUT)];
            match poll(&mut wish, Some(&Timespec::default())) {
                Ok(0) => Err(ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            }
        });
        match asked {
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait_for_socket().await,
            _ => Ok(()),
        }
    }

    /// Waits for a socket that has reported `WouldBlock`. Other tasks run meanwhile, so a new turn begins.
    pub(super) async fn wait_for_socket(&mut self) -> Result<(), Error> {
        self.sink.writable().await.map_err(Error::Socket)?;
        self.turn = self.access.sendfile_max_chunk;
        Ok(())
    }

    /// Has the pool fill the window, and waits for it.
    async fn fill(&mut self) -> Result<(), Error> {
        self.fills += 1;
        let ago_ns = now_ns().saturating_sub(self.filled_ns);
        self.state = self.state.filled(&self.local.disk().windows.ahead, ago_ns);
        let last = self.last_window().min(self.window + self.depth());
        self.note_filled(last + 1);
        let windows = &self.local.disk().windows;
        let fill = windows.fill(self.file, self.window, last, self.access.pool);
        let fill = fill.inspect_err(|_| self.local.0.counters.overflowed(Operation::Send))?;
        self.ahead = self.ahead.max(last + 1);
        // A socket that waits is faster than the disk: larger requests. A window that was evicted means too much was
        // asked for.
        self.depth = if self.fills > 1 {
            1
        } else {
            (self.depth * 2).min(AHEAD_MAX)
        };
        self.wait(fill).await
    }

    async fn wait(&self, fill: Arc<WindowFill>) -> Result<(), Error> {
        let begun = Instant::now();
        match self.within_limit(fill.wait()).await? {
            Err(FillError::Abandoned) => Ok(()),
            Ok(()) => {
                self.local
                    .0
                    .counters
                    .offloaded(Operation::Send, begun.elapsed());
                Ok(())
            }
            Err(FillError::Read(errno)) => Err(Error::system("read()", errno)),
        }
    }

    /// Has the pool fill the next windows, once each, without waiting: several at a time, so that requests stay large.
    fn fill_ahead(&mut self) {
        let (from, depth) = (self.ahead.max(self.window + 1), self.depth());
        let target = self.last_window().min(self.window + depth);
        if self.access.mode == AioMode::Inline
            || from > target
            || from > self.window + depth.div_ceil(2)
        {
            return;
        }
        for window in from..=target {
            let (start, stop) = (window * WINDOW, self.end.min((window + 1) * WINDOW));
            if self
                .local
                .disk()
                .windows
                .residency(self.file, start, stop - start)
                == Residency::Absent
            {
                self.note_filled(target + 1);
                // Its result, an overflow included, shows when this window is reached.
                let _ = self
                    .local
                    .disk()
                    .windows
                    .fill(self.file, window, target, self.access.pool);
                break;
            }
        }
        self.ahead = target + 1;
    }

    fn last_window(&self) -> u64 {
        (self.end - 1) / WINDOW
    }
}
