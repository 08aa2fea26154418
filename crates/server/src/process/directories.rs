//! The directories that the server writes to: made by the master, owned by the worker's user.
//!
//! Not here: what is written there. Invariant: a directory that is there and that the user owns is left
//! as it is.
#![expect(clippy::disallowed_methods, reason = "the master runs no loop")]

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use config::{Directive, Tree};

use super::privileges::Account;
use crate::listen::bind::errno;

config::blocks! {
    /// Directories for temporary files.
    pub fn blocks in Location {
        /// Names the directory for request bodies that are kept in files, and the digits of its levels of subdirectories.
        ///
        /// The directory is made at the start and belongs to the worker's user. Nothing that is built so far keeps a body in
        /// a file.
        "client_body_temp_path": [HTTP | SERVER | LOCATION] 1..=4, syntax "path [level1 [level2 [level3]]]";
    }
}

/// The paths of all `…_temp_path` lines, relative ones below the prefix.
#[must_use]
pub fn named(tree: &Tree, prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&tree.directives, prefix, &mut found);
    found.sort();
    found.dedup();
    found
}

fn collect(directives: &[Directive], prefix: &Path, found: &mut Vec<PathBuf>) {
    for directive in directives {
        if directive.name.bytes().ends_with(b"_temp_path")
            && let Some(word) = directive.args.first()
        {
            found.push(prefix.join(std::ffi::OsStr::from_bytes(word.bytes())));
        }
        collect(directive.children(), prefix, found);
    }
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
        let Some(owner) = owner else { continue };
        let there = std::fs::metadata(path).map_err(|error| failed("stat", error))?;
        if there.uid() != owner.uid {
            std::os::unix::fs::chown(path, Some(owner.uid), None)
                .map_err(|error| failed("chown", error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temp_paths_of_all_levels_are_made_once() {
        let root =
            std::env::temp_dir().join(format!("freewheel-directories-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let tree = config::parse_bytes(
            b"http { proxy_temp_path p; server { client_body_temp_path c 1 2; } }",
        )
        .unwrap();
        let paths = named(&tree, &root);
        assert_eq!(paths, [root.join("c"), root.join("p")]);
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
