//! All upstream connections of one loop that are kept for further requests: idle ones, and those of HTTP/2, which
//! requests share.
//!
//! Not here: when one may be used ([`super::keepalive`]). Invariant: only connections to upstreams of the current
//! configuration are kept; a reload keeps those whose upstream has a like of the same name. Nothing is kept before
//! [`KeepalivePool::keep_only`] names the upstreams.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use message::Framing;
use runtime::{Kind, LOOP, Loop, spawn};
use slots::slotted;
use wire::exchange::SharedDriver;
use wire::{SharedConnection, UpstreamConnection};

use super::keepalive::{ConnectionKey, IdleConnections, KeepaliveLimits};
use super::shared_pool::{Opening, SharedPool, Turn};
use super::{Upstream, Upstreams};

/// Interval at which idle connections are checked: one that the server closed stays for at most this long.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A loop's idle upstream connections.
#[derive(Default)]
pub struct KeepalivePool {
    /// By [`Upstream::id`].
    kept: RefCell<HashMap<u64, IdleConnections<UpstreamConnection>>>,
    /// The limits of each upstream of the current configuration, by [`Upstream::id`].
    limits: RefCell<Arc<HashMap<u64, KeepaliveLimits>>>,
    shared: SharedPool,
    is_tended: Cell<bool>,
}

slotted!(LOOP: KeepalivePool);

impl KeepalivePool {
    /// The pool of a loop.
    #[must_use]
    pub fn of(loop_: &Loop) -> &KeepalivePool {
        loop_.state.get_or_init(|| {
            loop_.add_spare(|loop_| KeepalivePool::of(loop_).clear());
            KeepalivePool::default()
        })
    }

    /// A matching connection, in the state of a moment ago. It may be dead all the same: see
    /// [`super::Choice::forgive_try`].
    pub fn take(&self, upstream: &Upstream, wanted: &ConnectionKey) -> Option<UpstreamConnection> {
        let mut all = self.kept.borrow_mut();
        let kept = all.get_mut(&upstream.id())?;
        kept.take(wanted, wire::loop_clock::monotonic_ms())
    }

    /// Keeps a connection for the next request, or closes it.
    pub fn put(
        &self,
        upstream: &Upstream,
        connection: UpstreamConnection,
        like: ConnectionKey,
        loop_: &Rc<Loop>,
    ) {
        if upstream.declared().kept.count == 0 || loop_.is_leaving() {
            return;
        }
        let mut all = self.kept.borrow_mut();
        let kept = match all.entry(upstream.id()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                // Not the limits of the request's configuration, which it may outlive.
                let limits = self.limits.borrow().get(new.key()).copied();
                match limits.filter(|limits| limits.count > 0) {
                    Some(limits) => new.insert(IdleConnections::new(limits)),
                    None => return,
                }
            }
        };
        kept.put(connection, like, wire::loop_clock::monotonic_ms());
        drop(all);
        self.begin_tending(loop_);
    }

    /// A matching connection of HTTP/2 that has room for another request, whose body is framed so.
    pub fn take_shared(
        &self,
        upstream: &Upstream,
        wanted: &ConnectionKey,
        framing: Framing,
    ) -> Option<Rc<SharedConnection>> {
        self.shared.take(upstream, wanted, framing)
    }

    /// To be called before a connection of HTTP/2 is opened: waits while another request opens one.
    pub async fn begin_shared(
        &self,
        upstream: &Upstream,
        wanted: &ConnectionKey,
        loop_: &Loop,
    ) -> Turn {
        match upstream.declared().kept.count {
            0 => Turn::Alone,
            _ => {
                let wheel = &loop_.wire.wheel;
                self.shared.begin(upstream, wanted, wheel).await
            }
        }
    }

    /// Makes one of HTTP/2 of a new connection, and lets further requests use it, once it is known how many it takes.
    /// The heads of responses have at most about `head_bytes_max` bytes (`grpc_buffer_size`).
    pub fn share(
        &self,
        upstream: &Upstream,
        connection: UpstreamConnection,
        head_bytes_max: usize,
        like: ConnectionKey,
        opening: Option<Opening>,
        loop_: &Rc<Loop>,
    ) -> Rc<SharedConnection> {
        let streams = upstream.declared().kept.streams;
        let (connection, driver) = SharedConnection::new(connection, head_bytes_max, streams);
        let connection = Rc::new(connection);
        let driven = drive(Rc::downgrade(&connection), driver, opening);
        drop(spawn(Kind::Upstream, driven));
        // A request may outlive the configuration that it began with.
        let is_known = self.limits.borrow().contains_key(&upstream.id());
        if upstream.declared().kept.count > 0 && is_known && !loop_.is_leaving() {
            self.shared.put(upstream, &connection, like);
            self.begin_tending(loop_);
        }
        connection
    }

    /// Applies another configuration: connections to upstreams that it lacks are closed, and its limits hold.
    pub fn keep_only(&self, upstreams: &Upstreams) {
        let limits = upstreams.limits();
        let mut all = self.kept.borrow_mut();
        all.retain(|id, _| limits.contains_key(id));
        for (id, kept) in all.iter_mut() {
            kept.limit(limits[id]);
        }
        self.shared.keep_only(limits);
        *self.limits.borrow_mut() = Arc::clone(limits);
    }

    /// Closes all that carry no request. Returns whether there were any.
    pub fn clear(&self) -> bool {
        let has_any = !self.kept.borrow().is_empty();
        self.kept.borrow_mut().clear();
        self.shared.clear_idle() || has_any
    }

    /// Number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        let idle: usize = self.kept.borrow().values().map(IdleConnections::len).sum();
        idle + self.shared.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn begin_tending(&self, loop_: &Rc<Loop>) {
        if !self.is_tended.replace(true) {
            drop(spawn(Kind::Upstream, tend(Rc::downgrade(loop_))));
        }
    }

    /// Closes dead and expired connections. Returns whether any is left.
    fn sweep(&self) -> bool {
        let now_ms = wire::loop_clock::monotonic_ms();
        self.kept.borrow_mut().retain(|_, kept| {
            kept.sweep(now_ms);
            !kept.is_empty()
        });
        let is_left = self.shared.sweep(&self.limits.borrow(), now_ms);
        let is_left = is_left || !self.kept.borrow().is_empty();
        self.is_tended.set(is_left);
        is_left
    }
}

impl std::fmt::Debug for KeepalivePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} idle connections", self.len())
    }
}

/// Moves the bytes of a connection of HTTP/2 to its end. Others wait for it until it is known how many requests it takes.
async fn drive(
    connection: Weak<SharedConnection>,
    mut driver: SharedDriver,
    mut opening: Option<Opening>,
) {
    poll_fn(|cx| {
        let driven = Pin::new(&mut driver).poll(cx);
        let is_settled = || connection.upgrade().is_none_or(|one| one.is_settled());
        if opening.is_some() && is_settled() {
            opening = None;
        }
        driven
    })
    .await;
}

/// Sweeps at intervals until nothing is kept.
async fn tend(loop_: Weak<Loop>) {
    loop {
        let Some(wheel) = loop_.upgrade().map(|loop_| loop_.wire.wheel.clone()) else {
            return;
        };
        wheel.sleep(LOOK_EVERY).await;
        if !loop_
            .upgrade()
            .is_some_and(|loop_| KeepalivePool::of(&loop_).sweep())
        {
            return;
        }
    }
}
