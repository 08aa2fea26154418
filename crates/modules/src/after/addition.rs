//! `add_before_body` and `add_after_body`: other answers of the same server before and after a body.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use config::directives;
use disk::OpenFile;
use message::{Body, BodyError, Chunk, Header, Source};

use httpcore::Response;
use httpcore::handler::metrics::ModuleMetrics;
use httpcore::request::Request;
use httpcore::settings::Location;
use httpcore::subrequest;
use httpcore::subrequest::include::{self, Inclusion, Whole};

use super::media_types::MediaTypes;
use httpcore::body_filter::{AnswerBody, Steps};

directives! {
    /// Content before and after a body (addition).
    pub struct Addition in Location {
        /// Inserts the response to this URI before the body of responses with status 200; `""` switches it off.
        add_before_body: Bytes = "\"\"", [HTTP | SERVER | LOCATION] 1, syntax "uri";
        /// Appends the response to this URI to the body of responses with status 200; `""` switches it off.
        add_after_body: Bytes = "\"\"", [HTTP | SERVER | LOCATION] 1, syntax "uri";
        /// Sets the media types of the responses that content is added to, besides `text/html`; `*` means all.
        addition_types: MediaTypes = "text/html", [HTTP | SERVER | LOCATION] 1..;
    }
}

impl Addition {
    /// Whether there is anything to add.
    #[must_use]
    pub fn is_any(&self) -> bool {
        !self.add_before_body.is_empty() || !self.add_after_body.is_empty()
    }
}

/// Whether bodies are added to those of a location.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    location.own::<Addition>().is_any()
}

/// Prepares the head for a body with others around it, if there are to be any. This comes before all other filters:
/// they no longer take an empty page for empty.
pub fn decide(request: &Request, settings: &Addition, response: &mut Response) -> bool {
    if settings.is_any() {
        // The other answers may come from other servers.
        response.ends_with_client();
    }
    let applies = settings.is_any()
        && !request.is_subrequest()
        && response.status == 200
        && settings.addition_types.has(response);
    if applies {
        response.becomes_another();
    }
    applies
}

/// The kind that its sub-requests are counted as.
static SUBREQUESTS: subrequest::Kind = subrequest::Kind::named("addition");

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: &[],
    show: |shown, page| {
        SUBREQUESTS.show(shown, page, is_on);
    },
};

/// Has the other answers put around the client's body, as parts of the same `page` if that is one with commands.
pub fn begin(
    request: &Request,
    settings: &Addition,
    response: &Response,
    page: Option<Rc<Whole>>,
    steps: &mut Steps,
) {
    let uris = [&settings.add_before_body, &settings.add_after_body].map(Bytes::clone);
    let whole = match &page {
        Some(page) => Rc::clone(page),
        None => include::whole_of(request, response),
    };
    steps.push(move |request, body| {
        let [before, after] = uris.map(|uri| part(request, &whole, uri));
        Body::Stream(Box::new(SurroundedBody {
            before,
            page,
            held: None,
            body: Some(body),
            after,
            trailers: Vec::new(),
        }))
    });
}

/// A part, unless there is none or it cannot be requested.
fn part(request: &Request, whole: &Rc<Whole>, uri: Bytes) -> Part {
    if uri.is_empty() {
        return Part::None;
    }
    let inclusion = Inclusion {
        whole: Rc::clone(whole),
        stub: None,
        is_value: false,
    };
    match include::make(request, uri, Bytes::new(), inclusion) {
        Ok(child) => Part::Body(include::body(child, &SUBREQUESTS)),
        Err(_) => Part::Failed,
    }
}

enum Part {
    None,
    /// It cannot be requested.
    Failed,
    Body(AnswerBody),
}

impl Part {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Chunk<Rc<OpenFile>>, BodyError>>> {
        let next = match self {
            Self::None => return Poll::Ready(None),
            Self::Failed => Some(Err(BodyError::Logged)),
            Self::Body(body) => ready!(body.poll_next(cx)),
        };
        if next.is_none() {
            *self = Self::None;
        }
        Poll::Ready(next)
    }
}

/// A body with others around it, sent one after the other.
struct SurroundedBody {
    before: Part,
    /// The page with commands that the body is, until the first of it has been read.
    page: Option<Rc<Whole>>,
    /// Its output that waits for the part before it.
    held: Option<Chunk<Rc<OpenFile>>>,
    body: Option<AnswerBody>,
    after: Part,
    trailers: Vec<Header>,
}

impl SurroundedBody {
    /// Reads the first of the page before the part in front of it is requested, as nginx does: that part knows the
    /// variables that the commands set.
    fn poll_page(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if let (Some(page), Some(body), Part::Body(_)) = (&self.page, &mut self.body, &self.before)
        {
            match body.poll_next(cx) {
                Poll::Pending if !page.is_read.get() => return Poll::Pending,
                Poll::Pending => {}
                Poll::Ready(first) => self.held = first.transpose()?,
            }
        }
        self.page = None;
        Poll::Ready(Ok(()))
    }
}

impl Source<Rc<OpenFile>> for SurroundedBody {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Chunk<Rc<OpenFile>>, BodyError>>> {
        ready!(self.poll_page(cx))?;
        if let Some(next) = ready!(self.before.poll_next(cx)) {
            return Poll::Ready(Some(next));
        }
        if let Some(held) = self.held.take() {
            return Poll::Ready(Some(Ok(held)));
        }
        if let Some(body) = &mut self.body {
            if let Some(next) = ready!(body.poll_next(cx)) {
                return Poll::Ready(Some(next));
            }
            if let Body::Stream(source) = body {
                self.trailers = source.trailers();
            }
            self.body = None;
        }
        self.after.poll_next(cx)
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        match (&mut self.before, &mut self.body, &mut self.after) {
            (Part::Body(body), _, _) | (_, Some(body), _) | (_, None, Part::Body(body)) => {
                body.poll_ahead(cx);
            }
            _ => {}
        }
    }

    fn ranged_file(&self) -> Option<&Rc<OpenFile>> {
        self.body.as_ref().and_then(Body::ranged_file)
    }

    fn takes_request(&self) -> bool {
        self.body.as_ref().is_some_and(Body::takes_request)
    }

    fn trailers(&mut self) -> Vec<Header> {
        std::mem::take(&mut self.trailers)
    }
}
