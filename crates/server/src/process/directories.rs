//! The directories that the server writes to: made by the master, owned by the worker's user.
//!
//! Not here: what is written there. Invariant: a directory that is there and that the user owns is left
//! as it is.
#![expect(clippy::disallowed_methods, reason = "the master runs no loop")]

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use config::{Directive, Tree};
use rustix::fs::{Access, AtFlags};

use super::privileges::Account;
use crate::listen::bind::errno;

/// Makes the prefix that the program has unless it is told another, with the directory of its logs, where it is not there at all: so that
/// a configuration that names neither (Alpine's) can be tested and served without an installation. What fails is told by whoever
/// needs it.
pub fn lay_out(prefix: &Path) {
    if !prefix.exists() {
        let _ = std::fs::create_dir_all(prefix.join("logs"));
    }
}

/// Directories that are there without being named: what needs them, the line that names another for all of `http`, and where
/// they lie.
const DEFAULTS: [(&[&str], &str, &str); 5] = [
    (
        &[
            "proxy_pass",
            "fastcgi_pass",
            "uwsgi_pass",
            "scgi_pass",
            "mirror",
        ],
        "client_body_temp_path",
        "client_body_temp",
    ),
    (&["proxy_pass"], "proxy_temp_path", "proxy_temp"),
    (&["fastcgi_pass"], "fastcgi_temp_path", "fastcgi_temp"),
    (&["uwsgi_pass"], "uwsgi_temp_path", "uwsgi_temp"),
    (&["scgi_pass"], "scgi_temp_path", "scgi_temp"),
];

/// The paths of all `…_temp_path` and `…_cache_path` lines, and the default ones where something needs them; relative ones below
/// the prefix.
#[must_use]
pub fn named(tree: &Tree, prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&tree.directives, prefix, &mut found);
    for (needs, line, default) in DEFAULTS {
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
            let path = word.bytes();
            let path = path.strip_suffix(b"/").unwrap_or(path);
            found.push(prefix.join(std::ffi::OsStr::from_bytes(path)));
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

/// Makes them.
///
/// # Errors
/// nginx's sentence: `mkdir() "X" failed (13: Permission denied)`.
pub fn make(paths: &[PathBuf], owner: Option<&Account>) -> Result<(), String> {
    for path in paths {
        let failed = |call: &str, error| {
            format!("{call}() \"{}\" failed ({})", path.display(), errno(&error))
        };
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(failed("mkdir", error));
            }
            Ok(()) | Err(_) => {}
        }
        if let Some(owner) = owner {
            let there = std::fs::metadata(path).map_err(|error| failed("stat", error))?;
            if there.uid() != owner.uid {
                std::os::unix::fs::chown(path, Some(owner.uid), None)
                    .map_err(|error| failed("chown", error))?;
            }
            if there.mode() & OWNERS_RIGHTS != OWNERS_RIGHTS {
                let rights = std::fs::Permissions::from_mode(there.mode() & 0o7777 | OWNERS_RIGHTS);
                std::fs::set_permissions(path, rights).map_err(|error| failed("chmod", error))?;
            }
        }
        // Better said now than with every file.
        let is_usable = rustix::fs::accessat(
            rustix::fs::CWD,
            path,
            Access::WRITE_OK | Access::EXEC_OK,
            AtFlags::EACCESS,
        );
        is_usable.map_err(|error| failed("access", error.into()))?;
    }
    Ok(())
}

/// What the owner of a directory needs for writing in it: `rwx`.
const OWNERS_RIGHTS: u32 = 0o700;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_laid_out_where_there_is_none() {
        let root = std::env::temp_dir().join(format!("freewheel-prefix-{}", std::process::id()));
        lay_out(&root.join("a/new"));
        assert!(root.join("a/new/logs").is_dir());
        lay_out(&root.join("a"));
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
        make(&paths, None).unwrap();
        make(&paths, None).unwrap();
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
