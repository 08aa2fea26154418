//! `satisfy`: whether all of the steps that judge a client must let it pass, or any of them. nginx-drop-in 49.
//!
//! Not here: its directives ([`crate::settings::admission`]), the judges (`server::steps::judges`).

use std::ops::ControlFlow;

use disk::metrics::Number;
use logs::Level;
use runtime::families;
use runtime::timing::counters::COUNTERS;
use slots::slotted;

use crate::failure::{CLIENT_CLOSED, Failure};
use crate::handler::metrics::ModuleMetrics;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::settings::Location;
use crate::settings::admission::Satisfy;

/// The counters of one loop.
#[derive(Debug, Default)]
struct DelayCounters {
    /// Refusals that `auth_delay` held back.
    delayed: Number,
}

slotted!(COUNTERS: DelayCounters);

families! {
    /// The families of these counters.
    FAMILIES;
    AUTH_DELAYED Counter "freewheel_auth_delayed_requests" "" [] "Rejections delayed by auth_delay.";
}

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: FAMILIES,
    show: |shown, page| {
        let loops = shown.loops::<DelayCounters>();
        let delayed = loops.sum(|counters| &counters.delayed);
        let uses = |location: &Location| location.settings.admission.auth_delay.0 > 0;
        if delayed > 0 || shown.is_any_location(uses) {
            page.whole(&AUTH_DELAYED, &[], delayed);
        }
    },
};

/// The verdict of one judge.
#[derive(Debug)]
pub enum Verdict {
    /// No verdict: there is nothing here to judge by.
    Silent,
    /// The client may pass.
    Passed,
    /// The client may not pass, or that could not be found out.
    Refused(Failure),
}

/// The verdicts on a request so far.
#[derive(Debug)]
pub struct Verdicts {
    satisfy: Satisfy,
    refused: Option<Failure>,
}

impl Verdicts {
    /// None yet.
    #[must_use]
    pub fn on(request: &Request) -> Self {
        Self {
            satisfy: request.location().settings.admission.satisfy,
            refused: None,
        }
    }

    /// Adds a verdict; a break with the decision, if no other judge is asked. With `any`, a 401 takes precedence over a
    /// 403: the client may still authenticate.
    pub fn add(&mut self, verdict: Verdict) -> ControlFlow<Option<Failure>> {
        match (self.satisfy, verdict) {
            (_, Verdict::Silent) | (Satisfy::All, Verdict::Passed) => ControlFlow::Continue(()),
            (Satisfy::Any, Verdict::Passed) => ControlFlow::Break(None),
            (Satisfy::Any, Verdict::Refused(failure))
                if failure.status == 403 || asks_who(&failure) =>
            {
                match &mut self.refused {
                    // Each challenge is sent.
                    Some(known) if asks_who(known) => known.headers.extend(failure.headers),
                    refused => *refused = Some(failure),
                }
                ControlFlow::Continue(())
            }
            (_, Verdict::Refused(mut failure)) => {
                // Challenges of the judges before it are kept.
                let known = self.refused.take().map(|known| known.headers);
                failure.headers.splice(0..0, known.unwrap_or_default());
                ControlFlow::Break(Some(failure))
            }
        }
    }

    /// The decision after the last judge.
    #[must_use]
    pub fn decide(self, request: &Request) -> Option<Failure> {
        let failure = self.refused?;
        if failure.status == 403 {
            log_forbidden(request);
        }
        Some(failure)
    }
}

/// Logs the reason for a 403.
pub fn log_forbidden(request: &Request) {
    request.log(Level::Error, &|out| {
        out.extend_from_slice(b"access forbidden by rule")
    });
}

/// Refuses a request; one that may be asked again with another password after a delay (`auth_delay`).
pub async fn refuse(request: &Request, failure: Failure) -> Outcome {
    if !asks_who(&failure) || request.location().settings.admission.auth_delay.0 == 0 {
        return Outcome::Failed(failure);
    }
    Box::pin(delay(request, failure)).await
}

/// Whether the failure asks the client for credentials.
fn asks_who(failure: &Failure) -> bool {
    matches!(failure.status, 401 | 407)
}

/// Refuses after a delay, unless the client leaves before.
async fn delay(request: &Request, failure: Failure) -> Outcome {
    request.log(Level::Info, &|out| {
        out.extend_from_slice(b"delaying unauthorized request");
    });
    let counters = request.client.loop_.figures.of::<DelayCounters>();
    counters.delayed.add(1);
    let delay = request.location().settings.admission.auth_delay.duration();
    tokio::select! {
        () = request.client.loop_.wire.wheel.sleep(delay) => Outcome::Failed(failure),
        () = request.transport.peer_closed() => Outcome::Failed(Failure::new(CLIENT_CLOSED)),
    }
}
