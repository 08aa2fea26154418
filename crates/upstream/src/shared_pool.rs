//! The connections of HTTP/2 of a loop, which requests share.
//!
//! One carries requests up to `keepalive_streams`, or what its server takes; another one is opened when all are full, or
//! when a body comes and none has the window for it.
//! Requests wait for one that is being opened instead of opening more. Not here: connections that carry one request at a
//! time ([`super::keepalive_pool`]). Invariant: a connection that is given out has room; a connection that is not in the
//! pool ends with its last request.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use hashbrown::HashMap;
use message::Framing;
use wire::{SharedConnection, Wheel};

use super::Upstream;
use super::keepalive::{ConnectionKey, KeepaliveLimits};

/// Maximum time that a request waits for a connection that another one opens, before it opens one itself.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Maximum number of connections of HTTP/2 that a loop keeps to one upstream. Requests that find all of them full open
/// one of their own, which ends with them.
const OPEN_MAX: usize = 1024;
/// Maximum number of connections to one upstream that requests wait for at a time. Beyond, each request opens its own.
const STARTING_MAX: usize = 256;
/// Maximum number of requests that wait for one connection. Beyond, a request opens one itself.
const WAITING_MAX: usize = 4096;

/// What a request does that found no connection with room.
#[derive(Debug)]
pub enum Turn {
    /// It opens one; the others wait until this is dropped.
    Opens(Opening),
    /// Another request has opened one, or tried to: the pool is to be asked again.
    Again,
    /// It opens one, and nothing waits for it.
    Alone,
}

/// Connections by [`Upstream::id`].
#[derive(Default)]
pub(crate) struct SharedPool {
    all: RefCell<HashMap<u64, Shared>>,
}

/// The connections to one upstream.
#[derive(Default)]
struct Shared {
    open: Vec<Entry>,
    starting: Vec<(ConnectionKey, Rc<Start>)>,
}

struct Entry {
    connection: Rc<SharedConnection>,
    like: ConnectionKey,
}

/// A connection that is being opened.
#[derive(Default)]
struct Start {
    is_over: Cell<bool>,
    /// The requests that wait, by numbers of their own.
    waiting: RefCell<HashMap<u64, Waker>>,
    next: Cell<u64>,
}

/// Kept while a connection is being opened: others wait for it. Dropped when it takes requests, or when that failed.
#[derive(Debug)]
pub struct Opening(Rc<Start>);

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Start")
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.is_over.set(true);
        for (_, waker) in self.0.waiting.take() {
            waker.wake();
        }
    }
}

/// A request that waits for a start; its place is another's once this is dropped.
struct Place<'a>(&'a Start, u64);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.borrow_mut().remove(&self.1);
    }
}

impl Start {
    /// Waits until it is over, but for no longer than `max`.
    async fn wait(&self, wheel: &Rc<Wheel>, max: Duration) -> Turn {
        let place = Place(self, self.next.replace(self.next.get() + 1));
        let over = poll_fn(|cx| {
            if self.is_over.get() {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            waiting.insert(place.1, cx.waker().clone());
            Poll::Pending
        });
        match wheel.timeout(max, over).await {
            Ok(()) => Turn::Again,
            Err(_) => Turn::Alone,
        }
    }
}

impl SharedPool {
    /// A matching connection that has room for another request, whose body is framed so.
    pub(crate) fn take(
        &self,
        upstream: &Upstream,
        wanted: &ConnectionKey,
        framing: Framing,
    ) -> Option<Rc<SharedConnection>> {
        let limits = upstream.declared().kept;
        let now_ms = wire::loop_clock::monotonic_ms();
        let mut all = self.all.borrow_mut();
        let shared = all.get_mut(&upstream.id())?;
        shared.open.retain(|entry| entry.is_sound(&limits, now_ms));
        let fits = |entry: &&Entry| {
            limits.allow(&entry.like, wanted) && entry.connection.has_room(framing)
        };
        let found = shared.open.iter().find(fits)?;
        Some(Rc::clone(&found.connection))
    }

