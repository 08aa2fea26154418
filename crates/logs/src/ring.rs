//! The way from the loops to the log thread: lines gather in a buffer of their loop (`Feed`) and are handed over once
//! per iteration.
//!
//! Not the writing (`thread` does it) and not the formatting. Invariant: at most [`RING_BYTES`] (or one batch) wait for the
//! thread or are being written by it, and beside them [`LOCAL_BYTES`] and the lines of one request per loop; a loop never waits
//! for a disk here: the lock is held for a few moves of pointers only.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::error::ErrorLogs;
use super::figures::Figures;
use super::level::Level;
use super::line;
use super::sink::{Order, Target};
use super::waiters::{Progress, Waiters};
use crate::wall_clock::Clock;

/// Maximum bytes of lines that wait for the log thread, of all loops together.
pub const RING_BYTES: usize = 16 << 20;
/// Maximum bytes of lines that a loop gathers before it hands them over; at the latest it does so at the end of an
/// iteration.
pub(crate) const LOCAL_BYTES: usize = 64 << 10;
/// Maximum time that the end of a request waits for room.
pub const ROOM_WAIT: Duration = Duration::from_secs(1);
/// Maximum time that the end of a loop waits for room.
const FINISH_WAIT: Duration = Duration::from_secs(1);
/// Maximum time that the end of a connection waits for its lines to be written, so that a client that has seen it close
/// finds them in the file.
pub const SETTLE_WAIT: Duration = Duration::from_millis(20);
/// Maximum bytes of a line; a longer one is cut.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of emptied buffers that are kept for the next lines.
const SPARE_MAX: usize = 64;

/// Lines in the order in which one thread fed them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub bytes: Vec<u8>,
    pub runs: Vec<Run>,
}

/// Neighbouring lines for the same target.
#[derive(Debug)]
pub(super) struct Run {
    pub target: Target,
    pub len: usize,
    pub lines: u32,
    /// For a log with variables in its path: the lengths in bytes of the root's path and of the log's path, which
    /// precede the line.
    pub names: (u16, u16),
}

impl Batch {
    /// Appends the line in `line`.
    pub(crate) fn push(&mut self, target: &Target, line: &[u8], names: (u16, u16)) {
        self.bytes.extend_from_slice(line);
        if !target.keeps_lines_apart()
            && let Some(run) = self.runs.last_mut()
            && Arc::ptr_eq(&run.target, target)
        {
            run.len += line.len();
            run.lines += 1;
            return;
        }
        self.runs.push(Run {
            target: Arc::clone(target),
            len: line.len(),
            lines: 1,
            names,
        });
    }
}

/// Something for the thread to do.
#[derive(Debug)]
pub(super) enum Item {
    Lines(Batch),
    Order(Order),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Must be woken for new lines.
    Asleep,
    /// Writes; checks for more by itself.
    Awake,
    /// Lets lines gather for a moment; checks for more by itself.
    Napping,
}

#[derive(Debug)]
pub(super) struct Queue {
    /// Lines and orders, in the order in which they came.
    items: Vec<Item>,
    pub figures: Figures,
    /// Dropped lines that no log has reported yet.
    pub unsaid: u64,
    /// Bytes of the batches that wait and of those that the thread is writing.
    bytes: usize,
    spare: Vec<Batch>,
    /// Number of the last batch handed over, and of the last one written.
    fed: u64,
    written: u64,
    pub waiters: Waiters,
    state: State,
    /// Whether a caller waits for everything to be written, buffered logs too.
    pub draining: bool,
    pub ending: bool,
}

impl Queue {
    /// Whether the thread has written the batch with this number, or naps, which it does while little waits.
    pub(super) fn has_settled(&self, batch: u64) -> bool {
        let naps = self.state == State::Napping && self.bytes <= RING_BYTES / 2;
        self.written >= batch || naps
    }
}

/// The state that the loops and the log thread share.
#[derive(Debug)]
pub(super) struct Ring {
    pub queue: Mutex<Queue>,
    work: Condvar,
    idle: Condvar,
    /// Whether a target has counted dropped lines since the thread last looked.
    pub has_dropped: AtomicBool,
}

/// The work that the thread takes at once.
pub(super) struct Work {
    pub items: Vec<Item>,
    pub draining: bool,
    pub ending: bool,
    upto: u64,
}

/// The reason why a batch was not taken.
struct Full {
    written: u64,
}

