//! Removing and copying trees.

use crate::changing::tree::{CopyPurpose, TREE_DEPTH_MAX, TreeErrors};
use crate::tests::{block_on, local};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// A tree with a file, an empty directory and links, one of them to nowhere.
fn tree(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(tree.join("in/empty")).unwrap();
    std::fs::write(tree.join("in/file"), "contents").unwrap();
    std::os::unix::fs::symlink("in/file", tree.join("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", tree.join("dangling")).unwrap();
    tree
}

#[test]
fn only_the_tree_itself_is_removed() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path());
        let kept = dir.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), "kept").unwrap();
        std::os::unix::fs::symlink(&kept, tree.join("in/out")).unwrap();
        let (errors, removed) = local.remove_tree(bytes(&tree), &pool).await;
        removed.unwrap();
        assert_eq!(errors, TreeErrors::default());
        assert!(!tree.exists() && kept.join("file").exists());
        let (_, removed) = local.remove_tree(bytes(&kept.join("file")), &pool).await;
        let text = removed.unwrap_err().to_string();
        assert_eq!(text, "opendir() failed (20: Not a directory)");
    });
}

#[test]
fn levels_that_are_too_deep_are_left_and_reported() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        let deep: PathBuf = std::iter::repeat_n("d", TREE_DEPTH_MAX + 1).collect();
        std::fs::create_dir_all(top.join(&deep)).unwrap();
        let (errors, removed) = local.remove_tree(bytes(&top), &pool).await;
        assert_eq!(removed.unwrap_err().errno(), Some(Errno::NOTEMPTY));
        assert_eq!(errors.noted[0].errno, Errno::LOOP);
        assert_eq!(errors.noted[0].call, "opendir()");
    });
}

#[test]
fn a_copy_follows_symlinks_and_a_move_keeps_them() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path());
        let copy = dir.path().join("copy");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o500);
        std::fs::set_permissions(tree.join("in"), mode).unwrap();
        let purpose = CopyPurpose::Copy;
        let (errors, copied) = local
            .copy_tree(bytes(&tree), bytes(&copy), purpose, &pool)
            .await;
        copied.unwrap();
        assert_eq!(errors, TreeErrors::default());
        let meta = |name: &str| std::fs::symlink_metadata(copy.join(name));
        assert!(meta("link").unwrap().is_file() && meta("dangling").is_err());
        assert!(meta("in/empty").unwrap().is_dir());
        assert_eq!(std::fs::read(copy.join("in/file")).unwrap(), b"contents");
        let mode = std::os::unix::fs::PermissionsExt::mode(&meta("in").unwrap().permissions());
        assert_eq!(mode & 0o777, 0o500);

        let moved = dir.path().join("moved");
        let purpose = CopyPurpose::Move;
        let (_, copied) = local
            .copy_tree(bytes(&tree), bytes(&moved), purpose, &pool)
            .await;
        copied.unwrap();
        let link = |name: &str| std::fs::read_link(moved.join(name)).unwrap();
        assert_eq!(link("link"), Path::new("in/file"));
        assert_eq!(link("dangling"), Path::new("nowhere"));
    });
}

#[test]
fn links_that_lead_round_are_left_and_told() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path());
        std::os::unix::fs::symlink("..", tree.join("in/round")).unwrap();
        // Into the directory around, in which the copy lies, too.
        std::os::unix::fs::symlink("../..", tree.join("in/out")).unwrap();
        let copy = dir.path().join("copy");
        let purpose = CopyPurpose::Copy;
        let (errors, copied) = local
            .copy_tree(bytes(&tree), bytes(&copy), purpose, &pool)
            .await;
        copied.unwrap();
        let all = errors
            .noted
            .iter()
            .all(|trouble| trouble.errno == Errno::LOOP);
        assert!(all && errors.count == 3, "{errors:?}");
    });
}
