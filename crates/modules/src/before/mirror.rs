//! `mirror`: sends the same request to other locations of the server and discards their answers.
//!
//! Mirrors run as tasks of their own: neither the request nor its connection waits for them. Each counts as a
//! connection of its loop, so `worker_connections` limits them, and a worker that shuts down waits for them.

use bytes::Bytes;
use config::{Flag, Problem, Scope, Value, Word, directives};
use logs::Level;
use runtime::{Kind, spawn};

use httpcore::Failure;
use httpcore::handler::metrics::ModuleMetrics;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::request_body::{self, RequestBody};
use httpcore::settings::Location;
use httpcore::subrequest;

/// Mirrors of one location.
pub const MIRRORS_MAX: usize = 64;

/// The URIs of a level's `mirror` lines; none after `off`.
#[derive(Debug, Clone, Default)]
pub struct Mirrors(Vec<Bytes>);

impl Mirrors {
    /// Whether there is one.
    #[must_use]
    pub fn is_any(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Value for Mirrors {
    const SYNTAX: &'static str = "uri | off";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        let word = &args[0];
        Ok(Self(match *word == "off" {
            true => Vec::new(),
            false => vec![word.bytes().clone()],
        }))
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let line = Self::parse(args, scope)?;
        let Some(known) = slot else {
            *slot = Some(line);
            return Ok(());
        };
        if line.0.is_empty() || known.0.is_empty() {
            return Err(Problem::duplicate());
        }
        if known.0.len() == MIRRORS_MAX {
            return Err(Problem::new(format!("more than {MIRRORS_MAX} mirrors")));
        }
        known.0.extend(line.0);
        Ok(())
    }
}

directives! {
    /// Mirrored requests.
    pub struct Mirroring in Location {
        /// Sends a copy of each request to this URI, as a subrequest whose response is ignored. May be repeated.
        /// Neither the request nor its connection waits for it.
        mirror: Mirrors = "off", [HTTP | SERVER | LOCATION] 1;
        /// Sends the body with the mirrored request: it is then read completely first, regardless of
        /// `proxy_request_buffering`.
        mirror_request_body: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
    }
}

/// Whether a location has mirrors.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    location.own::<Mirroring>().mirror.is_any()
}

/// The kind that its sub-requests are counted as.
static SUBREQUESTS: subrequest::Kind = subrequest::Kind::named("mirror");

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: &[],
    show: |shown, page| {
        SUBREQUESTS.show(shown, page, is_on);
    },
};

/// Starts the mirrors of the request's location; `Some`: its body cannot be read.
pub async fn run(request: &mut Request) -> Option<Outcome> {
    let generation = request.generation.clone();
    let location = generation.settings.location(request.location);
    let settings = location.own::<Mirroring>();
    if !settings.mirror.is_any() || request.is_subrequest() {
        return None;
    }
    let body = match settings.mirror_request_body {
        false => RequestBody::None,
        true => match request_body::store(request).await {
            Ok(body) => body,
            Err(outcome) => return Some(outcome),
        },
    };
    for uri in &settings.mirror.0 {
        let args = request.args.clone().unwrap_or_default();
        let Ok(child) = subrequest::make(request, uri.clone(), args, body.clone()) else {
            return Some(Outcome::Failed(Failure::new(500)));
        };
        send(request, child);
    }
    None
}

fn send(request: &Request, mut mirror: Box<Request>) {
    mirror.take_method(request);
    mirror.set_apart();
    let Some(seat) = request.client.loop_.take_seat() else {
        subrequest::count(&mirror, &SUBREQUESTS, None);
        mirror.log(Level::Error, &|out| {
            out.extend_from_slice(b"worker_connections are not enough to mirror the request");
        });
        return;
    };
    drop(spawn(Kind::Module("mirror"), async move {
        let _seat = seat;
        drop(subrequest::ask_for_head(mirror, &SUBREQUESTS).await);
    }));
}
