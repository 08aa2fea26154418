//! Gives a kept file the guard of its path, and begins the walk that makes one.
//!
//! Not here: the table of guards, and its limits (`keeping::path_guards`).

use crate::files::open_file::{self, Handle, Meta, Way};
use crate::keeping::inotify::{GuardedPath, PathGuard};
use crate::keeping::path_guards::parent_of;
use crate::keeping::walk::{self, Walked};
use crate::local::Local;
use crate::pool::{Lane, Pool};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

impl Local {
    /// The guards that there are for a path that the pool is about to open. None: a loop can look at its name itself
    /// (openat2).
    pub(crate) fn guards_of(&self, path: &[u8]) -> Option<GuardsBefore> {
        let guards = self.0.guards.borrow();
        (!self.0.disk.has_openat2).then(|| GuardsBefore {
            of_parent: guards.get(parent_of(path)),
            of_link: guards.get(path),
        })
    }

    /// Gives the table's entry of this path, which the pool has just opened, its guard, if that was valid before and is so
    /// still: then the path led there, and only a change of the file itself, which shows, can make it lead elsewhere. Begins
    /// a walk for a guard if there is none yet.
    pub(crate) fn guard_as_opened(&self, path: &[u8], way: Way, before: GuardsBefore, pool: &Pool) {
        let (guard, guarded) = match way {
            Way::Direct => (before.of_parent, parent_of(path)),
            Way::ByLink => (before.of_link, path),
            Way::Unknown => return,
        };
        self.0.guards.borrow_mut().take_events();
        match guard {
            Some(guard) if guard.is_valid() => self.set_guard(path, guard),
            _ => self.walk(guarded, pool),
        }
    }

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
        open_file::close(fd, &meta, pool);
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
        let Some(inotify) = guards.begin_walk(path, pool) else {
            return;
        };
        let (disk, asked): (_, Box<[u8]>) = (self.0.disk.clone(), path.into());
        let (path, closing) = (asked.clone(), pool.clone());
        let job = pool.submit(Lane::Read, move || {
            let (walked, watches) = walk::watch_path(&asked, inotify.as_fd());
            let way = walked.ok().and_then(|Walked { dir, name }| {
                let mount = disk.mounts.learn(dir.as_fd());
                let mount = mount.filter(|mount| mount.answers_inline())?;
                let dir = Handle::new(dir, Some(mount.clone()), &closing);
                Some(GuardedPath { dir, name, mount })
            });
            (way, watches)
        });
        let Ok(job) = job else {
            return guards.refused(&path);
        };
        drop(guards);
        let (inner, pool) = (self.0.clone(), pool.clone());
        tokio::task::spawn_local(async move {
            let (way, watches) = job.await;
            let mut guards = inner.guards.borrow_mut();
            guards.walked(path, way, watches, &pool);
        });
    }
}

/// The valid guards of a path, of its directory and of itself if it is a symlink.
pub(crate) struct GuardsBefore {
    of_parent: Option<Rc<PathGuard>>,
    of_link: Option<Rc<PathGuard>>,
}

enum LeadsTo {
    This,
    Symlink,
    Other,
}
