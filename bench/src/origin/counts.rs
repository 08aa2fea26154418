//! How often each path was asked for.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

/// Paths counted one by one; more are counted in sum only.
const PATHS_MAX: usize = 4_000_000;
/// Bytes of an answer that fills what the kernel takes at once.
const LARGE: u64 = 256 << 10;

/// Since the start or the last `/_reset`.
#[derive(Default)]
pub struct Counts {
    requests: u64,
    bytes: u64,
    connections: u64,
    not_modified: u64,
    cut: u64,
    held: Duration,
    held_by_large: Duration,
    by_path: HashMap<Box<str>, u32>,
}

impl Counts {
    /// One was accepted.
    pub fn connection(&mut self) {
        self.connections += 1;
    }

    /// A request; how many there have been for the path.
    pub fn request(&mut self, path: &str) -> u32 {
        self.requests += 1;
        if let Some(count) = self.by_path.get_mut(path) {
            *count += 1;
            return *count;
        }
        if self.by_path.len() < PATHS_MAX {
            self.by_path.insert(path.into(), 1);
        }
        1
    }

    /// It was answered 304.
    pub fn not_modified(&mut self) {
        self.not_modified += 1;
    }

    /// It kept a worker for so long, for so many bytes.
    pub fn held(&mut self, time: Duration, size: u64) {
        self.held += time;
        if size >= LARGE {
            self.held_by_large += time;
        }
    }

    /// So many bytes of its body were sent.
    pub fn body(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// It was answered by half.
    pub fn cut(&mut self) {
        self.cut += 1;
    }

    /// Requests for the path.
    pub fn of(&self, path: &str) -> u32 {
        self.by_path.get(path).copied().unwrap_or(0)
    }

    /// For the scripts.
    pub fn report(&self) -> Value {
        json!({
            "requests": self.requests, "bytes": self.bytes, "connections": self.connections, "not_modified": self.not_modified, "cut": self.cut,
            "held_ms": self.held.as_secs_f64() * 1000.0,
            "held_by_large_ms": self.held_by_large.as_secs_f64() * 1000.0,
            "keys": self.by_path.len(), "most": self.by_path.values().max().copied().unwrap_or(0),
        })
    }
}
