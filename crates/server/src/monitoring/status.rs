//! `stub_status`, `metrics`, `status_json`, `dashboard`: the server's figures as the content of a location.
//!
//! Not here: the metrics ([`crate::monitoring`]). Invariant: these respond whatever the pools and the other loops are
//! doing.

use std::sync::Arc;

use bytes::Bytes;
use config::{Error, Groups, Placed, directives};
use message::{Body, Chunk, HeaderId, Method};
use runtime::loops::sums::{self, LoopSum};
use slots::slotted;

use crate::dashboard::document::document;
use crate::dashboard::stream;
use crate::monitoring::accept;
use crate::monitoring::thread::{self, Shape};
use httpcore::Response;
use httpcore::failure::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::settings::given::Given;
use httpcore::settings::{Location, Settings};
use httpcore::variables::append::number;
use modules::after::compression::accept::names_gzip;
use modules::content::empty_gif::EmptyGif;
use proxy::Proxy;
use proxy::gateways::FastcgiPass;
use proxy::gateways::ScgiPass;
use proxy::gateways::UwsgiPass;

directives! {
    /// Metrics and status pages.
    pub struct Status in Location {
        /// Responds with basic counters of connections and requests, in nginx's format. An argument is ignored.
        stub_status: Option<Given> = none, [SERVER | LOCATION] 0..=1, inherit never, syntax "";
        /// Responds with all metrics of the server as text for Prometheus, or as OpenMetrics to clients that accept it.
        /// All metrics: [metrics](../metrics.md). Restrict access with `allow` and `deny`.
        metrics: Option<Given> = none, [SERVER | LOCATION] 0, inherit never;
        /// Counts the requests of a server or location in the metrics under this name: statuses, bytes, times. Servers
        /// and locations may share a zone; a request counts in the zone of its server and in that of its location.
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
pub enum Shown {
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
///
/// # Errors
/// Several directives that make its content stand there: figures, `empty_gif`, `proxy_pass`.
pub fn build(settings: &dyn Groups) -> Result<Option<Shown>, Error> {
    let status = settings.own::<Status>();
    let all = [
        (
            status.stub_status.is_some(),
            Some(Shown::Stub),
            "stub_status",
        ),
        (status.metrics.is_some(), Some(Shown::Metrics), "metrics"),
        (
            status.status_json.is_some(),
            Some(Shown::Json),
            "status_json",
        ),
        (
            status.dashboard.is_some(),
            Some(Shown::Dashboard),
            "dashboard",
        ),
        (
            settings.own::<EmptyGif>().empty_gif.is_some(),
            None,
            "empty_gif",
        ),
        (
            settings.own::<Proxy>().proxy_pass.is_some(),
            None,
            "proxy_pass",
        ),
        (
            settings.own::<FastcgiPass>().fastcgi_pass.is_some(),
            None,
            "fastcgi_pass",
        ),
        (
            settings.own::<UwsgiPass>().uwsgi_pass.is_some(),
            None,
            "uwsgi_pass",
        ),
        (
            settings.own::<ScgiPass>().scgi_pass.is_some(),
            None,
            "scgi_pass",
        ),
    ];
    let mut wanted = all.iter().filter(|(is_wanted, ..)| *is_wanted);
    let Some((_, shown, name)) = wanted.next() else {
        return Ok(None);
    };
    if let Some((.., other)) = wanted.next() {
        return Err(Error::without_place(format!(
            "\"{name}\" and \"{other}\" cannot stand in the same location"
        )));
    }
    if *shown == Some(Shown::Dashboard) {
        // Made here, where no loop waits for it.
        let _ = document();
    }
    Ok(*shown)
}

/// Whether a configuration has a dashboard.
#[must_use]
pub fn shows_dashboard(settings: &Settings) -> bool {
    let mut shown = settings
        .locations
        .iter()
        .filter_map(Location::made::<Shown>);
    shown.any(|shown| *shown == Shown::Dashboard)
}

/// Answers with figures.
pub async fn make(request: &Request, shown: Shown) -> Outcome {
    if !matches!(request.method, Method::Get | Method::Head) {
        return Outcome::Failed(Failure::new(405));
    }
    let ledger = Arc::clone(&request.client.loop_.ledger);
    let (shape, media_type) = match shown {
        Shown::Stub => {
            let text = stub(&sums::all(&ledger));
            return answer("text/plain", vec![text.into()]);
        }
        Shown::Dashboard if request.args == "stream" => return stream(request),
        Shown::Dashboard => return page(request),
        Shown::Json => (Shape::Json, "application/json"),
        Shown::Metrics => {
            let format = accept::format(request.head.get(HeaderId::Accept).unwrap_or_default());
            (Shape::Text(format), format.media_type())
        }
    };
    match thread::written(&ledger, shape).await {
        Some(pieces) => answer(media_type, pieces),
        None => {
            let failure = Failure::new(503).with_header("Retry-After", Bytes::from_static(b"1"));
            Outcome::Failed(failure)
        }
    }
}

/// The dashboard's page.
fn page(request: &Request) -> Outcome {
    let document = document();
    let mut response = Response::boxed(200);
    let accepted = request.head.get(HeaderId::AcceptEncoding);
    let is_compressed = accepted.is_some_and(names_gzip);
    let body = if is_compressed {
        response.content_encoding = Some(Bytes::from_static(b"gzip"));
        &document.gzip
    } else {
        &document.plain
    };
    response.content_type = Bytes::from_static(b"text/html; charset=utf-8");
    response.content_length = Some(body.len() as u64);
    response.body = Body::bytes(body.clone());
    let headers = &mut response.headers;
    headers.push("Vary", "Accept-Encoding");
    headers.push("Cache-Control", "no-cache");
    headers.push("Content-Security-Policy", document.policy.clone());
    headers.push("X-Content-Type-Options", "nosniff");
    headers.push("Referrer-Policy", "no-referrer");
    Outcome::Answer(response)
}

/// What the page is told.
fn stream(request: &Request) -> Outcome {
    let mut response = Response::boxed(200);
    if request.method != Method::Head {
        let Some(body) = stream::open(&request.client) else {
            let failure = Failure::new(503).with_header("Retry-After", Bytes::from_static(b"10"));
            return Outcome::Failed(failure);
        };
        response.body = body;
    }
    response.content_type = Bytes::from_static(b"text/event-stream");
    response.headers.push("Cache-Control", "no-store");
    // nginx, where it stands before, is not to hold it back.
    response.headers.push("X-Accel-Buffering", "no");
    Outcome::Answer(response)
}

fn answer(media_type: &'static str, mut pieces: Vec<Bytes>) -> Outcome {
    let mut response = Response::boxed(200);
    response.content_type = Bytes::from_static(media_type.as_bytes());
    let length: usize = pieces.iter().map(Bytes::len).sum();
    response.content_length = Some(length as u64);
    response.body = if pieces.len() == 1 {
        Body::bytes(pieces.remove(0))
    } else {
        Body::chunks(pieces.into_iter().map(Chunk::Bytes).collect())
    };
    Outcome::Answer(response)
}

/// nginx's words, to the space at the end of each line.
fn stub(sum: &LoopSum) -> String {
    let (active, accepted) = (sum.connections, sum.accepted);
    // nginx counts a request with its first byte.
    let requests = sum.requests + sum.reading();
    format!(
        "Active connections: {active} \nserver accepts handled requests\n {accepted} {accepted} {requests} \n\
         Reading: {} Writing: {} Waiting: {} \n",
        sum.reading(),
        sum.answering,
        sum.waiting()
    )
}
