//! Removing and copying directories with all their contents.
//!
//! A job works on a tree for [`STEP`] at a time and is queued again, so that other jobs get their turn however large
//! the tree is. Directories are entered by descriptor, and nothing is removed through a symlink: files that are put in
//! their place meanwhile are not touched. Failures are recorded, and the rest is done all the same.

use crate::changing::move_file::{FileCopy, mode_of, open_to_copy};
use crate::changing::replace::set_mtime;
use crate::files::error::Error;
use crate::files::open_file::Meta;
use crate::local::Local;
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use crate::pool::Pool;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// Levels of nested directories; deeper ones are not touched, and recorded.
pub const TREE_DEPTH_MAX: usize = 128;
/// Failures recorded for one tree; further ones are only counted.
pub const TREE_ERRORS_MAX: usize = 100;
/// How long a pool thread works on a tree before other jobs get their turn.
const STEP: Duration = Duration::from_millis(20);

/// A failure on one entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeError {
    /// The call, with its parentheses.
    pub call: &'static str,
    /// The path of the entry.
    pub path: Box<[u8]>,
    /// Why it failed.
    pub errno: Errno,
}

/// The failures of work on a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeErrors {
    /// The first [`TREE_ERRORS_MAX`], in order.
    pub noted: Vec<TreeError>,
    /// The number of all.
    pub count: usize,
}

impl TreeErrors {
    fn note(&mut self, call: &'static str, path: Vec<u8>, errno: Errno) {
        self.count += 1;
        if self.noted.len() < TREE_ERRORS_MAX {
            self.noted.push(TreeError {
                call,
                path: path.into(),
                errno,
            });
        }
    }
}

/// What a copy of a tree is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyPurpose {
    /// The original stays: symlinks are followed, and entries that are neither file nor directory are left out.
    Copy,
    /// The original will be removed: symlinks are copied as such, and an entry that cannot be copied is a failure.
    Move,
}

impl Local {
    /// Removes a directory with its contents. The [`TreeErrors`] are the entries that were left behind.
    ///
    /// # Errors
    /// [`Error::System`] with `opendir()`, and `rmdir()` where something was left; [`Error::Overflow`], after which a
    /// part may be gone.
    pub async fn remove_tree(&self, path: &[u8], pool: &Pool) -> (TreeErrors, Result<(), Error>) {
        let path: Box<[u8]> = path.into();
        let (errors, outcome) = self.work_on(TreeWork::removing(&path), pool).await;
        let Ok(()) = outcome else {
            return (errors, outcome);
        };
        let removed = self.write_job(Operation::Unlink, pool, move || {
            let remove = || rustix::fs::rmdir(OsStr::from_bytes(&path));
            call_times::timed(Operation::Unlink, remove).map_err(|e| Error::system("rmdir()", e))
        });
        (errors, removed.await)
    }

    /// Copies a directory with its contents to a path that does not exist yet.
    ///
    /// # Errors
    /// [`Error::System`] with `opendir()` or `mkdir()`; [`Error::Overflow`], after which a part may be there.
    pub async fn copy_tree(
        &self,
        from: &[u8],
        to: &[u8],
        purpose: CopyPurpose,
        pool: &Pool,
    ) -> (TreeErrors, Result<(), Error>) {
        self.work_on(TreeWork::copying(from, to, purpose), pool)
            .await
    }

    async fn work_on(&self, tree: TreeWork, pool: &Pool) -> (TreeErrors, Result<(), Error>) {
        let mut tree = Box::new(tree);
        loop {
            let step = self.write_job(Operation::Other, pool, move || {
                let outcome = tree.step();
                Ok((tree, outcome))
            });
            match step.await {
                Ok((moved, Ok(TreeProgress::More))) => tree = moved,
                Ok((done, Ok(TreeProgress::Done))) => return (done.errors, Ok(())),
                Ok((failed, Err(error))) => return (failed.errors, Err(error)),
                Err(overflow) => return (TreeErrors::default(), Err(overflow)),
            }
        }
    }
}

enum TreeProgress {
    More,
    Done,
}

/// The state of work on a tree, between two steps.
struct TreeWork {
    from: Box<[u8]>,
    /// The target of a copy; None: the tree is removed.
    to: Option<(Box<[u8]>, CopyPurpose)>,
    /// The directories entered, outermost first; empty before the first step.
    levels: Vec<TreeLevel>,
    is_begun: bool,
    /// Device and inode of the outermost copy, which is not copied into itself.
    copy: Option<(u64, u64)>,
    /// A file that is being copied.
    copying: Option<(FileCopy, CString)>,
    errors: TreeErrors,
}

/// A directory that is being read.
struct TreeLevel {
    dir: Dir,
    /// Its name in its parent; empty for the outermost.
    name: CString,
    /// Its copy.
    copy: Option<OwnedFd>,
    stat: Stat,
}

impl TreeWork {
    fn removing(path: &[u8]) -> TreeWork {
        TreeWork {
            from: path.into(),
            to: None,
            levels: Vec::new(),
            is_begun: false,
            copy: None,
            copying: None,
            errors: TreeErrors::default(),
        }
    }

