//! Guards: inotify watches that tell when a path may no longer resolve as it did.
//!
//! A guard covers the path to a directory (or through a symlink to a file). Every directory on it, as resolved, is
//! watched, so that a switched symlink, a renamed or removed parent, or a parent that lost its search permission is an
//! event. The kernel queues that event before the call that made the change returns: a reader that empties the queue
//! after the change has seen it. A `read` that finds nothing costs 0.1–0.4 µs; it is made once for all requests of a
//! moment ([`Access::moment`](crate::Access)): a check made after a request arrived is exact for it.
//!
//! Limits: there is no guard on file systems whose changes inotify does not see, for directories without read
//! permission (inotify needs it), beyond [`GUARDS_MAX`], or when the user's watches are used up; every use then opens
//! the file again.

use crate::files::mount::Mount;
use crate::files::open_file::Handle;
use crate::keeping::walk::PathWatch;
use hashbrown::HashMap;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader};
use rustix::io::Errno;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

/// Guards of one loop, at most.
pub(crate) const GUARDS_MAX: usize = 4096;
/// Events remembered while a walk is under way; with more of them the walk gives no guard.
const RECENT_MAX: usize = 1024;
/// Events that one look-up reads at most; a longer queue makes all guards invalid (a look-up must end).
const EVENTS_MAX: usize = 4096;
/// Bytes read from inotify at a time (an event has at most 16 + 256).
const BUFFER: usize = 4096;

/// One guarded path. Invalid for ever once anything on it has changed.
#[derive(Debug)]
pub(crate) struct PathGuard {
    valid: Cell<bool>,
    watches: Vec<PathWatch>,
    way: GuardedPath,
}

/// What a guarded path resolves to; made in the pool. (A guard may be invalid because its directory was removed: its
/// descriptor is then the last reference, and no loop may close it.)
#[derive(Debug)]
pub(crate) struct GuardedPath {
    /// The directory at its end, as resolved.
    pub dir: Handle,
    /// The last component, as resolved.
    pub name: Box<[u8]>,
    pub mount: Arc<Mount>,
}

impl PathGuard {
    pub(crate) fn is_valid(&self) -> bool {
        self.valid.get()
    }

    pub(crate) fn way(&self) -> &GuardedPath {
        &self.way
    }

    pub(crate) fn watches_len(&self) -> usize {
        self.watches.len()
    }
}

type Dependant = (Option<Box<[u8]>>, Rc<PathGuard>);

/// One loop's inotify and the guards that depend on it.
#[derive(Debug)]
pub(crate) struct Watcher {
    inotify: Arc<OwnedFd>,
    /// By watch, the guards that depend on it, each with the symlink in that directory it followed (None: it passed
    /// through).
    dependants: HashMap<i32, Vec<Dependant>>,
    /// Walks under way in pools.
    walks: usize,
    /// Events during these walks.
    recent: Vec<(i32, Option<Box<[u8]>>)>,
    /// There were more events than `recent` holds.
    lost: bool,
}

