//! The head of an upstream request, or its equivalent for a gateway.

use std::borrow::Cow;

use bytes::Bytes;
use logs::Level;
use message::escape::Escape;
use message::{Framing, HeaderId, HopByHop};
use wire::http1::request_writer::{self, Outgoing};
use wire::http2::head_writer::{self, OutgoingRequest};

use crate::settings::directives::HttpVersion;
use crate::settings::family::Family;
use crate::settings::params::Params;
use crate::settings::proxy_pass::PassSettings;
use crate::state::upstream_state::UpstreamState;
use crate::upstream_request::destination::Destination;
use crate::upstream_request::gateway_params;
use crate::upstream_request::variation::Variation;
use httpcore::Failure;
use httpcore::request::{Request, UriOrigin};

/// A head that is being written.
pub(crate) struct HeadWriter<'a> {
    pub(crate) request: &'a Request,
    pub(crate) passing: &'a PassSettings,
    pub(crate) to: &'a Destination,
    pub(crate) variation: &'a Variation,
    pub(crate) framing: Framing,
}

impl HeadWriter<'_> {
    /// Appends the head; returns the position of the URI in it, and the method's length.
    pub(crate) fn write(
        &self,
        out: &mut Vec<u8>,
    ) -> Result<(std::ops::Range<usize>, usize), Failure> {
        let request = self.request;
        let (settings, asking) = (&self.passing.groups.proxy, &self.passing.groups.asking);
        let method = self.method();
        let target = self.target();
        if target.is_empty() {
            return Err(self.refuse("zero length URI to proxy"));
        }
        let is_http10 = settings.proxy_http_version == HttpVersion::Http10;
        let outgoing = Outgoing {
            method: &method,
            target: &target,
            is_http10,
            framing: self.framing,
        };
        let host = self.host(is_http10);
        let own = self.own_lines();
        let own = own.iter().map(|(name, value)| (&name[..], &value[..]));
        let host = host.iter().map(|value| (&b"Host"[..], &value[..]));
        let outcome = if asking.proxy_pass_request_headers {
            let hop_by_hop = self.hop_by_hop();
            let replaced = match self.variation.is_cacheable {
                true => &self.passing.replaced_for_cache,
                false => &self.passing.replaced,
            };
            let lines = request.head.iter();
            let passed_on = lines.filter(|(name, _, id)| {
                !replaced.has(name, *id) && !hop_by_hop.contains(name, *id)
            });
            request_writer::head_with(out, &outgoing, host.chain(own), passed_on)
        } else {
            request_writer::head(out, &outgoing, host.chain(own))
        };
        outcome.map_err(|fault| self.refuse(&fault.to_string()))?;
        let start = method.len() + 1;
        Ok((start..start + target.len(), method.len()))
    }

    /// Appends the fields of a request over HTTP/2, encoded, and behind them the URI for logs, which gRPC's do not show.
    /// Returns the URI's position, and whether the method is HEAD.
    pub(crate) fn write_http2(
        &self,
        has_tls: bool,
        out: &mut Vec<u8>,
    ) -> Result<(std::ops::Range<usize>, bool), Failure> {
        let request = self.request;
        let (method, target) = (self.method(), self.target());
        let authority = self.host(false).unwrap_or_default();
        let outgoing = OutgoingRequest {
            method: &method,
            is_https: has_tls,
            authority: &authority,
            path: &target,
            framing: self.framing,
        };
        let replaced = match self.variation.is_cacheable {
            true => &self.passing.replaced_for_cache,
            false => &self.passing.replaced,
        };
        let asking = &self.passing.groups.asking;
        let hop_by_hop = self.hop_by_hop();
        let lines = request.head.iter();
        let lines = lines.filter(|(name, _, id)| {
            asking.proxy_pass_request_headers
                && !replaced.has(name, *id)
                && !hop_by_hop.contains(name, *id)
        });
        let own = self.own_lines();
        let own = own.iter().map(|(name, value)| (&name[..], &value[..]));
        let trailers = self.takes_trailers();
        let trailers = trailers.then_some((&b"te"[..], &b"trailers"[..]));
        let lines = lines.map(|(name, value, _)| (name, value));
        let fields = trailers.into_iter().chain(own).chain(lines);
        let outcome = head_writer::request(out, &outgoing, fields);
        outcome.map_err(|fault| self.refuse(&fault.to_string()))?;
        let end = out.len();
        if self.passing.family == Family::Proxy {
            out.extend_from_slice(&target);
        }
        Ok((end..out.len(), method.eq_ignore_ascii_case(b"HEAD")))
    }

    /// The client's lines that are not for the server. Of a request whose response may be stored none is left out because
    /// `Connection` names it: the key and the variant are made of all lines, and the server has to see what they are made of.
    fn hop_by_hop(&self) -> HopByHop<'_> {
        match self.variation.is_cacheable {
            true => HopByHop::default(),
            false => HopByHop::new(self.request.head.get_each(HeaderId::Connection)),
        }
    }

    /// Whether the client takes trailers, and no line says otherwise to the server.
    fn takes_trailers(&self) -> bool {
        let is_trailers = |token: &[u8]| token.trim_ascii().eq_ignore_ascii_case(b"trailers");
        let mut values = self.request.head.get_each(HeaderId::Te);
        self.passing.family == Family::Grpc
            && !self.passing.sets_te
            && values.any(|value| value.split(|byte| *byte == b',').any(is_trailers))
    }

    /// Appends a gateway's equivalent of a head.
    pub(crate) fn write_params(&self, params: &Params, out: &mut Vec<u8>) -> Result<(), Failure> {
        let outcome =
            gateway_params::write(params, self.request, self.variation, self.framing, out);
        outcome.map_err(|fault| self.refuse_at(fault.level(), &fault.to_string()))
    }

    fn method(&self) -> Cow<'_, [u8]> {
        let settings = &self.passing.groups.proxy;
        if self.variation.as_get {
            return Cow::Borrowed(b"GET");
        }
        match &settings.proxy_method {
            // It is a directive of `proxy_pass`, and stands where other families inherit it, too.
            Some(method) if self.passing.family == Family::Proxy => {
                Cow::Owned(self.request.evaluate(method).into())
            }
            _ => Cow::Borrowed(self.request.method_text()),
        }
    }

    /// `Host`: none only where the configuration removes it and HTTP/1.0 is used.
    fn host(&self, is_http10: bool) -> Option<Bytes> {
        let usual = || {
            let state = self.request.states.get::<UpstreamState>();
            state.map_or_else(Bytes::new, |state| state.host.borrow().clone())
        };
        let host = match &self.passing.host {
            None => usual(),
            Some(set) => match self.request.evaluate(set) {
                empty if empty.is_empty() && !is_http10 => usual(),
                host => host,
            },
        };
        (!host.is_empty()).then_some(host)
    }

    /// The header lines that the configuration sets, even to nothing, and those of a cache that it does not set.
    fn own_lines(&self) -> Vec<(Bytes, Bytes)> {
        let set = self.passing.lines.iter();
        let set = set.map(|line| (line.name.clone(), self.request.evaluate(&line.value)));
        let is_set = |name: &[u8]| self.passing.replaced.has(name, HeaderId::find(name));
        let of_cache = self.variation.lines.iter();
        let of_cache = of_cache.filter(|(name, _)| !is_set(name)).cloned();
        set.chain(of_cache)
            .filter(|(_, value)| !value.is_empty())
            .collect()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        let (request, to) = (self.request, self.to);
        if is_as_it_came(request, &to.uri) {
            return Cow::Borrowed(request.head.target());
        }
        let mut out = Vec::with_capacity(request.head.target().len() + 16);
        append_target(request, self.passing, (&to.uri, to.is_whole), &mut out);
        Cow::Owned(out)
    }

    fn refuse(&self, why: &str) -> Failure {
        self.refuse_at(Level::Error, why)
    }

    fn refuse_at(&self, level: Level, why: &str) -> Failure {
        self.request.log(level, &|out| {
            out.extend_from_slice(why.as_bytes());
        });
        Failure::new(500)
    }
}

