//! `sticky`: all requests of a session go to one server, by a cookie of ours, by a route in the request, or by what is
//! learned from the servers' answers.
//!
//! Not here: which peer is chosen (`Turn` asks for the bound one). Invariant: a session is bound by a
//! [`super::Peer::sid`], never by an address.

mod sessions;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use config::{Directive, Error, Problem, Scope, Template, VariableIndex, Word, parse_sec};
use logs::template::{self, Variables};
use message::date;

use sessions::Sessions;

/// `expires=max`, as nginx writes it.
const EXPIRES_MAX: &[u8] = b"; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000";
/// Minimum size of a zone: 8 pages.
pub(super) const ZONE_BYTES_MIN: u64 = 8 * 4096;
/// Maximum time that a session is remembered without a request.
const TIMEOUT_MS: u64 = 600_000;

/// A `sticky` line.
#[derive(Clone, Debug)]
pub struct Sticky {
    /// The first of these that has a value gives the session.
    lookup: Vec<VariableIndex>,
    kind: StickyKind,
}

#[derive(Clone, Debug)]
enum StickyKind {
    StickyCookie(Box<StickyCookie>),
    Route,
    Learn(Learn),
}

#[derive(Clone, Debug)]
struct StickyCookie {
    name: Bytes,
    domain: Option<Template>,
    path: Option<Bytes>,
    expires: Option<CookieExpires>,
    is_http_only: bool,
    is_secure: bool,
    samesite: Option<Template>,
}

#[derive(Clone, Copy, Debug)]
enum CookieExpires {
    Max,
    Seconds(u64),
}

#[derive(Clone, Debug)]
struct Learn {
    /// The first of these that has a value gives a session to be remembered.
    create: Vec<VariableIndex>,
    timeout_ms: u64,
    /// Whether this is done when the response's head has arrived (`header`), not at its end.
    is_early: bool,
    zone: SessionZone,
}

/// The zone of `learn`, and its content.
#[derive(Clone, Debug)]
struct SessionZone {
    name: Bytes,
    size: u64,
    sessions: OnceLock<Arc<Sessions>>,
}

impl SessionZone {
    fn sessions(&self) -> &Arc<Sessions> {
        self.sessions
            .get_or_init(|| Arc::new(Sessions::new(self.size)))
    }
}

/// The session of a request.
#[derive(Clone, Debug, Default)]
pub struct StickySession {
    /// The request's own value; empty: it has none.
    id: Bytes,
    /// The server that it is bound to; empty: none.
    pub sid: Bytes,
}

/// A response's session, to be remembered.
#[derive(Clone, Debug)]
pub struct Lesson {
    sessions: Arc<Sessions>,
    timeout_ms: u64,
    is_early: bool,
    id: Bytes,
    is_new: bool,
    sid: Bytes,
}

impl Sticky {
    /// Reads a line.
    ///
    /// # Errors
    /// The first error, in nginx's words.
    pub fn read(line: &Directive, scope: &mut Scope) -> Result<Sticky, Error> {
        let (kind, rest) = line.args.split_first().expect("the table asks for two");
        let read = match &kind.bytes()[..] {
            b"cookie" => cookie(rest, scope),
            b"route" => route(rest, scope),
            b"learn" => learn(rest, scope),
            _ => Err(unknown(kind).at(0)),
        };
        read.map_err(|problem| line.error(&problem))
    }

    /// The session of a request.
    #[must_use]
    pub fn session(&self, request: &impl Variables) -> StickySession {
        let Some(id) = first_of(&self.lookup, request) else {
            return StickySession::default();
        };
        let sid = match &self.kind {
            StickyKind::StickyCookie(_) | StickyKind::Route => id.clone(),
            StickyKind::Learn(learn) => {
                let now_ms = wire::loop_clock::monotonic_ms();
                let found = learn.zone.sessions().find(&id, learn.timeout_ms, now_ms);
                found.map_or_else(Bytes::new, Bytes::from)
            }
        };
        StickySession { id, sid }
    }

