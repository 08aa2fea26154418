//! The resolver's cache: a table of answers, each with its expiry, and of the tasks that wait for one.
//!
//! nginx's rules: an answer holds for its TTL, or `valid`; a failure is reported to the waiting tasks and not cached;
//! the addresses come in another order each time. Invariant: there is at most one look-up of a name at a time, whatever
//! the number of waiting tasks.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use wire::Wheel;

use super::{query, thread};

/// Names that one resolver remembers, those that are being looked up counted.
pub const NAMES_MAX: usize = 10_000;
/// Requests that may wait for one name.
pub const WAITERS_MAX: usize = 65_536;

/// What is looked up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// In lower case, without a dot at its end.
    name: String,
    is_service: bool,
}

impl Question {
    /// The addresses of a host.
    #[must_use]
    pub fn host(name: &str) -> Question {
        let name = name.strip_suffix('.').unwrap_or(name);
        Question {
            name: name.to_ascii_lowercase(),
            is_service: false,
        }
    }

    /// The servers of a service: `http` means `_http._tcp`, one with a dot in it itself.
    #[must_use]
    pub fn service(service: &str, name: &str) -> Question {
        let host = Question::host(name).name;
        let service = service.to_ascii_lowercase();
        let name = match service.contains('.') {
            true => format!("{service}.{host}"),
            false => format!("_{service}._tcp.{host}"),
        };
        Question {
            name,
            is_service: true,
        }
    }

    /// What the servers are asked for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Is a service asked for?
    #[must_use]
    pub fn is_service(&self) -> bool {
        self.is_service
    }
}

/// Where a name leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The address.
    pub ip: IpAddr,
    /// Of a service, its server: name, port, priority and weight.
    pub server: Option<Arc<ServiceServer>>,
}

/// A server of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceServer {
    /// Its name.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// Those with the lowest come first.
    pub priority: u16,
    /// Among equals, at least 1.
    pub weight: u16,
}

/// What a look-up found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// At least one.
    pub targets: Vec<Target>,
    /// Servers of a service that were not found.
    pub lost: Vec<(String, Unresolved)>,
    /// The second since 1970 up to which it holds.
    pub valid_s: i64,
}

/// Why a name has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// A name server said so: 1 to 5.
    Code(u8),
    /// None answered in time.
    TimedOut,
    /// Too many names are looked up, or too many requests wait ([`NAMES_MAX`], [`WAITERS_MAX`]).
    Full,
}

impl Unresolved {
    /// No such name.
    pub const NOT_FOUND: Unresolved = Unresolved::Code(3);
}

impl fmt::Display for Unresolved {
    /// As nginx has it behind "X could not be resolved".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, text) = match self {
            Unresolved::Code(1) => (1, "Format error"),
            Unresolved::Code(2) => (2, "Server failure"),
            Unresolved::Code(3) => (3, "Host not found"),
            Unresolved::Code(4) => (4, "Unimplemented"),
            Unresolved::Code(5) => (5, "Operation refused"),
            Unresolved::Code(other) => (u16::from(*other), "Unknown error"),
            Unresolved::TimedOut => (110, "Operation timed out"),
            Unresolved::Full => (11, "Too many names are being resolved"),
        };
        write!(f, "({number}: {text})")
    }
}

type Outcome = Result<Arc<Found>, Unresolved>;

enum Node {
    Known(Arc<Found>),
    Asking(Vec<oneshot::Sender<Outcome>>),
}

/// How names are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The name servers; at least one.
    pub servers: Vec<SocketAddr>,
    /// `valid`: for how many seconds an answer holds, whatever it says itself.
    pub valid_s: Option<i64>,
    /// Look for addresses of IPv4?
    pub ipv4: bool,
    /// Look for addresses of IPv6?
    pub ipv6: bool,
}

/// Name servers, and what they said.
pub struct Resolver {
    /// How.
    pub rules: Rules,
    next_server: AtomicUsize,
    turn: AtomicUsize,
    table: Mutex<HashMap<Question, Node>>,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resolver({:?})", self.rules)
    }
}

/// An answer, or the way to it.
enum Asked {
    Now(Outcome),
    Later(oneshot::Receiver<Outcome>),
}

impl Resolver {
    /// A resolver that knows nothing yet.
    #[must_use]
    pub fn new(rules: Rules) -> Arc<Resolver> {
        Arc::new(Resolver {
            rules,
            next_server: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            table: Mutex::default(),
        })
    }

