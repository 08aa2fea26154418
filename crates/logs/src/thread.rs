//! The log thread: takes lines from the ring, writes them, flushes buffered logs in time, reads the time zone.
//!
//! It is the only thread of a worker that writes logs, and may wait for a disk as long as it likes. Invariant: without
//! load a line is written as soon as it is handed over; under load lines gather for [`NAP`], so that one write takes
//! many.

use std::path::{Path, PathBuf};
use std::sync::Arc;
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
    /// What went wrong, and the logs to say it in where those are not the process's.
    complaints: Vec<(Complaint, Option<ErrorLogs>)>,
    written: u64,
    bytes: u64,
    failed: u64,
    said: Option<Instant>,
    zone: Instant,
}

impl Writer {
    pub(crate) fn new(ring: Arc<Ring>, targets: Arc<Targets>) -> Self {
        Self {
            ring,
            targets,
            clock: Clock::new(),
            process: Process::current(),
            dirty: Vec::new(),
            complaints: Vec::new(),
            written: 0,
            bytes: 0,
            failed: 0,
            said: None,
            zone: Instant::now(),
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
        self.forget_unused();
    }

    fn append_all(&mut self, batch: &Batch) {
        let mut rest = batch.bytes.as_slice();
        for run in &batch.runs {
            let (lines, after) = rest.split_at(run.len);
            rest = after;
            self.written += u64::from(run.lines);
            self.bytes += run.len as u64;
            self.append(&run.target, lines, run.lines, run.names);
        }
    }

    fn append(&mut self, target: &Target, lines: &[u8], count: u32, names: (u16, u16)) {
        let result = target.append(lines, count, names);
        self.note_for(target.error_logs(), result);
        if !self.dirty.iter().any(|dirty| Arc::ptr_eq(dirty, target)) {
            self.dirty.push(Arc::clone(target));
        }
    }

    /// Writes what has gathered; of buffered logs only what is due, unless `all`.
    fn flush(&mut self, all: bool) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.retain(|target| {
            let result = target.flush(all);
            self.note(result);
            target.due().is_some() || target.holds_lines()
        });
        self.dirty = dirty;
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
            }
            Order::Leave { target } => {
                let result = target.leave();
                self.note(result);
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
        queue.figures.written += std::mem::take(&mut self.written);
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
        let dirty = &self.dirty;
        let unused: Vec<Target> = {
            let mut all = self.targets.all.lock();
            let is_unused = |target: &Target| {
                let here = dirty
                    .iter()
                    .filter(|dirty| Arc::ptr_eq(dirty, target))
                    .count();
                Arc::strong_count(target) == 1 + here
            };
            all.take(is_unused)
        };
        for target in unused {
            self.dirty.retain(|dirty| !Arc::ptr_eq(dirty, &target));
            let result = target.flush(true);
            self.note(result);
        }
    }

    fn next_deadline(&self) -> Instant {
        let flushes = self.dirty.iter().filter_map(|target| target.due());
        flushes
            .min()
            .unwrap_or(self.zone + ZONE_EVERY)
            .min(self.zone + ZONE_EVERY)
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
