//! The directories that the server writes to: made by the master, owned by the worker's user.
//!
//! Not here: the files in them. Invariant: an existing directory that the user owns is left as it is.
#![expect(clippy::disallowed_methods, reason = "the master runs no loop")]

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use config::{Directive, Tree, default_paths};
use proxy::settings::cache_path::places;
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags};

use super::privileges::Account;
use super::trust::Refusal;
use crate::process::trust;

/// Directories that are used without being named: the directives that need them, the directive that names another one
/// for all of `http`, and the path.
const DEFAULT_DIRECTORIES: [(&[&str], &str, &str); 5] = [
    (
        &[
            "proxy_pass",
            "fastcgi_pass",
            "uwsgi_pass",
            "scgi_pass",
            "mirror",
            "dav_methods",
            "client_body_early_read",
        ],
        "client_body_temp_path",
        default_paths::CLIENT_BODY_TEMP,
    ),
    (
        &["proxy_pass"],
        "proxy_temp_path",
        default_paths::PROXY_TEMP,
    ),
    (
        &["fastcgi_pass"],
        "fastcgi_temp_path",
        default_paths::FASTCGI_TEMP,
    ),
    (
        &["uwsgi_pass"],
        "uwsgi_temp_path",
        default_paths::UWSGI_TEMP,
    ),
    (&["scgi_pass"], "scgi_temp_path", default_paths::SCGI_TEMP),
];

/// Directories that were made for a configuration that is not served yet: removed when this value is dropped, unless
/// they are kept.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Made {
    /// In the order in which they were made.
    paths: Vec<PathBuf>,
}

impl Made {
    /// Keeps the directories.
    pub(crate) fn keep(&mut self) {
        self.paths.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // A directory that is not empty stays.
        for path in self.paths.iter().rev() {
            let _ = std::fs::remove_dir(path);
        }
    }
}

/// Makes the program's default prefix, with the directory of its logs, if it does not exist: so that a configuration
/// that names neither (Alpine's) can be tested and served without an installation. A failure is reported where the
/// directory is needed.
pub(crate) fn lay_out(prefix: &Path) -> Made {
    let mut made = Made::default();
    let logs = prefix.join("logs");
    let missing = logs.ancestors().take_while(|path| !path.exists());
    let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    if !prefix.exists() && std::fs::create_dir_all(&logs).is_ok() {
        made.paths = missing.into_iter().rev().collect();
    }
    made
}

/// The same for a start: a log in which only is why it failed goes with them.
pub(crate) fn forget(made: Made, first_log: Option<&Path>) {
    let is_in = |log: &&Path| made.paths.iter().any(|path| log.parent() == Some(path));
    if let Some(log) = first_log.filter(is_in) {
        let _ = std::fs::remove_file(log);
    }
}

/// The paths of all `…_temp_path` and `…_cache_path` lines, and the default ones where a directive needs them; relative
/// paths are below the prefix.
#[must_use]
pub(crate) fn named(tree: &Tree, prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&tree.directives, prefix, &mut found);
    for (needs, line, default) in DEFAULT_DIRECTORIES {
        let is_needed = needs.iter().any(|name| has(&tree.directives, name));
        if is_needed && !is_named_for_all(tree, line) {
            found.push(prefix.join(default));
        }
    }
    found.sort();
    found.dedup();
    found
}

fn collect(directives: &[Directive], prefix: &Path, found: &mut Vec<PathBuf>) {
    for directive in directives {
        let name = directive.name.bytes();
        let is_path = name.ends_with(b"_temp_path") || name.ends_with(b"_cache_path");
        if let Some(word) = directive.args.first().filter(|_| is_path) {
            let is_cache = name.ends_with(b"_cache_path");
            let path = word.bytes();
            let path = path.strip_suffix(b"/").unwrap_or(path);
            let paths: Vec<&[u8]> = match is_cache {
                true => places(&directive.args).0,
                false => vec![path],
            };
            let all = paths.into_iter();
            found.extend(all.map(|path| prefix.join(std::ffi::OsStr::from_bytes(path))));
        }
        collect(directive.children(), prefix, found);
    }
}

fn has(directives: &[Directive], name: &str) -> bool {
    let mut lines = directives.iter();
    lines.any(|line| line.name == *name || has(line.children(), name))
}

fn is_named_for_all(tree: &Tree, name: &str) -> bool {
    let mut blocks = tree.directives.iter().filter(|line| line.name == "http");
    blocks.any(|http| http.children().iter().any(|line| line.name == *name))
}

