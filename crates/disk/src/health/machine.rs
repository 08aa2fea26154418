//! The states of a disk, and what moves it from one to another. Pure: time and counts come in, changes go out.
//!
//! Invariant: each state is left by a stricter condition than it is entered by, and a disk that goes out again soon has
//! to answer longer before it is asked again.

use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// How often the counts of a disk are looked at.
pub const TICK: Duration = Duration::from_millis(100);
/// Ticks of one slot of the window that errors and slow reads are counted in: a second.
const TICKS_OF_SLOT: u32 = 10;
/// Slots of that window.
const SLOTS: usize = 10;

/// Minimum time without any progress of reads that wait, after which a disk is out.
pub const STALL_MIN: Duration = Duration::from_secs(1);
/// The same, at most.
pub const STALL_MAX: Duration = Duration::from_secs(5);
/// Multiple of the usual p99 of its reads that this time is, between these bounds.
const STALL_USUAL: u32 = 20;
/// Time without any progress of writes that wait, after which nothing more is written. (Writing back what many fills
/// have left in memory takes seconds on a slow disk.)
pub const WRITE_STALL: Duration = Duration::from_secs(5);

/// Errors within the window from which a disk is failing.
pub const FAILING_ERRORS: u64 = 3;
/// Time without an error after which it is well again.
pub const FAILING_QUIET: Duration = Duration::from_secs(30);
/// Errors within the window from which it is out, if they are half of its calls.
pub const OUT_ERRORS: u64 = 10;

/// Slow reads within the window from which a disk is slow, if they are a tenth of its reads.
pub const SLOW_READS: u64 = 5;
const SLOW_SHARE: u64 = 10;
/// It is well again after a window in which they are at most one in so many.
const QUICK_SHARE: u64 = 50;
/// Minimum duration of a slow read.
pub const SLOW_MIN: Duration = Duration::from_millis(50);
/// Multiple of the usual p99 from which a read is slow.
const SLOW_USUAL: u32 = 8;

/// Reads that a sample of the usual p99 is made of, at least.
const USUAL_READS: u64 = 100;
/// Minimum time between two samples: what is new for less is not usual.
const USUAL_EVERY: Duration = Duration::from_secs(10);
/// The usual p99 before the first sample.
const USUAL_FIRST: Duration = Duration::from_millis(50);
/// A sample's weight is one in so many where the disk is well, and where it is not: what lasts becomes usual in the
/// end.
const WEIGHT_WELL: u32 = 8;
const WEIGHT_SICK: u32 = 64;
/// A sample counts at most as so many times the usual.
const USUAL_JUMP: u32 = 4;

/// Pause before the first probe, and the longest one: each probe in vain doubles it.
pub const PROBE_FIRST: Duration = Duration::from_millis(500);
/// See [`PROBE_FIRST`].
pub const PROBE_MAX: Duration = Duration::from_secs(30);
/// Pause between probes that succeed.
const PROBE_NEXT: Duration = Duration::from_millis(250);
/// Probes in a row that must succeed before a disk is asked again.
pub const PROBES_GOOD: u32 = 3;
/// The same, at most, for a disk that goes out again and again.
pub const PROBES_GOOD_MAX: u32 = 48;
/// A disk that goes out again within this time, or to which writing is refused again, has to prove itself twice as long.
pub const RELAPSE: Duration = Duration::from_secs(300);

/// A disk's state, as far as reading is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DiskState {
    /// As usual.
    #[default]
    Well,
    /// Far slower than usual.
    Slow,
    /// Some calls fail.
    Failing,
    /// It does not answer, or hardly a call succeeds: nothing is asked of it.
    Out,
}

impl DiskState {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Well, Self::Slow, Self::Failing, Self::Out];

    /// The name in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Slow => "slow",
            Self::Failing => "failing",
            Self::Out => "out",
        }
    }
}

/// Whether something new may be written to a disk. Deleting is not meant: that makes room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum WriteState {
    /// It may.
    #[default]
    Allowed,
    /// No: there is no space (ENOSPC, EDQUOT).
    Full,
    /// No: it is read-only (EROFS).
    ReadOnly,
    /// No: writes that wait make no progress.
    Stalled,
}

