//! [`DiskLimit`]: how long a response waits for a disk (`disk_timeout`).

use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use wire::Wheel;

/// Limit of one wait for a disk.
#[derive(Clone)]
pub struct DiskLimit {
    /// The loop's timeouts.
    pub wheel: Rc<Wheel>,
    /// Maximum time.
    pub after: Duration,
}

impl DiskLimit {
    /// Waits until the limit of a wait that begins now; for ever where there is none.
    pub async fn reached(limit: Option<&Self>) -> Duration {
        let Some(limit) = limit else {
            return pending().await;
        };
        limit.wheel.sleep(limit.after).await;
        limit.after
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
