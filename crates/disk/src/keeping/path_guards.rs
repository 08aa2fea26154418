//! One loop's guards by path, made in the pool when a file is requested for the second time.
//!
//! Invariant: at most [`GUARDS_MAX`] guards, at most one walk per path and [`WALKS_MAX`] in all.

use crate::file::{self, Handle, Meta};
use crate::keeping::inotify::{GUARDS_MAX, GuardedPath, PathGuard, Watcher, remove_watches};
use crate::keeping::walk::{self, Walked, Watch};
use crate::local::{Local, LocalInner};
use crate::memory;
use crate::pool::{Lane, Pool};
use hashbrown::HashMap;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Walks of one loop that are under way, at most.
pub(crate) const WALKS_MAX: usize = 16;
/// The time before the next walk of a path whose walk gave no guard.
const RETRY: Duration = Duration::from_secs(1);
/// The time without new guards after all were found in use.
const FULL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct PathGuards {
    watcher: Option<Watcher>,
    by_path: HashMap<Box<[u8]>, GuardSlot>,
    walks: usize,
    guards_max: usize,
    full_until: Option<Instant>,
}

#[derive(Debug)]
enum GuardSlot {
    Walking,
    Ready(Rc<PathGuard>),
    None { until: Instant },
}

impl PathGuards {
    /// An empty table for at most `guards_max` guards (each holds a descriptor), and at most [`GUARDS_MAX`].
    pub(crate) fn new(guards_max: usize) -> PathGuards {
        PathGuards {
            watcher: Watcher::new(),
            by_path: HashMap::new(),
            walks: 0,
            guards_max: guards_max.min(GUARDS_MAX),
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
        self.guards_max.min(memory::files_of_a_loop())
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
        self.let_go(pool);
        let room = self.by_path.len() < self.guards_max();
        self.full_until = (!room).then(|| now + FULL);
        room
    }

    /// Drops the guards that are invalid, or guard no open file.
    pub(crate) fn let_go(&mut self, pool: &Pool) {
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
    }

    fn forget(&mut self, guard: &Rc<PathGuard>, pool: &Pool) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let unused = watcher.drop_guard(guard);
        if !unused.is_empty() {
            let inotify = watcher.inotify().clone();
            pool.release(RemoveWatchesOnDrop(inotify, unused));
        }
    }
}

/// Removes watches when it is dropped, in a pool.
struct RemoveWatchesOnDrop(Arc<std::os::fd::OwnedFd>, Vec<i32>);

impl Drop for RemoveWatchesOnDrop {
    fn drop(&mut self) {
        remove_watches(self.0.as_fd(), &self.1);
    }
}

impl Local {
    /// Gives the table's entry of this path its guard; begins a walk for one if there is none yet.
    pub(crate) fn guard(&self, path: &[u8], pool: &Pool) {
        let parent = parent_of(path);
        let guard = self.0.guards.borrow().get(parent);
        let Some(guard) = guard else {
            return self.walk(parent, pool);
        };
        match self.holds(&guard, &path[parent.len()..], path, pool) {
            LeadsTo::This => self.set_guard(path, guard),
            LeadsTo::Symlink => self.guard_symlink(path, pool),
            LeadsTo::Other => {}
        }
    }

    /// Guards a file that is reached through a symlink: it has a guard of its own.
    fn guard_symlink(&self, path: &[u8], pool: &Pool) {
        let guard = self.0.guards.borrow().get(path);
        let Some(guard) = guard else {
            return self.walk(path, pool);
        };
        if let LeadsTo::This = self.holds(&guard, &guard.way().name, path, pool) {
            self.set_guard(path, guard);
        }
    }

    fn set_guard(&self, path: &[u8], guard: Rc<PathGuard>) {
        if let Some(entry) = self.0.files.borrow_mut().entry(path) {
            entry.guard = Some(guard);
        }
    }

    /// Does this name in the guarded directory lead to the file that the table has for the path?
    fn holds(&self, guard: &PathGuard, name: &[u8], path: &[u8], pool: &Pool) -> LeadsTo {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
        let found = rustix::fs::openat2(
            guard.way().dir.as_fd(),
            OsStr::from_bytes(name),
            flags,
            Mode::empty(),
            resolve,
        )
        .and_then(|fd| Ok((Meta::from_stat(&rustix::fs::fstat(&fd)?), fd)));
        let Ok((meta, fd)) = found else {
            return LeadsTo::Other;
        };
        file::close(fd, &meta, pool);
        if FileType::from_raw_mode(meta.mode) == FileType::Symlink {
            return LeadsTo::Symlink;
        }
        let mut files = self.0.files.borrow_mut();
        match files.entry(path) {
            Some(entry)
                if (entry.file.meta().dev, entry.file.meta().ino) == (meta.dev, meta.ino) =>
            {
                LeadsTo::This
            }
            _ => LeadsTo::Other,
        }
    }

    /// Begins the walk that makes a guard, in the pool.
    pub(crate) fn walk(&self, path: &[u8], pool: &Pool) {
        let mut guards = self.0.guards.borrow_mut();
        if !guards.wants(path) {
            return;
        }
        if let Some(GuardSlot::Ready(old)) = guards.by_path.remove(path) {
            guards.forget(&old, pool);
        }
        if !guards.make_room(pool) {
            return;
        }
        let Some(watcher) = &mut guards.watcher else {
            return;
        };
        let inotify = watcher.begin_walk();
        let (disk, asked): (_, Box<[u8]>) = (self.0.disk.clone(), path.into());
        let (path, closing) = (asked.clone(), pool.clone());
        let job = pool.submit(
            Lane::Read,
            move || -> Result<(GuardedPath, Vec<Watch>), Errno> {
                let Walked { dir, name, watches } = walk::watch_path(&asked, inotify.as_fd())?;
                let mount = disk.mounts.learn(dir.as_fd()).ok_or(Errno::XDEV)?;
                if !mount.answers_inline() {
                    return Err(Errno::XDEV);
                }
                let dir = Handle::new(dir, Some(mount.clone()), &closing);
                Ok((GuardedPath { dir, name, mount }, watches))
            },
        );
        let Ok(job) = job else {
            watcher.end_walk(None);
            return;
        };
        guards.walks += 1;
        guards.by_path.insert(path.clone(), GuardSlot::Walking);
        drop(guards);
        let inner = self.0.clone();
        tokio::task::spawn_local(async move { inner.walked(path, job.await.ok()) });
    }
}

impl LocalInner {
    fn walked(&self, path: Box<[u8]>, walked: Option<(GuardedPath, Vec<Watch>)>) {
        let mut guards = self.guards.borrow_mut();
        guards.walks -= 1;
        let guard = guards
            .watcher
            .as_mut()
            .and_then(|watcher| watcher.end_walk(walked));
        let slot = match guard {
            Some(guard) => GuardSlot::Ready(guard),
            None => GuardSlot::None {
                until: Instant::now() + RETRY,
            },
        };
        guards.by_path.insert(path, slot);
    }
}

enum LeadsTo {
    This,
    Symlink,
    Other,
}

/// The path up to its last slash, inclusive.
pub(crate) fn parent_of(path: &[u8]) -> &[u8] {
    let end = path
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |at| at + 1);
    &path[..end]
}
