//! Which thread closes a descriptor, and when kept files are dropped.

use crate::files::open_file::INLINE_CLOSE_MAX;
use crate::tests::{block_on, local};
use crate::*;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Descriptors of this process that are open on the path, deleted or not.
fn open_on(path: &Path) -> usize {
    let path = path.to_str().unwrap();
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|link| link.to_str().is_some_and(|link| link.starts_with(path)))
        .count()
}

async fn until_closed(path: &Path) {
    while open_on(path) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn file_of(dir: &Path, len: usize) -> std::path::PathBuf {
    let path = dir.join("a");
    std::fs::write(&path, vec![7; len]).unwrap();
    path
}

#[test]
fn a_large_file_that_was_only_looked_at_is_closed_in_the_pool_and_a_small_one_here() {
    block_on(async {
        let (local, pool) = local();
        let access = Access::new(&pool);
        for (len, left_open) in [(INLINE_CLOSE_MAX + 1, 1), (INLINE_CLOSE_MAX, 0)] {
            let dir = tempfile::tempdir().unwrap();
            let path = file_of(dir.path(), len as usize);
            let name = path.as_os_str().as_bytes();
            local.stat(name, &access).await.unwrap();
            until_closed(&path).await;
            let held = pool.hold();
            if local.try_stat(name, &access).is_ok() {
                assert_eq!(open_on(&path), left_open);
            }
            drop(held);
            until_closed(&path).await;
        }
    });
}

#[test]
fn a_kept_file_is_closed_when_idle_and_a_deleted_one_at_the_next_sweep() {
    block_on(async {
        let (local, pool) = local();
        let access = Access::new(&pool);
        let dir = tempfile::tempdir().unwrap();
        let path = file_of(dir.path(), 100);
        let name = path.as_os_str().as_bytes();
        // A file that has just been changed is not kept.
        tokio::time::sleep(Duration::from_millis(50)).await;
        for deleted in [false, true] {
            drop(local.open(name, &access).await.unwrap());
            assert_eq!(open_on(&path), 1);
            if deleted {
                std::fs::remove_file(&path).unwrap();
            } else {
                local.sweep().await;
                assert_eq!(open_on(&path), 1, "it was asked for since");
            }
            local.sweep().await;
            until_closed(&path).await;
        }
    });
}

#[test]
fn where_descriptors_have_run_out_the_guards_of_closed_files_go_with_them() {
    block_on(async {
        let (local, pool) = local();
        let access = Access::new(&pool);
        let dir = tempfile::tempdir().unwrap();
        let path = file_of(dir.path(), 100);
        super::warm(&local, &path, &pool).await;
        let name = path.as_os_str().as_bytes();
        drop(local.open(name, &access).await.unwrap());
        assert_eq!(local.0.guards.borrow().len(), 1);
        assert!(local.give_descriptors());
        assert_eq!(local.0.guards.borrow().len(), 0);
        until_closed(dir.path()).await;
        assert!(!local.give_descriptors(), "nothing is left");
    });
}

#[test]
fn the_work_of_no_pool_is_done_by_one_whose_jobs_may_wait() {
    let disk = Disk::new(Disk::prepare());
    disk.define_pool("cpu", 1, 10).give_way(CpuJobs::Long);
    assert!(disk.any_pool().is_none());
    let first = disk.define_pool("first", 1, 10);
    let _ = disk.define_pool("second", 1, 10);
    assert!(disk.any_pool().unwrap().is_same(&first));
    let again = disk.define_pool("first", 2, 10);
    assert!(!again.is_same(&first));
    assert!(
        disk.any_pool().unwrap().is_same(&again),
        "it keeps its place"
    );
    assert!(disk.pool(b"first").unwrap().is_same(&again));
}