    /// Waits for a matching connection that is being opened; where there is none, the caller opens one.
    pub(crate) async fn begin(
        &self,
        upstream: &Upstream,
        wanted: &ConnectionKey,
        wheel: &Rc<Wheel>,
    ) -> Turn {
        let limits = upstream.declared().kept;
        let start = {
            let mut all = self.all.borrow_mut();
            let shared = all.entry(upstream.id()).or_default();
            shared.starting.retain(|(_, start)| !start.is_over.get());
            let mut starting = shared.starting.iter();
            match starting.find(|(like, _)| limits.allow(like, wanted)) {
                Some((_, start)) if start.waiting.borrow().len() >= WAITING_MAX => {
                    return Turn::Alone;
                }
                Some((_, start)) => Rc::clone(start),
                None if shared.starting.len() >= STARTING_MAX => return Turn::Alone,
                None => {
                    let start = Rc::new(Start::default());
                    shared.starting.push((wanted.clone(), Rc::clone(&start)));
                    return Turn::Opens(Opening(start));
                }
            }
        };
        start.wait(wheel, WAIT_MAX).await
    }

    /// Adds a connection.
    pub(crate) fn put(
        &self,
        upstream: &Upstream,
        connection: &Rc<SharedConnection>,
        like: ConnectionKey,
    ) {
        let mut all = self.all.borrow_mut();
        let connection = Rc::clone(connection);
        let open = &mut all.entry(upstream.id()).or_default().open;
        if open.len() < OPEN_MAX {
            open.push(Entry { connection, like });
        }
    }

    /// Applies the limits of another configuration: connections to upstreams that it lacks end with their requests.
    pub(crate) fn keep_only(&self, limits: &HashMap<u64, KeepaliveLimits>) {
        self.all
            .borrow_mut()
            .retain(|id, _| limits.contains_key(id));
    }

    /// Drops those that carry no request. Returns whether there were any.
    pub(crate) fn clear_idle(&self) -> bool {
        let before = self.len();
        for shared in self.all.borrow_mut().values_mut() {
            let is_busy = |entry: &Entry| entry.connection.idle_since_ms().is_none();
            shared.open.retain(is_busy);
        }
        self.len() < before
    }

    /// Number of connections.
    pub(crate) fn len(&self) -> usize {
        let all = self.all.borrow();
        all.values().map(|shared| shared.open.len()).sum()
    }

    /// Drops connections that are over, or idle beyond the limits. Returns whether any is left.
    pub(crate) fn sweep(&self, limits: &HashMap<u64, KeepaliveLimits>, now_ms: u64) -> bool {
        self.all.borrow_mut().retain(|id, shared| {
            let Some(limits) = limits.get(id) else {
                return false;
            };
            shared.open.retain(|entry| entry.is_sound(limits, now_ms));
            let mut idle = 0;
            shared.open.retain(|entry| {
                idle += usize::from(entry.connection.idle_since_ms().is_some());
                entry.connection.idle_since_ms().is_none() || idle <= limits.count
            });
            shared.starting.retain(|(_, start)| !start.is_over.get());
            !shared.open.is_empty() || !shared.starting.is_empty()
        });
        !self.all.borrow().is_empty()
    }
}

impl Entry {
    /// Whether the connection is open and within the limits.
    fn is_sound(&self, limits: &KeepaliveLimits, now_ms: u64) -> bool {
        let since = |then_ms: u64| now_ms.saturating_sub(then_ms);
        let idle_ms = self.connection.idle_since_ms().map_or(0, since);
        self.connection.is_usable()
            && !self.connection.is_used_up(now_ms)
            && self.connection.requests() < limits.requests
            && since(self.connection.opened_ms()) <= limits.time_ms
            && (idle_ms == 0 || idle_ms < limits.timeout_ms)
    }
}

#[cfg(test)]
#[path = "shared_pool_tests.rs"]
mod tests;
