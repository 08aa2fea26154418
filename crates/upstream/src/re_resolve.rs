//! Periodic re-resolving of an upstream's servers (`resolve`), on the resolver's thread.
//!
//! Not here: what an answer changes ([`super::resolved_peers`]). Invariant: a task ends with its upstream; a failure
//! other than "no such host" changes nothing and is tried again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use logs::process_log::{Level, error_log};

use super::resolved_peers::LookedUp;
use super::upstreams::Live;
use crate::resolver::cache::now_s;
use crate::resolver::{Query, ResolveError, ResolvedName, Resolver, thread};

/// Minimum time between two queries after a failure.
const RETRY_MIN: Duration = Duration::from_secs(1);

/// The resolver settings of an upstream.
#[derive(Clone, Debug)]
pub(crate) struct Watching {
    /// The name servers.
    pub resolver: Arc<Resolver>,
    /// `resolver_timeout`.
    pub timeout: Duration,
}

impl PartialEq for Watching {
    fn eq(&self, other: &Watching) -> bool {
        self.resolver.rules == other.resolver.rules && self.timeout == other.timeout
    }
}

/// Starts a task for each server with `resolve`. The thread runs.
pub(super) fn begin(live: &Arc<Live>, servers: &[LookedUp], watching: &Watching) {
    for (number, server) in servers.iter().enumerate() {
        let (live, server) = (Arc::downgrade(live), server.clone());
        thread::spawn(watch(live, number, server, watching.clone()));
    }
}

async fn watch(live: Weak<Live>, number: usize, server: LookedUp, watching: Watching) {
    let (host, service) = (&server.lookup.host, server.lookup.service.as_deref());
    let question = match service {
        None => Query::host(host),
        Some(service) => Query::service(service, host),
    };
    loop {
        let Some(known_s) = live.upgrade().map(|live| live.valid_s(number)) else {
            return;
        };
        // The first query goes at once.
        if known_s > 0 {
            tokio::time::sleep(left(known_s)).await;
        }
        if live.strong_count() == 0 {
            return;
        }
        let outcome = watching
            .resolver
            .find(question.clone(), watching.timeout)
            .await;
        let found = match outcome {
            Ok(found) => found,
            Err(unresolved) => {
                tell(service, host, unresolved);
                if unresolved != ResolveError::NOT_FOUND {
                    tokio::time::sleep(watching.timeout.max(RETRY_MIN)).await;
                    continue;
                }
                // nginx's interval for the next query.
                let again_s = watching.resolver.rules.valid_s.unwrap_or(10);
                Arc::new(ResolvedName {
                    valid_s: now_s().saturating_add(again_s),
                    ..ResolvedName::default()
                })
            }
        };
        for (lost, reason) in &found.lost {
            let service = service.unwrap_or_default();
            let what = format!("while resolving service {service} of {host}");
            error_log(
                Level::Error,
                format_args!("{lost} could not be resolved {reason} {what}"),
            );
        }
        let Some(live) = live.upgrade() else {
            return;
        };
        live.update(number, &server, &found);
    }
}

/// The remaining TTL of an answer, and a second.
fn left(valid_s: i64) -> Duration {
    let left = valid_s.saturating_sub(now_s()).max(0);
    Duration::from_secs(left.unsigned_abs() + 1)
}

fn tell(service: Option<&str>, host: &str, unresolved: ResolveError) {
    let what = match service {
        None => host.to_owned(),
        Some(service) => format!("service {service} of {host}"),
    };
    error_log(
        Level::Error,
        format_args!("{what} could not be resolved {unresolved}"),
    );
}