impl Ring {
    pub(crate) fn new() -> Self {
        Self {
            queue: Mutex::new(Queue {
                items: Vec::new(),
                figures: Figures::default(),
                unsaid: 0,
                bytes: 0,
                spare: Vec::new(),
                fed: 0,
                written: 0,
                waiters: Waiters::default(),
                state: State::Awake,
                draining: false,
                ending: false,
            }),
            work: Condvar::new(),
            idle: Condvar::new(),
            has_dropped: AtomicBool::new(false),
        }
    }

    /// Takes the lines out of `batch` and puts an empty buffer there, if there is room. Gives the number of the batch.
    fn take(&self, batch: &mut Batch, must: bool) -> Result<u64, Full> {
        let mut queue = self.queue.lock();
        let is_full = queue.bytes > 0 && queue.bytes + batch.bytes.len() > RING_BYTES;
        if is_full && !must {
            return Err(Full {
                written: queue.written,
            });
        }
        queue.bytes += batch.bytes.len();
        queue.fed += 1;
        let number = queue.fed;
        let empty = queue.spare.pop().unwrap_or_default();
        queue
            .items
            .push(Item::Lines(std::mem::replace(batch, empty)));
        self.wake(queue);
        Ok(number)
    }

    /// Gives the thread an order; wakes it from a nap too.
    pub(crate) fn order(&self, order: Order) {
        self.queue.lock().items.push(Item::Order(order));
        self.work.notify_one();
    }

    fn wake(&self, mut queue: parking_lot::MutexGuard<'_, Queue>) {
        let asleep = queue.state == State::Asleep;
        if asleep {
            queue.state = State::Awake;
        }
        drop(queue);
        if asleep {
            self.work.notify_one();
        }
    }

    /// Waits for work, at most until `deadline`. Called by the thread.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Work {
        let mut queue = self.queue.lock();
        while queue.items.is_empty() && !queue.draining && !queue.ending {
            queue.state = State::Asleep;
            let timed_out = match deadline {
                Some(at) => self.work.wait_until(&mut queue, at).timed_out(),
                None => {
                    self.work.wait(&mut queue);
                    false
                }
            };
            if timed_out {
                break;
            }
        }
        queue.state = State::Awake;
        Work {
            items: std::mem::take(&mut queue.items),
            draining: queue.draining,
            ending: queue.ending,
            upto: queue.fed,
        }
    }

    /// Lets lines gather for `span`; cut short when something must be done at once. Called by the thread.
    pub(crate) fn nap(&self, span: Duration) {
        let mut queue = self.queue.lock();
        if !queue.draining && !queue.ending {
            queue.state = State::Napping;
            // Waiters for written lines are released: the lines that are still unwritten belong to other loops' next
            // iterations, and a connection that waits for its own lines to settle would wait for the whole nap.
            let upto = queue.fed;
            queue.waiters.release(upto);
            self.work.wait_for(&mut queue, span);
            queue.state = State::Awake;
        }
    }

    /// The thread has written this work: there is room again.
    pub(crate) fn done(&self, work: Work) {
        let mut bytes = 0;
        let mut emptied = Vec::with_capacity(work.items.len());
        for item in work.items {
            if let Item::Lines(mut batch) = item {
                bytes += batch.bytes.len();
                batch.bytes.clear();
                batch.runs.clear();
                // A buffer that a long line has enlarged is not kept.
                if batch.bytes.capacity() <= 2 * LOCAL_BYTES {
                    emptied.push(batch);
                }
            }
        }
        let mut queue = self.queue.lock();
        queue.bytes -= bytes;
        queue.written = work.upto;
        let room = SPARE_MAX.saturating_sub(queue.spare.len());
        queue.spare.extend(emptied.drain(..room.min(emptied.len())));
        if work.draining && queue.items.is_empty() {
            queue.draining = false;
            self.idle.notify_all();
        }
        queue.waiters.release(work.upto);
    }

    /// Waits until all lines so far are written, buffered logs too. Blocks, so never called on a loop. Returns whether
    /// it was done in time.
    pub(crate) fn drain(&self, longest: Duration) -> bool {
        let deadline = Instant::now() + longest;
        let mut queue = self.queue.lock();
        queue.draining = true;
        self.work.notify_one();
        while queue.draining {
            if self.idle.wait_until(&mut queue, deadline).timed_out() {
                return !queue.draining;
            }
        }
        true
    }

    /// Ends the thread after it has written all.
    pub(crate) fn end(&self) {
        self.queue.lock().ending = true;
        self.work.notify_one();
    }

    /// Lines from a thread that is no loop: handed over at once, dropped when there is no room.
    pub(crate) fn push_now(&self, mut batch: Batch) {
        if batch.bytes.is_empty() {
            return;
        }
        if self.take(&mut batch, false).is_err() {
            for run in &batch.runs {
                self.count_dropped(&run.target, run.lines.into());
            }
        }
    }

    fn count_dropped(&self, target: &Target, lines: u64) {
        target.count_dropped(lines);
        self.has_dropped.store(true, Ordering::Release);
    }
}

