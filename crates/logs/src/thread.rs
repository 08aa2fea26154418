//! The log thread: takes lines from the ring, writes them, flushes buffered logs in time, reads the time zone.
//!
//! It is the only thread of a worker that writes logs, and may wait for a disk as long as it likes. Invariant: without
//! load a line is written as soon as it is handed over; under load lines gather for [`NAP`], so that one write takes
//! many; the time that a round takes grows with what is written, and with the number of logs only by [`WALK_EVERY`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::error::ErrorLogs;
use super::file::Complaint;
use super::level::Level;
use super::line::Process;
use super::ring::{Batch, Item, RING_BYTES, Ring, Work};
use super::sink::{Order, Target};
use crate::wall_clock::{Clock, refresh_zone};

/// How long lines gather under load.
const NAP: Duration = Duration::from_millis(2);
/// So many wake-ups in a row are answered at once before lines gather …
const CREDITS_MAX: u32 = 256;
/// … and one more for each of these spans.
const CREDIT_EVERY: Duration = Duration::from_millis(4);
/// How often the time zone is looked at.
const ZONE_EVERY: Duration = Duration::from_secs(60);
/// How often it is said that lines of access logs were dropped.
const SAY_EVERY: Duration = Duration::from_secs(1);
/// Minimum interval between two walks through a list, for each log in it: the share of the thread's time that walks take
/// is small, however many logs there are.
const WALK_EVERY: Duration = Duration::from_micros(2);

/// All targets of the process, so that the last handle to one is let go on the log thread (closing may wait for a disk).
#[derive(Debug, Default)]
pub(super) struct Targets {
    pub all: Mutex<Known>,
    /// Where the thread itself complains.
    pub main: Mutex<ErrorLogs>,
}

/// Targets that may be in use, files by their paths.
#[derive(Debug, Default)]
pub(super) struct Known {
    files: HashMap<PathBuf, Target>,
    others: Vec<Target>,
}

impl Known {
    pub(crate) fn add(&mut self, target: Target) {
        match target.path().map(Path::to_owned) {
            Some(path) => drop(self.files.insert(path, target)),
            None => self.others.push(target),
        }
    }

    pub(crate) fn find(&self, path: &Path) -> Option<&Target> {
        self.files.get(path)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Target> {
        self.files.values().chain(&self.others)
    }

    /// Takes out those that this holds for.
    fn take(&mut self, is_unused: impl Fn(&Target) -> bool) -> Vec<Target> {
        let files = self.files.extract_if(|_, target| is_unused(target));
        let mut taken: Vec<_> = files.map(|(_, target)| target).collect();
        taken.extend(self.others.extract_if(.., |target| is_unused(target)));
        taken
    }
}

pub(super) struct Writer {
    ring: Arc<Ring>,
    targets: Arc<Targets>,
    clock: Clock,
    process: Process,
    /// Written to since the last flush.
    dirty: Vec<Target>,
    /// Logs that hold lines: those with `buffer=`, and those whose readers do not read.
    held: Vec<Target>,
    /// The time by which the first of these is to be flushed, and the one before which they are not walked through again.
    held_due: Option<Instant>,
    held_pause: Instant,
    /// Whether there was work since it was last looked for unused targets, and the time before which it is not.
    may_forget: bool,
    forget_pause: Instant,
    /// Number of targets that walks have looked at.
    #[cfg(test)]
    looks: usize,
    /// What went wrong, and the logs to say it in where those are not the process's.
    complaints: Vec<(Complaint, Option<ErrorLogs>)>,
    /// Lines taken less those lost: below 0 while more of earlier rounds were lost.
    written: i64,
    bytes: u64,
    failed: u64,
    said: Option<Instant>,
    zone: Instant,
}

impl Writer {
    pub(crate) fn new(ring: Arc<Ring>, targets: Arc<Targets>) -> Self {
        let now = Instant::now();
        Self {
            ring,
            targets,
            clock: Clock::new(),
            process: Process::current(),
            dirty: Vec::new(),
            held: Vec::new(),
            held_due: None,
            held_pause: now,
            may_forget: false,
            forget_pause: now,
            #[cfg(test)]
            looks: 0,
            complaints: Vec::new(),
            written: 0,
            bytes: 0,
            failed: 0,
            said: None,
            zone: now,
        }
    }

    /// Runs until the ring ends.
    pub(crate) fn run(mut self) {
        self.process = Process::current();
        let mut pace = Pace {
            credits: CREDITS_MAX,
            since: Instant::now(),
        };
        loop {
            let work = self.ring.wait(Some(self.next_deadline()));
            if self.zone.elapsed() >= ZONE_EVERY {
                refresh_zone();
                self.zone = Instant::now();
            }
            self.clock.tick();
            let found = work.items.iter().any(|item| matches!(item, Item::Lines(_)));
            let ending = work.ending && work.items.is_empty();
            self.write(work);
            if ending {
                return;
            }
            if found && !pace.spend() {
                self.ring.nap(NAP);
            }
        }
    }