impl WriteState {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Allowed, Self::Full, Self::ReadOnly, Self::Stalled];

    /// The name in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Full => "full",
            Self::ReadOnly => "read-only",
            Self::Stalled => "stalled",
        }
    }
}

/// What an error says of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A call failed (EIO and its kin).
    Failed,
    /// The device is gone.
    Gone,
    /// See [`WriteState::Full`].
    Full,
    /// See [`WriteState::ReadOnly`].
    ReadOnly,
}

impl Trouble {
    /// None: an answer, not a trouble.
    pub(crate) fn of(errno: Errno) -> Option<Self> {
        match errno {
            Errno::IO | Errno::UCLEAN | Errno::TIMEDOUT | Errno::REMOTEIO | Errno::NOTCONN => {
                Some(Self::Failed)
            }
            Errno::NODEV | Errno::NXIO | Errno::SHUTDOWN | Errno::NOMEDIUM => Some(Self::Gone),
            Errno::NOSPC | Errno::DQUOT => Some(Self::Full),
            Errno::ROFS => Some(Self::ReadOnly),
            _ => None,
        }
    }
}

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeEnd {
    /// It was read; and whether it could be written.
    Read(WriteState),
    /// It failed.
    Failed(Errno),
    /// It takes too long.
    Hangs,
    /// This process could not ask: it, or the system, had no descriptor or no memory left.
    NotAsked,
}

impl ProbeEnd {
    /// That of a probe with this error.
    pub(super) fn of(errno: Errno) -> Self {
        match errno {
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::NotAsked,
            _ => Self::Failed(errno),
        }
    }
}

/// What happened on a disk in one tick.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Time that passed, as far as this process ran.
    pub passed: Duration,
    pub reads: u64,
    pub slow_reads: u64,
    /// The p99 of reads, where it is due.
    pub p99: Option<Duration>,
    pub calls: u64,
    pub errors: u64,
    pub is_gone: bool,
    pub refused: Option<WriteState>,
    pub reads_waiting: u64,
    pub writes_waiting: u64,
    /// Whether any of them came a step further.
    pub have_reads_moved: bool,
    pub have_writes_moved: bool,
    pub probe: Option<ProbeEnd>,
}

/// A change of state, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    pub state: DiskState,
    pub writing: WriteState,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    reads: u64,
    slow: u64,
    calls: u64,
    errors: u64,
}

/// The machine; see the module.
#[derive(Debug)]
pub(crate) struct HealthMachine {
    state: DiskState,
    writing: WriteState,
    usual: Duration,
    has_usual: bool,
    since_sample: Duration,
    slots: VecDeque<Slot>,
    ticks: u32,
    reads_stand: Duration,
    writes_stand: Duration,
    since_error: Duration,
    /// Time in this state.
    since_change: Duration,
    /// Time since it was last asked again, or allowed to be written again.
    since_return: Option<Duration>,
    /// Probes that must succeed in a row, and those that have.
    wanted: u32,
    good: u32,
    pause: Duration,
    until_probe: Duration,
}

impl Default for HealthMachine {
    fn default() -> Self {
        Self {
            state: DiskState::Well,
            writing: WriteState::Allowed,
            usual: USUAL_FIRST,
            has_usual: false,
            since_sample: Duration::ZERO,
            slots: VecDeque::from([Slot::default()]),
            ticks: 0,
            reads_stand: Duration::ZERO,
            writes_stand: Duration::ZERO,
            since_error: FAILING_QUIET,
            since_change: Duration::ZERO,
            since_return: None,
            wanted: PROBES_GOOD,
            good: 0,
            pause: PROBE_FIRST,
            until_probe: PROBE_FIRST,
        }
    }
}

impl HealthMachine {
    pub(crate) fn usual(&self) -> Duration {
        self.usual
    }

    /// The duration from which a read is slow.
    pub(crate) fn slow(&self) -> Duration {
        (self.usual * SLOW_USUAL).max(SLOW_MIN)
    }

    fn stall(&self) -> Duration {
        (self.usual * STALL_USUAL).clamp(STALL_MIN, STALL_MAX)
    }

    /// Whether so many reads are due as a sample of the usual p99.
    pub(crate) fn wants_sample(&self, reads: u64) -> bool {
        reads >= USUAL_READS && (!self.has_usual || self.since_sample >= USUAL_EVERY)
    }