type Wait = Pin<Box<dyn Future<Output = ()>>>;

/// The way of a loop to wait for a time.
pub struct Sleep(Box<dyn Fn(Duration) -> Wait>);

impl Sleep {
    /// A wait by this function.
    pub fn by<F: Future<Output = ()> + 'static>(sleep: impl Fn(Duration) -> F + 'static) -> Self {
        Self(Box::new(move |time| Box::pin(sleep(time))))
    }
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sleep")
    }
}

/// One loop's end of the ring. Lives on its loop; requests and connections reach it through their `Rc` handles.
#[derive(Debug)]
pub struct Feed {
    ring: Arc<Ring>,
    clock: Rc<Clock>,
    sleep: Sleep,
    process: line::Process,
    local: RefCell<Batch>,
    /// Lines are built here; taken out meanwhile, so that a variable's evaluation may itself log.
    scratch: RefCell<Vec<u8>>,
    /// `Some` if the ring refused the last batch: the number of batches that were written by then.
    refused: Cell<Option<u64>>,
    /// Number of the last batch of this loop.
    last: Cell<u64>,
    gathered: tokio::sync::Notify,
}

impl Feed {
    pub(super) fn new(ring: Arc<Ring>, clock: Rc<Clock>, sleep: Sleep) -> Self {
        Self {
            ring,
            clock,
            sleep,
            process: line::Process::current(),
            local: RefCell::default(),
            scratch: RefCell::default(),
            refused: Cell::new(None),
            last: Cell::new(0),
            gathered: tokio::sync::Notify::new(),
        }
    }

    /// The loop's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Hands this loop's lines over, once per iteration in which there were any. The loop spawns it as a task of its
    /// own: woken by the first line of an iteration, it runs after the tasks that are ready already, and so takes their
    /// lines along. Never ends.
    pub async fn run(self: Rc<Self>) {
        loop {
            self.gathered.notified().await;
            while !self.hand_over() {
                let next = self.refused.get().unwrap_or_default() + 1;
                Progress::of(&self.ring, next).await;
            }
        }
    }

