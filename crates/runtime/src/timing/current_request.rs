//! The request that a loop is running now, so that a slow poll can be attributed to it, and how long that request has
//! waited.
//!
//! One slot for each loop's thread; the poll of a task that serves requests fills it at its start and takes the content
//! along at its end ([`Suspended`]). A connection with several requests at a time has a task for each. Invariant: nothing of a request is lost between two of its polls, and nothing of it shows up in another
//! one.
//!
//! Of pipelined requests that one poll answers, the slowest is named. Their times are taken between them, so a client
//! that does not pipeline costs nothing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use disk::WaitTimes;
use disk::metrics::ARE_COUNTED;

use super::tsc_clock;

/// Maximum of a request line's bytes that are kept; a byte holds their number.
const LINE_MAX: usize = 200;

/// A request that took at most this long, in nanoseconds, is not kept while the next one is answered.
const LONG_NS: u64 = 100_000;

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No request has come yet.
    Reading,
    /// Rewriting, access, and the other phases before the content.
    Before,
    /// The content is made.
    Content,
    /// The response is sent.
    Sending,
    /// Its log lines are written.
    Logging,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading a request",
            Self::Before => "before the content",
            Self::Content => "content",
            Self::Sending => "sending",
            Self::Logging => "logging",
        }
    }
}

const NO_TIME: WaitTimes = WaitTimes {
    disk_ns: 0,
    pool_ns: 0,
};

/// A request's line, and its state after its last poll. The line is written while there is no other reference, then
/// never again.
#[derive(Debug)]
struct Page {
    line: [u8; LINE_MAX],
    /// Bytes of the line.
    len: u8,
    /// Phase of the request.
    phase: Cell<Phase>,
    /// Time that it had waited.
    waited: Cell<WaitTimes>,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            line: [0; LINE_MAX],
            len: 0,
            phase: Cell::new(Phase::Reading),
            waited: Cell::new(NO_TIME),
        }
    }
}

impl Page {
    /// The bytes of the line that fit.
    fn write(&mut self, line: &[u8]) -> u8 {
        let len = line.len().min(LINE_MAX);
        self.line[..len].copy_from_slice(&line[..len]);
        self.len = len as u8;
        self.len
    }
}

/// The current request, in separate cells, since most changes are of one. `disk` counts how long it has waited.
struct Hand {
    connection: Cell<u64>,
    /// Bytes of its line; 0: there is no request.
    len: Cell<u8>,
    /// Whether the request goes on.
    is_open: Cell<bool>,
    phase: Cell<Phase>,
    /// Phase for the polls to come; [`Phase::Reading`]: the same.
    next: Cell<Phase>,
}

/// The pipelined requests that a poll has answered before the current one.
struct Passed {
    /// The poll, identified by its start.
    poll_ns: Cell<u64>,
    /// When the last of them ended.
    since_ns: Cell<u64>,
    /// Time of the slowest; [`LONG_NS`]: none is worth naming.
    longest_ns: Cell<u64>,
    longest: RefCell<Option<(Rc<Page>, Phase)>>,
}

impl Passed {
    /// Called when one has ended, in the poll that began at `poll_ns`. Returns whether it is the slowest so far.
    fn end(&self, poll_ns: u64, now_ns: u64) -> bool {
        if self.poll_ns.replace(poll_ns) != poll_ns {
            self.since_ns.set(poll_ns);
            self.longest_ns.set(LONG_NS);
        }
        let took_ns = now_ns.saturating_sub(self.since_ns.replace(now_ns));
        let is_longest = took_ns > self.longest_ns.get();
        if is_longest {
            self.longest_ns.set(took_ns);
        }
        is_longest
    }

    /// Whether one of them has taken longer than the current one.
    fn outweighs(&self, poll_ns: u64, now_ns: u64) -> bool {
        let rest_ns = now_ns.saturating_sub(self.since_ns.get());
        self.poll_ns.get() == poll_ns && self.longest_ns.get() > rest_ns.max(LONG_NS)
    }
}

