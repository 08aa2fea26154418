//! A request on its way: what came in, how far it is, and what is known of its response.
//!
//! Owns everything that a step needs; what is shared (settings, the connection) is held by `Rc`s of its loop. Not here:
//! the steps themselves. Invariant: `server` and `location` are always valid in `settings`.

pub mod body;
mod covered;
mod error_log;
mod matches;
pub mod memo;
mod parent;
pub mod state;
pub mod successor;
pub mod whole;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use config::VariableIndex;
use disk::Pool;
use logs::Level;
use message::{HeaderId, Method, RequestHead};
use runtime::timing::poll_timing;
use tokio::sync::oneshot;

use crate::client::Client;
use crate::http_loop::generation::Generation;
use crate::outcome::Target;
use crate::regex::{Regex, Spans};
use crate::route::{LocationId, ServerId};
use crate::settings::{Location, Server, Settings};
use crate::transport::{Transport, Tunnel};
use crate::{Failure, Response};
use body::Arriving;
use memo::Remembered;
use parent::Parent;
use state::States;

/// Internal redirects of one request (rewrite, try_files, error_page, index), as nginx.
pub const URI_CHANGES_MAX: u8 = 10;

/// How a request entered the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// From the client.
    Fresh,
    /// With another URI.
    Redirected,
    /// At a named location, which is set already.
    Named,
    /// At a named location that does not exist.
    Lost,
}

/// The origin of a request's current URI and arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UriOrigin {
    /// The client's own: it may be passed on as it came.
    Client,
    /// Changed on the way.
    Changed,
    /// Rewritten, and a `break` kept it from the search for its location: the location's name is no part of it, as `alias`
    /// and the URI of `proxy_pass` need.
    Kept,
}

impl UriOrigin {
    /// The same after another change.
    #[must_use]
    pub const fn changed(self) -> Self {
        match self {
            Self::Client | Self::Changed => Self::Changed,
            Self::Kept => Self::Kept,
        }
    }

    /// Whether the location is that of the URI.
    #[must_use]
    pub const fn is_of_location(self) -> bool {
        !matches!(self, Self::Kept)
    }
}

/// The groups of the last regex that matched and had groups.
#[derive(Debug, Clone, Default)]
pub struct Captures {
    subject: Bytes,
    spans: Spans,
}

/// Counters of what was sent, for logs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of head and body on the wire.
    pub bytes: u64,
    /// Of these, the head, with what came before it.
    pub head_bytes: u64,
    /// Of these, `100 Continue`.
    invitation_bytes: u64,
}