    /// Whether a probe is to be begun now.
    pub(crate) fn wants_probe(&self) -> bool {
        let is_sick = self.state == DiskState::Out || self.writing != WriteState::Allowed;
        is_sick && self.until_probe.is_zero()
    }

    /// Takes one tick in. Returns the change that it causes.
    pub(crate) fn tick(&mut self, sample: &Sample) -> Option<Transition> {
        self.count(sample);
        self.learn(sample);
        let before = (self.state, self.writing);
        let reason = self
            .by_reading(sample)
            .or_else(|| self.by_writing(sample))
            .or_else(|| self.by_probe(sample))
            .or_else(|| self.by_recovery())?;
        if before == (self.state, self.writing) {
            return None;
        }
        self.since_change = Duration::ZERO;
        Some(Transition {
            state: self.state,
            writing: self.writing,
            reason,
        })
    }

    fn count(&mut self, sample: &Sample) {
        self.ticks += 1;
        if self.ticks == TICKS_OF_SLOT {
            self.ticks = 0;
            self.slots.push_back(Slot::default());
            if self.slots.len() > SLOTS {
                self.slots.pop_front();
            }
        }
        if let Some(slot) = self.slots.back_mut() {
            slot.reads += sample.reads;
            slot.slow += sample.slow_reads;
            slot.calls += sample.calls;
            slot.errors += sample.errors;
        }
        let stands =
            |so_far: Duration, waiting: u64, has_moved: bool| match waiting > 0 && !has_moved {
                true => so_far + sample.passed,
                false => Duration::ZERO,
            };
        self.reads_stand = stands(
            self.reads_stand,
            sample.reads_waiting,
            sample.have_reads_moved,
        );
        self.writes_stand = stands(
            self.writes_stand,
            sample.writes_waiting,
            sample.have_writes_moved,
        );
        self.since_error = match sample.errors {
            0 => self.since_error.saturating_add(sample.passed),
            _ => Duration::ZERO,
        };
        self.since_change = self.since_change.saturating_add(sample.passed);
        self.since_return = self
            .since_return
            .map(|since| since.saturating_add(sample.passed));
        self.until_probe = self.until_probe.saturating_sub(sample.passed);
    }

    fn learn(&mut self, sample: &Sample) {
        self.since_sample = self.since_sample.saturating_add(sample.passed);
        let Some(p99) = sample.p99 else { return };
        self.since_sample = Duration::ZERO;
        if !self.has_usual {
            (self.has_usual, self.usual) = (true, p99);
            return;
        }
        let weight = match self.state {
            DiskState::Well => WEIGHT_WELL,
            _ => WEIGHT_SICK,
        };
        let p99 = p99.min(self.usual * USUAL_JUMP);
        self.usual = self.usual * (weight - 1) / weight + p99 / weight;
    }

    fn window(&self) -> Slot {
        self.slots.iter().fold(Slot::default(), |sum, slot| Slot {
            reads: sum.reads + slot.reads,
            slow: sum.slow + slot.slow,
            calls: sum.calls + slot.calls,
            errors: sum.errors + slot.errors,
        })
    }

    /// What makes it worse.
    fn by_reading(&mut self, sample: &Sample) -> Option<String> {
        if self.state == DiskState::Out {
            return None;
        }
        let window = self.window();
        if self.reads_stand >= self.stall() {
            let (waiting, stood) = (sample.reads_waiting, Seconds(self.reads_stand));
            return Some(self.go_out(format!(
                "none of {waiting} reads has come a step further for {stood} s"
            )));
        }
        if sample.is_gone {
            return Some(self.go_out("the device is gone".to_owned()));
        }
        if window.errors >= OUT_ERRORS && window.errors * 2 >= window.calls {
            let (errors, calls) = (window.errors, window.calls);
            return Some(self.go_out(format!("{errors} of {calls} calls failed within 10 s")));
        }
        if self.state < DiskState::Failing && window.errors >= FAILING_ERRORS {
            self.state = DiskState::Failing;
            let (errors, calls) = (window.errors, window.calls);
            return Some(format!("{errors} of {calls} calls failed within 10 s"));
        }
        if self.state < DiskState::Slow
            && window.slow >= SLOW_READS
            && window.slow * SLOW_SHARE >= window.reads
        {
            self.state = DiskState::Slow;
            let (slow, reads) = (window.slow, window.reads);
            return Some(format!(
                "{slow} of {reads} reads within 10 s took {} s and more; its usual p99 is {} s",
                Seconds(self.slow()),
                Seconds(self.usual)
            ));
        }
        None
    }