/// Makes those that do not exist, and gives all to the worker's user.
///
/// # Errors
/// nginx's sentence: `mkdir() "X" failed (13: Permission denied)`; or the reason why a directory is not given away.
/// Directories that were made are removed then.
pub(crate) fn make(paths: &[PathBuf], owner: Option<&Account>) -> Result<Made, String> {
    let mut made = Made::default();
    for path in paths {
        if is_block_device(path) {
            let path = path.display();
            return Err(format!(
                "\"{path}\" is a block device, not a directory: name a directory for the cache's journal and large entries beside it \
                 (\"files=directory\"), or make a file system on it, and name a directory there"
            ));
        }
        match owner {
            Some(owner) => make_for(path, owner, &mut made)?,
            None => make_here(path, &mut made)?,
        }
        // Better reported now than at every file.
        let is_usable = rustix::fs::accessat(
            rustix::fs::CWD,
            path,
            Access::WRITE_OK | Access::EXEC_OK,
            AtFlags::EACCESS,
        );
        is_usable.map_err(|error| failed("access", path, &error.into()))?;
    }
    Ok(made)
}

fn is_block_device(path: &Path) -> bool {
    let found = rustix::fs::stat(path);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice)
}

fn failed(call: &str, path: &Path, refusal: &Refusal) -> String {
    format!("{call}() \"{}\" failed ({refusal})", path.display())
}

fn make_here(path: &Path, made: &mut Made) -> Result<(), String> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => made.paths.push(path.to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed("mkdir", path, &error.into())),
    }
    Ok(())
}

/// Done as root for another user: a directory is checked before it is given away, and by its descriptor.
fn make_for(path: &Path, owner: &Account, made: &mut Made) -> Result<(), String> {
    let spot = trust::find(path).map_err(|refusal| failed("mkdir", path, &refusal))?;
    match rustix::fs::mkdirat(&spot.directory, &spot.name, Mode::RWXU) {
        Ok(()) => made.paths.push(path.to_owned()),
        Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(failed("mkdir", path, &error.into())),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(&spot.directory, &spot.name, flags, Mode::empty());
    let directory = opened.map_err(|error| failed("open", path, &error.into()))?;
    let there = rustix::fs::fstat(&directory);
    let there = there.map_err(|error| failed("stat", path, &error.into()))?;
    if there.st_uid != owner.uid {
        if spot.was_link && there.st_uid == 0 {
            let (path, name) = (path.display(), &owner.name);
            return Err(format!(
                "\"{path}\" is a link to a directory of root, which is not given to \"{name}\": name the directory itself, or give it to \
                 that user"
            ));
        }
        let user = Some(rustix::fs::Uid::from_raw(owner.uid));
        let given = rustix::fs::fchown(&directory, user, None);
        given.map_err(|error| failed("chown", path, &error.into()))?;
    }
    let mode = Mode::from_raw_mode(there.st_mode);
    if !mode.contains(Mode::RWXU) {
        let changed = rustix::fs::fchmod(&directory, mode | Mode::RWXU);
        changed.map_err(|error| failed("chmod", path, &error.into()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_laid_out_where_there_is_none() {
        let root = std::env::temp_dir().join(format!("freewheel-prefix-{}", std::process::id()));
        drop(lay_out(&root.join("a/new")));
        assert!(!root.exists(), "what nobody keeps goes");
        lay_out(&root.join("a/new")).keep();
        assert!(root.join("a/new/logs").is_dir());
        drop(lay_out(&root.join("a")));
        assert!(
            !root.join("a/logs").exists(),
            "what is there stays as it is"
        );
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn temp_paths_of_all_levels_are_made_once() {
        let root =
            std::env::temp_dir().join(format!("freewheel-directories-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let tree = config::parse_bytes(
            b"http { proxy_temp_path p; proxy_cache_path k/ keys_zone=k:1m; server { client_body_temp_path c 1 2; } }",
        )
        .unwrap();
        let paths = named(&tree, &root);
        assert_eq!(paths, ["c", "k", "p"].map(|name| root.join(name)));
        let tree = config::parse_bytes(b"http { server { location / { proxy_pass http://a; } } }");
        let default = named(&tree.unwrap(), &root);
        assert_eq!(
            default,
            ["client_body_temp", "proxy_temp"].map(|name| root.join(name))
        );
        drop(make(&paths, None).unwrap());
        assert!(!root.join("c").exists(), "what nobody keeps goes");
        make(&paths, None).unwrap().keep();
        drop(make(&paths, None).unwrap());
        assert!(root.join("c").is_dir() && root.join("p").is_dir());
        let refused = make(&[root.join("x/y")], None).unwrap_err();
        assert_eq!(
            refused,
            format!(
                "mkdir() \"{}\" failed (2: No such file or directory)",
                root.join("x/y").display()
            )
        );
        std::fs::remove_dir_all(root).unwrap();
    }
}