    /// The `Set-StickyCookie` that binds the session to the server `sid`; none with `route` and `learn`.
    #[must_use]
    pub fn set_cookie(&self, request: &impl Variables, sid: &[u8]) -> Option<Bytes> {
        match &self.kind {
            StickyKind::StickyCookie(cookie) => Some(cookie.write(request, sid).into()),
            StickyKind::Route | StickyKind::Learn(_) => None,
        }
    }

    /// The session to be remembered: with `learn`, when the response or the request gives one.
    #[must_use]
    pub fn lesson(
        &self,
        request: &impl Variables,
        session: &StickySession,
        sid: &Bytes,
    ) -> Option<Lesson> {
        let StickyKind::Learn(learn) = &self.kind else {
            return None;
        };
        let new = first_of(&learn.create, request);
        let is_new = new.is_some();
        let id = new.unwrap_or_else(|| session.id.clone());
        (!id.is_empty()).then(|| Lesson {
            sessions: Arc::clone(learn.zone.sessions()),
            timeout_ms: learn.timeout_ms,
            is_early: learn.is_early,
            id,
            is_new,
            sid: sid.clone(),
        })
    }

    /// Takes over the sessions of the previous configuration, where the zone is the same.
    pub(super) fn follow(&self, former: &Sticky) {
        if let (StickyKind::Learn(own), StickyKind::Learn(theirs)) = (&self.kind, &former.kind)
            && own.zone.name == theirs.zone.name
            && own.zone.size == theirs.zone.size
        {
            let _ = own.zone.sessions.set(Arc::clone(theirs.zone.sessions())); // in use already
        }
    }

    /// Name and size of the zone of `learn`.
    pub(super) fn zone(&self) -> Option<(&[u8], u64)> {
        match &self.kind {
            StickyKind::Learn(learn) => Some((&learn.zone.name, learn.zone.size)),
            StickyKind::StickyCookie(_) | StickyKind::Route => None,
        }
    }
}

impl Lesson {
    /// Whether it is to be remembered at once, not at the response's end.
    #[must_use]
    pub fn is_early(&self) -> bool {
        self.is_early
    }

    /// Remembers the session.
    pub fn learn(&self) {
        let now_ms = wire::loop_clock::monotonic_ms();
        self.sessions
            .learn(&self.id, &self.sid, self.is_new, self.timeout_ms, now_ms);
    }
}

impl StickyCookie {
    fn write(&self, request: &impl Variables, sid: &[u8]) -> Vec<u8> {
        let mut out = [&self.name[..], b"=", sid].concat();
        match self.expires {
            None => {}
            Some(CookieExpires::Max) => out.extend_from_slice(EXPIRES_MAX),
            Some(CookieExpires::Seconds(seconds)) => {
                let now = wire::loop_clock::unix_seconds();
                let seconds_i64 = i64::try_from(seconds).unwrap_or(i64::MAX / 2);
                out.extend_from_slice(b"; expires=");
                append_cookie_time(&mut out, now.saturating_add(seconds_i64));
                out.extend_from_slice(b"; max-age=");
                out.extend_from_slice(itoa::Buffer::new().format(seconds).as_bytes());
            }
        }
        let value = |template: &Template| template::expand(template, request);
        let domain = self.domain.as_ref().map(value).unwrap_or_default();
        if !domain.is_empty() {
            out.extend_from_slice(b"; domain=");
            out.extend_from_slice(&domain);
        }
        if self.is_http_only {
            out.extend_from_slice(b"; httponly");
        }
        if self.is_secure {
            out.extend_from_slice(b"; secure");
        }
        let samesite = self.samesite.as_ref().map(value).unwrap_or_default();
        if !samesite.is_empty() {
            out.extend_from_slice(b"; samesite=");
            let is_known = is_samesite(&samesite);
            out.extend_from_slice(if is_known { &samesite } else { b"strict" });
        }
        if let Some(path) = &self.path {
            out.extend_from_slice(b"; path=");
            out.extend_from_slice(path);
        }
        out
    }
}

