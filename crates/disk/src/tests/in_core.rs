//! The server's own files, of which the kernel tells what is in memory.

use super::*;
use crate::files::mount::Filesystem;
use crate::files::residency_memo::HOLDS_NS;
use rustix::fs::{Advice, fadvise};
use std::time::Duration;

const LEN: usize = 300 << 10;

/// Looks again and again, for as long as an earlier proof may hold and longer.
async fn comes_to(is: bool, look: impl Fn() -> bool) -> bool {
    for _ in 0..200 {
        if look() == is {
            return true;
        }
        tokio::time::sleep(Duration::from_nanos(HOLDS_NS / 2)).await;
    }
    false
}

#[test]
fn a_mapped_file_is_known_to_be_in_memory_whose_pages_nothing_has_mapped() {
    block_on(async {
        let (local, pool) = local();
        let windows = &local.disk().windows;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own");
        put(&path, &vec![7; LEN]);
        let access = Access::new(&pool);
        let file = local.open(bytes(&path), &access).await.unwrap();
        let tells = windows.in_core.tells_of(&file.handle, file.meta().uid);
        if !tells || windows.pagemap.is_none() {
            return;
        }
        assert!(!local.is_present(&file, 0, LEN as u64), "it is not mapped");
        let present = || {
            local.prepare(&file, 0);
            local.is_present(&file, 4096, 100_000)
        };
        assert!(comes_to(true, present).await);
        rustix::fs::fsync(&*file).unwrap();
        let dropped = || {
            fadvise(&*file, 0, None, Advice::DontNeed).unwrap();
            local.is_present(&file, 4096, 100_000)
        };
        assert!(comes_to(false, dropped).await);
        local.read(&file, 0, READ_MAX, &access).await.unwrap();
        assert!(comes_to(true, present).await);
    });
}

#[test]
fn the_pages_of_a_file_of_others_are_known_to_be_in_memory_once_it_is_used_again() {
    block_on(async {
        let (local, pool) = local();
        let windows = &local.disk().windows;
        windows.in_core.tell_nothing();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("others");
        // So large that it is not read with the open.
        put(&path, &vec![7; 100 << 10]);
        settle();
        let access = Access::new(&pool);
        let open = async || local.open(bytes(&path), &access).await.unwrap();
        let file = open().await;
        let is_told = matches!(file.filesystem(), Filesystem::Native | Filesystem::Xfs);
        if windows.pagemap.is_none() || !is_told {
            return;
        }
        let is_present = || local.is_present(&file, 4096, 90 << 10);
        local.prepare(&file, 0);
        // Until there is a guard for its path, it is opened anew.
        for _ in 0..4 {
            local.read(&open().await, 4096, 100, &access).await.unwrap();
        }
        let present = || {
            local.prepare(&file, 0);
            is_present()
        };
        assert!(!is_present(), "it was used once when it was to be prepared");
        assert!(comes_to(true, present).await);
    });
}