    fn write(&mut self, mut work: Work) {
        self.may_forget |= !work.items.is_empty();
        for item in &mut work.items {
            match item {
                Item::Lines(batch) => self.append_all(batch),
                Item::Order(order) => {
                    let order = std::mem::replace(order, Order::Done);
                    self.obey(order);
                }
            }
        }
        self.flush(work.draining || work.ending);
        self.complain();
        self.count();
        self.ring.done(work);
        if self.may_forget && Instant::now() >= self.forget_pause {
            self.forget_unused();
        }
    }

    fn append_all(&mut self, batch: &Batch) {
        let mut rest = batch.bytes.as_slice();
        for run in &batch.runs {
            let (lines, after) = rest.split_at(run.len);
            rest = after;
            self.written += i64::from(run.lines);
            self.bytes += run.len as u64;
            self.append(&run.target, lines, run.lines, run.names);
        }
    }

    fn append(&mut self, target: &Target, lines: &[u8], count: u32, names: (u16, u16)) {
        let result = target.append(lines, count, names);
        self.note_for(target.error_logs(), result);
        self.mark(target);
    }

    /// It is looked at when this round's lines are flushed.
    fn mark(&mut self, target: &Target) {
        if !target.lists.dirty.set(true) {
            self.dirty.push(Arc::clone(target));
        }
    }

    /// Writes what has gathered; of buffered logs only what is due, unless `all`.
    fn flush(&mut self, all: bool) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for target in dirty.drain(..) {
            target.lists.dirty.set(false);
            if self.flush_one(&target, all) && !target.lists.held.set(true) {
                self.held.push(target);
            }
        }
        self.dirty = dirty;
        if all || self.next_walk().is_some_and(|at| at <= Instant::now()) {
            self.flush_held(all);
        }
    }

    fn flush_held(&mut self, all: bool) {
        self.held_due = None;
        let mut held = std::mem::take(&mut self.held);
        self.held_pause = self.walked(held.len());
        held.retain(|target| {
            let holds = self.flush_one(target, all);
            target.lists.held.set(holds);
            holds
        });
        self.held = held;
    }

    /// Whether the target holds lines still.
    fn flush_one(&mut self, target: &Target, all: bool) -> bool {
        let result = target.flush(all);
        self.note(result);
        let due = target.due();
        self.held_due = due.into_iter().chain(self.held_due).min();
        due.is_some() || target.holds_lines()
    }

    /// The time of the next walk through the logs that hold lines.
    fn next_walk(&self) -> Option<Instant> {
        self.held_due.map(|due| due.max(self.held_pause))
    }

    /// So many targets are looked at: the end of the pause behind it.
    fn walked(&mut self, targets: usize) -> Instant {
        #[cfg(test)]
        {
            self.looks += targets;
        }
        Instant::now() + WALK_EVERY * u32::try_from(targets).unwrap_or(u32::MAX)
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Reopen {
                target,
                descriptor,
                buffer,
            } => {
                let result = target.reopen(descriptor, buffer);
                self.note(result);
                self.mark(&target);
            }
            Order::Leave { target } => {
                let result = target.leave();
                self.note(result);
                self.mark(&target);
            }
            Order::Done => {}
            Order::ForgetNamed => {
                // Closing a file may wait for its disk: not with the lock that a reload takes.
                let all: Vec<_> = self.targets.all.lock().iter().cloned().collect();
                all.iter().for_each(|target| target.forget_named());
            }
        }
    }

    fn note(&mut self, result: Result<(), Complaint>) {
        self.note_for(None, result);
    }

    fn note_for(&mut self, logs: Option<&ErrorLogs>, result: Result<(), Complaint>) {
        if let Err(complaint) = result {
            self.failed += complaint.lost;
            self.written -= i64::try_from(complaint.lost).unwrap_or(i64::MAX);
            if !complaint.text.is_empty() {
                self.complaints.push((complaint, logs.cloned()));
            }
        }
    }

    /// Says in the error log what went wrong; and in each log how many of its lines were dropped.
    fn complain(&mut self) {
        let main = self.targets.main.lock().clone();
        for (complaint, logs) in std::mem::take(&mut self.complaints) {
            self.say(
                logs.as_ref().unwrap_or(&main),
                complaint.level,
                &complaint.text,
            );
        }
        if !self.ring.has_dropped.swap(false, Ordering::Acquire) {
            return;
        }
        let lossy: Vec<(Target, u64)> = {
            let all = self.targets.all.lock();
            let counted = all
                .iter()
                .map(|target| (target, target.take_dropped()))
                .filter(|(_, lost)| *lost > 0);
            counted
                .map(|(target, lost)| (Arc::clone(target), lost))
                .collect()
        };
        self.ring.queue.lock().figures.dropped += lossy.iter().map(|(_, lost)| *lost).sum::<u64>();
        for (target, lost) in lossy {
            let own = ErrorLogs::new(vec![(Level::Warn, target)]);
            self.say(
                &own,
                Level::Warn,
                format!("{lost} lines dropped: no room for {RING_BYTES} bytes of logs").as_bytes(),
            );
        }
    }

    fn say(&mut self, logs: &ErrorLogs, level: Level, text: &[u8]) {
        if !logs.wants(level) {
            return;
        }
        let mut line = Vec::new();
        self.process
            .error_line(&self.clock, level, None, &mut line, |out| {
                out.extend_from_slice(text)
            });
        logs.each(level, &line, &self.clock, |target, line| {
            // A complaint about a complaint would have no end.
            let _ = target
                .append(line, 1, (0, 0))
                .and_then(|()| target.flush(true));
        });
    }

    fn count(&mut self) {
        let mut queue = self.ring.queue.lock();
        if let Ok(written) = u64::try_from(self.written) {
            queue.figures.written += written;
            self.written = 0;
        }
        queue.figures.bytes += std::mem::take(&mut self.bytes);
        queue.figures.failed += std::mem::take(&mut self.failed);
        if queue.unsaid == 0 || self.said.is_some_and(|at| at.elapsed() < SAY_EVERY) {
            return;
        }
        let dropped = std::mem::take(&mut queue.unsaid);
        drop(queue);
        self.said = Some(Instant::now());
        let main = self.targets.main.lock().clone();
        let text =
            format!("{dropped} access log lines dropped: no room for {RING_BYTES} bytes of logs");
        self.say(&main, Level::Warn, text.as_bytes());
    }

    /// Lets go of targets that no configuration names any more.
    fn forget_unused(&mut self) {
        self.may_forget = false;
        let (unused, count) = {
            let mut all = self.targets.all.lock();
            let is_unused = |target: &Target| {
                let here = usize::from(target.lists.held.get());
                Arc::strong_count(target) == 1 + here
            };
            let count = all.iter().count();
            (all.take(is_unused), count)
        };
        self.forget_pause = self.walked(count);
        if unused.is_empty() {
            return;
        }
        for target in &unused {
            target.lists.held.set(false);
            let result = target.flush(true);
            self.note(result);
        }
        self.held.retain(|held| held.lists.held.get());
    }

    fn next_deadline(&self) -> Instant {
        let forget = self.may_forget.then_some(self.forget_pause);
        let walks = self.next_walk().into_iter().chain(forget);
        walks.fold(self.zone + ZONE_EVERY, Instant::min)
    }
}

