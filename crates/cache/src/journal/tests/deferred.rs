//! Records that are lost with no frame, and numbers of purges that were not written.

use super::*;
use crate::purge::PurgeRule;
use std::sync::mpsc::channel;

#[test]
fn deferred_records_wait_for_a_frame_that_is_written() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let (local, pool) = local();
        let small = local.disk().define_pool("small", 1, 1);
        let (journal, _, index) = open(&local, dir.path(), &small).await;
        for number in 0..2 {
            fill(&journal, &local, &index, number, 1).await;
        }
        journal.write_rest(&local).await.unwrap();
        journal.gone(known(0, 1).key, 1);
        // A pool that takes nothing more.
        let ((end, ended), (begun, begins)) = (channel::<()>(), channel());
        let hang = move || {
            begun.send(()).unwrap();
            ended.recv().unwrap_or_default();
        };
        small.spawn(disk::Lane::Write, hang).unwrap();
        // It has left the queue.
        begins.recv().unwrap();
        while small.spawn(disk::Lane::Write, || {}).is_ok() {}
        let written = journal.write_rest(&local).await;
        let is_full = |error: &Error| matches!(error, Error::Disk(disk::Error::Overflow(_)));
        assert!(written.as_ref().is_err_and(is_full), "{written:?}");
        drop(end);
        while journal.write_rest(&local).await.is_err() {
            tokio::task::yield_now().await;
        }
        drop(journal);
        let (_, recovered, index) = open(&local, dir.path(), &pool).await;
        assert!(!recovered.is_damaged);
        assert_eq!(contents(&index).len(), 1);
    });
}

#[test]
fn a_purge_from_outside_gets_a_number_that_no_entry_is_clean_of() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let (local, pool) = local();
        let (journal, _, _) = open(&local, dir.path(), &pool).await;
        let mut known = known(1, 1);
        // Of a purge whose record was not written.
        known.clean_of = 5;
        let vary = Bytes::new();
        let put = JournalRecord::Put { known, vary };
        journal.write(&local, &[put]).await.unwrap();
        drop(journal);
        let rule = PurgeRule::Key(known.key);
        loop {
            let rules = std::slice::from_ref(&rule);
            match outside::purge(&local, bytes(dir.path()), &pool, rules).await {
                Err(Error::InUse) => tokio::task::yield_now().await,
                done => break done.unwrap(),
            }
        }
        let (_, recovered, _) = open(&local, dir.path(), &pool).await;
        let mut pending = recovered.purges.pending();
        assert_eq!(pending.next().unwrap().number, 6);
    });
}