    fn copying(from: &[u8], to: &[u8], purpose: CopyPurpose) -> TreeWork {
        TreeWork {
            to: Some((to.into(), purpose)),
            ..TreeWork::removing(from)
        }
    }

    /// **Waits.**
    fn step(&mut self) -> Result<TreeProgress, Error> {
        let end = Instant::now() + STEP;
        if !self.is_begun {
            self.begin()?;
            self.is_begun = true;
        }
        while !self.levels.is_empty() {
            if Instant::now() >= end {
                return Ok(TreeProgress::More);
            }
            match self.copying.take() {
                Some((copying, name)) => self.go_on(copying, name),
                None => self.next(),
            }
        }
        Ok(TreeProgress::Done)
    }

    fn begin(&mut self) -> Result<(), Error> {
        let path = CString::new(&self.from[..]).map_err(|_| invalid("opendir()"))?;
        // A directory that is copied may be named by a symlink, as those inside of it.
        let flags = match self.to {
            Some((_, CopyPurpose::Copy)) => OFlags::empty(),
            _ => OFlags::NOFOLLOW,
        };
        let (dir, stat) = enter(rustix::fs::CWD, &path, flags)
            .map_err(|errno| Error::system("opendir()", errno))?;
        let copy = match &self.to {
            None => None,
            Some((to, _)) => {
                let to = CString::new(&to[..]).map_err(|_| invalid("mkdir()"))?;
                let made = make(rustix::fs::CWD, &to, mode_of(&stat))
                    .and_then(|made| Ok((rustix::fs::fstat(&made)?, made)));
                let (stat, made) = made.map_err(|errno| Error::system("mkdir()", errno))?;
                self.copy = Some(id_of(&stat));
                Some(made)
            }
        };
        self.levels.push(TreeLevel {
            dir,
            name: CString::default(),
            copy,
            stat,
        });
        Ok(())
    }

    /// The next entry of the innermost directory, or its end.
    fn next(&mut self) {
        let level = self.levels.last_mut().expect("step saw one");
        match level.dir.read() {
            None => self.leave(),
            Some(Err(errno)) => {
                self.note("readdir()", None, errno);
                self.leave();
            }
            Some(Ok(entry)) => {
                let name = entry.file_name();
                if !matches!(name.to_bytes(), b"." | b"..") {
                    let (name, kind) = (name.to_owned(), entry.file_type());
                    self.take(name, kind);
                }
            }
        }
    }

    fn take(&mut self, name: CString, mut kind: FileType) {
        if kind == FileType::Unknown {
            // Not every file system fills in `d_type`.
            let stat = rustix::fs::statat(self.here(), &name, AtFlags::SYMLINK_NOFOLLOW);
            kind = stat.map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
        }
        let purpose = self.to.as_ref().map(|(_, purpose)| *purpose);
        match (kind, purpose) {
            (FileType::Directory, _) => self.enter(name, OFlags::NOFOLLOW),
            (_, None) => {
                if let Err(errno) = unlinked(self.here(), &name, AtFlags::empty()) {
                    self.note("unlink()", Some(&name), errno);
                }
            }
            (FileType::RegularFile, _) => self.begin_copy(name, OFlags::NOFOLLOW),
            (FileType::Symlink, Some(CopyPurpose::Copy)) => self.follow(name),
            (_, Some(CopyPurpose::Copy)) => {}
            (FileType::Symlink, _) => self.copy_link(&name),
            _ => self.note("open()", Some(&name), Errno::OPNOTSUPP),
        }
    }

