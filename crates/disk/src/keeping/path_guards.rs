//! One loop's guards by path, made in the pool when a file is requested for the second time.
//!
//! Invariant: at most [`GUARDS_MAX`] guards, within their share of the descriptors; at most one walk per path and
//! [`WALKS_MAX`] in all.

use crate::keeping::inotify::{GUARDS_MAX, GuardedPath, PathGuard, Watcher, remove_watches};
use crate::keeping::walk::PathWatch;
use crate::memory;
use crate::pool::Pool;
use hashbrown::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Walks of one loop that are under way, at most.
pub(crate) const WALKS_MAX: usize = 16;
/// The time before the next walk of a path whose walk gave no guard.
const RETRY: Duration = Duration::from_secs(1);
/// Guards take at most one descriptor in this many of the process: on one loop, and on all loops together.
const DESCRIPTORS_OF_A_LOOP: usize = 16;
const DESCRIPTORS_OF_ALL: usize = 8;
/// The time between two looks for guards that are not in use, where there are as many as may be. (One that was just made is
/// in use from its file's next use on: those would go one after the other.)
const FULL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct PathGuards {
    watcher: Option<Watcher>,
    by_path: HashMap<Box<[u8]>, GuardSlot>,
    walks: usize,
    /// The process's limit on descriptors.
    descriptors: usize,
    full_until: Option<Instant>,
}

#[derive(Debug)]
enum GuardSlot {
    Walking,
    Ready(Rc<PathGuard>),
    None { until: Instant },
}

impl PathGuards {
    /// An empty table. `descriptors`: the process's limit, since each guard holds one.
    pub(crate) fn new(descriptors: usize) -> PathGuards {
        PathGuards {
            watcher: Watcher::new(),
            by_path: HashMap::new(),
            walks: 0,
            descriptors,
            full_until: None,
        }
    }

    pub(crate) fn take_events(&mut self) {
        if let Some(watcher) = &mut self.watcher {
            watcher.take_events();
        }
    }

    pub(crate) fn distrust_all(&mut self) {
        if let Some(watcher) = &mut self.watcher {
            watcher.distrust_all();
        }
    }

    /// The guard of a path (a directory with its slash, or a symlink to a file), if there is a valid one. The caller
    /// has read the events.
    pub(crate) fn get(&self, path: &[u8]) -> Option<Rc<PathGuard>> {
        match self.by_path.get(path) {
            Some(GuardSlot::Ready(guard)) if guard.is_valid() => Some(guard.clone()),
            _ => None,
        }
    }

    /// May a walk for this path begin?
    fn wants(&self, path: &[u8]) -> bool {
        self.watcher.is_some()
            && self.walks < WALKS_MAX
            && match self.by_path.get(path) {
                None => true,
                Some(GuardSlot::Walking) => false,
                Some(GuardSlot::Ready(guard)) => !guard.is_valid(),
                Some(GuardSlot::None { until }) => *until <= Instant::now(),
            }
    }

    /// Guards allowed now: one for each kept file is enough.
    fn guards_max(&self) -> usize {
        most_by_descriptors(self.descriptors, memory::loops()).min(memory::files_of_a_loop())
    }

    /// Notes that a walk of a path begins, if there should be one: the inotify for its job. Followed by
    /// [`PathGuards::walked`].
    pub(crate) fn begin_walk(&mut self, path: &[u8], pool: &Pool) -> Option<Arc<OwnedFd>> {
        if !self.wants(path) {
            return None;
        }
        if let Some(GuardSlot::Ready(old)) = self.by_path.remove(path) {
            self.forget(&old, pool);
        }
        if !self.make_room(pool) {
            return None;
        }
        let inotify = self.watcher.as_mut()?.begin_walk();
        self.walks += 1;
        self.by_path.insert(path.into(), GuardSlot::Walking);
        Some(inotify)
    }