/// `Sun, 06-Nov-94 08:49:37 GMT`: with a two-digit year up to 2037, as nginx writes it for old browsers.
fn append_cookie_time(out: &mut Vec<u8>, time: i64) {
    const YEAR_2038: i64 = 2_145_916_800;
    let text = date::format(time);
    out.extend_from_slice(&text[..7]);
    out.push(b'-');
    out.extend_from_slice(&text[8..11]);
    out.push(b'-');
    let year = if time < YEAR_2038 { 14 } else { 12 };
    out.extend_from_slice(&text[year..]);
}

fn is_samesite(value: &[u8]) -> bool {
    let known: [&[u8]; 3] = [b"strict", b"lax", b"none"];
    known.iter().any(|one| one.eq_ignore_ascii_case(value))
}

fn first_of(variables: &[VariableIndex], request: &impl Variables) -> Option<Bytes> {
    variables.iter().find_map(|variable| {
        let mut value = Vec::new();
        let is_found = request.variable(*variable, &mut value);
        (is_found && !value.is_empty()).then(|| value.into())
    })
}

fn unknown(word: &Word) -> Problem {
    Problem::new(format!("unknown parameter \"{}\"", word.display()))
}

fn route(words: &[Word], scope: &mut Scope) -> Result<Sticky, Problem> {
    let mut lookup = Vec::new();
    for (number, word) in words.iter().enumerate() {
        let variable = variable(word, word.bytes(), scope)?.ok_or_else(|| {
            let sentence = format!("invalid variable name \"{}\"", word.display());
            Problem::new(sentence).at(number + 1)
        })?;
        lookup.push(variable);
    }
    Ok(Sticky {
        lookup,
        kind: StickyKind::Route,
    })
}

/// The variable that a text with a `$` names; none without it.
fn variable(word: &Word, text: &[u8], scope: &mut Scope) -> Result<Option<VariableIndex>, Problem> {
    let Some(name) = text.strip_prefix(b"$") else {
        return Ok(None);
    };
    let name = String::from_utf8_lossy(name);
    scope.intern(&name, Some(&word.place())).map(Some)
}

fn cookie(words: &[Word], scope: &mut Scope) -> Result<Sticky, Problem> {
    let (name, rest) = words.split_first().expect("the table asks for two");
    if name.bytes().is_empty() {
        return Err(Problem::directive("empty cookie name"));
    }
    let mut cookie = StickyCookie {
        name: name.bytes().clone(),
        domain: None,
        path: None,
        expires: None,
        is_http_only: false,
        is_secure: false,
        samesite: None,
    };
    for (number, word) in rest.iter().enumerate() {
        let read = cookie.parameter(word, scope);
        read.map_err(|problem| problem.at(number + 2))?;
    }
    let variable = format!("cookie_{}", name.display());
    let lookup = vec![scope.intern(&variable, Some(&name.place()))?];
    Ok(Sticky {
        lookup,
        kind: StickyKind::StickyCookie(Box::new(cookie)),
    })
}

impl StickyCookie {
    fn parameter(&mut self, word: &Word, scope: &mut Scope) -> Result<(), Problem> {
        let text = word.bytes();
        let value = |name: &str| {
            let is_it = text.starts_with(name.as_bytes());
            is_it.then(|| text.slice(name.len()..))
        };
        if let Some(domain) = value("domain=") {
            once("domain", self.domain.is_some())?;
            let domain = not_empty("domain", domain)?;
            self.domain = Some(Template::parse(&domain, &word.place(), scope)?);
        } else if let Some(path) = value("path=") {
            once("path", self.path.is_some())?;
            self.path = Some(not_empty("path", path)?);
        } else if let Some(expires) = value("expires=") {
            once("expires", self.expires.is_some())?;
            self.expires = Some(match &expires[..] {
                b"max" => CookieExpires::Max,
                time => CookieExpires::Seconds(
                    parse_sec(time)
                        .ok_or_else(|| Problem::directive("invalid \"expires\" parameter value"))?,
                ),
            });
        } else if *word == "httponly" {
            once("httponly", std::mem::replace(&mut self.is_http_only, true))?;
        } else if *word == "secure" {
            once("secure", std::mem::replace(&mut self.is_secure, true))?;
        } else if let Some(samesite) = value("samesite=") {
            once("samesite", self.samesite.is_some())?;
            let template = Template::parse(&samesite, &word.place(), scope)?;
            if template.literal().is_some_and(|text| !is_samesite(text)) {
                return Err(Problem::directive("invalid \"samesite\" parameter value"));
            }
            self.samesite = Some(template);
        } else {
            return Err(unknown(word));
        }
        Ok(())
    }
}

