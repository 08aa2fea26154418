//! Walking a path component by component, in a pool: to watch every directory on it, or to judge every symlink.
//!
//! Not here: what a watch means (`inotify`). Invariant: a directory is watched before a name is looked up in it, so
//! that a change that the look-up did not see is an event.

use crate::files::mount::Filesystem;
use rustix::fs::inotify::{self, WatchFlags};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Symlinks followed in one path, as in the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;
/// Components of one path, those of followed symlinks included; a longer path is not watched (ELOOP).
const COMPONENTS_MAX: usize = 512;

/// Changes of a directory itself.
const SELF: WatchFlags = WatchFlags::MOVE_SELF
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::MASK_ADD);
/// Changes of names in a directory that holds a symlink.
const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE);

/// `disable_symlinks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symlinks {
    /// Followed.
    #[default]
    Follow,
    /// Refused (ELOOP) behind the first `from` bytes of the path.
    Refuse {
        /// Length of the part of the path, up to and with a slash, in which symlinks are followed.
        from: usize,
    },
    /// Refused (ELOOP) behind the first `from` bytes of the path if link and target have different owners.
    RefuseOthers {
        /// As above.
        from: usize,
    },
}

/// One watch that a path depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathWatch {
    pub wd: i32,
    /// The symlink in it that was followed; None: the directory itself matters.
    pub link: Option<Box<[u8]>>,
}

/// What a path resolves to.
#[derive(Debug)]
pub(crate) struct Walked {
    /// The directory that holds the last component, as resolved.
    pub dir: OwnedFd,
    /// The last component, as resolved; `.` if the path is a directory given with a slash, or `..`.
    pub name: Box<[u8]>,
}

struct PathWalk<'a> {
    inotify: Option<BorrowedFd<'a>>,
    symlinks: Symlinks,
    /// The components not yet walked, those that symlinks add included.
    todo: VecDeque<Component>,
    watches: Vec<PathWatch>,
    links: usize,
    steps: usize,
}

struct Component {
    name: Box<[u8]>,
    /// The offset of its end in the given path, by which its symlinks are judged; past the end (`usize::MAX`): it came
    /// from a symlink that was judged; None: it is never judged.
    end: Option<usize>,
}

/// Walks an absolute path and watches each directory on the way with `inotify`. Returns also the watches that the result
/// depends on, an error's too. **Waits.**
///
/// # Errors
/// Those of open(2) and inotify_add_watch(2) (EACCES, ENOSPC: no watch to be had); EXDEV where a directory on the way
/// is on a file system whose changes inotify does not see.
pub(crate) fn watch_path(
    path: &[u8],
    inotify: BorrowedFd<'_>,
) -> (Result<Walked, Errno>, Vec<PathWatch>) {
    let mut walk = PathWalk::new(path, Some(inotify), Symlinks::Follow);
    let walked = walk.run();
    (walked, walk.watches)
}

/// Walks an absolute path and refuses (ELOOP) the symlinks that `symlinks` refuses. **Waits.**
///
/// # Errors
/// ELOOP, and those of open(2).
pub(crate) fn judge_links(path: &[u8], symlinks: Symlinks) -> Result<Walked, Errno> {
    PathWalk::new(path, None, symlinks).run()
}