    /// Ends a walk that no pool took.
    pub(crate) fn refused(&mut self, path: &[u8]) {
        self.walks -= 1;
        self.by_path.remove(path);
        if let Some(watcher) = &mut self.watcher {
            let _ = watcher.end_walk(None, Vec::new());
        }
    }

    /// Ends a walk: what it found, if it came to its end, and what it watches.
    pub(crate) fn walked(
        &mut self,
        path: Box<[u8]>,
        way: Option<GuardedPath>,
        watches: Vec<PathWatch>,
        pool: &Pool,
    ) {
        self.walks -= 1;
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let slot = match watcher.end_walk(way, watches) {
            Ok(guard) => GuardSlot::Ready(guard),
            Err(unused) => {
                remove_in(pool, watcher, unused);
                GuardSlot::None {
                    until: Instant::now() + RETRY,
                }
            }
        };
        self.by_path.insert(path, slot);
    }

    /// Makes room for one more; false if all are in use.
    fn make_room(&mut self, pool: &Pool) -> bool {
        if self.by_path.len() < self.guards_max() {
            return true;
        }
        let now = Instant::now();
        if self.full_until.is_some_and(|until| now < until) {
            return false;
        }
        self.full_until = Some(now + FULL);
        self.let_go(pool);
        self.by_path.len() < self.guards_max()
    }

    /// Drops the guards that are invalid, or guard no open file. False: there was none.
    pub(crate) fn let_go(&mut self, pool: &Pool) -> bool {
        let mut dropped = Vec::new();
        self.by_path.retain(|_, slot| match slot {
            GuardSlot::Walking => true,
            // References beyond the map's own, and the watcher's for each watch, belong to the table of open files.
            GuardSlot::Ready(guard)
                if guard.is_valid() && Rc::strong_count(guard) > 1 + guard.watches_len() =>
            {
                true
            }
            GuardSlot::Ready(guard) => {
                dropped.push(guard.clone());
                false
            }
            GuardSlot::None { .. } => false,
        });
        dropped.iter().for_each(|guard| self.forget(guard, pool));
        !dropped.is_empty()
    }

    /// The number of guards and walks.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_path.len()
    }

    fn forget(&mut self, guard: &Rc<PathGuard>, pool: &Pool) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let unused = watcher.drop_guard(guard);
        remove_in(pool, watcher, unused);
    }
}

/// Has a pool remove watches that no guard needs.
fn remove_in(pool: &Pool, watcher: &Watcher, unused: Vec<i32>) {
    if !unused.is_empty() {
        let inotify = watcher.inotify().clone();
        pool.release(RemoveWatchesOnDrop(inotify, unused));
    }
}

/// Guards that one of so many loops may have.
fn most_by_descriptors(descriptors: usize, loops: usize) -> usize {
    let of_all = descriptors / DESCRIPTORS_OF_ALL / loops;
    (descriptors / DESCRIPTORS_OF_A_LOOP)
        .min(of_all)
        .min(GUARDS_MAX)
}

/// Removes watches when it is dropped, in a pool.
struct RemoveWatchesOnDrop(Arc<OwnedFd>, Vec<i32>);

impl Drop for RemoveWatchesOnDrop {
    fn drop(&mut self) {
        remove_watches(self.0.as_fd(), &self.1);
    }
}

/// The path up to its last slash, inclusive.
pub(crate) fn parent_of(path: &[u8]) -> &[u8] {
    let end = path
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |at| at + 1);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_of_all_loops_leave_descriptors_for_connections() {
        for descriptors in [1024, 4096, 65_536, 1 << 20] {
            for loops in [1, 2, 8, 64, 256] {
                let all = loops * most_by_descriptors(descriptors, loops);
                assert!(all <= descriptors / 8, "{descriptors} {loops}: {all}");
            }
        }
        assert_eq!(most_by_descriptors(1024, 1), 64);
        assert_eq!(most_by_descriptors(usize::MAX, 1), GUARDS_MAX);
    }
}
