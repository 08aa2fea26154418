//! All idle upstream connections of one loop.
//!
//! Not here: when one may be used ([`super::keepalive`]). Invariant: only connections to upstreams of the current
//! configuration are kept; a reload keeps those whose upstream has a like of the same name.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use wire::UpstreamConnection;

use super::keepalive::{Kept, Wanted};
use super::upstreams::{Upstream, Upstreams};
use crate::loops::{Kind, Loop, spawn};

/// Interval at which idle connections are checked: one that the server closed stays for at most this long.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A loop's idle connections.
#[derive(Default)]
pub struct Shelf {
    /// By [`Upstream::id`].
    kept: RefCell<HashMap<u64, Kept<UpstreamConnection>>>,
    is_tended: Cell<bool>,
}

impl Shelf {
    /// A matching connection, in the state of a moment ago. It may be dead all the same: see
    /// [`super::Choice::forgive_try`].
    pub fn take(&self, upstream: &Upstream, wanted: &Wanted) -> Option<UpstreamConnection> {
        let mut all = self.kept.borrow_mut();
        let kept = all.get_mut(&upstream.id())?;
        kept.take(wanted, wire::loop_clock::monotonic_ms())
    }

    /// Keeps a connection for the next request, or closes it.
    pub fn put(
        &self,
        upstream: &Upstream,
        connection: UpstreamConnection,
        like: Wanted,
        loop_: &Rc<Loop>,
    ) {
        let limits = upstream.declared().kept;
        if limits.count == 0 || loop_.is_leaving() {
            return;
        }
        let id = upstream.id();
        let mut all = self.kept.borrow_mut();
        if !all.contains_key(&id) {
            // A request may outlive the configuration that it began with.
            let now = loop_.generation();
            let current = &now.settings.upstreams;
            let known = current.find(&upstream.declared().name, upstream.declared().port);
            if known.is_none_or(|known| known.id() != id) {
                return;
            }
        }
        let kept = all.entry(id).or_insert_with(|| Kept::new(limits));
        kept.put(connection, like, wire::loop_clock::monotonic_ms());
        drop(all);
        self.begin_tending(loop_);
    }

    /// Applies another configuration: connections to upstreams that it lacks are closed, and its limits hold.
    pub fn keep_only(&self, upstreams: &Upstreams) {
        let limits = upstreams.limits();
        let mut all = self.kept.borrow_mut();
        all.retain(|id, _| limits.contains_key(id));
        for (id, kept) in all.iter_mut() {
            kept.limit(limits[id]);
        }
    }

    /// Closes all.
    pub fn clear(&self) {
        self.kept.borrow_mut().clear();
    }

    /// Number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.borrow().values().map(Kept::len).sum()
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
        let is_left = !self.kept.borrow().is_empty();
        self.is_tended.set(is_left);
        is_left
    }
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} idle connections", self.len())
    }
}

/// Sweeps at intervals until nothing is kept.
async fn tend(loop_: Weak<Loop>) {
    loop {
        let Some(wheel) = loop_.upgrade().map(|loop_| loop_.wire.wheel.clone()) else {
            return;
        };
        wheel.sleep(LOOK_EVERY).await;
        if !loop_.upgrade().is_some_and(|loop_| loop_.shelf.sweep()) {
            return;
        }
    }
}
