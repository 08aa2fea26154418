//! Whose request a loop is at work on: for who asks what kept it, and how long the request has waited.
//!
//! One for each loop's thread; a connection's poll sets it at its start and takes it along at its end ([`Kept`]). Invariant: between
//! two polls of a request nothing of it is lost, and nothing of it is seen in another one's.

use std::cell::{Cell, RefCell};

use disk::Waited;
use disk::figures::ARE_COUNTED;

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
    /// That of the polls to come; empty: the same.
    next: &'static str,
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
    next: "",
    waited: Waited {
        disk_ns: 0,
        pool_ns: 0,
    },
    mark: Waited {
        disk_ns: 0,
        pool_ns: 0,
    },
};

impl Known {
    /// As `*self = *other`, but for what is behind the line.
    fn become_that(&mut self, other: &Known) {
        let len = other.len.min(LINE_MAX);
        self.line[..len].copy_from_slice(&other.line[..len]);
        self.len = len;
        self.is_open = other.is_open;
        self.phase = other.phase;
        self.next = other.next;
        self.waited = other.waited;
        self.mark = other.mark;
    }
}

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
                known.become_that(kept);
                known.mark = disk::waited();
            }
            None => {
                (known.len, known.is_open) = (0, false);
                (known.phase, known.next) = (READING, "");
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
            if !known.next.is_empty() {
                known.phase = std::mem::take(&mut known.next);
            }
            let kept = self.0.get_or_insert_with(|| Box::new(NOTHING));
            kept.become_that(known);
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
        (known.phase, known.next) = (READING, "");
        known.waited = Waited::default();
        known.mark = disk::waited();
    });
}

/// How far it has come.
pub fn phase(phase: &'static str) {
    if !ARE_COUNTED {
        return;
    }
    KNOWN.with_borrow_mut(|known| known.phase = phase);
}

/// What comes behind the content. It names the polls to come: the time of one that makes an answer, sends and logs it goes to making it,
/// as a rule, and a clock that is read in between would cost more than it tells.
pub fn behind(phase: &'static str) {
    if !ARE_COUNTED {
        return;
    }
    KNOWN.with_borrow_mut(|known| known.next = phase);
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
    fn what_comes_behind_the_content_names_the_polls_to_come() {
        let mut kept = Kept::default();
        kept.enter(1);
        begin(b"GET /one HTTP/1.1");
        phase("content");
        behind("sending");
        assert_eq!(last().2, "content");
        kept.leave();
        kept.enter(1);
        assert_eq!(last().2, "sending");
        end();
        // The next one, in the same poll.
        begin(b"GET /two HTTP/1.1");
        phase("content");
        kept.leave();
        kept.enter(1);
        assert_eq!(last().2, "content");
    }

    #[test]
    fn a_long_line_is_cut() {
        Kept::default().enter(3);
        begin(&[b'a'; 1000]);
        assert_eq!(last().1.len(), LINE_MAX);
    }
}
