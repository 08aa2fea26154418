//! An observer of a request's way through the steps: explaining (`--explain-url`) runs the lists that serve.
//!
//! An observer is a type parameter of the lists. Serving has `()`, of which nothing is left in the program. Not here:
//! what is reported. Invariant: an observer changes nothing of a request; it only has steps left out that would ask
//! another server, wait for a client or write.

use crate::Failure;
use crate::outcome::{Outcome, Target};
use crate::request::Request;
use crate::steps::satisfy::Verdict;

/// What is observed of the steps, each by its name. All of it may be left to the defaults, which do nothing.
pub trait Observe: Copy {
    /// A round of steps begins: the first one, or the next one after an internal redirect.
    fn begins(self, _request: &Request) {}

    /// Whether this step before the content, or this judge, is run; one that is left out lets the request pass.
    fn lets(self, _step: &'static str, _request: &mut Request) -> bool {
        true
    }

    /// A step before the content was run; its outcome, if that is the end of the round.
    fn ran(self, _step: &'static str, _request: &Request, _outcome: Option<&Outcome>) {}

    /// A judge was asked, or left out.
    fn judged(self, _judge: &'static str, _request: &Request, _verdict: &Verdict) {}

    /// A rewrite instruction is run next: the one at this index of the location's program.
    fn obeys(self, _request: &Request, _at: usize) {}

    /// A rewrite instruction was run.
    fn obeyed(self, _request: &Request, _instruction: &Obeyed) {}

    /// Whether this content is made; if not, the request ends without a response.
    fn makes(self, _content: &'static str, _request: &mut Request) -> bool {
        true
    }

    /// Content was made; `None`: it is left to the next kind of content.
    fn made(self, _content: &'static str, _request: &Request, _outcome: Option<&Outcome>) {}

    /// The request fails; an error page may cover that.
    fn fails(self, _request: &Request, _failure: &Failure) {}

    /// The request goes on elsewhere; `is_last`: it may not, since it has gone on too often.
    fn goes_on(self, _request: &Request, _target: &Target, _is_last: bool) {}
}

/// A rewrite instruction that was run.
#[derive(Debug, Clone, Copy)]
pub struct Obeyed {
    /// Its index.
    pub at: usize,
    /// The index of the next one.
    pub next: usize,
    /// Whether it answered the request.
    pub has_answered: bool,
}

/// Nobody observes.
impl Observe for () {}

/// The outcome of content that an observer left out.
#[must_use]
pub fn not_made() -> Outcome {
    Outcome::Close(0)
}
