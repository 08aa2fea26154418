//! Whose request a loop is at work on: for who asks what kept it, and how long the request has waited.
//!
//! One for each loop's thread; a connection's poll sets it at its start and takes it along at its end ([`Kept`]). Invariant: between
//! two polls of a request nothing of it is lost, and nothing of it is seen in another one's.

use std::cell::{Cell, RefCell};

use disk::Waited;
use disk::figures::ARE_COUNTED;

use super::timing;

/// Bytes of a request line that are kept.
const LINE_MAX: usize = 200;

/// What is known of the request at hand.
#[derive(Debug, Clone, Copy)]
struct Known {
    line: [u8; LINE_MAX],
    len: usize,
    /// It goes on.
    is_open: bool,
    phase: &'static str,
    /// The phase is the one that took long.
    is_settled: bool,
    /// What it waited in polls before this one.
    waited: Waited,
    /// What the thread had waited when this part of it began.
    mark: Waited,
}

const NOTHING: Known = Known {
    line: [0; LINE_MAX],
    len: 0,
    is_open: false,
    phase: READING,
    is_settled: false,
    waited: Waited {
        disk_ns: 0,
        pool_ns: 0,
    },
    mark: Waited {
        disk_ns: 0,
        pool_ns: 0,
    },
};

/// A poll is long from so many milliseconds on: two ticks of the coarse clock.
const LONG_MS: u64 = 8;

/// Before a request has come.
const READING: &str = "reading a request";

thread_local! {
    static CONNECTION: Cell<u64> = const { Cell::new(0) };
    static KNOWN: RefCell<Known> = const { RefCell::new(NOTHING) };
}

/// What a connection takes along from one poll to the next; made only where a request goes on.
#[derive(Debug, Default)]
pub struct Kept(Option<Box<Known>>);

impl Kept {
    /// A poll of this connection begins.
    pub fn enter(&mut self, connection: u64) {
        if !ARE_COUNTED {
            return;
        }
        CONNECTION.set(connection);
        KNOWN.with_borrow_mut(|known| match &self.0 {
            Some(kept) => {
                *known = **kept;
                known.mark = disk::waited();
            }
            None => {
                (known.len, known.is_open) = (0, false);
                (known.phase, known.is_settled) = (READING, false);
            }
        });
    }

    /// It ends, and there will be another one.
    pub fn leave(&mut self) {
        if !ARE_COUNTED {
            return;
        }
        KNOWN.with_borrow_mut(|known| {
            if !known.is_open {
                self.0 = None;
                return;
            }
            known.waited = known.waited.plus(disk::waited().since(known.mark));
            known.is_settled = false;
            match &mut self.0 {
                Some(kept) => **kept = *known,
                None => self.0 = Some(Box::new(*known)),
            }
        });
    }
}

/// A request begins.
pub fn begin(line: &[u8]) {
    if !ARE_COUNTED {
        return;
    }
    KNOWN.with_borrow_mut(|known| {
        known.len = line.len().min(LINE_MAX);
        known.line[..known.len].copy_from_slice(&line[..known.len]);
        known.is_open = true;
        known.waited = Waited::default();
        known.mark = disk::waited();
    });
}

/// How far it has come.
pub fn phase(phase: &'static str) {
    if !ARE_COUNTED {
        return;
    }
    KNOWN.with_borrow_mut(|known| {
        if !known.is_settled {
            known.phase = phase;
        }
    });
}

/// It is to be sent. Where the poll has been long until here, the phase before stays the one that is named: a clock that is read at
/// each phase would cost more than it tells.
pub fn sending() {
    if !ARE_COUNTED {
        return;
    }
    let so_far_ms = wire::clock::monotonic_ms().saturating_sub(timing::poll_began_ns() / 1_000_000);
    KNOWN.with_borrow_mut(|known| known.is_settled |= so_far_ms >= LONG_MS);
    phase("sending");
}

/// It has ended; who asks in this poll still learns of it.
pub fn end() {
    if !ARE_COUNTED {
        return;
    }
    KNOWN.with_borrow_mut(|known| known.is_open = false);
}

/// How long the request at hand has waited for disks and pools so far.
#[must_use]
pub fn waited() -> Waited {
    KNOWN.with_borrow(|known| known.waited.plus(disk::waited().since(known.mark)))
}

/// The connection, the request line, and the phase of the last poll of a connection.
#[must_use]
pub fn last() -> (u64, String, &'static str) {
    KNOWN.with_borrow(|known| {
        let line = known.line[..known.len].escape_ascii().to_string();
        (CONNECTION.get(), line, known.phase)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_finds_its_own_request_again() {
        let (mut one, mut other) = (Kept::default(), Kept::default());
        one.enter(1);
        begin(b"GET /one HTTP/1.1");
        phase("content");
        one.leave();
        other.enter(2);
        assert_eq!(last(), (2, String::new(), READING));
        begin(b"GET /\xff HTTP/1.1");
        end();
        assert_eq!(last().1, "GET /\\xff HTTP/1.1");
        other.leave();
        one.enter(1);
        assert_eq!(last(), (1, "GET /one HTTP/1.1".to_owned(), "content"));
        end();
        one.leave();
        other.enter(2);
        assert_eq!(last().1, "");
    }

    #[test]
    fn a_long_line_is_cut() {
        Kept::default().enter(3);
        begin(&[b'a'; 1000]);
        assert_eq!(last().1.len(), LINE_MAX);
    }
}
