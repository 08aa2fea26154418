//! [`DiskLimit`]: how long a response waits for a disk (`disk_timeout`).

use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use disk::DiskHealth;
use wire::{Wheel, loop_clock};

/// Interval at which a wait looks whether the disk is out.
const LOOK: Duration = Duration::from_millis(25);

/// Limit of one wait for a disk.
#[derive(Clone)]
pub struct DiskLimit {
    /// The loop's timeouts.
    pub wheel: Rc<Wheel>,
    /// Maximum time.
    pub after: Duration,
    /// The disk, where something else has what is waited for: no longer than its patience, nor for one that is out.
    pub disk: Option<Arc<DiskHealth>>,
}

impl DiskLimit {
    /// The limit of a wait for a disk whose part something else can take: its patience.
    #[must_use]
    pub fn of_disk(wheel: &Rc<Wheel>, disk: &Arc<DiskHealth>) -> Self {
        Self {
            wheel: Rc::clone(wheel),
            after: Duration::MAX,
            disk: Some(Arc::clone(disk)),
        }
    }

    /// Waits for the disk, within the limit.
    ///
    /// # Errors
    /// Those of the wait; [`disk::Error::Late`].
    pub async fn within<T>(
        limit: Option<&Self>,
        wait: impl Future<Output = Result<T, disk::Error>>,
    ) -> Result<T, disk::Error> {
        tokio::select! {
            biased;
            done = wait => done,
            limit = Self::reached(limit) => Err(disk::Error::Late(limit)),
        }
    }

    /// Waits until the limit of a wait that begins now; for ever where there is none.
    pub async fn reached(limit: Option<&Self>) -> Duration {
        let Some(limit) = limit else {
            return pending().await;
        };
        match &limit.disk {
            None => {
                limit.wheel.sleep(limit.after).await;
                limit.after
            }
            Some(disk) => limit.reached_at(disk).await,
        }
    }

    async fn reached_at(&self, disk: &DiskHealth) -> Duration {
        let begun_ms = loop_clock::monotonic_ms();
        let most = self.after.min(disk.patience());
        loop {
            self.wheel.sleep(LOOK).await;
            let waited_ms = loop_clock::monotonic_ms().saturating_sub(begun_ms);
            let waited = Duration::from_millis(waited_ms);
            if disk.is_out() || waited >= most {
                return waited;
            }
        }
    }
}

/// The limits of the waits of a file that is sent.
#[derive(Clone)]
pub struct FileWaits {
    /// Maximum time for which the client takes nothing (`send_timeout`).
    pub client: Duration,
    /// Of waits for the disk.
    pub disk: Option<DiskLimit>,
}