thread_local! {
    static PASSED: Passed = const {
        Passed {
            poll_ns: Cell::new(0),
            since_ns: Cell::new(0),
            longest_ns: Cell::new(LONG_NS),
            longest: RefCell::new(None),
        }
    };
    static HAND: Hand = const {
        Hand {
            connection: Cell::new(0),
            len: Cell::new(0),
            is_open: Cell::new(false),
            phase: Cell::new(Phase::Reading),
            next: Cell::new(Phase::Reading),
        }
    };
    /// The page that holds the request's line.
    static PAGE: RefCell<Rc<Page>> = RefCell::new(Rc::default());
}

impl Hand {
    #[inline]
    fn take_up(&self, len: u8, is_open: bool, phase: Phase) {
        self.len.set(len);
        self.is_open.set(is_open);
        self.phase.set(phase);
        self.next.set(Phase::Reading);
    }
}

/// State that a task takes along from one poll to the next; made only where a request goes on.
#[derive(Debug, Default)]
pub struct Suspended(Option<Rc<Page>>);

impl Suspended {
    /// Called when a poll of a task of this connection begins.
    #[inline]
    pub fn enter(&mut self, connection: u64) {
        if !ARE_COUNTED {
            return;
        }
        HAND.with(|hand| {
            hand.connection.set(connection);
            match &self.0 {
                None => hand.take_up(0, false, Phase::Reading),
                Some(page) => hand.take_up(page.len, true, page.phase.get()),
            }
        });
        let Some(page) = &self.0 else {
            return;
        };
        disk::set_waited(page.waited.get());
        PAGE.with_borrow_mut(|at_hand| {
            if !Rc::ptr_eq(at_hand, page) {
                *at_hand = Rc::clone(page);
            }
        });
    }

    /// Called when the poll ends and another one will follow.
    #[inline]
    pub fn leave(&mut self) {
        if !ARE_COUNTED {
            return;
        }
        // A stall in this poll is reported with this poll's phase, not with that of the polls to come.
        let phase = HAND.with(|hand| {
            hand.is_open.get().then(|| match hand.next.get() {
                Phase::Reading => hand.phase.get(),
                next => next,
            })
        });
        let Some(phase) = phase else {
            self.0 = None;
            return;
        };
        PAGE.with_borrow(|page| {
            page.phase.set(phase);
            page.waited.set(disk::waited());
            // The page of an earlier request of the same connection is dropped.
            if !self.0.as_ref().is_some_and(|kept| Rc::ptr_eq(kept, page)) {
                self.0 = Some(Rc::clone(page));
            }
        });
    }
}

/// Called when a request begins.
pub fn begin(line: &[u8]) {
    if !ARE_COUNTED {
        return;
    }
    let len = PAGE.with_borrow_mut(|page| {
        if Rc::get_mut(page).is_none() {
            *page = Rc::default();
        }
        Rc::get_mut(page).map_or(0, |page| page.write(line))
    });
    disk::set_waited(NO_TIME);
    HAND.with(|hand| hand.take_up(len, true, Phase::Reading));
}

/// Sets the phase of the current request.
pub fn phase(phase: Phase) {
    if ARE_COUNTED {
        HAND.with(|hand| hand.phase.set(phase));
    }
}

/// Sets the phase after the content, which applies to the polls to come. The poll that makes, sends and logs a response
/// spends its time on making it as a rule, and reading the clock in between would cost more than it tells.
pub fn behind(phase: Phase) {
    if ARE_COUNTED {
        HAND.with(|hand| hand.next.set(phase));
    }
}

/// Called when the request has ended; a reader in the same poll still sees it.
pub fn end() {
    if ARE_COUNTED {
        HAND.with(|hand| hand.is_open.set(false));
    }
}

/// Called when the same poll goes on without a request.
pub fn none() {
    if ARE_COUNTED {
        HAND.with(|hand| hand.take_up(0, false, Phase::Reading));
    }
}

