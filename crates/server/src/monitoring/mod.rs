//! The metrics of a worker, gathered at the request of a client.
//!
//! * `gather`: makes a [`Page`](runtime::metrics::Page) of all metrics as they are now.
//! * [`families`]: the list of all families; `docs/metrics.md` is made of it.
//! * `thread`: the thread that gathers and writes, so that no loop spends its time on it.
//! * `accept`: the format that a client asks for.
//! * `directives`: the directives that show them; `status`: what these show, as the content of a location.
//! * `process`, `disk`: the metrics of the process, and of pools and disks.
//!
//! Not here: the live view (`crate::dashboard`), and counting ([`runtime::metrics`]).

pub(crate) mod accept;
pub(crate) mod directives;
mod disk;
pub mod families;
pub(crate) mod gather;
mod process;
pub(crate) mod status;
pub(crate) mod thread;

use std::sync::{Arc, OnceLock, Weak};

use ::disk::Disk;
use ::disk::metrics::Number;
use logs::Logs;
use parking_lot::Mutex;
use runtime::metrics::now_ms;
use runtime::timing::poll_timing;
use runtime::{Ledger, PARTS};
use slots::slotted;

use httpcore::handler::Modules;
use httpcore::settings::Settings;
use thread::Thread;

slotted!(PARTS: Monitoring);

/// The sources of metrics beside the loops.
#[derive(Debug)]
pub struct Monitoring {
    sources: OnceLock<Sources>,
    /// The configuration that is served.
    settings: Mutex<Weak<Settings>>,
    /// Its number.
    generation: Number,
    /// Time of its start, in milliseconds since 1970.
    configured_ms: Number,
    /// Time that it took to apply, in nanoseconds.
    configuring_ns: Number,
    /// Time since which there are metrics, in milliseconds since 1970.
    started_ms: u64,
    thread: Thread,
}

/// The sources that a worker has once.
#[derive(Debug)]
struct Sources {
    logs: Logs,
    disk: Arc<Disk>,
    modules: Modules,
}

impl Default for Monitoring {
    fn default() -> Self {
        Self {
            sources: OnceLock::new(),
            settings: Mutex::default(),
            generation: Number::default(),
            configured_ms: Number::default(),
            configuring_ns: Number::default(),
            started_ms: now_ms(),
            thread: Thread::default(),
        }
    }
}

/// Begins to gather: a worker's list of loops, without any.
#[must_use]
pub fn begin(logs: Logs, disk: Arc<Disk>, modules: Modules) -> Arc<Ledger> {
    let ledger = Arc::<Ledger>::default();
    let monitoring = of(&ledger);
    monitoring.sources.get_or_init(|| Sources {
        logs,
        disk,
        modules,
    });
    ledger
}

/// All loops serve this configuration, with this number, which was requested at `begun_ns` ([`poll_timing::now_ns`]).
pub fn configure(ledger: &Ledger, settings: &Arc<Settings>, number: u64, begun_ns: u64) {
    let own = of(ledger);
    *own.settings.lock() = Arc::downgrade(settings);
    own.generation.set(number);
    own.configured_ms.set(now_ms());
    let took_ns = poll_timing::now_ns().saturating_sub(begun_ns);
    own.configuring_ns.set(took_ns);
}

fn of(ledger: &Ledger) -> &Monitoring {
    ledger.part()
}
