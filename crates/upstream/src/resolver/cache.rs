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

use config::parse_ip;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use wire::Wheel;

use super::{query, thread};

/// Maximum number of names that one resolver remembers, including those that are being looked up.
pub(crate) const NAMES_MAX: usize = 10_000;
/// Maximum number of requests that may wait for one name.
pub(crate) const WAITERS_MAX: usize = 65_536;

/// The key of a look-up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// In lower case, without a dot at its end.
    name: String,
    is_service: bool,
}

impl Query {
    /// The addresses of a host.
    #[must_use]
    pub fn host(name: &str) -> Query {
        let name = name.strip_suffix('.').unwrap_or(name);
        Query {
            name: name.to_ascii_lowercase(),
            is_service: false,
        }
    }

    /// The servers of a service: `http` means `_http._tcp`; a name with a dot is taken as it is.
    #[must_use]
    pub fn service(service: &str, name: &str) -> Query {
        let host = Query::host(name).name;
        let service = service.to_ascii_lowercase();
        let name = match service.contains('.') {
            true => format!("{service}.{host}"),
            false => format!("_{service}._tcp.{host}"),
        };
        Query {
            name,
            is_service: true,
        }
    }

    /// The record types to ask the servers for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a service is asked for.
    #[must_use]
    pub fn is_service(&self) -> bool {
        self.is_service
    }
}

/// A target that a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedAddress {
    /// The address.
    pub ip: IpAddr,
    /// The server, if the question is a service: name, port, priority and weight.
    pub server: Option<Arc<ServiceServer>>,
}

/// A server of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceServer {
    /// Its name.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// Servers with the lowest priority come first.
    pub priority: u16,
    /// The weight among servers of one priority, at least 1.
    pub weight: u16,
}

/// The result of a look-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedName {
    /// The targets, at least one.
    pub targets: Vec<ResolvedAddress>,
    /// Servers of a service that were not found.
    pub lost: Vec<(String, ResolveError)>,
    /// The second up to which the answer holds, by [`now_s`].
    pub valid_s: i64,
}

/// The time by which answers expire, in seconds of the monotonic clock: the real one may be set.
pub(crate) fn now_s() -> i64 {
    let seconds = wire::loop_clock::monotonic_ms() / 1000;
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// The reason why a name has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// The error code of a name server: 1 to 5.
    Code(u8),
    /// No server answered in time.
    TimedOut,
    /// Too many names are looked up, or too many requests wait (`NAMES_MAX`, `WAITERS_MAX`).
    Full,
}

impl ResolveError {
    /// No such name.
    pub const NOT_FOUND: ResolveError = ResolveError::Code(3);
}

impl fmt::Display for ResolveError {
    /// In nginx's words, as they follow "X could not be resolved".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, text) = match self {
            ResolveError::Code(1) => (1, "Format error"),
            ResolveError::Code(2) => (2, "Server failure"),
            ResolveError::Code(3) => (3, "Host not found"),
            ResolveError::Code(4) => (4, "Unimplemented"),
            ResolveError::Code(5) => (5, "Operation refused"),
            ResolveError::Code(other) => (u16::from(*other), "Unknown error"),
            ResolveError::TimedOut => (110, "Operation timed out"),
            ResolveError::Full => (11, "Too many names are being resolved"),
        };
        write!(f, "({number}: {text})")
    }
}

type Resolution = Result<Arc<ResolvedName>, ResolveError>;

enum CachedName {
    Known(Arc<ResolvedName>),
    Asking(Vec<oneshot::Sender<Resolution>>),
}

/// The rules of a resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverRules {
    /// The name servers; at least one.
    pub servers: Vec<SocketAddr>,
    /// `valid`: seconds for which an answer holds, in place of its own TTL.
    pub valid_s: Option<i64>,
    /// Whether to look for IPv4 addresses.
    pub ipv4: bool,
    /// Whether to look for IPv6 addresses.
    pub ipv6: bool,
}

/// A resolver: name servers, and a cache of their answers.
pub struct Resolver {
    /// The rules.
    pub rules: ResolverRules,
    next_server: AtomicUsize,
    turn: AtomicUsize,
    table: Mutex<Table>,
}

