//! The thread that watches the worker's memory: asks how much of each bound is used, sets the level, logs it, and tells
//! the loops. Looks after loops that do not come back as well ([`runtime::loops::held`]).
//!
//! It wakes at the kernel's alarms ([`super::alarms`]), and by itself: often where little is free. It gives the
//! allocator's unused memory back to the kernel, which no loop does.
//!
//! Not here: what a level means to others. Invariant: the log lines are bounded: a level is logged once until memory
//! was enough for `CALM`.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use disk::memory::accounts::held;
use disk::memory::cgroup::{self, Bounded, Usage};
use disk::memory::level::{self, of_budget, of_limit, set_level};
use disk::memory::limits::{self, Groups};
use disk::memory::unwritten;
use disk::memory::{self, Holder, MemoryLevel, budget};
use logs::process_log::{self, error_log};
use runtime::Ledger;
use runtime::loops::held::HeldLoops;
use rustix::event::{PollFlags, Timespec, poll};

use super::alarms::Alarms;

/// Interval between two looks where little is free, or a level holds.
const OFTEN: Duration = Duration::from_millis(100);
/// Interval between two looks where more than half of everything is free.
const SELDOM: Duration = Duration::from_secs(1);
/// Interval at which limits are read anew: a container's limits may be changed while it runs.
const LIMITS: Duration = Duration::from_secs(5);
/// Minimum interval between two reminders to the loops while a level holds, and between two returns of the allocator's
/// free memory while it is scarce.
const AGAIN: Duration = Duration::from_secs(2);
/// The same where memory is tight and not scarce.
const TRIMS: Duration = Duration::from_secs(60);
/// Time for which the group's alarm counts.
const RUNG: Duration = Duration::from_secs(5);
/// Time for which memory must have been enough before a shortage is logged again.
const CALM: Duration = Duration::from_secs(30);

/// Minimum interval between two log lines about processes that the kernel killed.
const KILLS: Duration = Duration::from_secs(60);
/// Time after such a kill for which the worker stays small: it kills the largest, and whatever took the memory comes
/// again within seconds, faster than this thread looks.
const MODEST: Duration = Duration::from_secs(60);
/// The level meanwhile.
const MODEST_LEVEL: MemoryLevel = MemoryLevel::Files;
/// Time for which a configuration is served before the code that only its making needed is unmapped.
const SETTLED: Duration = Duration::from_secs(5);

const MIB: f64 = (1 << 20) as f64;

/// Starts the thread.
pub(crate) fn begin(ledger: &Arc<Ledger>, alarms: Alarms) {
    let mut watch = Watch::new(alarms);
    watch.read_limits(ledger);
    let ledger = Arc::downgrade(ledger);
    let thread = std::thread::Builder::new().name("memory".to_owned());
    if let Err(error) = thread.spawn(move || watch.run(&ledger)) {
        error_log(
            process_log::Level::Alert,
            format_args!("the thread that watches memory cannot be started ({error})"),
        );
    }
}

struct Watch {
    alarms: Alarms,
    groups: Groups,
    bounded: Vec<Bounded>,
    limits_read: Instant,
    /// The time until which the group's alarm counts.
    rung_until: Instant,
    /// The time until which the worker stays small.
    modest_until: Instant,
    told_loops: Instant,
    trimmed: Instant,
    /// The kills that each group has told of so far.
    kills: Vec<(Bounded, u64)>,
    kills_untold: u64,
    kills_told: Option<Instant>,
    said: LastLogged,
    held_loops: HeldLoops,
}

/// The last log lines.
struct LastLogged {
    level: MemoryLevel,
    /// The time since which no level holds.
    calm_since: Instant,
}

/// The result of a look.
struct MemorySample {
    level: MemoryLevel,
    /// The bound that determines the level.
    usage: Usage,
    reason: String,
    is_wide: bool,
    /// Bytes that may be written before writers are to begin themselves that these go to the disk.
    unwritten_room: u64,
}

impl Watch {
    fn new(alarms: Alarms) -> Self {
        let now = Instant::now();
        Self {
            alarms,
            groups: Groups::of(Path::new("/proc")),
            bounded: Vec::new(),
            limits_read: now,
            rung_until: now,
            modest_until: now,
            told_loops: now,
            trimmed: now,
            kills: Vec::new(),
            kills_untold: 0,
            kills_told: None,
            said: LastLogged {
                level: MemoryLevel::None,
                calm_since: now,
            },
            held_loops: HeldLoops::default(),
        }
    }

    fn run(mut self, ledger: &Weak<Ledger>) {
        let mut pause = OFTEN;
        loop {
            self.wait(pause);
            let Some(ledger) = ledger.upgrade() else {
                return;
            };
            if self.limits_read.elapsed() >= LIMITS {
                self.read_limits(&ledger);
            }
            let look = self.look();
            pause = match look.is_wide && look.level == MemoryLevel::None {
                true => SELDOM,
                false => OFTEN,
            };
            self.obey(&ledger, &look);
            self.note_kills(&ledger);
            self.held_loops.look(&ledger);
            if memory::is_tight(budget()) && super::of(&ledger).has_settled(SETTLED) {
                sys::unmap_idle_code();
            }
        }
    }

    fn wait(&mut self, pause: Duration) {
        let mut events = self.alarms.events();
        let timeout = Timespec::try_from(pause).ok();
        let outcome = poll(&mut events, timeout.as_ref());
        let revents: Vec<PollFlags> = events.iter().map(|event| event.revents()).collect();
        drop(events);
        if matches!(outcome, Ok(1..)) {
            if self.alarms.is_of_group(&revents) {
                self.rung_until = Instant::now() + RUNG;
            }
            self.alarms.forget_broken(&revents);
        }
    }

