//! Waiting for what comes by itself.

use std::time::{Duration, Instant};

/// Interval between two looks.
const TICK: Duration = Duration::from_millis(5);

/// Looks again and again until there is something.
///
/// # Panics
/// There is nothing within this time; the message says what was waited for.
pub fn until<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {patience:?}");
        std::thread::sleep(TICK);
    }
}
