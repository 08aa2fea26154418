//! Behaviour of the whole layer, on real files.

use crate::*;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tokio::runtime::Builder;

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .unwrap();
    runtime.block_on(future)
}

/// A layer with one pool, on this thread's runtime.
pub(crate) fn local() -> (Local, Pool) {
    let disk = Disk::new(Disk::prepare());
    let pool = disk.define_pool("test", 4, 1000);
    (Local::new(&disk), pool)
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn put(path: &Path, contents: &[u8]) {
    std::fs::File::create(path)
        .unwrap()
        .write_all(contents)
        .unwrap();
}

#[test]
fn a_file_is_opened_and_read_and_the_second_time_from_memory() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        put(&path, b"hello");
        let access = Access::new(&pool);
        for _ in 0..2 {
            let file = local.open(bytes(&path), &access).await.unwrap();
            assert_eq!((file.meta().kind, file.meta().len), (Kind::File, 5));
            assert_eq!(
                &local.read(&file, 0, 100, &access).await.unwrap()[..],
                b"hello"
            );
            assert_eq!(
                &local.read(&file, 3, 100, &access).await.unwrap()[..],
                b"lo"
            );
        }
        let open = local.counts()[Operation::Open as usize];
        assert_eq!(open.offloaded, 1);
        assert_eq!(open.memory, 1);
    });
}

#[test]
fn what_is_not_there_or_may_not_be_opened_is_said_as_nginx_says_it() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let access = Access::new(&pool);
        let error = local
            .open(bytes(&dir.path().join("none")), &access)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "open() failed (2: No such file or directory)"
        );
        let error = local
            .stat(bytes(&dir.path().join("none")), &access)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "stat() failed (2: No such file or directory)"
        );
        let meta = local.stat(bytes(dir.path()), &access).await.unwrap();
        assert_eq!(meta.kind, Kind::Directory);
    });
}
