//! Listing directories.

use super::{block_on, bytes, local, put};
use crate::*;

#[test]
fn readdir_lists_the_entries() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        put(&dir.path().join("a"), b"xyz");
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("dangling")).unwrap();
        std::os::unix::fs::symlink("a/x", dir.path().join("broken")).unwrap();
        let access = Access::new(&pool);
        let listing = local.readdir(bytes(dir.path()), &access).await.unwrap();
        let broken = (b"broken"[..].into(), rustix::io::Errno::NOTDIR);
        assert_eq!(listing.failed.noted, [broken]);
        assert!(listing.failed.has_others);
        let mut entries = listing.entries;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let seen: Vec<_> = entries.iter().map(|e| (&*e.name, e.meta.kind)).collect();
        assert_eq!(
            seen,
            [
                (&b"a"[..], FileKind::File),
                (b"d", FileKind::Directory),
                (b"dangling", FileKind::Other)
            ]
        );
        assert_eq!(entries[0].meta.len, 3);
        assert!(
            local
                .readdir(bytes(&dir.path().join("a")), &access)
                .await
                .is_err()
        );
    });
}

#[test]
fn entries_that_cannot_be_looked_at_are_recorded_up_to_a_limit() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        put(&dir.path().join(".hidden"), b"");
        put(&dir.path().join("a"), b"");
        for number in 0..STAT_ERRORS_MAX + 50 {
            std::os::unix::fs::symlink("a/x", dir.path().join(number.to_string())).unwrap();
        }
        let access = Access::new(&pool);
        let here = std::thread::current().id();
        let then = move |listing| (listing, std::thread::current().id() != here);
        let path = bytes(dir.path());
        let (listing, is_elsewhere) = local.readdir_shown(path, &access, then).await.unwrap();
        let (failed, entries) = (listing.failed, listing.entries);
        assert_eq!(
            (failed.noted.len(), failed.count, failed.has_others),
            (STAT_ERRORS_MAX, STAT_ERRORS_MAX + 50, true)
        );
        let shown: Vec<_> = entries.iter().map(|entry| &*entry.name).collect();
        assert_eq!((shown, is_elsewhere), (vec![&b"a"[..]], true));
    });
}

#[test]
fn files_of_a_directory_are_found_until_a_link_cannot_be_followed() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        for name in [".hidden", "a"] {
            put(&dir.path().join(name), b"");
        }
        std::fs::create_dir(dir.path().join("d")).unwrap();
        for (target, link) in [
            ("nowhere", "dangling"),
            ("a", "to_file"),
            ("d", "to_directory"),
        ] {
            std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
        }
        let access = Access::new(&pool);
        let sorted = |mut found: FileNames| {
            found.names.sort();
            found
        };
        let path = bytes(dir.path());
        let found = local.files_shown(path, &access, sorted).await.unwrap();
        assert_eq!(found.names, [b"a"[..].into(), b"to_file"[..].into()]);
        assert_eq!(found.failed, None);
        std::os::unix::fs::symlink("circle", dir.path().join("circle")).unwrap();
        let found = local.files_shown(path, &access, sorted).await.unwrap();
        let circle = (b"circle"[..].into(), rustix::io::Errno::LOOP);
        assert_eq!(found.failed, Some(circle));
    });
}