/// One request.
pub struct Request {
    /// The client that sent it.
    pub client: Rc<Client>,
    /// What it came on, and its response goes out on.
    pub transport: Transport,
    /// Its number on its connection, from 1.
    pub number: u64,
    /// The settings that it began with, and this loop's state for them.
    pub generation: Rc<Generation>,
    /// Upper bound of its arrival (CLOCK_MONOTONIC, ns). A file that was checked after this need not be checked again
    /// for it.
    pub moment: u64,
    /// The head as read.
    pub head: Box<RequestHead>,
    /// The method; error pages turn it into GET.
    pub method: Method,
    /// The current URI, decoded and normalised.
    pub uri: Bytes,
    /// The current arguments, raw; logs tell empty ones from none ([`Request::args`] does not).
    pub args: Option<Bytes>,
    /// The server chosen for it.
    pub server: ServerId,
    /// The location chosen, at first the server's own.
    pub location: LocationId,
    /// Whether an internal redirect led here: `internal` locations open.
    pub is_internal: bool,
    /// The current URI as compared with the client's own, and with the location's.
    pub uri_origin: UriOrigin,
    /// Whether it has reached the point where its location passes it on, so that the upstream is known.
    pub is_passed_on: bool,
    /// The `status_zone` of the first location that has left it to another one, of those that have one.
    pub first_zone: Option<usize>,
    /// State of modules.
    pub states: States,
    /// The bytes after a response that are not HTTP.
    pub tunnel: Option<Box<dyn Tunnel>>,
    /// Reads the charset that the response's origin names, which may have led the request elsewhere.
    pub charset_hint: Option<fn(&Self) -> Option<Bytes>>,
    /// Adds the trailers that are evaluated when the body has been sent.
    pub late_trailers: Option<fn(&mut Self)>,
    /// Whether `try_files` found a file below an `alias` in a regex location.
    pub add_uri_to_alias: bool,
    /// Status that replaces the response's own, whatever made the response.
    pub error_status: Option<u16>,
    /// The redirect that `return` last answered it with: `$status` where an error page replaced the response and its
    /// status, and the redirect that a malformed body replaces.
    pub returned: Cell<Option<u16>>,
    /// `$limit_rate` in bytes per second, when it was set.
    pub limit_rate: Cell<Option<u64>>,
    /// Background work that the close of its connection waits for: nothing is ever sent here, and the sender is dropped
    /// when the work has ended.
    pub work_behind: Option<oneshot::Receiver<()>>,
    /// A failure whose header lines go into the page that is shown in its place.
    covered: Option<Box<Failure>>,
    /// Whether an error page was taken already (without `recursive_error_pages` there is one only).
    pub error_page_taken: bool,
    /// How often rewriting or an internal redirect changed its URI or its location.
    uri_changes: u8,
    /// The head's length on the wire.
    head_length: u64,
    /// Its body, as it arrives.
    pub body: Arriving,
    /// Whether all of the response was handed to the kernel.
    pub is_complete: bool,
    /// Whether its log lines are being written: an error now happens "while logging request".
    pub is_logging: Cell<bool>,
    /// Status shown in logs when the connection was closed without a response.
    pub silent_status: Option<u16>,
    /// The response's head, once it is known.
    pub response: Option<Box<Response>>,
    /// Counters of what was sent of the response.
    pub sent: Cell<Sent>,
    /// When the first byte of the response was sent, by [`poll_timing::now_ns`], where the configuration uses it; else
    /// 0.
    pub first_byte: Cell<u64>,
    /// Made on first use.
    request_id: Cell<Option<[u8; 16]>>,
    /// Boxed: most requests have none.
    captures: RefCell<Option<Box<Captures>>>,
    values: Remembered,
    /// The request that this sub-request belongs to.
    parent: Option<Box<Parent>>,
    /// State of modules that it shares with its sub-requests.
    family_states: OnceCell<Rc<States>>,
    /// The thread pool whose name was made from variables.
    pool: OnceCell<Pool>,
    /// Current depth of variables that are made from variables.
    pub(crate) depth: Cell<u32>,
    /// Whether the variable that is being made turned out to be made of itself.
    pub(crate) is_cycle: Cell<bool>,
}

impl Request {
    /// A request with its head as read, at the default server of its address. Boxed: it is large, and handed on.
    #[must_use]
    pub fn new(
        transport: Transport,
        client: Rc<Client>,
        generation: Rc<Generation>,
        head: Box<RequestHead>,
        server: ServerId,
    ) -> Box<Self> {
        let moment = match poll_timing::moment() {
            woken if woken > 0 && transport.is_prompt() => woken,
            _ => poll_timing::now_ns(),
        };
        Self::arrived(transport, client, generation, head, server, moment)
    }

    /// The same, for a request that had arrived by `moment` (CLOCK_MONOTONIC, ns), with others perhaps.
    #[must_use]
    pub fn arrived(
        transport: Transport,
        client: Rc<Client>,
        generation: Rc<Generation>,
        head: Box<RequestHead>,
        server: ServerId,
        moment: u64,
    ) -> Box<Self> {
        let body = Arriving::default();
        Self::begin(transport, client, generation, head, server, body, moment)
    }

    fn begin(
        transport: Transport,
        client: Rc<Client>,
        generation: Rc<Generation>,
        head: Box<RequestHead>,
        server: ServerId,
        body: Arriving,
        moment: u64,
    ) -> Box<Self> {
        let uri = bytes_of(&head, head.uri());
        let args = Some(bytes_of(&head, head.args())).filter(|args| !args.is_empty());
        let location = generation.settings.server(server).location;
        let head_length = u64::from(head.length);
        // Built in place: the box comes first.
        let place = Box::new_uninit();
        let new = Self {
            number: client.requests.get(),
            client,
            transport,
            generation,
            moment,
            method: head.method,
            uri,
            args,
            server,
            location,
            is_internal: false,
            uri_origin: UriOrigin::Client,
            states: States::default(),
            tunnel: None,
            charset_hint: None,
            late_trailers: None,
            is_passed_on: false,
            first_zone: None,
            add_uri_to_alias: false,
            error_status: None,
            returned: Cell::new(None),
            limit_rate: Cell::new(None),
            work_behind: None,
            covered: None,
            error_page_taken: false,
            uri_changes: 0,
            head_length,
            body,
            is_complete: false,
            is_logging: Cell::new(false),
            silent_status: None,
            response: None,
            sent: Cell::new(Sent::default()),
            first_byte: Cell::new(0),
            request_id: Cell::new(None),
            captures: RefCell::default(),
            values: Remembered::default(),
            parent: None,
            family_states: OnceCell::new(),
            pool: OnceCell::new(),
            depth: Cell::new(0),
            is_cycle: Cell::new(false),
            head,
        };
        Box::write(place, new)
    }

