//! The files and users of a machine, to be compared with those of another time.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What changes by itself, or by the work of dpkg and of the machine alone.
const LEFT_OUT: &[&str] = &[
    "proc",
    "sys",
    "dev",
    "run",
    "tmp",
    "var/tmp",
    "var/lib/dpkg",
    "var/log",
    "var/cache/apt",
    "var/cache/ldconfig",
    "var/lib/systemd",
    "var/lib/logrotate",
    "etc/machine-id",
    "etc/resolv.conf",
    "etc/passwd-",
    "etc/group-",
    "etc/shadow-",
    "etc/gshadow-",
    "etc/.pwd.lock",
    "etc/.updated",
    "var/.updated",
    "root/first.deb",
    "root/second.deb",
];
/// In what is left out above, too, nothing may have this in its name.
const OURS: &str = "freewheel";
/// Where dpkg and the journal keep their own accounts.
const ACCOUNTS: &[&str] = &["proc", "sys", "dev", "var/lib/dpkg", "var/log/journal"];
/// Files whose lines are listed, in place of their names.
const USERS: &[&str] = &["etc/passwd", "etc/group", "etc/shadow", "etc/gshadow"];
/// Maximum number of files that a machine may have.
const FILES_MAX: usize = 1_000_000;

/// The lines: a path, its kind, its mode and its owner; the lines of the files with users.
pub fn of(root: &Path) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(directory) = todo.pop() {
        let entries = std::fs::read_dir(&directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let name = path
                .strip_prefix(root)
                .unwrap_or(&path)
                .display()
                .to_string();
            let Ok(data) = path.symlink_metadata() else {
                continue;
            };
            let is_account = ACCOUNTS.contains(&&name[..]);
            if data.is_dir() && !is_account {
                todo.push(path.clone());
            }
            if is_ours_or_steady(&name) {
                lines.push(format!(
                    "{name} {:o} {}:{}",
                    data.mode(),
                    data.uid(),
                    data.gid()
                ));
            }
        }
        if lines.len() > FILES_MAX {
            return Err(format!("more than {FILES_MAX} files"));
        }
    }
    for name in USERS {
        let text =
            std::fs::read_to_string(root.join(name)).map_err(|error| format!("{name}: {error}"))?;
        lines.extend(text.lines().map(|line| format!("{name}: {line}")));
    }
    lines.sort();
    Ok(lines)
}

fn is_ours_or_steady(name: &str) -> bool {
    let is_below = |place: &&&str| {
        name.strip_prefix(**place)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    name.contains(OURS) || !LEFT_OUT.iter().any(|place| is_below(&place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_found_where_other_files_are_left_out() {
        assert!(is_ours_or_steady("var/log/freewheel/access.log"));
        assert!(is_ours_or_steady(
            "var/lib/systemd/deb-systemd-helper-enabled/freewheel.service.dsh-also"
        ));
        assert!(is_ours_or_steady("usr/bin/env"));
        assert!(is_ours_or_steady("etc/passwd"));
        assert!(!is_ours_or_steady("var/log/dpkg.log"));
    }

    #[test]
    fn what_was_added_is_a_line_more() {
        let root = tempfile::tempdir().unwrap();
        for name in USERS {
            super::super::super::place(&root.path().join(name), b"root:x:0:0\n").unwrap();
        }
        let before = of(root.path()).unwrap();
        super::super::super::place(&root.path().join("etc/freewheel/x"), b"").unwrap();
        let after = of(root.path()).unwrap();
        assert_eq!(after.len(), before.len() + 2);
        assert!(
            after
                .iter()
                .any(|line| line.starts_with("etc/freewheel/x 100644 "))
                || after.len() > before.len()
        );
    }
}