    fn read_limits(&mut self, ledger: &Ledger) {
        self.limits_read = Instant::now();
        self.bounded = cgroup::bounded(&self.groups, Path::new("/proc"));
        let limit = limits::least(&self.groups);
        let memory = super::of(ledger);
        let before = memory.limit.lock().replace(limit.clone());
        memory.settle();
        if before.as_ref() != Some(&limit) {
            error_log(
                process_log::Level::Info,
                format_args!(
                    "memory: at most {:.0} MiB ({}), of which {:.0} MiB may be the worker's own",
                    limit.bytes as f64 / MIB,
                    limit.of,
                    budget().min(limit.bytes) as f64 / MIB
                ),
            );
        }
    }

    /// Determines how scarce memory is.
    fn look(&self) -> MemorySample {
        let now = level::level();
        let own = Usage {
            limit: budget(),
            taken: cgroup::anonymous() + held()[Holder::Copies as usize],
            unwritten_room: u64::MAX,
        };
        let mut look = MemorySample {
            level: of_budget(own.limit, own.taken, now),
            usage: own,
            reason: "memory_budget".to_owned(),
            is_wide: own.taken < own.limit / 2,
            unwritten_room: u64::MAX,
        };
        for bounded in &self.bounded {
            let Some(usage) = bounded.usage() else {
                continue;
            };
            look.unwritten_room = look.unwritten_room.min(usage.unwritten_room);
            look.is_wide &= usage.taken < usage.limit / 2;
            let level = of_limit(usage.limit, usage.taken, now);
            if level > look.level {
                (look.level, look.usage) = (level, usage);
                look.reason = bounded.to_string();
            }
        }
        if look.level == MemoryLevel::None && Instant::now() < self.rung_until {
            look.level = MemoryLevel::Copies;
            "the kernel finds hardly any to give up".clone_into(&mut look.reason);
        }
        if look.level < MODEST_LEVEL && Instant::now() < self.modest_until {
            look.level = MODEST_LEVEL;
            "the kernel killed for want of it".clone_into(&mut look.reason);
        }
        look
    }

    fn obey(&mut self, ledger: &Ledger, look: &MemorySample) {
        unwritten::set_room(look.unwritten_room);
        let before = set_level(look.level);
        for begun in before as usize + 1..=look.level as usize {
            super::of(ledger).begun[begun].add(1);
        }
        self.said.note(look);
        let is_again = look.level > MemoryLevel::None && self.told_loops.elapsed() >= AGAIN;
        if look.level > before || is_again {
            self.told_loops = Instant::now();
            ledger.tell_loops_to_shed();
        }
        self.trim(look.level, look.level > before);
    }

    /// Gives the allocator's unused memory back: while memory is scarce, and seldom where the limit is tight. (Loops take
    /// it again page by page, and each page may have to wait until the kernel has freed one.)
    fn trim(&mut self, level: MemoryLevel, is_new: bool) {
        let interval = match level >= MemoryLevel::Buffers {
            true => AGAIN,
            false if memory::is_tight(budget()) => TRIMS,
            false => return,
        };
        if is_new || self.trimmed.elapsed() >= interval {
            self.trimmed = Instant::now();
            sys::trim_heap();
        }
    }

    /// Logs that the kernel killed another process of the group: there may be no other trace of it.
    fn note_kills(&mut self, ledger: &Ledger) {
        let tell = |bounded: &Bounded| (bounded.clone(), bounded.kills(&self.groups));
        let kills: Vec<_> = self.bounded.iter().map(tell).collect();
        let before = std::mem::replace(&mut self.kills, kills);
        let more_of = |(bounded, kills): &(Bounded, u64)| {
            let (_, before) = before.iter().find(|(known, _)| known == bounded)?;
            Some(kills.saturating_sub(*before))
        };
        // One of the own group may be told by a group above it as well.
        let more = self.kills.iter().filter_map(more_of).max().unwrap_or(0);
        super::of(ledger).kills.add(more);
        if more > 0 {
            self.modest_until = Instant::now() + MODEST;
        }
        self.kills_untold += more;
        if self.kills_untold > 0 && self.kills_told.is_none_or(|told| told.elapsed() >= KILLS) {
            self.kills_told = Some(Instant::now());
            error_log(
                process_log::Level::Notice,
                format_args!(
                    "the kernel has killed in this control group, which had no memory left: {} times; this worker goes on",
                    std::mem::take(&mut self.kills_untold)
                ),
            );
        }
    }
}

impl LastLogged {
    fn note(&mut self, look: &MemorySample) {
        if look.level == MemoryLevel::None {
            if self.level > MemoryLevel::None && self.calm_since.elapsed() >= CALM {
                self.level = MemoryLevel::None;
                error_log(
                    process_log::Level::Notice,
                    format_args!("memory is not scarce any more"),
                );
            }
            return;
        }
        self.calm_since = Instant::now();
        if look.level > self.level {
            self.level = look.level;
            error_log(
                process_log::Level::Notice,
                format_args!(
                    "memory is scarce: {:.1} of {:.1} MiB are taken ({}); {}",
                    look.usage.taken as f64 / MIB,
                    look.usage.limit as f64 / MIB,
                    look.reason,
                    look.level.says()
                ),
            );
        }
    }
}