/// Whether the client's own URI is sent, since nothing changed it.
fn is_as_it_came(request: &Request, uri: &Bytes) -> bool {
    uri.is_empty() && request.uri_origin == UriOrigin::Client && !request.head.is_path_empty
}

/// Appends the URI: the client's own where nothing changed it, else made from the current one. `uri` is that of
/// `proxy_pass`, and whether it is the whole URI. As in nginx, a changed path is escaped for gRPC, in an internal
/// request, and where the client's had escapes; else it stays as it is, but for what would end it.
pub(crate) fn append_target(
    request: &Request,
    passing: &PassSettings,
    (uri, is_whole): (&Bytes, bool),
    out: &mut Vec<u8>,
) {
    if is_as_it_came(request, uri) {
        return out.extend_from_slice(request.head.target());
    }
    if is_whole && !uri.is_empty() {
        // Unchanged, except for bytes that would end the URI or the line.
        return escape_breaks(uri, out);
    }
    let mut skipped = 0;
    if request.uri_origin.is_of_location() {
        out.extend_from_slice(uri);
        if !uri.is_empty() {
            skipped = passing.prefix_len.min(request.uri.len());
        }
    }
    let rest = &request.uri[skipped..];
    let is_escaped = passing.family == Family::Grpc
        || request.is_internal
        || is_path_quoted(request.head.target());
    if is_escaped {
        Escape::Uri.write(rest, out);
    } else {
        escape_breaks(rest, out);
    }
    if !request.args().is_empty() {
        out.push(b'?');
        escape_breaks(request.args(), out);
    }
}

/// Whether the path of a raw target contains an escape.
fn is_path_quoted(target: &[u8]) -> bool {
    let path = memchr::memchr(b'?', target).map_or(target, |end| &target[..end]);
    memchr::memchr(b'%', path).is_some()
}

/// Appends a URI with escapes for blanks and control bytes, which would end it.
fn escape_breaks(uri: &[u8], out: &mut Vec<u8>) {
    let mut rest = uri;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, 0..=0x20 | 0x7f)) {
        out.extend_from_slice(&rest[..at]);
        Escape::Uri.write(&rest[at..=at], out);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}
