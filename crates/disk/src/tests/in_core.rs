//! The server's own files, of which the kernel tells what is in memory.

use super::*;
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
            local.prepare(&file, 0, &pool);
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
