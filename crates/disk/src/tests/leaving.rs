//! Callers that leave while a disk stands still.

use crate::tests::sending::{LEN, evict, large_file, open};
use crate::tests::{block_on, local};
use crate::*;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

/// A socket that waits for a disk for a moment only.
struct Impatient(UnixStream);

impl Sink for Impatient {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.0.socket()
    }

    fn try_io<R>(&self, operation: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        Sink::try_io(&self.0, operation)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Sink::try_write(&self.0, bytes)
    }

    async fn disk_limit(&self) -> Duration {
        let limit = Duration::from_millis(10);
        tokio::time::sleep(limit).await;
        limit
    }

    fn writable(&self) -> impl Future<Output = io::Result<()>> {
        Sink::writable(&self.0)
    }
}

#[test]
fn a_queue_that_stands_still_holds_no_socket_of_a_caller_that_has_left() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (path, _) = large_file(dir.path());
        let access = Access::new(&pool);
        let file = open(&local, &path, &access).await;
        evict(&path);
        let hold = pool.hold();
        let (here, mut there) = UnixStream::pair().unwrap();
        let here = Impatient(here);
        let sent = local.send(&file, &mut 0, LEN as u64, &here, &access).await;
        assert!(matches!(sent, Err(Error::Late(_))), "{sent:?}");
        drop(here);
        let mut got = Vec::new();
        let deadline = Duration::from_secs(5);
        let end = tokio::time::timeout(deadline, there.read_to_end(&mut got)).await;
        end.expect("the connection is still open").unwrap();
        drop(hold);
    });
}