impl Watcher {
    /// None where the user's inotify instances are used up, or inotify is forbidden.
    pub(crate) fn new() -> Option<Watcher> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        Some(Watcher {
            inotify: Arc::new(inotify),
            dependants: HashMap::new(),
            walks: 0,
            recent: Vec::new(),
            lost: false,
        })
    }

    /// Begins a walk; the descriptor is for its job in the pool.
    pub(crate) fn begin_walk(&mut self) -> Arc<OwnedFd> {
        self.walks += 1;
        self.inotify.clone()
    }

    /// Ends a walk: its guard, unless the path changed meanwhile. Call it for every walk begun.
    ///
    /// # Errors
    /// There is no guard: the watches that none needs, to be removed in a pool.
    pub(crate) fn end_walk(
        &mut self,
        way: Option<GuardedPath>,
        watches: Vec<PathWatch>,
    ) -> Result<Rc<PathGuard>, Vec<i32>> {
        self.take_events();
        let outcome = match way {
            Some(way) if !self.has_changed(&watches) => Ok(self.register(way, watches)),
            _ => Err(self.unused(&watches)),
        };
        self.walks -= 1;
        if self.walks == 0 {
            self.recent.clear();
            self.lost = false;
        }
        outcome
    }

    /// Whether a path with these watches may have changed since its walk began.
    fn has_changed(&self, watches: &[PathWatch]) -> bool {
        let concerns = |(wd, name): &(i32, Option<Box<[u8]>>)| {
            let is_it =
                |watch: &PathWatch| *wd == watch.wd && (name.is_none() || *name == watch.link);
            watches.iter().any(is_it)
        };
        self.lost || self.recent.iter().any(concerns)
    }

    /// Those that no guard depends on. (A walk under way that has made the same watch learns of its removal.)
    fn unused(&self, watches: &[PathWatch]) -> Vec<i32> {
        let all = watches.iter().map(|watch| watch.wd);
        let mut unused: Vec<i32> = all.filter(|wd| !self.dependants.contains_key(wd)).collect();
        unused.sort_unstable();
        unused.dedup();
        unused
    }

    fn register(&mut self, way: GuardedPath, watches: Vec<PathWatch>) -> Rc<PathGuard> {
        let guard = Rc::new(PathGuard {
            valid: Cell::new(true),
            watches,
            way,
        });
        for watch in &guard.watches {
            self.dependants
                .entry(watch.wd)
                .or_default()
                .push((watch.link.clone(), guard.clone()));
        }
        guard
    }

    /// Makes a guard invalid and returns the watches that no guard needs any more, to be removed in a pool.
    pub(crate) fn drop_guard(&mut self, guard: &Rc<PathGuard>) -> Vec<i32> {
        guard.valid.set(false);
        let mut unused = Vec::new();
        for watch in &guard.watches {
            if let Some(dependants) = self.dependants.get_mut(&watch.wd) {
                dependants.retain(|(_, other)| !Rc::ptr_eq(other, guard));
                if dependants.is_empty() {
                    self.dependants.remove(&watch.wd);
                    unused.push(watch.wd);
                }
            }
        }
        unused
    }

    pub(crate) fn inotify(&self) -> &Arc<OwnedFd> {
        &self.inotify
    }

    /// Reads all events queued so far: after this, a guard's [`PathGuard::is_valid`] is true to the disk.
    pub(crate) fn take_events(&mut self) {
        let inotify = self.inotify.clone();
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(inotify.as_fd(), &mut buffer);
        for _ in 0..EVENTS_MAX {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_bytes());
                    if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                        self.distrust_all();
                    } else {
                        self.take(event.wd(), name);
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.distrust_all();
    }

    /// Applies an event: one with a name concerns the guards that followed the symlink of that name, one without a name
    /// all.
    fn take(&mut self, wd: i32, name: Option<&[u8]>) {
        if self.walks > 0 {
            if self.recent.len() < RECENT_MAX {
                self.recent.push((wd, name.map(Into::into)));
            } else {
                self.lost = true;
            }
        }
        for (link, guard) in self.dependants.get(&wd).into_iter().flatten() {
            if name.is_none() || name == link.as_deref() {
                guard.valid.set(false);
            }
        }
    }

    /// Makes all guards invalid (mounts changed, or events were lost).
    pub(crate) fn distrust_all(&mut self) {
        self.lost |= self.walks > 0;
        for (_, guard) in self.dependants.values().flatten() {
            guard.valid.set(false);
        }
    }
}

/// Removes watches that no guard needs. **May wait** (for the last reference to an unlinked directory).
pub(crate) fn remove_watches(inotify: BorrowedFd<'_>, watches: &[i32]) {
    for wd in watches {
        // EINVAL: the kernel has removed it already, with the directory.
        let _ = inotify::remove_watch(inotify, *wd);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;
    use crate::keeping::walk::watch_path;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    /// Watches that an inotify has.
    fn count(watcher: &Watcher) -> usize {
        let fd = watcher.inotify().as_raw_fd();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        info.matches("inotify wd:").count()
    }

    #[test]
    fn a_walk_without_a_guard_leaves_no_watches() {
        let Some(mut watcher) = Watcher::new() else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        for name in ["", "missing/file"] {
            let path = dir.path().join(name);
            let inotify = watcher.begin_walk();
            let (walked, watches) = watch_path(path.as_os_str().as_bytes(), inotify.as_fd());
            assert_eq!(walked.is_ok(), name.is_empty());
            if watches.is_empty() {
                // A directory here cannot be watched.
                return;
            }
            assert!(count(&watcher) > 0);
            let unused = watcher.end_walk(None, watches).unwrap_err();
            remove_watches(inotify.as_fd(), &unused);
            assert_eq!(count(&watcher), 0);
        }
    }
}
