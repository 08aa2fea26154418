//! `auth_request`: a sub-request decides whether the client may pass.

use std::rc::Rc;

use bytes::Bytes;
use config::{List, Problem, Scope, Template, Value, VariableIndex, Word, directives};
use logs::Level;
use message::Header;

use httpcore::Failure;
use httpcore::handler::metrics::ModuleMetrics;
use httpcore::request::Request;
use httpcore::request_body::RequestBody;
use httpcore::settings::Location;
use httpcore::steps::satisfy::Verdict;
use httpcore::subrequest;
use httpcore::variables;

/// A URI, or `off`.
#[derive(Debug, Clone)]
pub struct UriOrOff(pub Option<Bytes>);

impl Value for UriOrOff {
    const SYNTAX: &'static str = "uri | off";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        let word = &args[0];
        Ok(Self((*word != "off").then(|| word.bytes().clone())))
    }
}

impl UriOrOff {
    /// Whether there is one.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

/// A variable and its new value.
#[derive(Debug, Clone)]
pub struct Assignment {
    variable: VariableIndex,
    value: Template,
}

impl Value for Assignment {
    const SYNTAX: &'static str = "$variable value";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        Ok(Self {
            variable: variables::to_set(&args[0], scope)?,
            value: Template::of_word(&args[1], scope).map_err(|problem| problem.at(1))?,
        })
    }
}

directives! {
    /// Authorization by a subrequest.
    pub struct AuthRequest in Location {
        /// Authorizes clients by a subrequest to this URI: 2xx allows access; 401 and 403 are returned to the client,
        /// together with the subrequest's `WWW-Authenticate`. Any other status is an error (500). The client's body is
        /// not sent with it.
        auth_request: UriOrOff = "off", [HTTP | SERVER | LOCATION] 1;
        /// Sets a variable when the subrequest has completed; the value may use variables of its response
        /// (`$upstream_http_…`).
        auth_request_set: List<Assignment> = none, [HTTP | SERVER | LOCATION] 2;
    }
}

/// Whether a sub-request judges at a location.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    location.own::<AuthRequest>().auth_request.is_some()
}

/// Whether it sets variables at a location.
#[must_use]
pub fn sets(location: &Location) -> bool {
    is_on(location) && !location.own::<AuthRequest>().auth_request_set.is_empty()
}

/// The kind that its sub-requests are counted as.
static SUBREQUESTS: subrequest::Kind = subrequest::Kind::named("auth_request");

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: &[],
    show: |shown, page| {
        SUBREQUESTS.show(shown, page, is_on);
    },
};

/// Runs the sub-request and judges by its answer.
pub async fn judge(request: &mut Request) -> Verdict {
    let generation = request.generation.clone();
    let location = generation.settings.location(request.location);
    let settings = location.own::<AuthRequest>();
    let Some(uri) = &settings.auth_request.0 else {
        return Verdict::Silent;
    };
    let made = subrequest::make(request, uri.clone(), Bytes::new(), RequestBody::None);
    let Ok(child) = made else {
        return Verdict::Refused(Failure::new(500));
    };
    let answered = subrequest::ask_for_head_below(request, child, &SUBREQUESTS).await;
    // As in nginx, the client that a trusted proxy names there (`set_real_ip_from`) is the one of the whole request.
    request.client = Rc::clone(&answered.client);
    for assignment in settings.auth_request_set.iter() {
        let value = answered.evaluate(&assignment.value);
        if request.is_too_long(&value) {
            return Verdict::Refused(Failure::new(500));
        }
        request.assign(assignment.variable, value);
    }
    verdict(request, &answered)
}

fn verdict(request: &Request, answered: &Request) -> Verdict {
    // One that is closed closes the client's connection as well: as in nginx this is not a server's response.
    if let Some(status) = answered.silent_status {
        return Verdict::Refused(Failure::new(status));
    }
    let status = answered.status();
    match status {
        200..300 => Verdict::Passed,
        403 => Verdict::Refused(Failure::new(status)),
        401 => {
            let mut failure = Failure::new(status);
            failure.headers = challenges(answered);
            Verdict::Refused(failure)
        }
        _ => {
            request.log(Level::Error, &|out| {
                out.extend_from_slice(
                    format!("auth request unexpected status: {status}").as_bytes(),
                );
            });
            Verdict::Refused(Failure::new(500))
        }
    }
}

/// The `WWW-Authenticate` lines of an answer; if it has none, those of the server that it came from.
fn challenges(answered: &Request) -> Vec<Header> {
    const NAME: &str = "WWW-Authenticate";
    let Some(response) = &answered.response else {
        return Vec::new();
    };
    let lines = response.headers.get_all(NAME.as_bytes());
    let lines: Vec<Header> = lines
        .map(|value| Header::new(NAME, value.clone()))
        .collect();
    if !lines.is_empty() {
        return lines;
    }
    // Those that `proxy_hide_header` leaves out of the answer: several in one line (RFC 9110, 11.6.1).
    let mut hidden = Vec::new();
    match answered.append_named(b"upstream_http_www_authenticate", &mut hidden) {
        true => vec![Header::new(NAME, Bytes::from(hidden))],
        false => Vec::new(),
    }
}