    /// Copies the target of a symlink, if it exists.
    fn follow(&mut self, name: CString) {
        let stat = rustix::fs::statat(self.here(), &name, AtFlags::empty());
        match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::RegularFile) => self.begin_copy(name, OFlags::empty()),
            Ok(FileType::Directory) => self.enter(name, OFlags::empty()),
            _ => {}
        }
    }

    fn enter(&mut self, name: CString, more: OFlags) {
        if self.levels.len() == TREE_DEPTH_MAX {
            return self.note("opendir()", Some(&name), Errno::LOOP);
        }
        let (dir, stat) = match enter(self.here(), &name, more) {
            Ok((_, stat)) if self.goes_round(&stat) => {
                return self.note("opendir()", Some(&name), Errno::LOOP);
            }
            Ok(entered) => entered,
            Err(errno) => {
                self.note("opendir()", Some(&name), errno);
                // It may be empty.
                return self.remove_directory(&name);
            }
        };
        let copy = match &self.levels.last().expect("step saw one").copy {
            None => None,
            Some(outer) => match make(outer.as_fd(), &name, with_search(mode_of(&stat))) {
                Ok(copy) => Some(copy),
                Err(errno) => return self.note("mkdir()", Some(&name), errno),
            },
        };
        self.levels.push(TreeLevel {
            dir,
            name,
            copy,
            stat,
        });
    }

    /// Is this a directory that is being copied, or the copy itself, reached through a symlink?
    fn goes_round(&self, stat: &Stat) -> bool {
        let id = id_of(stat);
        self.copy == Some(id) || self.levels.iter().any(|level| id_of(&level.stat) == id)
    }

    /// Leaves the innermost directory, which was read to its end.
    fn leave(&mut self) {
        let level = self.levels.pop().expect("step saw one");
        if let Some(copy) = &level.copy {
            let mode = match self.levels.is_empty() {
                true => mode_of(&level.stat),
                false => with_search(mode_of(&level.stat)),
            };
            let done = restrict(copy, mode).and_then(|()| match self.levels.is_empty() {
                // The outermost copy keeps its new time.
                true => Ok(()),
                false => set_mtime(copy, Meta::from_stat(&level.stat).mtime),
            });
            if let Err(errno) = done {
                self.note("utimes()", Some(&level.name), errno);
            }
        } else if !self.levels.is_empty() {
            self.remove_directory(&level.name);
        }
    }

    fn remove_directory(&mut self, name: &CStr) {
        if self.to.is_none()
            && let Err(errno) = unlinked(self.here(), name, AtFlags::REMOVEDIR)
        {
            self.note("rmdir()", Some(name), errno);
        }
    }

    fn begin_copy(&mut self, name: CString, more: OFlags) {
        let Some(copy) = &self.levels.last().expect("step saw one").copy else {
            return;
        };
        match open_to_copy(self.here(), &name, more)
            .and_then(|from| FileCopy::begin(from, copy.as_fd(), &name))
        {
            Ok(copying) => self.copying = Some((copying, name)),
            Err((call, errno)) => self.note(call, Some(&name), errno),
        }
    }

    fn go_on(&mut self, mut copying: FileCopy, name: CString) {
        match copying.go_on() {
            Ok(false) => self.copying = Some((copying, name)),
            Ok(true) => {}
            Err((call, errno)) => {
                if let Some(copy) = &self.levels.last().expect("step saw one").copy {
                    // The error reported is the first one, not that of the clean-up.
                    let _ = unlinked(copy.as_fd(), &name, AtFlags::empty());
                }
                self.note(call, Some(&name), errno);
            }
        }
    }

    fn copy_link(&mut self, name: &CStr) {
        let Some(copy) = &self.levels.last().expect("step saw one").copy else {
            return;
        };
        let made = call_times::timed(Operation::Other, || {
            rustix::fs::readlinkat(self.here(), name, Vec::new())
                .and_then(|target| rustix::fs::symlinkat(target, copy, name))
        });
        if let Err(errno) = made {
            self.note("symlink()", Some(name), errno);
        }
    }

    fn here(&self) -> BorrowedFd<'_> {
        let level = self.levels.last().expect("step saw one");
        level.dir.fd().expect("it was opened from a descriptor")
    }

    fn note(&mut self, call: &'static str, name: Option<&CStr>, errno: Errno) {
        let mut path = self.from.to_vec();
        let names = self.levels.iter().skip(1).map(|level| &level.name[..]);
        for name in names.chain(name) {
            path.push(b'/');
            path.extend_from_slice(name.to_bytes());
        }
        self.errors.note(call, path, errno);
    }
}

fn invalid(call: &'static str) -> Error {
    Error::system(call, Errno::INVAL)
}

/// Adds the right to enter a copy wherever there is the right to read it.
fn with_search(mode: u32) -> u32 {
    mode | (mode & 0o444) >> 2
}

fn id_of(stat: &Stat) -> (u64, u64) {
    let meta = Meta::from_stat(stat);
    (meta.dev, meta.ino)
}

/// **Waits.** Opens a directory to read it.
fn enter(outer: impl AsFd, name: &CStr, more: OFlags) -> Result<(Dir, Stat), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
    let open = || rustix::fs::openat(outer, name, flags, Mode::empty());
    let fd = call_times::timed(Operation::Readdir, open)?;
    let stat = rustix::fs::fstat(&fd)?;
    Ok((Dir::new(fd)?, stat))
}

/// **Waits.**
fn unlinked(dir: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> Result<(), Errno> {
    call_times::timed(Operation::Unlink, || rustix::fs::unlinkat(dir, name, flags))
}

/// **Waits.** Makes a directory that can be filled whatever its permissions will be.
fn make(outer: impl AsFd + Copy, name: &CStr, mode: u32) -> Result<OwnedFd, Errno> {
    let mode = Mode::from_raw_mode(mode | 0o700);
    call_times::timed(Operation::Other, || rustix::fs::mkdirat(outer, name, mode))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
    rustix::fs::openat(outer, name, flags, Mode::empty())
}

/// Takes from a directory that is filled what [`make`] gave it for that.
fn restrict(copy: &OwnedFd, mode: u32) -> Result<(), Errno> {
    match mode | 0o700 == mode {
        true => Ok(()),
        false => rustix::fs::fchmod(copy, Mode::from_raw_mode(mode)),
    }
}