    /// The status of its response, as far as it is known; else 0.
    #[must_use]
    pub fn status(&self) -> u16 {
        match (self.silent_status, &self.response) {
            (Some(status), _) => status,
            (None, Some(response)) => response.status,
            (None, None) => self.error_status.or(self.returned.get()).unwrap_or(0),
        }
    }

    /// Milliseconds since it arrived.
    #[must_use]
    pub fn elapsed_ms(&self) -> u64 {
        poll_timing::now_ns().saturating_sub(self.moment) / 1_000_000
    }

    /// Its length on the wire: the head, and what was read of the body for it.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.head_length + self.transport.body_bytes()
    }

    /// The settings that it runs under.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.generation.settings
    }

    /// The server chosen for it.
    #[must_use]
    pub fn server(&self) -> &Server {
        self.settings().server(self.server)
    }

    /// The location chosen for it.
    #[must_use]
    pub fn location(&self) -> &Location {
        self.settings().location(self.location)
    }

    /// Enters a location, or its `limit_except` block if that applies to the method. The connection's settings are the
    /// location's from here on.
    pub fn enter(&mut self, location: LocationId) {
        self.location = match self.settings().location(location).exception {
            Some(exception) if !exception.allowed.contains(self.method) => exception.location,
            _ => location,
        };
        if self.transport.is_persistent() && !self.may_keep_alive() {
            self.transport.close_after_response();
        }
    }

    fn may_keep_alive(&self) -> bool {
        let keepalive = &self.location().settings.keepalive;
        let agent = || self.head.get(HeaderId::UserAgent).unwrap_or_default();
        keepalive.keepalive_timeout.timeout_ms != 0
            && self.number < keepalive.keepalive_requests.0
            && self.client.age_ms() <= keepalive.keepalive_time.0
            && !keepalive.keepalive_disable.include(self.method, agent)
            && !self.client.is_removed()
    }

    /// The current arguments, raw; empty if there are none.
    #[must_use]
    pub fn args(&self) -> &[u8] {
        self.args.as_deref().unwrap_or_default()
    }

    /// Follows an internal redirect.
    pub fn redirect(&mut self, target: Target) -> Arrival {
        self.is_internal = true;
        self.forget_states();
        self.is_passed_on = false;
        let zone = self.location().zone;
        self.first_zone = self
            .first_zone
            .or_else(|| zone.filter(|_| self.location != self.server().location));
        match target {
            Target::Uri(uri, args) => {
                self.uri = uri;
                let has_args = self.args.is_some() || !args.is_empty();
                self.args = has_args.then_some(args);
                self.uri_origin = UriOrigin::Changed;
                self.add_uri_to_alias = false;
                let own = self.server().location;
                self.enter(own);
                Arrival::Redirected
            }
            Target::Named(name) => match self.server().named(&name) {
                _ if self.uri.is_empty() => {
                    self.lose("empty URI in redirect to named location", &name)
                }
                Some(location) => {
                    self.enter(location);
                    Arrival::Named
                }
                None => self.lose("could not find named location", &name),
            },
        }
    }

    /// Logs that no location is entered.
    fn lose(&self, text: &str, name: &[u8]) -> Arrival {
        self.log(Level::Error, &|out| {
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b" \"");
            out.extend_from_slice(name);
            out.push(b'"');
        });
        Arrival::Lost
    }

    /// Counts a change of the URI, or of the location by its name. `false`: there were too many, and none is left for
    /// an error page.
    pub fn may_change_uri(&mut self) -> bool {
        if self.uri_changes == URI_CHANGES_MAX {
            self.error_page_taken = true;
            return false;
        }
        self.uri_changes += 1;
        true
    }

    /// Logs that the redirects of the request form a cycle, with this target.
    pub fn log_cycle(&self, target: &Target) {
        let (text, to) = match target {
            Target::Uri(uri, _) => ("internally redirecting to", uri),
            Target::Named(name) => ("redirect to named location", name),
        };
        self.log(Level::Error, &|out| {
            out.extend_from_slice(b"rewrite or internal redirection cycle while ");
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b" \"");
            out.extend_from_slice(to);
            out.push(b'"');
        });
    }

    /// Counts the bytes that the socket took since it had taken `before`; `head_bytes` of them are the head.
    pub fn count(&self, before: u64, head_bytes: u64) {
        let mut sent = self.sent.get();
        let taken = self.transport.sent() - before;
        let is_first = sent.bytes == sent.invitation_bytes;
        if is_first && taken > 0 && self.settings().wants_first_byte {
            self.first_byte.set(poll_timing::now_ns());
        }
        sent.bytes += taken;
        sent.head_bytes += head_bytes.min(taken);
        self.sent.set(sent);
    }

    /// Answers `Expect: 100-continue`, unless that was done, and counts what is sent as a part of the head.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn invite(&mut self, timeout: Duration) -> Result<(), wire::Error> {
        let before = self.transport.sent();
        let invited = self.transport.invite(timeout).await;
        let taken = self.transport.sent() - before;
        let mut sent = self.sent.get();
        sent.bytes += taken;
        sent.head_bytes += taken;
        // They are not the first ones of the response.
        sent.invitation_bytes += taken;
        self.sent.set(sent);
        invited
    }

    /// Counts bytes of the body that the disk layer sent.
    pub fn add_sent(&self, bytes: u64) {
        let mut sent = self.sent.get();
        sent.bytes += bytes;
        self.sent.set(sent);
    }

    /// Keeps the pool that this request uses, for as long as it lives.
    pub fn keep_pool(&self, pool: Pool) -> &Pool {
        self.pool.get_or_init(|| pool)
    }

    /// The media type for the current URI's extension.
    #[must_use]
    pub fn content_type(&self) -> Bytes {
        let types = &self.location().settings.types;
        let extension = message::uri::extension(&self.uri);
        types
            .types
            .get(extension)
            .unwrap_or(&types.default_type)
            .clone()
    }

    /// Whether only a head is to be sent.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.head.method == Method::Head
    }

    /// Sets the captures from a match of `regex` in `subject`: `$1`… and the variables of its named groups.
    pub fn capture(&self, regex: &Regex, subject: &Bytes, spans: Spans) {
        for (group, variable) in &regex.groups {
            let span = spans.get(*group).cloned().flatten();
            let value = span.map_or_else(Bytes::new, |s| {
                subject.slice(s.start as usize..s.end as usize)
            });
            self.remember(*variable, Some(value));
        }
        let has_groups = spans.len() > 1;
        *self.captures.borrow_mut() = has_groups.then(|| {
            Box::new(Captures {
                subject: subject.clone(),
                spans,
            })
        });
    }

    /// Empties `$1` and the others from here on.
    pub fn forget_captures(&self) {
        *self.captures.borrow_mut() = None;
    }

    /// Whether a regular expression with groups led the request here.
    #[must_use]
    pub fn has_captures(&self) -> bool {
        self.captures.borrow().is_some()
    }

    /// A remembered value: `None` when none was remembered, `Some(None)` when the variable is known to be unset.
    #[must_use]
    pub fn remembered(&self, variable: VariableIndex) -> Option<Option<Bytes>> {
        self.values.get(variable)
    }

    /// Remembers a variable's value for the rest of the request.
    pub fn remember(&self, variable: VariableIndex, value: Option<Bytes>) {
        self.values.set(variable, value);
    }

    /// Appends what the group of this number captured.
    pub(crate) fn append_captured(&self, number: u8, out: &mut Vec<u8>) {
        let captures = self.captures.borrow();
        let Some(captures) = &*captures else { return };
        if let Some(Some(span)) = captures.spans.get(usize::from(number)) {
            out.extend_from_slice(&captures.subject[span.start as usize..span.end as usize]);
        }
    }

    /// `$request_id`: the same for the whole request.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.request_id.get().unwrap_or_else(|| {
            let id = self.client.loop_.random_16();
            self.request_id.set(Some(id));
            id
        })
    }
}

/// `part` as a slice of the head where it lies in it, else a copy.
fn bytes_of(head: &RequestHead, part: &[u8]) -> Bytes {
    if head.normal.is_some() && !part.is_empty() && std::ptr::eq(part.as_ptr(), head.uri().as_ptr())
    {
        return Bytes::copy_from_slice(part);
    }
    if part.is_empty() {
        Bytes::new()
    } else {
        head.bytes.slice_ref(part)
    }
}
