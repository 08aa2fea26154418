//! The upstream servers that a request was passed on to, and how each attempt went; the head of the last response:
//! for the variables and the logs.
//!
//! Shared by the request and by the exchange, which may outlive it (a cache's fill). Invariant: all of it stays on one
//! loop.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use bytes::Bytes;
use message::{Header, HeaderId, ResponseHead};

use crate::settings::header_set::SINGLE_LINES;
use crate::settings::url::Url;
use crate::state::cache_state::CacheState;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::request::state::State;
use upstream::attempts::Attempts;
use upstream::sticky::{Lesson, StickySession};
use upstream::{Peer, Upstream};

/// A request's record of its upstream exchanges.
#[derive(Debug, Default)]
pub struct UpstreamState {
    /// `$proxy_host`.
    pub host: RefCell<Bytes>,
    /// `$proxy_port`.
    pub port: RefCell<Bytes>,
    /// Whether the servers are asked over TLS.
    pub has_tls: Cell<bool>,
    /// The head of the last answer (`$upstream_http_…`).
    pub head: RefCell<Option<Arc<ResponseHead>>>,
    /// Attempt after attempt.
    pub tries: RefCell<Attempts>,
    /// The server whose response has `X-Accel-Redirect`, as the log names it.
    pub redirected_by: RefCell<Option<Vec<u8>>>,
    /// The trailers of the last response (`$upstream_trailer_…`).
    pub trailers: RefCell<Vec<Header>>,
    /// The server that was asked last, with sticky sessions.
    pub binding: RefCell<Option<Box<StickyBinding>>>,
    /// Whether the location that asked ignores `X-Accel-Charset`, wherever the response led to.
    pub ignores_charset: Cell<bool>,
    /// The session to be remembered when the response has ended.
    pub lesson: RefCell<Option<Box<Lesson>>>,
}

/// A session and the server that it is bound to now (`sticky`).
#[derive(Debug)]
pub struct StickyBinding {
    /// The group.
    pub upstream: Arc<Upstream>,
    /// The request's session.
    pub session: StickySession,
    /// The server.
    pub sid: Bytes,
    /// Called when the response has ended.
    pub is_over: bool,
}

impl State for UpstreamState {
    /// The upstream is not known any more.
    fn survives_redirect(&self) -> bool {
        self.host.take();
        self.port.take();
        true
    }

    fn is_for_stand_in(&self) -> bool {
        true
    }

    fn is_of_upstream(&self) -> bool {
        true
    }
}

/// The request's record, begun now where there is none.
pub(crate) fn of(request: &mut Request) -> &UpstreamState {
    request.charset_hint = Some(hinted_charset);
    request.states.get_or_default()
}

/// `X-Accel-Charset`: the charset that the last response names; `None`: none. Asked for every response.
fn hinted_charset(request: &Request) -> Option<Bytes> {
    let mut told = None;
    read_last_head(request, |head| {
        told = head
            .get_each(HeaderId::XAccelCharset)
            .last()
            .map(Bytes::copy_from_slice);
        told.is_some()
    });
    let name = told.filter(|name| !name.is_empty())?;
    let state = request.states.get::<UpstreamState>()?;
    (!state.ignores_charset.get()).then_some(name)
}

/// Forgets the answer that sent the request here: what follows is about another one, from a server or a cache.
pub(crate) fn forget_answer(request: &Request) {
    if let Some(state) = request.states.get::<UpstreamState>() {
        state.head.take();
        state.trailers.take();
    }
}

/// Begins with another upstream. The attempts before are shown as they are until [`separate`].
pub(crate) fn begin(request: &mut Request, url: &Url) {
    let state = begin_without_url(request);
    *state.host.borrow_mut() = url.host_header.clone();
    *state.port.borrow_mut() = url.port_text.clone();
    state.has_tls.set(url.has_tls);
}

/// The same for a server that has no URL.
pub(crate) fn begin_without_url(request: &mut Request) -> &UpstreamState {
    let state = of(request);
    state.head.take();
    state.host.take();
    state.port.take();
    state.has_tls.set(false);
    state
}

