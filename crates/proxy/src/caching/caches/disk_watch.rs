//! The watch over a cache's disk: its state from tick to tick, the log line of each change, and what follows from it;
//! and the requests of the last seconds, of which hedged reads are a share.
//!
//! Not here: the states (`disk::health`), and what requests do meanwhile (`lookup`, `hedge`). A task of the caches'
//! thread; all that it does itself is in memory.

use std::sync::Weak;

use disk::health::TICK;
use disk::{DiskState, HealthChange, Loan, WriteState};
use logs::Level;
use logs::process_log::error_log;
use tokio::time::{MissedTickBehavior, interval};

use crate::caching::caches::open_cache::{Cache, store_settings};

/// Watches the disk of a cache for as long as the cache is referenced.
pub(super) async fn run(disk: std::sync::Arc<disk::Disk>, watched: Weak<Cache>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was = DiskState::Well;
    let mut loan = Loan::default();
    loop {
        ticks.tick().await;
        let Some(cache) = watched.upgrade() else {
            return;
        };
        if let Some(change) = cache.disk.tick() {
            tell(&cache, was, &change);
            if was == DiskState::Out && change.state != DiskState::Out {
                loan.give_back();
            }
            distrust(&cache, was, change.state).await;
            was = change.state;
        }
        trust(&cache, was);
        let now_ms = wire::loop_clock::monotonic_ms();
        cache.hedges.note(now_ms, cache.counters.all());
        if let Some(error) = cache.disk.probe_error() {
            let directory = cache.zone.directory.escape_ascii();
            let error = wire::errno(&error);
            error_log(
                Level::Warn,
                format_args!("cache \"{directory}\": a probe of its disk failed ({error})"),
            );
        }
        // Threads that hang are missing to others.
        match cache.disk.hanging() {
            0 => loan.give_back(),
            hanging => loan.set(&store_settings(&cache, &disk).pool, hanging),
        }
    }
}

/// Whether a disk may lose what it has, or was given.
fn loses(state: DiskState) -> bool {
    matches!(state, DiskState::Failing | DiskState::Out)
}

/// Every entry is checked at each use while its disk fails; of one that is out only what is in memory is used.
fn trust(cache: &Cache, state: DiskState) {
    if let Some(store) = cache.store() {
        store.trust(state != DiskState::Failing);
    }
}

/// Every entry is checked at its next use, too, when its disk fails no more.
async fn distrust(cache: &Cache, was: DiskState, state: DiskState) {
    if loses(was)
        && was != state
        && let Some(store) = cache.store()
    {
        store.distrust().await;
    }
}

fn tell(cache: &Cache, was: DiskState, change: &HealthChange) {
    let level = match (change.state, change.writing) {
        (DiskState::Out | DiskState::Failing, _) => Level::Error,
        (DiskState::Slow, _) => Level::Warn,
        (DiskState::Well, WriteState::Allowed) => Level::Notice,
        (DiskState::Well, _) => Level::Error,
    };
    let follows = match (change.state, change.writing) {
        (DiskState::Out, _) => "nothing is asked of it, requests go to the origin",
        (_, WriteState::Allowed) => "it is read and written",
        (_, _) => "it is read, responses are passed on and not stored",
    };
    let writing = match change.writing {
        WriteState::Allowed => String::new(),
        refused => format!(", writing: {}", refused.name()),
    };
    error_log(
        level,
        format_args!(
            "cache \"{}\": its disk is {}{writing} (it was {}): {}; {follows}",
            cache.zone.directory.escape_ascii(),
            change.state.name(),
            was.name(),
            change.reason,
        ),
    );
}
