//! `disk_timeout`: a request waits for a disk no longer than that, and what it gets then.
//!
//! Not here: waits of the sending of a file, which has its own timer for each ([`crate::transport::FileWaits`]).

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use disk::OpenFile;
use logs::Level;
use runtime::Loop;

use crate::Failure;
use crate::files::{log_error, overflowed};
use crate::request::Request;
use crate::settings::Location;
use crate::transport::DiskLimit;

/// The limit of one wait for a disk at the request's location.
#[must_use]
pub fn disk_limit(request: &Request) -> Option<DiskLimit> {
    disk_limit_at(request.location(), &request.client.loop_)
}

/// The same at this location.
#[must_use]
pub fn disk_limit_at(location: &Location, loop_: &Loop) -> Option<DiskLimit> {
    let limit = location.settings.files.disk_timeout.on()?;
    Some(DiskLimit {
        wheel: Rc::clone(&loop_.wire.wheel),
        after: limit.duration(),
        disk: None,
    })
}

/// The same for a wait for this file: shorter where the request has a successor of it.
#[must_use]
pub fn disk_limit_of(request: &Request, file: &Rc<OpenFile>) -> Option<DiskLimit> {
    let limit = disk_limit(request);
    match file.disk_health() {
        Some(health) if request.successor(file).is_some() => Some(DiskLimit {
            after: limit.map_or(Duration::MAX, |limit| limit.after),
            ..DiskLimit::of_disk(&request.client.loop_.wire.wheel, health)
        }),
        _ => limit,
    }
}

/// Waits for the disk, as long as `disk_timeout` permits. A wait without a limit needs no more room than `begin` and what
/// it returns.
///
/// # Errors
/// Those of the wait; [`disk::Error::Late`].
pub async fn within<T, F>(request: &Request, begin: impl FnOnce() -> F) -> Result<T, disk::Error>
where
    F: Future<Output = Result<T, disk::Error>>,
{
    match request.location().settings.files.disk_timeout.on() {
        None => begin().await,
        Some(limit) => Box::pin(in_time(request, limit.duration(), begin())).await,
    }
}

async fn in_time<T>(
    request: &Request,
    limit: Duration,
    wait: impl Future<Output = Result<T, disk::Error>>,
) -> Result<T, disk::Error> {
    tokio::select! {
        biased;
        done = wait => done,
        () = request.client.loop_.wire.wheel.sleep(limit) => Err(disk::Error::Late(limit)),
    }
}

/// The response where a disk is late.
#[must_use]
pub fn late() -> Failure {
    Failure::new(503).with_header("Retry-After", Bytes::from_static(b"5"))
}

/// 503 where the disk cannot be waited for; it is logged. None: the error is another one.
#[must_use]
pub fn unavailable(request: &Request, error: &disk::Error, path: &[u8]) -> Option<Failure> {
    match error {
        disk::Error::Overflow(overflow) => Some(overflowed(request, overflow)),
        disk::Error::Late(_) => {
            log_error(request, Level::Error, error, path);
            Some(late())
        }
        _ => None,
    }
}