    fn go_out(&mut self, reason: String) -> String {
        self.state = DiskState::Out;
        self.begin_probes();
        reason
    }

    fn by_writing(&mut self, sample: &Sample) -> Option<String> {
        if self.writing != WriteState::Allowed || self.state == DiskState::Out {
            return None;
        }
        if let Some(refused) = sample.refused {
            self.writing = refused;
            self.begin_probes();
            return Some(match refused {
                WriteState::ReadOnly => "a write was refused: read-only".to_owned(),
                _ => "a write was refused: no space".to_owned(),
            });
        }
        if self.writes_stand < WRITE_STALL {
            return None;
        }
        self.writing = WriteState::Stalled;
        self.begin_probes();
        Some(format!(
            "none of {} writes has come a step further for {} s",
            sample.writes_waiting,
            Seconds(self.writes_stand)
        ))
    }

    fn begin_probes(&mut self) {
        let is_relapse = self.since_return.is_some_and(|since| since < RELAPSE);
        self.wanted = match is_relapse {
            true => (self.wanted * 2).min(PROBES_GOOD_MAX),
            false => PROBES_GOOD,
        };
        self.good = 0;
        self.pause = PROBE_FIRST;
        self.until_probe = PROBE_FIRST;
    }

    /// What a probe says, while the disk is out or not written to.
    fn by_probe(&mut self, sample: &Sample) -> Option<String> {
        let probe = sample.probe?;
        let is_out = self.state == DiskState::Out;
        if !is_out && self.writing == WriteState::Allowed {
            return None;
        }
        let is_good = match probe {
            // What waited from before must be through, too.
            ProbeEnd::Read(_) if is_out => self.reads_stand < self.stall(),
            ProbeEnd::Read(writing) => {
                writing == WriteState::Allowed && self.writes_stand < WRITE_STALL
            }
            ProbeEnd::Failed(_) | ProbeEnd::Hangs => false,
            ProbeEnd::NotAsked => {
                self.until_probe = self.pause;
                return None;
            }
        };
        if !is_good {
            self.good = 0;
            self.pause = (self.pause * 2).min(PROBE_MAX);
            self.until_probe = self.pause;
            return None;
        }
        self.good += 1;
        self.pause = PROBE_FIRST;
        self.until_probe = PROBE_NEXT;
        if self.good < self.wanted {
            return None;
        }
        self.good = 0;
        self.since_return = Some(Duration::ZERO);
        self.slots.clear();
        self.slots.push_back(Slot::default());
        self.since_error = FAILING_QUIET;
        let after = Seconds(self.since_change);
        let reason = format!(
            "{} probes in a row succeeded, {after} s after the last change",
            self.wanted
        );
        if let ProbeEnd::Read(writing) = probe {
            self.writing = writing;
        }
        self.state = match is_out {
            true => DiskState::Well,
            false => self.state,
        };
        // A disk that is read again may still not be written to.
        self.until_probe = PROBE_FIRST;
        Some(reason)
    }

    fn by_recovery(&mut self) -> Option<String> {
        match self.state {
            DiskState::Failing if self.since_error >= FAILING_QUIET => {
                self.state = DiskState::Well;
                Some(format!(
                    "no call failed for {} s",
                    Seconds(self.since_error)
                ))
            }
            DiskState::Slow if self.since_change >= TICK * TICKS_OF_SLOT * SLOTS as u32 => {
                let window = self.window();
                if window.slow * QUICK_SHARE > window.reads {
                    return None;
                }
                self.state = DiskState::Well;
                Some(format!(
                    "{} of {} reads within 10 s were slow",
                    window.slow, window.reads
                ))
            }
            _ => None,
        }
    }
}

/// Seconds with three digits behind the point.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.3}", self.0.as_secs_f64())
    }
}