/// Separates the attempts: if the request was passed on before, the next ones follow a colon. Once the upstream request
/// is made, whose parts may show those before.
pub(crate) fn separate(request: &mut Request) {
    of(request).tries.borrow_mut().redirect();
}

/// Reads the head of the last response, from a server or the cache; false: there is none.
pub(crate) fn read_last_head(request: &Request, read: impl FnOnce(&ResponseHead) -> bool) -> bool {
    if let Some(state) = request.states.get::<UpstreamState>()
        && let Some(head) = &*state.head.borrow()
    {
        return read(head);
    }
    let state = request.states.get::<CacheState>();
    let stored = state.and_then(|state| state.entry.as_ref());
    stored.is_some_and(|entry| read(entry.head()))
}

/// The lines of a name in the head of the last response, joined where more than the first one counts.
pub(crate) fn last_head_lines(
    request: &Request,
    is_name: impl Fn(&[u8]) -> bool,
    out: &mut Vec<u8>,
) -> bool {
    read_last_head(request, |head| {
        let mut lines = head.iter().filter(|(name, ..)| is_name(name)).peekable();
        let most = match lines.peek() {
            Some((_, _, id)) if id.bit() & SINGLE_LINES != 0 => 1,
            _ => usize::MAX,
        };
        join(lines.take(most).map(|(_, value, _)| value), out)
    })
}

/// Appends values with a comma between each two; false: there are none.
pub(crate) fn join<'a>(values: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) -> bool {
    let mut is_found = false;
    for value in values {
        if is_found {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value);
        is_found = true;
    }
    is_found
}

/// A failure also carries the cookie of the server that was asked last (`sticky`).
pub(crate) fn bound(request: &Request, mut outcome: Outcome) -> Outcome {
    if let Outcome::Failed(failure) = &mut outcome
        && let Some(state) = request.states.get::<UpstreamState>()
        && let Some(binding) = state.binding.take()
        && let Some(cookie) = binding.cookie(request)
    {
        failure.headers.push(Header::new("Set-Cookie", cookie));
    }
    outcome
}

impl UpstreamState {
    /// Binds a session to this peer, for now.
    pub fn bind(&self, upstream: &Arc<Upstream>, session: &StickySession, peer: &Peer) {
        *self.binding.borrow_mut() = Some(Box::new(StickyBinding {
            upstream: Arc::clone(upstream),
            session: session.clone(),
            sid: Bytes::copy_from_slice(&peer.sid),
            is_over: false,
        }));
    }

    /// The cookie of the server that has answered (`sticky`); its session is remembered, now or at the end.
    pub fn take_bound(&self, request: &Request) -> Option<Bytes> {
        let binding = self.binding.take()?;
        let cookie = binding.cookie(request);
        binding.learn(request, self);
        cookie
    }

    /// The last response's body is not passed on: none of it counts, however much has arrived.
    pub fn forget_body(&self) {
        if let Some(one) = self.tries.borrow_mut().last() {
            one.response_length = 0;
        }
    }

    /// Called when the response has ended: its session is remembered.
    pub fn end(&self) {
        if let Some(lesson) = self.lesson.take() {
            lesson.learn();
        }
        if let Some(binding) = &mut *self.binding.borrow_mut() {
            binding.is_over = true;
        }
    }
}

impl StickyBinding {
    /// The `Set-Cookie` of an answer.
    #[must_use]
    pub fn cookie(&self, request: &Request) -> Option<Bytes> {
        self.upstream.sticky()?.set_cookie(request, &self.sid)
    }

    /// Called when the request knows a response's head: its session is remembered, now or at the end.
    pub fn learn(&self, request: &Request, state: &UpstreamState) {
        let Some(sticky) = self.upstream.sticky() else {
            return;
        };
        match sticky.lesson(request, &self.session, &self.sid) {
            Some(lesson) if lesson.is_early() || self.is_over => lesson.learn(),
            lesson => *state.lesson.borrow_mut() = lesson.map(Box::new),
        }
    }
}
