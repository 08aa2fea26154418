//! `ssi`: pages with commands in them, which are run while the page is sent.
//!
//! Included answers are requested while the rest of the page is read, and shown where they belong. Not here: finding
//! the commands (`parser`), their effects (`page`), the order of the output (`composed`).

mod commands;
mod composed;
pub mod condition;
mod date;
mod memory;
mod page;
pub mod parser;

use std::rc::Rc;

use config::{Flag, Size, directives};
use message::Body;

use httpcore::Response;
use httpcore::handler::metrics::ModuleMetrics;
use httpcore::request::Request;
use httpcore::settings::Location;
use httpcore::subrequest;
use httpcore::subrequest::include::{self, Whole};

use super::media_types::MediaTypes;
use composed::Composed;
pub use date::VARIABLES;
use httpcore::body_filter::{self, Steps};
use page::Page;

directives! {
    /// Server-side includes (SSI).
    pub struct Ssi in Location {
        /// Executes SSI commands in pages (`<!--#include virtual="/uri" -->`).
        ssi: Flag = "off", [HTTP | SERVER | LOCATION | LOCATION_IF] FLAG;
        /// Keeps `Last-Modified` of pages with commands, and their entity tag as a weak one; by default both are
        /// removed.
        ssi_last_modified: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Outputs nothing where a command failed, instead of "[an error occurred while processing the directive]".
        ssi_silent_errors: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets the media types of the responses that are searched for commands, besides `text/html`; `*` means all.
        ssi_types: MediaTypes = "text/html", [HTTP | SERVER | LOCATION] 1..;
        /// Limits the length of values of command parameters.
        ssi_value_length: Size = "255", [HTTP | SERVER | LOCATION] 1;
    }
}

/// Whether commands in bodies run at a location.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    location.own::<Ssi>().ssi
}

/// The kind that its sub-requests are counted as.
static SUBREQUESTS: subrequest::Kind = subrequest::Kind::named("ssi");

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: &[],
    show: |shown, page| {
        SUBREQUESTS.show(shown, page, is_on);
    },
};

/// Has the commands in the body of an answer run, if they are to be. Returns what its parts share.
pub fn begin(
    request: &Request,
    settings: &Ssi,
    response: &mut Response,
    steps: &mut Steps,
) -> Option<Rc<Whole>> {
    if !settings.ssi || response.content_length == Some(0) || !settings.ssi_types.has(response) {
        return None;
    }
    // The bodies of other sub-requests are not shown.
    if request.is_subrequest() && request.whole().is_none() {
        return None;
    }
    // As nginx: until there is something of a page to show, it may still end without a response.
    response.delays_head = true;
    // Its parts may come from other servers.
    response.ends_with_client();
    if !request.is_subrequest() {
        response.content_length = None;
        response.refuse_ranges();
        body_filter::forget_version(response, settings.ssi_last_modified);
    }
    let whole = include::whole_of(request, response);
    let shared = Rc::clone(&whole);
    let head = Box::new(response.with_body(Body::Empty));
    let (is_silent, value_max) = (settings.ssi_silent_errors, settings.ssi_value_length.0);
    steps.push(move |request, body| {
        date::share_format(request);
        let page = Page::new(
            request.page_stand_in(Rc::clone(&whole), head),
            whole,
            is_silent,
        );
        let value_max = usize::try_from(value_max).unwrap_or(usize::MAX);
        Body::Stream(Box::new(Composed::new(request, page, body, value_max)))
    });
    Some(shared)
}