/// How many wake-ups may be answered at once.
struct Pace {
    credits: u32,
    since: Instant,
}

impl Pace {
    /// Takes one credit; `false` when there is none.
    fn spend(&mut self) -> bool {
        let earned = self.since.elapsed().as_millis() / CREDIT_EVERY.as_millis();
        if earned > 0 {
            self.since = Instant::now();
            self.credits = self
                .credits
                .saturating_add(u32::try_from(earned).unwrap_or(CREDITS_MAX))
                .min(CREDITS_MAX);
        }
        let left = self.credits.checked_sub(1);
        self.credits = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test runs on no loop")]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::Buffer;
    use crate::sink::Sink;

    const LOGS: usize = 2000;
    const LINES: usize = 2000;

    /// A round of the thread with one line.
    fn write_line(writer: &mut Writer, target: &Target) {
        let mut batch = Batch::default();
        batch.push(target, b"line\n", (0, 0));
        writer.ring.push_now(batch);
        let work = writer.ring.wait(None);
        writer.write(work);
    }

    #[test]
    fn a_round_does_not_go_through_all_logs() {
        let (ring, targets) = (Arc::new(Ring::new()), Arc::new(Targets::default()));
        let null = Arc::<std::os::fd::OwnedFd>::new(
            File::options()
                .write(true)
                .open("/dev/null")
                .unwrap()
                .into(),
        );
        let buffer = Some(Buffer {
            size: 4096,
            flush: Some(Duration::from_micros(1)),
            gzip: None,
        });
        let log = |number: usize| {
            let path = format!("/log/{number}");
            let log = Sink::file(Path::new(&path), Arc::clone(&null), buffer);
            targets.all.lock().add(Arc::clone(&log));
            log
        };
        let logs: Vec<Target> = (0..LOGS).map(log).collect();
        let mut writer = Writer::new(ring, Arc::clone(&targets));
        let start = Instant::now();
        for number in 0..LINES {
            write_line(&mut writer, &logs[number % LOGS]);
        }
        // A walk is followed by a pause for each target that it looked at, so that time has passed for all but the last ones.
        let most = start.elapsed().as_micros() / WALK_EVERY.as_micros();
        let most = 2 * (usize::try_from(most).unwrap() + 2 * LOGS);
        assert!(writer.looks <= most, "{} of {most}", writer.looks);
        // The logs of an older configuration go all the same.
        let kept = Arc::clone(&logs[0]);
        drop(logs);
        writer.forget_pause = Instant::now();
        write_line(&mut writer, &kept);
        assert_eq!(targets.all.lock().iter().count(), 1);
        assert!(writer.held.len() <= 1, "{}", writer.held.len());
    }
}