/// Called when the same poll goes on with another request.
pub fn another() {
    if !ARE_COUNTED {
        return;
    }
    let (poll_ns, now_ns) = (wire::loop_clock::monotonic_ns(), tsc_clock::now_ns());
    PASSED.with(|passed| {
        if passed.end(poll_ns, now_ns) {
            let page = PAGE.with_borrow(Rc::clone);
            let phase = HAND.with(|hand| hand.phase.get());
            *passed.longest.borrow_mut() = Some((page, phase));
        }
    });
}

/// How long the current request has waited for disks and pools so far.
#[must_use]
pub fn waited() -> WaitTimes {
    disk::waited()
}

/// The connection, the request line, and the phase of a connection's last poll: the slowest request, if there were
/// several.
#[must_use]
pub fn last() -> (u64, String, &'static str) {
    let connection = HAND.with(|hand| hand.connection.get());
    let (poll_ns, now_ns) = (wire::loop_clock::monotonic_ns(), tsc_clock::now_ns());
    let passed = PASSED.with(|passed| {
        let longest = passed.longest.borrow();
        longest
            .as_ref()
            .filter(|_| passed.outweighs(poll_ns, now_ns))
            .map(|(page, phase)| told(page, page.len, *phase))
    });
    let (line, phase) = passed.unwrap_or_else(|| {
        let (len, phase) = HAND.with(|hand| (hand.len.get(), hand.phase.get()));
        PAGE.with_borrow(|page| told(page, len, phase))
    });
    (connection, line, phase)
}

fn told(page: &Page, len: u8, phase: Phase) -> (String, &'static str) {
    let line = &page.line[..usize::from(len)];
    (line.escape_ascii().to_string(), phase.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_finds_its_own_request_again() {
        let (mut one, mut other) = (Suspended::default(), Suspended::default());
        one.enter(1);
        begin(b"GET /one HTTP/1.1");
        phase(Phase::Content);
        one.leave();
        other.enter(2);
        assert_eq!(last(), (2, String::new(), Phase::Reading.name()));
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
        let mut kept = Suspended::default();
        kept.enter(1);
        begin(b"GET /one HTTP/1.1");
        phase(Phase::Content);
        behind(Phase::Sending);
        kept.leave();
        assert_eq!(last().2, "content", "what kept the loop in this one");
        kept.enter(1);
        assert_eq!(last().2, "sending");
        end();
        // The next one, in the same poll.
        begin(b"GET /two HTTP/1.1");
        phase(Phase::Content);
        kept.leave();
        kept.enter(1);
        assert_eq!(last().2, "content");
    }

    #[test]
    fn of_pipelined_requests_the_longest_is_told() {
        let passed = Passed {
            poll_ns: Cell::new(0),
            since_ns: Cell::new(0),
            longest_ns: Cell::new(LONG_NS),
            longest: RefCell::new(None),
        };
        let ms = |ms: u64| ms * 1_000_000;
        assert!(!passed.end(ms(10), ms(10) + LONG_NS), "a short one");
        assert!(!passed.outweighs(ms(10), ms(10) + LONG_NS));
        assert!(passed.end(ms(10), ms(30)));
        assert!(!passed.end(ms(10), ms(40)), "shorter than the one before");
        assert!(passed.outweighs(ms(10), ms(41)));
        assert!(!passed.outweighs(ms(10), ms(61)), "the last took longest");
        assert!(!passed.outweighs(ms(41), ms(42)), "another poll");
        assert!(passed.end(ms(70), ms(71)));
    }

    #[test]
    fn a_passed_request_keeps_its_line() {
        wire::loop_clock::remember(1);
        Suspended::default().enter(4);
        begin(b"GET /long HTTP/1.1");
        phase(Phase::Content);
        end();
        another();
        begin(b"GET /short HTTP/1.1");
        assert_eq!(last(), (4, "GET /long HTTP/1.1".to_owned(), "content"));
        wire::loop_clock::remember(tsc_clock::now_ns());
        assert_eq!(last().1, "GET /short HTTP/1.1");
    }

    #[test]
    fn a_long_line_is_cut() {
        Suspended::default().enter(3);
        begin(&[b'a'; 1000]);
        assert_eq!(last().1.len(), LINE_MAX);
    }
}
