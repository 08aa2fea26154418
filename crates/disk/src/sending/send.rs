//! Sending a range of a file to a socket, window by window.
//!
//! * A window that is proven resident goes out with an inline, non-blocking `sendfile`.
//! * One that is not is sent by a thread of the pool (see `pool_send`).
//! * Where the bytes must be transformed, the pool fills the window, and the next one while this one drains.
//! * A window that was evicted twice before a slow socket took it, and a file without a proof, are read into a bounded
//!   buffer and sent from there. So is a window that is proven, but likely to be evicted at any moment.
//!
//! Invariant: a loop calls `sendfile` only for what was proven since the task last waited ([`AioMode::Inline`] apart).

use crate::access::{Access, AioMode};
use crate::files::error::{Error, WouldBlock};
use crate::files::memfd_copies::MemfdCopy;
use crate::files::open_file::{OpenFile, SendingCount};
use crate::files::residency_memo::now_ns;
use crate::local::Local;
use crate::memory::{Holder, charge};
use crate::metrics::counters::Operation;
use crate::residency::ahead_limit::{AHEAD_MAX, WindowState};
use crate::residency::fill::{FillError, WindowFill};
use crate::residency::window::{PART_WINDOWS, Residency, WINDOW};
use crate::sending::pool_send::{PoolSender, SendEnd, SendTurn};
use crate::sending::sink::Sink;
use bytes::Bytes;
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
/// Bytes of one buffer at most.
const BUFFER_MAX: usize = 128 << 10;
/// Bytes of a buffer that stands in for `sendfile`.
const BUFFER_STRAIGHT: usize = 64 << 10;

