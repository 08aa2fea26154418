//! Group commit: the thread that runs one change also runs others that wait, and all their log records are appended
//! with one write. So where many files are made, few threads are awake, and the log costs hardly anything.
//!
//! A change that waits alone runs at once. More threads join where changes wait for a disk and not for a CPU.
//! Invariant: as long as a change waits, a thread of the pool is on its way to it.

use crate::changing::batch::{BatchStep, take, within_bound};
use crate::changing::write::{Output, write_all};
use crate::files::error::Error;
use crate::local::Local;
use crate::metrics::counters::Operation;
use crate::pool::{Lane, Overflow, Pending, Pool, PoolJob, RunJob, together};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Changes that a thread takes at once; one thread joins for each this many that wait.
const TOGETHER_MAX: usize = 16;
/// Batches that a thread takes before the pool's other jobs get their turn.
const TURNS_MAX: usize = 4;

/// The changes of one directory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct GroupCommit(Arc<GroupInner>);

#[derive(Debug)]
struct GroupInner {
    pool: Pool,
    state: Mutex<CommitQueue>,
}

#[derive(Default)]
struct CommitQueue {
    /// At most as many as may wait in a lane of the pool; if none may wait there, as many as it has threads.
    waiting: VecDeque<WaitingChange>,
    /// Threads that run them, or have been asked for.
    threads: usize,
}

struct WaitingChange {
    log_record: Arc<LogRecord>,
    job: Arc<dyn RunJob>,
}

/// The record that must be in the log before its change begins.
struct LogRecord {
    log: Output,
    record: Bytes,
    is_written: AtomicBool,
}

impl std::fmt::Debug for CommitQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (waiting, threads) = (self.waiting.len(), self.threads);
        write!(formatter, "{waiting} waiting, {threads} threads")
    }
}

impl LogRecord {
    /// **Waits.**
    fn write(&self) -> Result<(), Error> {
        if self.is_written.load(Relaxed) {
            return Ok(());
        }
        write_all(self.log.fd(), std::slice::from_ref(&self.record))
    }
}

impl Local {
    /// Appends a record to a log, then takes all steps, one after the other, together with other changes of the group.
    /// Returns the steps as well, to be tried again or dropped by the caller.
    ///
    /// # Errors
    /// [`Error::System`] with the call of the first step that failed; the ones before it are done. [`Error::Overflow`]:
    /// no step was taken, and none is returned.
    pub async fn change_in(
        &self,
        group: &GroupCommit,
        log: Output,
        record: Bytes,
        steps: Vec<BatchStep>,
    ) -> (Result<(), Error>, Vec<BatchStep>) {
        if let Err(error) = within_bound(&steps) {
            return (Err(error), steps);
        }
        let begun = Instant::now();
        let log_record = Arc::new(LogRecord {
            log,
            record,
            is_written: AtomicBool::new(false),
        });
        let own = log_record.clone();
        let work = move || {
            let done = own.write().and_then(|()| steps.iter().try_for_each(take));
            (done, steps)
        };
        let job = Arc::new(PoolJob::new(Lane::Write, begun, work));
        let pending = Pending::new(job.clone(), &group.0.pool);
        // Memory is cheapest where the thread that took it frees it: the last reference is the loop's.
        let kept = log_record.clone();
        if let Err(overflow) = group.push(WaitingChange { log_record, job }) {
            self.0.counters.overflowed(Operation::Other);
            return (Err(overflow.into()), Vec::new());
        }
        let done = pending.await;
        drop(kept);
        self.0.counters.offloaded(Operation::Other, begun.elapsed());
        done
    }
}

impl GroupCommit {
    /// A group whose changes are run by threads of this pool.
    #[must_use]
    pub fn new(pool: &Pool) -> Self {
        Self(Arc::new(GroupInner {
            pool: pool.clone(),
            state: Mutex::default(),
        }))
    }