    /// Whether a request's lines may be written now; never waits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.refused.get().is_none()
            || self.local.borrow().bytes.len() < LOCAL_BYTES
            || self.hand_over()
    }

    /// Waits for room, at most [`ROOM_WAIT`]. `false`: there is none, and the caller drops its `lines`, which are
    /// counted here.
    pub async fn room(&self, lines: u64) -> bool {
        if self.has_room() {
            return true;
        }
        let start = Instant::now();
        let found = self.within(ROOM_WAIT, async {
            while !self.has_room() {
                let next = self.refused.get().unwrap_or_default() + 1;
                Progress::of(&self.ring, next).await;
            }
        });
        let found = found.await;
        let mut queue = self.ring.queue.lock();
        queue.figures.waited(start.elapsed());
        if !found {
            queue.figures.dropped += lines;
            queue.unsaid += lines;
        }
        found
    }

    /// Appends one line, newline included or not as the target wants it. Ask [`Feed::has_room`] first.
    pub fn line(&self, target: &Target, write: impl FnOnce(&mut Vec<u8>)) {
        self.named_line(target, |out| {
            write(out);
            (0, 0)
        });
    }

    /// As [`Feed::line`], for a log with variables in its path: `write` puts the root's and the log's path in front of the line and
    /// gives their lengths.
    pub fn named_line(&self, target: &Target, write: impl FnOnce(&mut Vec<u8>) -> (u16, u16)) {
        let mut line = self.scratch.take();
        let names = write(&mut line);
        if line.len() > LINE_BYTES_MAX {
            line.truncate(LINE_BYTES_MAX - 1);
            line.push(b'\n');
        }
        self.append(target, &line, names);
        self.put_back(line);
    }

    /// Writes a line of the error log to all of `logs` that want its level. Never waits: without room the line is
    /// dropped and counted. `connection` is the number behind the `*`; `write` appends text and context
    /// (`ErrorContext`).
    pub fn error(
        &self,
        logs: &ErrorLogs,
        level: Level,
        connection: Option<u64>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if !logs.wants(level) {
            return;
        }
        self.clock.tick();
        let mut line = self.scratch.take();
        self.process
            .error_line(&self.clock, level, connection, &mut line, write);
        if self.has_room() {
            logs.each(level, &line, &self.clock, |target, line| {
                self.append(target, line, (0, 0))
            });
        } else {
            logs.each(level, &line, &self.clock, |target, _| {
                self.ring.count_dropped(target, 1)
            });
        }
        self.put_back(line);
    }

    /// A buffer that a long line has enlarged is not kept.
    fn put_back(&self, mut line: Vec<u8>) {
        line.clear();
        if line.capacity() <= 2 * LOCAL_BYTES {
            self.scratch.replace(line);
        }
    }

    /// Whether a wait ends in time.
    async fn within(&self, time: Duration, wait: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = wait => true,
            () = self.sleep.0(time) => false,
        }
    }

    /// Waits until the lines fed so far are in their files (buffered logs aside), so that a client that sees the
    /// connection close finds them there, as with nginx. Returns at once when the log thread is busy gathering (a
    /// loaded server), and after [`SETTLE_WAIT`].
    pub async fn settle(&self) {
        if self.hand_over() {
            let last = self.last.get();
            // A timeout is no failure: the line comes later.
            self.within(SETTLE_WAIT, Progress::of(&self.ring, last))
                .await;
        }
    }

    /// Hands over the last lines of a loop that ends, which then drops this. Waits for room, at most a second: a
    /// log may hang for ever, and the ring takes what is left in any case.
    pub async fn finish(&self) {
        let handed_over = async {
            while !self.hand_over() {
                let next = self.refused.get().unwrap_or_default() + 1;
                Progress::of(&self.ring, next).await;
            }
        };
        self.within(FINISH_WAIT, handed_over).await;
    }

    /// Hands the lines over now. `false`: the ring has no room for them.
    pub fn hand_over(&self) -> bool {
        let mut local = self.local.borrow_mut();
        if local.bytes.is_empty() {
            return true;
        }
        match self.ring.take(&mut local, false) {
            Ok(number) => {
                self.last.set(number);
                self.refused.set(None);
                true
            }
            Err(full) => {
                self.refused.set(Some(full.written));
                false
            }
        }
    }

    fn append(&self, target: &Target, line: &[u8], names: (u16, u16)) {
        let mut local = self.local.borrow_mut();
        let first = local.bytes.is_empty();
        local.push(target, line, names);
        let many = local.bytes.len() >= LOCAL_BYTES;
        drop(local);
        if first {
            self.gathered.notify_one();
        }
        if many {
            self.hand_over();
        }
    }
}

impl Drop for Feed {
    // A loop that ends leaves nothing behind: even a full ring takes its last lines (at most LOCAL_BYTES and a
    // request's).
    fn drop(&mut self) {
        let local = self.local.get_mut();
        if !local.bytes.is_empty() {
            // `must`: cannot be refused.
            let _ = self.ring.take(local, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Sink;

    #[test]
    fn a_loop_keeps_no_buffer_of_a_long_line() {
        let sleep = Sleep::by(|_| std::future::pending());
        let feed = Feed::new(Arc::new(Ring::new()), Rc::new(Clock::new()), sleep);
        let target = Sink::stderr();
        let errors = ErrorLogs::new(vec![(Level::Info, Arc::clone(&target))]);
        let long = |out: &mut Vec<u8>| out.resize(4 << 20, b'x');
        feed.line(&target, long);
        assert!(feed.scratch.borrow().capacity() <= 2 * LOCAL_BYTES);
        feed.error(&errors, Level::Error, None, long);
        assert!(feed.scratch.borrow().capacity() <= 2 * LOCAL_BYTES);
        feed.line(&target, |out| out.extend_from_slice(b"short\n"));
        assert!(feed.scratch.borrow().capacity() >= 6, "others are kept");
    }
}