impl<'a> PathWalk<'a> {
    fn new(path: &[u8], inotify: Option<BorrowedFd<'a>>, symlinks: Symlinks) -> PathWalk<'a> {
        let mut walk = PathWalk {
            inotify,
            symlinks,
            todo: VecDeque::new(),
            watches: Vec::new(),
            links: 0,
            steps: 0,
        };
        let mut end = 0;
        for name in path.split(|byte| *byte == b'/') {
            end += name.len();
            if !name.is_empty() && name != b"." {
                walk.todo.push_back(Component {
                    name: name.into(),
                    end: Some(end),
                });
            }
            end += 1;
        }
        if path.ends_with(b"/") {
            walk.todo.push_back(Component {
                name: (*b".").into(),
                end: None,
            });
        }
        walk
    }

    fn run(&mut self) -> Result<Walked, Errno> {
        let mut dir = open_dir(None, b"/")?;
        self.watch(dir.as_fd(), None)?;
        while let Some(component) = self.todo.pop_front() {
            self.steps += 1;
            if self.steps > COMPONENTS_MAX {
                return Err(Errno::LOOP);
            }
            let last = self.todo.is_empty();
            if &*component.name == b".." || &*component.name == b"." {
                if last {
                    return Ok(Walked {
                        dir,
                        name: component.name,
                    });
                }
                dir = open_dir(Some(dir.as_fd()), &component.name)?;
                self.watch(dir.as_fd(), None)?;
                continue;
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let next = open_at(dir.as_fd(), &component.name, flags)?;
            let stat = rustix::fs::fstat(&next)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => {
                    self.follow(dir.as_fd(), &component, next.as_fd(), stat.st_uid)?;
                    if self.todo.front().is_some_and(|first| &*first.name == b"/") {
                        self.todo.pop_front();
                        dir = open_dir(None, b"/")?;
                    }
                }
                _ if last => {
                    return Ok(Walked {
                        dir,
                        name: component.name,
                    });
                }
                FileType::Directory => {
                    dir = next;
                    self.watch(dir.as_fd(), None)?;
                }
                _ => return Err(Errno::NOTDIR),
            }
        }
        Ok(Walked {
            dir,
            name: (*b".").into(),
        })
    }

    /// Puts a symlink's target before the rest of the path; an absolute one begins with the component `/`.
    fn follow(
        &mut self,
        dir: BorrowedFd<'_>,
        component: &Component,
        link: BorrowedFd<'_>,
        owner: u32,
    ) -> Result<(), Errno> {
        self.links += 1;
        if self.links > LINKS_MAX || self.refuses(dir, component, owner)? {
            return Err(Errno::LOOP);
        }
        self.watch(dir, Some(&component.name))?;
        let target = rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes();
        // A link that is not judged is followed as a whole: what its target leads through is not judged either.
        let end = self.is_judged(component).then_some(usize::MAX);
        let mut names: Vec<&[u8]> = target
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
            .collect();
        if target.starts_with(b"/") {
            names.insert(0, b"/");
        }
        for name in names.iter().rev() {
            self.todo.push_front(Component {
                name: (*name).into(),
                end,
            });
        }
        Ok(())
    }

    /// Whether it may be refused if it is a symlink.
    fn is_judged(&self, component: &Component) -> bool {
        match self.symlinks {
            Symlinks::Follow => false,
            Symlinks::Refuse { from } | Symlinks::RefuseOthers { from } => {
                component.end.is_some_and(|end| end > from)
            }
        }
    }

    fn refuses(
        &self,
        dir: BorrowedFd<'_>,
        component: &Component,
        owner: u32,
    ) -> Result<bool, Errno> {
        if !self.is_judged(component) {
            return Ok(false);
        }
        match self.symlinks {
            Symlinks::Follow => Ok(false),
            Symlinks::Refuse { .. } => Ok(true),
            Symlinks::RefuseOthers { .. } => {
                let target =
                    rustix::fs::statat(dir, OsStr::from_bytes(&component.name), AtFlags::empty())?;
                Ok(target.st_uid != owner)
            }
        }
    }

    fn watch(&mut self, dir: BorrowedFd<'_>, link: Option<&[u8]>) -> Result<(), Errno> {
        let Some(inotify) = self.inotify else {
            return Ok(());
        };
        if Filesystem::of(dir) == Filesystem::Foreign {
            return Err(Errno::XDEV);
        }
        let flags = if link.is_some() { SELF | NAMES } else { SELF };
        let wd = inotify::add_watch(inotify, format!("/proc/self/fd/{}", dir.as_raw_fd()), flags)?;
        let watch = PathWatch {
            wd,
            link: link.map(Into::into),
        };
        if !self.watches.contains(&watch) {
            self.watches.push(watch);
        }
        Ok(())
    }
}

fn open_dir(dir: Option<BorrowedFd<'_>>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open_at(dir.unwrap_or(rustix::fs::CWD), name, flags)
}

/// **Waits.**
pub(crate) fn open_at(dir: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
    rustix::fs::openat(dir, OsStr::from_bytes(name), flags, Mode::empty())
}
