//! What was seen: counts of what may be, and the list of what may not.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Findings that are kept with their words; the others are counted.
const KEPT: usize = 60;

static SEEN: Mutex<Seen> = Mutex::new(Seen {
    counts: BTreeMap::new(),
    wrong: 0,
    words: Vec::new(),
});

struct Seen {
    counts: BTreeMap<String, u64>,
    wrong: u64,
    words: Vec<String>,
}

/// Counts what may happen.
pub fn count(what: impl Into<String>) {
    let mut seen = SEEN.lock().expect("no thread panics in it");
    *seen.counts.entry(what.into()).or_default() += 1;
}

/// Notes what may not happen.
pub fn wrong(what: String) {
    let mut seen = SEEN.lock().expect("no thread panics in it");
    seen.wrong += 1;
    if seen.words.len() < KEPT {
        seen.words.push(what);
    }
}

/// All of it.
pub fn report() -> Value {
    let seen = SEEN.lock().expect("no thread panics in it");
    json!({"counts": seen.counts, "wrong": seen.wrong, "words": seen.words})
}
