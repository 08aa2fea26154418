//! Lines for the error log from the master, the worker and the loops.
//!
//! Not here: their destination: a [`Sink`] is set as soon as the logs are open; until then it is stderr. Invariant:
//! nothing here waits, unless the sink does.

use std::fmt::Arguments;
use std::sync::RwLock;

pub use crate::Level;

/// Takes a line: its level and its text, without time and process.
pub type Sink = Box<dyn Fn(Level, Arguments<'_>) + Send + Sync>;

static SINK: RwLock<Option<Sink>> = RwLock::new(None);

/// Says where lines go from now on.
pub fn set_sink(sink: Sink) {
    if let Ok(mut slot) = SINK.write() {
        *slot = Some(sink);
    }
}

/// Writes one line.
pub fn error_log(level: Level, text: Arguments<'_>) {
    let sink = SINK.read().ok();
    match sink.as_ref().and_then(|slot| slot.as_ref()) {
        Some(sink) => sink(level, text),
        None if level <= Level::Warn => eprintln!("nginx: [{}] {text}", level.name()),
        None => {}
    }
}
