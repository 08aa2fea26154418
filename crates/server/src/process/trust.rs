//! Opens files and directories as root where other users may write: logs, pid files, directories of caches.
//!
//! A user with write access to a directory can put a link there, and root would write to the link's target or give it
//! away. So a path is walked one directory at a time, each opened by the descriptor of its parent. A link is followed
//! only if root placed it: in a directory that only root can write, below others of that kind, or where link and
//! directory are root's and no other user could have moved it there.
//!
//! Not here: what is done with a file. Invariant: the file that is opened is the file that was checked.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use wire::errno;

use super::privileges::is_root;

/// Maximum number of links that one path may lead through, as in the kernel.
const LINKS_MAX: usize = 40;

/// The reason why a path was not opened: the text in brackets after "open() failed".
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// An error of the kernel.
    #[error("{}", errno(.0))]
    System(#[from] io::Error),
    /// A link that a user other than root may have put there.
    #[error("\"{}\" is a symbolic link in a directory that is not root's alone, it is not followed", .0.display())]
    Link(PathBuf),
    /// A file with other names, which a user other than root may have given it.
    #[error(
        "it has another name (a hard link) and lies in a directory that is not root's alone, it is not opened"
    )]
    HardLink,
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self::System(error.into())
    }
}

/// The last directory of a path, and the name in it.
#[derive(Debug)]
pub(super) struct Spot {
    /// The directory.
    pub directory: OwnedFd,
    /// The name: not a link when it was checked.
    pub name: OsString,
    /// Whether only root can write to this directory and all above it.
    pub is_roots: bool,
    /// Whether the path's own last name was a link.
    pub was_link: bool,
    /// Whether the name is one of the kernel's own links (`/proc/self/fd/1`), which only the kernel can follow.
    is_kernels: bool,
}

