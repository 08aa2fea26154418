//! The steps before the content: each may answer, refuse or redirect; else the next one runs.
//!
//! To add a step, add a line to [`run`] and one to [`is_idle`]. The order is nginx's phases: server rewrite, find location, rewrite, access,
//! precontent.

pub mod access;
pub mod admission;
pub mod auth_request;
pub mod limits;
pub mod mirror;
pub mod return_;
pub mod try_files;

use crate::Failure;
use crate::locate;
use crate::path;
use crate::request::{Arrival, Request};
use crate::respond::Outcome;
use crate::settings::Location;

/// Runs the steps; `None` means that the content is to be made.
pub async fn run(request: &mut Request, arrival: Arrival) -> Option<Outcome> {
    match arrival {
        Arrival::Lost => return Some(Outcome::Failed(Failure::new(500))),
        Arrival::Named => {}
        Arrival::Fresh | Arrival::Redirected => {
            path::resolve(request).await;
            if let Some(early) = return_::run(request).or_else(|| locate::run(request)) {
                return Some(early);
            }
        }
    }
    path::resolve(request).await;
    if let Some(early) = limits::run(request).or_else(|| return_::run(request)) {
        return Some(early);
    }
    if let Some(early) = admission::run(request).await {
        return Some(early);
    }
    if let Some(early) = try_files::run(request).await {
        return Some(early);
    }
    mirror::run(request).await
}

/// Has none of the steps anything to do at this location, for a request without a body?
#[must_use]
pub fn is_idle(location: &Location) -> bool {
    let settings = &location.settings;
    !location.is_internal
        && settings.returning.return_.is_none()
        && settings.access.rules.is_empty()
        && !settings.auth_request.auth_request.is_some()
        && settings.trying.try_files.is_none()
        && !settings.mirroring.mirror.is_any()
}