/// A range that is being sent.
struct FileSending<'a, S> {
    local: &'a Local,
    file: &'a Rc<OpenFile>,
    offset: &'a mut u64,
    end: u64,
    sink: &'a S,
    access: &'a Access<'a>,
    /// May the file's bytes go out unchanged?
    straight: bool,
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
    /// sent any more.
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
        // The loop may drop its copy meanwhile; this send keeps it until the end.
        let copy = file.copy();
        let straight = (access.sendfile || copy.is_some()) && sink.socket().is_some();
        let turn = access.sendfile_max_chunk;
        let mut sending = FileSending {
            local: self,
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
            stream: None,
            copy,
        };
        if sending.copy.is_some() {
            return sending.run().await;
        }
        let _counted = SendingCount::new(file);
        if file.direct {
            return sending.copy_until(end).await;
        }
        if !file.random.replace(true) && access.mode != AioMode::Inline && file.is_inline() {
            // Only sets a flag of the descriptor: the kernel's readahead would start I/O on the loop.
            let _ = rustix::fs::fadvise(&**file, 0, None, Advice::Random);
        }
        sending.run().await
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
                Residency::Fleeting if self.straight => self.copy_at_once(until).await?,
                Residency::Present | Residency::Fleeting => {
                    self.fill_ahead();
                    self.copy_at_once(until).await?;
                }
                Residency::Absent if self.streams() => self.stream().await?,
                Residency::Absent if self.fills < FILLS_MAX => self.fill().await?,
                Residency::Absent => self.copy_bounded(until).await?,
                Residency::Unprovable => self.copy_at_once(until).await?,
            }
        }
        Ok(())
    }

    fn begin_window(&mut self, window: u64) {
        let limit = &self.local.disk().windows.ahead;
        self.state = self.state.next(limit, window < self.filled);
        (self.window, self.fills) = (window, 0);
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

    fn residency(&self, until: u64) -> Residency {
        if self.access.mode == AioMode::Inline || self.copy.is_some() {
            return Residency::Present;
        }
        self.local
            .disk()
            .windows
            .residency(self.file, *self.offset, until - *self.offset)
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
                from_disk = errno == rustix::io::Errno::IO;
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
    async fn moved(&mut self, sent: usize) {
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
    async fn within_limit<T>(&self, wait: impl Future<Output = T>) -> Result<T, Error> {
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
        jobs.extend(behind.map_while(|window| windows.claim(self.file, window).ok()));
        let until = self.end.min((self.window + jobs.len() as u64) * WINDOW);
        let Some(stream) = self.stream.clone() else {
            return Ok(());
        };
        let (begun, counters) = (Instant::now(), &self.local.0.counters);
        let from = *self.offset;
        let turn = (self.access.pool)
            .is_for_disk()
            .then(|| SendTurn::new(&stream));
        let part = stream.send(jobs, self.file, (from, until), turn.clone(), self.access);
        let (sent, end) = match self.part_within_limit(part, turn.as_deref()).await? {
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
        turn: Option<&SendTurn>,
    ) -> Result<T, Error> {
        let mut part = pin!(part);
        let mut leaves = 0;
        loop {
            let late = match self.within_limit(part.as_mut()).await {
                Ok(done) => return Ok(done),
                Err(late) => late,
            };
            let Some(turn) = turn else { return Err(late) };
            if let Some(sent) = turn.leave() {
                *self.offset += sent;
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
    async fn until_writable(&mut self) -> Result<(), Error> {
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
    async fn wait_for_socket(&mut self) -> Result<(), Error> {
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
        let fill = self
            .local
            .disk()
            .windows
            .fill(self.file, self.window, last, self.access.pool);
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
            Err(FillError::Overflow(overflow)) => {
                self.local.0.counters.overflowed(Operation::Send);
                Err(overflow.into())
            }
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

    /// Sends one buffer, within the bound on the buffers of the whole process.
    async fn copy_bounded(&mut self, until: u64) -> Result<(), Error> {
        let len = self.buffer_len(until);
        let kib = u32::try_from(len.div_ceil(1024)).unwrap_or(u32::MAX);
        let permit = self.local.disk().buffers.acquire_many(kib).await;
        let _charge = charge(Holder::Buffers, len);
        let bytes = self.read(len).await?;
        self.write(&bytes).await?;
        drop(permit);
        Ok(())
    }

    /// Sends from a buffer what the socket takes at once, if it is in memory: a read notices an evicted page where `sendfile`
    /// would wait for it. It costs more than twice as much per byte. No buffer is held while waiting for the socket, of
    /// which a peer may have many (the streams of HTTP/2).
    async fn copy_at_once(&mut self, until: u64) -> Result<(), Error> {
        let (len, sink) = (self.buffer_len(until).min(self.sink.room()), self.sink);
        if len == 0 {
            return self.wait_for_socket().await;
        }
        let sent = self.local.pass_on(self.file, *self.offset, len, |bytes| {
            (sink.try_write(bytes), bytes.len())
        });
        let (sent, all) = match sent {
            // Evicted, or only a pool may ask.
            Err(WouldBlock) => return self.copy_once(until).await,
            Ok((_, 0)) => return Err(Error::Truncated { len: *self.offset }),
            Ok((Ok(sent), all)) => (sent, all),
            Ok((Err(error), all)) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => (0, all),
                _ => return Err(Error::Socket(error)),
            },
        };
        self.moved(sent).await;
        match sent < all {
            true if sink.socket().is_some() => self.until_writable().await,
            true => self.wait_for_socket().await,
            false => Ok(()),
        }
    }

    /// Sends up to `until` from buffers.
    async fn copy_until(&mut self, until: u64) -> Result<(), Error> {
        while *self.offset < until {
            self.copy_once(until).await?;
        }
        Ok(())
    }

    /// Sends one buffer, which is kept until the socket has taken it: to read it again could wait again.
    async fn copy_once(&mut self, until: u64) -> Result<(), Error> {
        let bytes = self.read(self.buffer_len(until)).await?;
        self.write(&bytes).await
    }

    fn buffer_len(&self, until: u64) -> usize {
        let left = usize::try_from(until - *self.offset).unwrap_or(usize::MAX);
        // `output_buffers` was not meant for what would have been `sendfile`: fewer, larger reads.
        let wished = if self.straight {
            BUFFER_STRAIGHT
        } else {
            self.access.output_buffer
        };
        left.min(wished.clamp(4096, BUFFER_MAX))
    }

    async fn read(&self, len: usize) -> Result<Bytes, Error> {
        let bytes = match self.local.try_read(self.file, *self.offset, len) {
            Ok(answer) => answer?,
            Err(WouldBlock) => {
                let read = self.local.read(self.file, *self.offset, len, self.access);
                self.within_limit(read).await??
            }
        };
        if bytes.is_empty() {
            Err(Error::Truncated { len: *self.offset })
        } else {
            Ok(bytes)
        }
    }

    async fn write(&mut self, bytes: &Bytes) -> Result<(), Error> {
        let mut left = &bytes[..];
        while !left.is_empty() {
            match self.sink.try_write(left) {
                Ok(sent) => {
                    left = &left[sent..];
                    self.moved(sent).await;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.sink.writable().await.map_err(Error::Socket)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Socket(error)),
            }
        }
        Ok(())
    }
}
