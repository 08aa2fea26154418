//! The figures of a worker: what is counted, under which names, and how it is read.
//!
//! * [`LoopFigures`]: the counters of one loop, read by others at any time; [`ModuleFigures`]: the part of them that
//!   few configurations need.
//! * [`Ledger`]: the list of all sources of figures; [`limits`]: counters of zones of limits.
//! * [`names`]: every family of figures with its name, unit and meaning; `docs/metrics.md` is made of it.
//! * [`gather`]: makes a [`Page`] of all figures as they are now; [`text`] and [`json`] write one, [`accept`] chooses
//!   the format.
//! * [`thread`]: the thread that does so, so that no loop spends its time on it.
//!
//! Not here: the directives that show them ([`crate::content::status`]). Invariant: labels come from the configuration
//! and from lists in the code, never from a request; a counter never decreases while the worker lives, whatever is
//! reloaded.

pub mod accept;
pub mod gather;
pub mod json;
pub mod limits;
pub mod names;
mod of_loop;
mod of_modules;
pub mod page;
mod parts;
mod process;
pub(crate) use process::unserved_in;
pub mod stalls;
pub mod text;
pub mod thread;
pub mod zones;

use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use disk::Disk;
use disk::metrics::Number;
use logs::Logs;
use parking_lot::Mutex;

use crate::dashboard::History;
use crate::http_server::Plan;
use crate::loops::{Berth, poll_timing};
use crate::memory::Memory;
use crate::settings::Settings;
pub use names::Family;
pub use of_loop::LoopFigures;
pub use of_modules::{By, Codec, ModuleFigures, Named, Password, Prologue};
pub use page::Page;
use stalls::Stalls;
use thread::Thread;
use zones::Zones;

/// The list of all sources of figures.
#[derive(Debug)]
pub struct Ledger {
    logs: Logs,
    disk: Arc<Disk>,
    loops: Mutex<Vec<Entry>>,
    /// Polls that took too long.
    pub stalls: Arc<Stalls>,
    /// Counters of requests, by `status_zone`.
    pub zones: Arc<Zones>,
    /// The configuration that is served.
    settings: Mutex<Weak<Settings>>,
    /// Its number.
    generation: Number,
    /// Time of its start, in milliseconds since 1970.
    configured_ms: Number,
    /// Time that it took to apply, in nanoseconds.
    configuring_ns: Number,
    /// The amount of memory, and how scarce it is.
    pub memory: Memory,
    /// Time since which there are figures, in milliseconds since 1970.
    started_ms: u64,
    thread: Thread,
    /// The dashboard's samples of the last minutes.
    pub history: History,
}

/// A loop that runs, or has run.
#[derive(Debug, Clone)]
struct Entry {
    figures: Arc<LoopFigures>,
    /// The part of the loop that other threads see, while it runs.
    berth: Weak<Berth>,
}

impl Entry {
    fn is_alive(&self) -> bool {
        self.berth.strong_count() > 0
    }

    fn connections(&self) -> u64 {
        let berth = self.berth.upgrade();
        berth.map_or(0, |berth| u64::from(berth.connections()))
    }
}

impl Ledger {
    /// An empty one.
    #[must_use]
    pub fn new(logs: Logs, disk: Arc<Disk>) -> Arc<Self> {
        Arc::new(Self {
            logs,
            disk,
            loops: Mutex::default(),
            stalls: Arc::default(),
            zones: Arc::default(),
            settings: Mutex::default(),
            generation: Number::default(),
            configured_ms: Number::default(),
            configuring_ns: Number::default(),
            memory: Memory::default(),
            started_ms: now_ms(),
            thread: Thread::default(),
            history: History::default(),
        })
    }

    /// The figures of a new loop: those of the last loop of this number, if that has ended.
    #[must_use]
    pub fn begin_loop(&self, index: usize) -> Arc<LoopFigures> {
        let mut loops = self.loops.lock();
        // With no other holder: the thread that wrote them is gone, and no reader adds them up.
        let free = loops
            .iter_mut()
            .filter(|entry| entry.figures.index == index)
            .find_map(|entry| {
                Arc::get_mut(&mut entry.figures)
                    .is_some()
                    .then_some(&*entry)
            });
        if let Some(entry) = free {
            return Arc::clone(&entry.figures);
        }
        let figures = Arc::new(LoopFigures {
            index,
            slot: loops.len(),
            stalls: Arc::clone(&self.stalls),
            ..LoopFigures::default()
        });
        loops.push(Entry {
            figures: Arc::clone(&figures),
            berth: Weak::new(),
        });
        figures
    }

    /// The loop with these figures runs.
    pub fn run_loop(&self, figures: &Arc<LoopFigures>, berth: &Arc<Berth>) {
        let mut loops = self.loops.lock();
        let entry = loops
            .iter_mut()
            .find(|entry| Arc::ptr_eq(&entry.figures, figures));
        if let Some(entry) = entry {
            entry.berth = Arc::downgrade(berth);
        }
    }

    /// Memory is scarce: tells each loop to give up what it can do without.
    pub fn tell_loops_to_shed(&self) {
        let loops = self.loops.lock().clone();
        for berth in loops.iter().filter_map(|entry| entry.berth.upgrade()) {
            berth.tell_to_shed();
        }
    }

    /// All loops serve this configuration.
    pub fn configure(&self, plan: &Plan) {
        self.stalls.configure(plan.loops.stall_ns);
        self.memory.configure(plan.memory_budget, plan.loops.loops);
        *self.settings.lock() = Arc::downgrade(&plan.settings);
        self.generation.set(plan.loops.number);
        self.configured_ms.set(now_ms());
        let took_ns = poll_timing::now_ns().saturating_sub(plan.begun_ns);
        self.configuring_ns.set(took_ns);
    }
}

/// Milliseconds since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