    /// The addresses of a host, on a loop; `timeout` is `resolver_timeout`. An address is its own.
    ///
    /// # Errors
    /// [`Unresolved`].
    pub async fn resolve(
        self: &Arc<Self>,
        name: &str,
        timeout: Duration,
        wheel: &std::rc::Rc<Wheel>,
    ) -> Result<Vec<IpAddr>, Unresolved> {
        if let Ok(ip) = name.parse() {
            return Ok(vec![ip]);
        }
        let found = match self.ask(Question::host(name)) {
            Asked::Now(outcome) => outcome,
            Asked::Later(answer) => match wheel.timer().guard(timeout, answer).await {
                Ok(told) => told.unwrap_or(Err(Unresolved::TimedOut)),
                Err(_) => Err(Unresolved::TimedOut),
            },
        }?;
        Ok(self.turned(&found))
    }

    /// As [`Resolver::resolve`], for any question, on the helper thread.
    ///
    /// # Errors
    /// [`Unresolved`].
    pub async fn find(
        self: &Arc<Self>,
        question: Question,
        timeout: Duration,
    ) -> Result<Arc<Found>, Unresolved> {
        match self.ask(question) {
            Asked::Now(outcome) => outcome,
            Asked::Later(answer) => match tokio::time::timeout(timeout, answer).await {
                Ok(told) => told.unwrap_or(Err(Unresolved::TimedOut)),
                Err(_) => Err(Unresolved::TimedOut),
            },
        }
    }

    /// The number of the server that is asked next: they take turns.
    pub(super) fn next_server(&self) -> usize {
        self.next_server.fetch_add(1, Ordering::Relaxed)
    }

    /// Does anybody still wait for this? If not it is forgotten.
    pub(super) fn is_awaited(&self, question: &Question) -> bool {
        let mut table = self.table.lock();
        let is_awaited = match table.get(question) {
            Some(Node::Asking(waiters)) => waiters.iter().any(|waiter| !waiter.is_closed()),
            Some(Node::Known(_)) | None => false,
        };
        if !is_awaited {
            table.remove(question);
        }
        is_awaited
    }

    /// Tells everyone who waits.
    pub(super) fn answer(&self, question: &Question, outcome: Outcome) {
        let mut table = self.table.lock();
        let before = match &outcome {
            Ok(found) => table.insert(question.clone(), Node::Known(Arc::clone(found))),
            Err(_) => table.remove(question),
        };
        drop(table);
        if let Some(Node::Asking(waiters)) = before {
            for waiter in waiters {
                let _ = waiter.send(outcome.clone()); // the client left
            }
        }
    }

    fn ask(self: &Arc<Self>, question: Question) -> Asked {
        let now_s = wire::loop_clock::unix_seconds();
        let (sender, receiver) = oneshot::channel();
        let mut table = self.table.lock();
        match table.get_mut(&question) {
            Some(Node::Known(found)) if found.valid_s >= now_s => {
                return Asked::Now(Ok(Arc::clone(found)));
            }
            Some(Node::Asking(waiters)) => {
                if waiters.len() == WAITERS_MAX {
                    waiters.retain(|waiter| !waiter.is_closed());
                }
                if waiters.len() == WAITERS_MAX {
                    return Asked::Now(Err(Unresolved::Full));
                }
                waiters.push(sender);
                return Asked::Later(receiver);
            }
            Some(Node::Known(_)) | None => {}
        }
        if !make_place(&mut table, now_s) {
            return Asked::Now(Err(Unresolved::Full));
        }
        table.insert(question.clone(), Node::Asking(vec![sender]));
        drop(table);
        if !thread::spawn(query::run(Arc::clone(self), question.clone())) {
            self.answer(&question, Err(Unresolved::Full));
        }
        Asked::Later(receiver)
    }

    /// The addresses, from another one on each time.
    fn turned(&self, found: &Found) -> Vec<IpAddr> {
        let mut all: Vec<IpAddr> = found.targets.iter().map(|target| target.ip).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let middle = turn % all.len().max(1);
        all.rotate_left(middle);
        all
    }
}

/// Is there place for one name more? Answers that hold no longer give way first, then any.
fn make_place(table: &mut HashMap<Question, Node>, now_s: i64) -> bool {
    if table.len() < NAMES_MAX {
        return true;
    }
    table.retain(|_, node| match node {
        Node::Known(found) => found.valid_s >= now_s,
        Node::Asking(_) => true,
    });
    if table.len() == NAMES_MAX {
        let mut left = NAMES_MAX / 8;
        table.retain(|_, node| {
            let goes = left > 0 && matches!(node, Node::Known(_));
            left -= usize::from(goes);
            !goes
        });
    }
    table.len() < NAMES_MAX
}