fn once(name: &str, is_repeated: bool) -> Result<(), Problem> {
    match is_repeated {
        true => Err(Problem::directive(format!(
            "parameter \"{name}\" is duplicate"
        ))),
        false => Ok(()),
    }
}

fn not_empty(name: &str, value: Bytes) -> Result<Bytes, Problem> {
    match value.is_empty() {
        true => Err(Problem::directive(format!("no value for \"{name}\""))),
        false => Ok(value),
    }
}

/// The arguments of a `sticky learn` that have been read.
#[derive(Default)]
struct Learning {
    lookup: Vec<VariableIndex>,
    create: Vec<VariableIndex>,
    timeout_ms: Option<u64>,
    is_early: bool,
    zone: Option<SessionZone>,
}

fn learn(words: &[Word], scope: &mut Scope) -> Result<Sticky, Problem> {
    let mut learning = Learning::default();
    for (number, word) in words.iter().enumerate() {
        let read = learning.parameter(word, scope);
        read.map_err(|problem| problem.at(number + 1))?;
    }
    let missing = |name: &str| Problem::directive(format!("\"{name}\" parameter is not specified"));
    if learning.lookup.is_empty() {
        return Err(missing("lookup"));
    }
    if learning.create.is_empty() {
        return Err(missing("create"));
    }
    Ok(Sticky {
        lookup: learning.lookup,
        kind: StickyKind::Learn(Learn {
            create: learning.create,
            timeout_ms: learning.timeout_ms.unwrap_or(TIMEOUT_MS),
            is_early: learning.is_early,
            zone: learning.zone.ok_or_else(|| missing("zone"))?,
        }),
    })
}

impl Learning {
    fn parameter(&mut self, word: &Word, scope: &mut Scope) -> Result<(), Problem> {
        let text = word.bytes();
        let missing = |name: &str| {
            Problem::directive(format!("missing variable in the \"{name}\" parameter"))
        };
        if let Some(zone) = text.strip_prefix(b"zone=") {
            if self.zone.is_some() {
                return Err(Problem::directive("duplicate zone"));
            }
            self.zone = Some(sessions_in(zone)?);
        } else if let Some(time) = text.strip_prefix(b"timeout=") {
            if self.timeout_ms.is_some() {
                return Err(Problem::directive("duplicate timeout"));
            }
            let parsed = config::parse_msec(time).filter(|time| *time > 0);
            let timeout_ms = parsed.ok_or_else(|| Problem::directive("invalid timeout"))?;
            self.timeout_ms = Some(timeout_ms);
        } else if let Some(name) = text.strip_prefix(b"create=") {
            let variable = variable(word, name, scope)?;
            self.create.push(variable.ok_or_else(|| missing("create"))?);
        } else if let Some(name) = text.strip_prefix(b"lookup=") {
            let variable = variable(word, name, scope)?;
            self.lookup.push(variable.ok_or_else(|| missing("lookup"))?);
        } else if *word == "header" {
            self.is_early = true;
        } else {
            return Err(unknown(word));
        }
        Ok(())
    }
}

fn sessions_in(zone: &[u8]) -> Result<SessionZone, Problem> {
    let Some(colon) = memchr::memchr(b':', zone) else {
        return Err(Problem::directive("zone size is not specified"));
    };
    let (name, size) = (&zone[..colon], &zone[colon + 1..]);
    if name.is_empty() {
        return Err(Problem::directive("zone name is not specified"));
    }
    match config::parse_size(size) {
        None => Err(Problem::directive("invalid zone size")),
        Some(size) if size < ZONE_BYTES_MIN => Err(Problem::directive("zone is too small")),
        Some(size) => Ok(SessionZone {
            name: Bytes::copy_from_slice(name),
            size,
            sessions: OnceLock::new(),
        }),
    }
}
