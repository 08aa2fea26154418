//! The directives that show metrics, and which of them a location has.
//!
//! Not here: what they show ([`super::status`]).

use bytes::Bytes;
use config::{Groups, Placed, directives};
use runtime::loops::sums::{self, LoopSum};
use slots::slotted;

use crate::dashboard::document::document;
use httpcore::request::Request;
use httpcore::settings::given::Given;
use httpcore::settings::{Location, Settings};
use httpcore::variables::append::number;

directives! {
    /// Metrics and status pages.
    pub struct Status in Location {
        /// Responds with basic counters of connections and requests, in nginx's format. An argument is ignored.
        stub_status: Option<Given> = none, [SERVER | LOCATION] 0..=1, inherit never, syntax "";
        /// Responds with all metrics of the server as text for Prometheus, or as OpenMetrics to clients that accept it.
        /// All metrics: [metrics](../metrics.md). Restrict access with `allow` and `deny`.
        metrics: Option<Given> = none, [SERVER | LOCATION] 0, inherit never;
        /// Counts the requests of a server or location in the metrics under this name: statuses, bytes, times. Servers
        /// and locations may share a zone; a request counts once in the zone of its server, and in that of the first
        /// location that had it, or of the one that answers where that has none. The name has no variables.
        status_zone: Option<Placed<Bytes>> = none, [SERVER | LOCATION] 1, inherit never, syntax "zone";
        /// Responds with the same metrics as JSON.
        status_json: Option<Given> = none, [SERVER | LOCATION] 0, inherit never;
        /// Responds with a page that shows the same metrics live, starting with the last 15 minutes, and the latest
        /// errors: see [the dashboard](../dashboard.md). It shows log messages about requests, too: restrict access
        /// with `allow` and `deny`.
        dashboard: Option<Given> = none, [SERVER | LOCATION] 0, inherit never;
    }
}

httpcore::variables! {
    /// Current connections of clients, as in `stub_status`.
    "connections_active" => fresh(|request, out| number(connections(request).connections, out));
    /// Those whose request is being read.
    "connections_reading" => fresh(|request, out| number(connections(request).reading(), out));
    /// Those that wait for a request.
    "connections_waiting" => fresh(|request, out| number(connections(request).waiting(), out));
    /// Those that a response is being written to.
    "connections_writing" => fresh(|request, out| number(connections(request).answering, out));
}

fn connections(request: &Request) -> LoopSum {
    sums::all(&request.client.loop_.ledger)
}

slotted!(config::made::LOCATION: Shown);

/// The figures that a location shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// `stub_status`.
    Stub,
    /// `metrics`.
    Metrics,
    /// `status_json`.
    Json,
    /// `dashboard`.
    Dashboard,
}

/// The figures that the location of these settings shows, if any.
pub(crate) fn build(settings: &dyn Groups) -> Option<Shown> {
    let status = settings.own::<Status>();
    let shown = [
        (status.stub_status.is_some(), Shown::Stub),
        (status.metrics.is_some(), Shown::Metrics),
        (status.status_json.is_some(), Shown::Json),
        (status.dashboard.is_some(), Shown::Dashboard),
    ];
    let (_, shown) = shown.into_iter().find(|(is_wanted, _)| *is_wanted)?;
    if shown == Shown::Dashboard {
        // Made here, where no loop waits for it.
        let _ = document();
    }
    Some(shown)
}

/// Whether a configuration has a dashboard.
#[must_use]
pub(crate) fn shows_dashboard(settings: &Settings) -> bool {
    let mut shown = settings
        .locations
        .iter()
        .filter_map(Location::made::<Shown>);
    shown.any(|shown| *shown == Shown::Dashboard)
}