    /// The number of changes that wait for a thread.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.state.lock().waiting.len()
    }

    fn push(&self, one: WaitingChange) -> Result<(), Overflow> {
        let pool = &self.0.pool;
        if pool.is_disk_out() {
            return Err(Overflow::DiskOut);
        }
        let mut state = self.0.state.lock();
        let waiting = state.waiting.len();
        let most = match pool.max_queue() {
            0 => pool.threads(),
            most => most,
        };
        if state.threads > 0 && waiting >= most {
            let pool = pool.name().clone();
            return Err(Overflow::Queue { pool, waiting });
        }
        state.waiting.push_back(one);
        if state.threads <= waiting / TOGETHER_MAX {
            match self.ask_for_thread() {
                Ok(()) => state.threads += 1,
                // The threads that are there will take it.
                Err(_) if state.threads > 0 => {}
                Err(overflow) => {
                    state.waiting.pop_back();
                    return Err(overflow);
                }
            }
        }
        Ok(())
    }

    fn ask_for_thread(&self) -> Result<(), Overflow> {
        let group = self.clone();
        self.0.pool.spawn(Lane::Write, move || group.work())
    }

    /// **Waits.**
    fn work(&self) {
        let mut turn = 0;
        loop {
            let batch = {
                let mut state = self.0.state.lock();
                let count = state.waiting.len().min(TOGETHER_MAX);
                if count == 0 {
                    state.threads -= 1;
                    return;
                }
                turn += 1;
                // If the pool takes no more, this thread goes on.
                if turn > TURNS_MAX && self.ask_for_thread().is_ok() {
                    return;
                }
                state.waiting.drain(..count).collect::<Vec<_>>()
            };
            write_records(&batch);
            // Each is dropped before its loop is woken: its memory is the loop's.
            together(|| {
                batch
                    .into_iter()
                    .for_each(|one| one.job.run(Instant::now()))
            });
        }
    }
}

/// Writes the log records of a batch. If that fails, each change tries to write its own.
fn write_records(batch: &[WaitingChange]) {
    // A new log may begin between two of them.
    for part in batch.chunk_by(|one, next| one.log_record.log.is(&next.log_record.log)) {
        let records: Vec<&Bytes> = part.iter().map(|one| &one.log_record.record).collect();
        let is_written = write_all(part[0].log_record.log.fd(), &records).is_ok();
        part.iter()
            .for_each(|one| one.log_record.is_written.store(is_written, Relaxed));
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;
    use crate::changing::write::Create;
    use crate::tests::{block_on, local};
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn waiting_changes_run_together_and_each_gets_its_result() {
        block_on(async {
            let (local, _) = local();
            let pool = local.disk().define_pool("one thread", 1, 1000);
            let dir = tempfile::tempdir().unwrap();
            let path =
                |name: &str| -> Box<[u8]> { dir.path().join(name).as_os_str().as_bytes().into() };
            let log = local
                .create(&path("log"), Create::Append, 0o600, &pool)
                .await
                .unwrap();
            let group = GroupCommit::new(&pool);
            let count = 10 * TOGETHER_MAX;
            let held = pool.hold();
            let mut all = Vec::new();
            for number in 0..count {
                let (local, group, log) = (local.clone(), group.clone(), log.clone());
                let steps = match number % 3 {
                    0 => vec![BatchStep::Rename(path("none"), path("other"))],
                    _ => vec![BatchStep::Directory(path(&number.to_string()), 0o700)],
                };
                all.push(tokio::task::spawn_local(async move {
                    let record = Bytes::from(format!("{number},"));
                    let (done, steps) = local.change_in(&group, log, record, steps).await;
                    (done.is_ok(), steps.len())
                }));
            }
            while group.waiting() < count {
                tokio::task::yield_now().await;
            }
            drop(held);
            for (number, one) in all.into_iter().enumerate() {
                assert_eq!(one.await.unwrap(), (number % 3 != 0, 1));
                assert_eq!(
                    dir.path().join(number.to_string()).exists(),
                    number % 3 != 0
                );
            }
            let said: String = (0..count).map(|number| format!("{number},")).collect();
            assert_eq!(
                std::fs::read_to_string(dir.path().join("log")).unwrap(),
                said
            );
            while group.0.state.lock().threads > 0 {
                tokio::task::yield_now().await;
            }
        });
    }

    #[test]
    fn a_full_group_refuses() {
        block_on(async {
            let (local, _) = local();
            let pool = local.disk().define_pool("small", 2, 2);
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("log");
            let log = local.create(path.as_os_str().as_bytes(), Create::Append, 0o600, &pool);
            let log = log.await.unwrap();
            let group = GroupCommit::new(&pool);
            let held = pool.hold();
            let one = || {
                let (local, group, log) = (local.clone(), group.clone(), log.clone());
                tokio::task::spawn_local(async move {
                    let record = Bytes::from_static(b"x");
                    local.change_in(&group, log, record, Vec::new()).await.0
                })
            };
            let first = [one(), one()];
            while group.waiting() < 2 {
                tokio::task::yield_now().await;
            }
            assert!(matches!(one().await.unwrap(), Err(Error::Overflow(_))));
            drop(held);
            for one in first {
                one.await.unwrap().unwrap();
            }
        });
    }
}