/// Opens a file. As root, it follows no link that root did not place.
///
/// # Errors
/// That of open(2), or a link that is not followed.
pub(super) fn open(path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Refusal> {
    if !is_root() {
        return Ok(open_at(rustix::fs::CWD, path.as_os_str(), flags, mode)?);
    }
    let spot = find(path)?;
    if let Some(stream) = stream_of(&spot) {
        return Ok(stream?);
    }
    // A pipe without a reader would keep the master waiting.
    let waits = if spot.is_roots {
        OFlags::empty()
    } else {
        OFlags::NONBLOCK
    };
    let flags = match spot.is_kernels {
        true => flags,
        false => flags | OFlags::NOFOLLOW,
    };
    let opened = open_at(spot.directory.as_fd(), &spot.name, flags | waits, mode);
    let file = opened.map_err(|error| match error {
        Errno::LOOP => Refusal::Link(path.to_owned()),
        other => other.into(),
    })?;
    if !spot.is_roots {
        spot.check_only_name(&file)?;
        rustix::fs::fcntl_setfl(&file, flags & OFlags::APPEND)?;
    }
    Ok(file)
}

impl Spot {
    /// Checks that this is the only name of a file that was opened by it. The check goes by the name: if the file has
    /// lost this name since then, its one remaining name belongs to another user.
    fn check_only_name(&self, file: &OwnedFd) -> Result<(), Refusal> {
        let opened = rustix::fs::fstat(file)?;
        let named = rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let is_it = |named: Stat| {
            (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino) && named.st_nlink == 1
        };
        match named.is_ok_and(is_it) {
            true => Ok(()),
            false => Err(Refusal::HardLink),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "only the master opens so, and it runs no loop"
)]
fn open_at(
    at: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(at, name, flags | OFlags::CLOEXEC, mode)
}

/// A link to a standard stream is how containers set up logs: it means the stream itself, whichever user placed it.
fn stream_of(spot: &Spot) -> Option<io::Result<OwnedFd>> {
    match spot.name.as_bytes() {
        STDOUT => Some(io::stdout().as_fd().try_clone_to_owned()),
        STDERR => Some(io::stderr().as_fd().try_clone_to_owned()),
        _ => None,
    }
}

const STDOUT: &[u8] = b"/dev/stdout";
const STDERR: &[u8] = b"/dev/stderr";

/// Walks a path down to its last name.
///
/// # Errors
/// A directory that cannot be entered, or a link that is not followed.
pub(super) fn find(path: &Path) -> Result<Spot, Refusal> {
    let path = std::path::absolute(path)?;
    let mut left: VecDeque<OsString> = VecDeque::new();
    add(&path, &mut left);
    let mut at = DirectoryOnPath::root()?;
    let (mut links, mut was_link) = (0, false);
    while let Some(name) = left.pop_front() {
        let found = match rustix::fs::statat(&at.directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Some(found),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        let is_last = left.is_empty();
        let is_link = |found: &Stat| FileType::from_raw_mode(found.st_mode).is_symlink();
        if let Some(link) = found.filter(is_link) {
            let target = rustix::fs::readlinkat(&at.directory, &name, Vec::new())?.into_bytes();
            if is_last && [STDOUT, STDERR].contains(&&target[..]) {
                return Ok(at.spot(OsString::from_vec(target), true));
            }
            if !at.trusts(&link) {
                return Err(Refusal::Link(path));
            }
            if is_last && at.is_kernels()? {
                return Ok(Spot {
                    is_kernels: true,
                    ..at.spot(name, was_link)
                });
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            was_link |= is_last;
            let target = PathBuf::from(OsString::from_vec(target));
            if target.is_absolute() {
                at = DirectoryOnPath::root()?;
            }
            add(&target, &mut left);
        } else if is_last {
            return Ok(at.spot(name, was_link));
        } else {
            at.enter(&name)?;
        }
    }
    // The root itself, or a path that ends in "..".
    Ok(at.spot(OsString::from("."), was_link))
}

/// Puts the components of a path in front of those that are left.
fn add(path: &Path, left: &mut VecDeque<OsString>) {
    for component in path.components().rev() {
        if let Component::Normal(_) | Component::ParentDir = component {
            left.push_front(component.as_os_str().to_owned());
        }
    }
}

/// A directory on the way.
struct DirectoryOnPath {
    directory: OwnedFd,
    is_roots: bool,
    own: Stat,
}

impl DirectoryOnPath {
    fn root() -> Result<Self, Refusal> {
        let directory = open_at(rustix::fs::CWD, OsStr::new("/"), ENTER, Mode::empty())?;
        let own = rustix::fs::fstat(&directory)?;
        let is_roots = is_roots_alone(&own);
        Ok(Self {
            directory,
            is_roots,
            own,
        })
    }

    fn enter(&mut self, name: &OsStr) -> Result<(), Refusal> {
        self.directory = open_at(self.directory.as_fd(), name, ENTER, Mode::empty())?;
        self.own = rustix::fs::fstat(&self.directory)?;
        self.is_roots &= is_roots_alone(&self.own);
        Ok(())
    }

    /// Whether root placed this link.
    fn trusts(&self, link: &Stat) -> bool {
        let mode = Mode::from_raw_mode(self.own.st_mode);
        let is_movable = mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX);
        self.is_roots || (self.own.st_uid == 0 && link.st_uid == 0 && !is_movable)
    }

    fn spot(self, name: OsString, was_link: bool) -> Spot {
        Spot {
            directory: self.directory,
            name,
            is_roots: self.is_roots,
            was_link,
            is_kernels: false,
        }
    }

    fn is_kernels(&self) -> Result<bool, Refusal> {
        let system = rustix::fs::fstatfs(&self.directory)?;
        Ok(system.f_type == rustix::fs::PROC_SUPER_MAGIC)
    }
}

const ENTER: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW);

fn is_roots_alone(directory: &Stat) -> bool {
    let mode = Mode::from_raw_mode(directory.st_mode);
    directory.st_uid == 0 && !mode.intersects(Mode::WGRP | Mode::WOTH)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

    use super::*;

    fn opened(path: &Path) -> (Spot, OwnedFd) {
        let spot = find(path).unwrap();
        let file = open_at(
            spot.directory.as_fd(),
            &spot.name,
            OFlags::WRONLY,
            Mode::empty(),
        );
        (spot, file.unwrap())
    }

    #[test]
    fn a_file_that_has_lost_the_name_it_was_opened_by_is_not_taken_for_one_with_this_name_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, log) = (
            directory.path().join("victim"),
            directory.path().join("log"),
        );
        std::fs::write(&victim, "").unwrap();
        std::fs::hard_link(&victim, &log).unwrap();
        let (spot, file) = opened(&log);
        assert!(matches!(
            spot.check_only_name(&file),
            Err(Refusal::HardLink)
        ));
        // The user that made the link removes it again, so that the file by itself has a single name.
        std::fs::remove_file(&log).unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_nlink, 1);
        assert!(matches!(
            spot.check_only_name(&file),
            Err(Refusal::HardLink)
        ));
        let (spot, file) = opened(&victim);
        spot.check_only_name(&file).unwrap();
        std::fs::write(&log, "").unwrap();
        std::fs::rename(&log, &victim).unwrap();
        assert!(matches!(
            spot.check_only_name(&file),
            Err(Refusal::HardLink)
        ));
    }
}
