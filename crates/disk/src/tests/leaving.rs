//! Callers that leave while a disk stands still, and windows that are claimed for a job which waits in a queue.

use crate::residency::window::{Residency, Windows};
use crate::tests::sending::{LEN, cold_file, large_file, open, sent};
use crate::tests::{block_on, local};
use crate::*;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
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

/// A send that takes too long.
async fn send_in_vain(local: &Local, file: &Rc<OpenFile>, here: &Impatient, access: &Access<'_>) {
    let sent = local.send(file, &mut 0, LEN as u64, here, access).await;
    assert!(matches!(sent, Err(Error::Late(_))), "{sent:?}");
}

#[test]
fn a_caller_that_leaves_a_queue_keeps_nothing_claimed() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let access = Access::new(&pool);
        let (file, _) = cold_file(&local, dir.path(), &access).await;
        let hold = pool.hold();
        let (here, _there) = UnixStream::pair().unwrap();
        let here = Impatient(here);
        send_in_vain(&local, &file, &here, &access).await;
        // Another takes its place, and need not wait until the queue comes to what was left there.
        assert!(local.disk().windows.claim(&file, 0).is_ok());
        drop(hold);
    });
}

#[test]
fn a_queue_that_stands_still_holds_no_socket_of_a_caller_that_has_left() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let access = Access::new(&pool);
        let (file, _) = cold_file(&local, dir.path(), &access).await;
        let hold = pool.hold();
        let (here, mut there) = UnixStream::pair().unwrap();
        let here = Impatient(here);
        send_in_vain(&local, &file, &here, &access).await;
        drop(here);
        let mut got = Vec::new();
        let deadline = Duration::from_secs(5);
        let end = tokio::time::timeout(deadline, there.read_to_end(&mut got)).await;
        end.expect("the connection is still open").unwrap();
        drop(hold);
    });
}

#[test]
fn what_is_in_memory_is_sent_whoever_has_claimed_its_windows() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (path, contents) = large_file(dir.path());
        let access = Access::new(&pool);
        let file = open(&local, &path, &access).await;
        sent(&local, &file, 0..LEN as u64, &access).await.1.unwrap();
        let windows: &Arc<Windows> = &local.disk().windows;
        let is_present = windows.residency(&file, 0, LEN as u64) == Residency::Present;
        if windows.pagemap.is_none() || !is_present {
            return;
        }
        assert!(windows.claim_absent(&file, 1).is_none());
        let claims: Vec<_> = (0..4).map(|at| windows.claim(&file, at).ok()).collect();
        assert!(claims.iter().all(Option::is_some));
        let hold = pool.hold();
        let again = sent(&local, &file, 0..LEN as u64, &access);
        let (got, _) = tokio::time::timeout(Duration::from_secs(5), again)
            .await
            .expect("it waited for those that have the windows");
        assert!(got == contents);
        drop((claims, hold));
    });
}

#[test]
fn a_fill_that_the_pool_refuses_says_so() {
    block_on(async {
        let (local, _) = local();
        let pool = local.disk().define_pool("full", 1, 1);
        let dir = tempfile::tempdir().unwrap();
        let (file, _) = cold_file(&local, dir.path(), &Access::new(&pool)).await;
        let hold = pool.hold();
        pool.spawn(Lane::Read, || ()).unwrap();
        let windows = &local.disk().windows;
        assert!(windows.fill(&file, 0, 1, &pool).is_err());
        assert!(windows.claim(&file, 0).is_ok(), "nothing stays claimed");
        drop(hold);
    });
}
