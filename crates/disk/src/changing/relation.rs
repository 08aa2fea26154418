//! How two places lie to each other, whatever symlinks, mounts, dots and slashes their paths go through.
//!
//! Not here: what follows from it. Invariant: places are compared by device and inode, never by the text of their
//! paths.

use crate::files::error::Error;
use crate::files::open_file::Meta;
use crate::local::Local;
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use crate::pool::Pool;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Maximum of directories above a place; a path has no more (`PATH_MAX` bytes, each with a slash).
const LEVELS_MAX: usize = 2048;

/// How two places lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Neither is, or holds, the other.
    Apart,
    /// Both are one: the same directory, or the same name in one.
    Same,
    /// One is a directory that the other lies in.
    Nested,
}

impl Local {
    /// How what is at `from` lies to the place `to`, where nothing need be. A symlink at the end of either is not
    /// followed, except at the end of a `from` with a slash behind it.
    ///
    /// # Errors
    /// [`Error::System`] with `lstat()`, `open()` (ELOOP: more directories than a path can have) or `fstat()`;
    /// [`Error::Overflow`].
    pub async fn relation(&self, from: &[u8], to: &[u8], pool: &Pool) -> Result<Relation, Error> {
        let (from, to): (Box<[u8]>, Box<[u8]>) = (from.into(), to.into());
        self.write_job(Operation::Stat, pool, move || {
            call_times::timed(Operation::Stat, || relate(&from, &to))
        })
        .await
    }
}

/// **Waits.**
fn relate(from: &[u8], to: &[u8]) -> Result<Relation, Error> {
    let source = look(from)?;
    let is_directory = FileType::from_raw_mode(source.st_mode) == FileType::Directory;
    let source = id_of(&source);
    let target = unless_missing(look(to))?.map(|stat| id_of(&stat));
    let (source_dir, source_name) = split(from);
    let (target_dir, target_name) = split(to);
    let mut above_source = directories(source_dir)?;
    let above_target = unless_missing(directories(target_dir))?.unwrap_or_default();
    if target == Some(source) {
        let is_one_name =
            source_name == target_name && above_source.first() == above_target.first();
        if is_directory || is_one_name {
            return Ok(Relation::Same);
        }
    }
    if !is_directory {
        return Ok(Relation::Apart);
    }
    // A symlink lies elsewhere than the directory that it leads to: both are above what is in that.
    above_source.extend(directories(from)?);
    let is_nested = above_target.contains(&source)
        || target.is_some_and(|target| above_source.contains(&target));
    Ok(match is_nested {
        true => Relation::Nested,
        false => Relation::Apart,
    })
}

/// **Waits.** A directory and all above it, innermost first.
fn directories(path: &[u8]) -> Result<Vec<(u64, u64)>, Error> {
    let mut ids = Vec::new();
    let mut dir = open(CWD, OsStr::from_bytes(path))?;
    loop {
        let stat = rustix::fs::fstat(&dir).map_err(|errno| Error::system("fstat()", errno))?;
        let id = id_of(&stat);
        // Above the root is the root.
        if ids.last() == Some(&id) {
            return Ok(ids);
        }
        if ids.len() == LEVELS_MAX {
            return Err(Error::system("open()", Errno::LOOP));
        }
        ids.push(id);
        dir = open(&dir, OsStr::new(".."))?;
    }
}

/// **Waits.**
fn open(dir: impl AsFd, path: &OsStr) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
    rustix::fs::openat(dir, path, flags, Mode::empty())
        .map_err(|errno| Error::system("open()", errno))
}

/// **Waits.**
fn look(path: &[u8]) -> Result<Stat, Error> {
    rustix::fs::lstat(OsStr::from_bytes(path)).map_err(|errno| Error::system("lstat()", errno))
}

fn unless_missing<T>(found: Result<T, Error>) -> Result<Option<T>, Error> {
    match found {
        Err(error) if error.errno() == Some(Errno::NOENT) => Ok(None),
        outcome => outcome.map(Some),
    }
}

fn id_of(stat: &Stat) -> (u64, u64) {
    let meta = Meta::from_stat(stat);
    (meta.dev, meta.ino)
}

/// The directory that a path's last segment is in, and that segment.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/');
    let path = &path[..end.map_or(0, |last| last + 1)];
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..=slash], &path[slash + 1..]),
        None if path.is_empty() => (b"/", path),
        None => (b".", path),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;
    use crate::tests::{block_on, local};
    use std::os::unix::fs::symlink;

    #[test]
    fn places_are_compared_and_not_their_texts() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| [root.path().as_os_str().as_bytes(), name.as_bytes()].concat();
        std::fs::create_dir_all(root.path().join("a/b")).unwrap();
        std::fs::create_dir(root.path().join("ab")).unwrap();
        symlink("../a", root.path().join("ab/link")).unwrap();
        std::fs::write(root.path().join("a/file"), "").unwrap();
        std::fs::hard_link(root.path().join("a/file"), root.path().join("a/twin")).unwrap();
        block_on(async {
            let (local, pool) = local();
            for (from, to, expected) in [
                ("/a/", "/ab", Relation::Apart),
                ("/a/", "/new", Relation::Apart),
                ("/a/", "/no/such", Relation::Apart),
                ("/a/", "/./a", Relation::Same),
                ("/ab/link/", "/a", Relation::Same),
                ("/a/", "/ab/link", Relation::Apart),
                ("/a/", "/ab/link/b", Relation::Nested),
                ("/a/", "/ab/link/new", Relation::Nested),
                ("/ab/link/b/", "/a", Relation::Nested),
                ("/ab/link/", "/ab", Relation::Nested),
                ("/a/b/", "", Relation::Nested),
                ("/a/file", "/ab/link/file", Relation::Same),
                ("/a/file", "/ab/../a/./file", Relation::Same),
                ("/a/file", "/a/twin", Relation::Apart),
                ("/a/file", "/a/new", Relation::Apart),
            ] {
                let relation = local.relation(&path(from), &path(to), &pool).await;
                assert_eq!(relation.unwrap(), expected, "{from} {to}");
            }
            let missing = local.relation(&path("/none"), &path("/x"), &pool).await;
            assert_eq!(missing.unwrap_err().errno(), Some(Errno::NOENT));
        });
    }

    #[test]
    fn last_segments() {
        for (path, dir, name) in [
            ("/a/b//", "/a/", "b"),
            ("/a", "/", "a"),
            ("/", "/", ""),
            ("a", ".", "a"),
        ] {
            let (dir, name) = (dir.as_bytes(), name.as_bytes());
            assert_eq!(split(path.as_bytes()), (dir, name), "{path}");
        }
    }
}