/// The names, and how many of them are being looked up.
#[derive(Default)]
struct Table {
    names: HashMap<Query, CachedName>,
    asking: usize,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resolver({:?})", self.rules)
    }
}

/// An answer, or the way to wait for it.
pub(super) enum Reply {
    Now(Resolution),
    Later(oneshot::Receiver<Resolution>),
}

impl Reply {
    /// Waits on the helper thread.
    pub(super) async fn by(self, deadline: Instant) -> Resolution {
        match self {
            Reply::Now(outcome) => outcome,
            Reply::Later(answer) => match timeout_at(deadline, answer).await {
                Ok(told) => told.unwrap_or(Err(ResolveError::TimedOut)),
                Err(_) => Err(ResolveError::TimedOut),
            },
        }
    }
}

impl Resolver {
    /// A resolver with an empty cache.
    #[must_use]
    pub fn new(rules: ResolverRules) -> Arc<Resolver> {
        Arc::new(Resolver {
            rules,
            next_server: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            table: Mutex::default(),
        })
    }

    /// The addresses of a host, on a loop; `timeout` is `resolver_timeout`. An IP address resolves to itself.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub async fn resolve(
        self: &Arc<Self>,
        name: &str,
        timeout: Duration,
        wheel: &std::rc::Rc<Wheel>,
    ) -> Result<Vec<IpAddr>, ResolveError> {
        if let Some(ip) = parse_ip(name.as_bytes()) {
            return Ok(vec![ip]);
        }
        let found = match self.ask(Query::host(name), timeout) {
            Reply::Now(outcome) => outcome,
            Reply::Later(answer) => match wheel.timer().guard(timeout, answer).await {
                Ok(told) => told.unwrap_or(Err(ResolveError::TimedOut)),
                Err(_) => Err(ResolveError::TimedOut),
            },
        }?;
        Ok(self.turned(&found))
    }

    /// As [`Resolver::resolve`], for any question, on the helper thread.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub async fn find(
        self: &Arc<Self>,
        question: Query,
        timeout: Duration,
    ) -> Result<Arc<ResolvedName>, ResolveError> {
        let deadline = Instant::now() + timeout;
        self.ask(question, timeout).by(deadline).await
    }

    /// As [`Resolver::resolve`], for a thread that may wait.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub fn wait_for(
        self: &Arc<Self>,
        name: &str,
        timeout: Duration,
    ) -> Result<Vec<IpAddr>, ResolveError> {
        if let Some(ip) = parse_ip(name.as_bytes()) {
            return Ok(vec![ip]);
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        let (resolver, question) = (Arc::clone(self), Query::host(name));
        let asked = thread::spawn(async move {
            // The thread that waits may have given up.
            let _ = sender.send(resolver.find(question, timeout).await);
        });
        if !asked {
            return Err(ResolveError::Full);
        }
        let found = receiver.recv_timeout(timeout.saturating_mul(2));
        let found = found.unwrap_or(Err(ResolveError::TimedOut))?;
        Ok(self.turned(&found))
    }

    /// The number of the server to ask next: they take turns.
    pub(super) fn next_server(&self) -> usize {
        self.next_server.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether any task still waits for this question. If not, the question is forgotten.
    pub(super) fn is_awaited(&self, question: &Query) -> bool {
        let mut table = self.table.lock();
        let is_awaited = match table.names.get(question) {
            Some(CachedName::Asking(waiters)) => waiters.iter().any(|waiter| !waiter.is_closed()),
            Some(CachedName::Known(_)) | None => false,
        };
        if !is_awaited {
            table.remove(question);
        }
        is_awaited
    }

    /// Answers all waiting tasks.
    pub(super) fn answer(&self, question: &Query, outcome: Resolution) {
        let mut table = self.table.lock();
        let before = match &outcome {
            Ok(found) => table.insert(question.clone(), CachedName::Known(Arc::clone(found))),
            Err(_) => table.remove(question),
        };
        drop(table);
        if let Some(CachedName::Asking(waiters)) = before {
            for waiter in waiters {
                let _ = waiter.send(outcome.clone()); // the client left
            }
        }
    }

    /// Asks; the task that asks first says how long it waits.
    pub(super) fn ask(self: &Arc<Self>, question: Query, timeout: Duration) -> Reply {
        let now_s = now_s();
        let (sender, receiver) = oneshot::channel();
        let mut table = self.table.lock();
        match table.names.get_mut(&question) {
            Some(CachedName::Known(found)) if found.valid_s >= now_s => {
                return Reply::Now(Ok(Arc::clone(found)));
            }
            Some(CachedName::Asking(waiters)) => {
                if waiters.len() == WAITERS_MAX {
                    waiters.retain(|waiter| !waiter.is_closed());
                }
                if waiters.len() == WAITERS_MAX {
                    return Reply::Now(Err(ResolveError::Full));
                }
                waiters.push(sender);
                return Reply::Later(receiver);
            }
            Some(CachedName::Known(_)) | None => {}
        }
        if !table.make_place(now_s) {
            return Reply::Now(Err(ResolveError::Full));
        }
        table.insert(question.clone(), CachedName::Asking(vec![sender]));
        drop(table);
        if !thread::spawn(query::run(Arc::clone(self), question.clone(), timeout)) {
            self.answer(&question, Err(ResolveError::Full));
        }
        Reply::Later(receiver)
    }

    /// The addresses, rotated by one more each time.
    fn turned(&self, found: &ResolvedName) -> Vec<IpAddr> {
        let mut all: Vec<IpAddr> = found.targets.iter().map(|target| target.ip).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let middle = turn % all.len().max(1);
        all.rotate_left(middle);
        all
    }
}

impl Table {
    fn insert(&mut self, question: Query, name: CachedName) -> Option<CachedName> {
        self.asking += usize::from(name.is_asked());
        let before = self.names.insert(question, name);
        self.without(before)
    }

    fn remove(&mut self, question: &Query) -> Option<CachedName> {
        let before = self.names.remove(question);
        self.without(before)
    }

    fn without(&mut self, gone: Option<CachedName>) -> Option<CachedName> {
        self.asking -= usize::from(gone.as_ref().is_some_and(CachedName::is_asked));
        gone
    }

    /// Whether there is room for one more name. Expired answers are dropped first, then any.
    fn make_place(&mut self, now_s: i64) -> bool {
        if self.names.len() < NAMES_MAX {
            return true;
        }
        // None of them can go.
        if self.asking == NAMES_MAX {
            return false;
        }
        self.names.retain(|_, name| match name {
            CachedName::Known(found) => found.valid_s >= now_s,
            CachedName::Asking(_) => true,
        });
        if self.names.len() == NAMES_MAX {
            let mut left = NAMES_MAX / 8;
            self.names.retain(|_, name| {
                let goes = left > 0 && !name.is_asked();
                left -= usize::from(goes);
                !goes
            });
        }
        self.names.len() < NAMES_MAX
    }
}

impl CachedName {
    fn is_asked(&self) -> bool {
        matches!(self, Self::Asking(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_being_asked_for_stay_and_answers_make_room() {
        let mut table = Table::default();
        let question = |number: usize| Query::host(&format!("{number}.test"));
        for number in 0..NAMES_MAX {
            assert!(table.make_place(0));
            table.insert(question(number), CachedName::Asking(Vec::new()));
        }
        assert!(!table.make_place(0) && table.asking == NAMES_MAX);
        let known = ResolvedName {
            valid_s: 10,
            ..ResolvedName::default()
        };
        for number in 0..3 {
            let known = CachedName::Known(Arc::new(known.clone()));
            let before = table.insert(question(number), known);
            assert!(before.is_some_and(|name| name.is_asked()));
        }
        assert!(table.make_place(0), "answers that hold");
        assert_eq!((table.names.len(), table.asking), (9997, 9997));
        assert!(table.remove(&question(3)).is_some() && table.remove(&question(3)).is_none());
        assert_eq!(table.asking, 9996);
    }
}
