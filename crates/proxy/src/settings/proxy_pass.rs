//! What a location that passes requests on makes of its directives, once: which servers are asked, which header lines
//! are set and which are hidden.
//!
//! Not here: anything about one request. Invariant: an error that `-t` can find is found here, not while serving.

use std::sync::Arc;

use bytes::Bytes;
use config::{Error, Group, Groups, Placed, Template, TextOrigin, TextPlace};
use message::HeaderId;

use crate::settings::caching::Caching;
use crate::settings::directives::{
    HttpVersion, Proxy, ProxyAnswers, ProxyRewrites, RequestSettings, SetHeader,
};
use crate::settings::family::Family;
use crate::settings::gateways::{FastcgiPass, ScgiPass, UwsgiPass};
use crate::settings::grpc::GrpcPass;
use crate::settings::header_set::HeaderSet;
use crate::settings::params::Params;
use crate::settings::proxy_redirect::{Lines, Redirect, Rule};
use crate::settings::ssl::ProxySsl;
use crate::settings::store::ProxyStore;
use crate::settings::url::{Host, ProxyPassUrl, Url};
use httpcore::route::LocationKind;
use httpcore::settings::Location;
use upstream::Protocol;
use upstream::peer_tls::PeerTls;
use upstream::{Upstream, Upstreams};

/// Request header lines that are hop-by-hop, or that are written with the head.
const OWN_LINES: &[HeaderId] = &[
    HeaderId::Host,
    HeaderId::Connection,
    HeaderId::ProxyConnection,
    HeaderId::ContentLength,
    HeaderId::TransferEncoding,
    HeaderId::Te,
    HeaderId::KeepAlive,
    HeaderId::Expect,
    HeaderId::Upgrade,
];
/// Header lines that a cache evaluates itself, and writes anew when it asks.
const CACHE_LINES: &[HeaderId] = &[
    HeaderId::IfModifiedSince,
    HeaderId::IfUnmodifiedSince,
    HeaderId::IfNoneMatch,
    HeaderId::IfMatch,
    HeaderId::Range,
    HeaderId::IfRange,
];
/// Response header lines that are hidden unless `proxy_pass_header` says otherwise.
const HIDDEN_LINES: &[HeaderId] = &[
    HeaderId::Date,
    HeaderId::Server,
    HeaderId::XPad,
    HeaderId::XAccelExpires,
    HeaderId::XAccelRedirect,
    HeaderId::XAccelLimitRate,
    HeaderId::XAccelBuffering,
    HeaderId::XAccelCharset,
];

/// The same for gRPC.
const HIDDEN_OF_GRPC: &[HeaderId] = &[
    HeaderId::Date,
    HeaderId::Server,
    HeaderId::XAccelExpires,
    HeaderId::XAccelRedirect,
    HeaderId::XAccelLimitRate,
    HeaderId::XAccelBuffering,
    HeaderId::XAccelCharset,
];

/// The same for gateways, whose programs speak for this server.
const HIDDEN_OF_GATEWAYS: &[HeaderId] = &[
    HeaderId::XAccelExpires,
    HeaderId::XAccelRedirect,
    HeaderId::XAccelLimitRate,
    HeaderId::XAccelBuffering,
    HeaderId::XAccelCharset,
];

/// The groups of directives that requests are passed on by: those of the family that the location has.
#[derive(Debug)]
#[expect(missing_docs, reason = "each is the group of its name")]
pub struct ProxyGroups {
    pub proxy: Arc<Proxy>,
    pub asking: Arc<RequestSettings>,
    pub answers: Arc<ProxyAnswers>,
    pub rewrites: Arc<ProxyRewrites>,
    pub store: Arc<ProxyStore>,
    pub caching: Arc<Caching>,
    pub ssl: Arc<ProxySsl>,
}

/// The groups of a location that passes requests on.
#[must_use]
pub fn groups(location: &Location) -> Option<&ProxyGroups> {
    Some(&location.made::<PassSettings>()?.groups)
}

slots::slotted!(config::made::LOCATION: PassSettings);

/// A location's directives, made ready.
#[derive(Debug)]
pub struct PassSettings {
    /// The directives' family.
    pub family: Family,
    /// The directives themselves.
    pub groups: ProxyGroups,
    /// The parameters that replace an HTTP head, where the protocol is not HTTP.
    pub params: Option<Box<Params>>,
    /// The upstream.
    pub target: PassTarget,
    /// TLS to its servers; `None`: the URL is known, and there is none.
    pub tls: Option<Arc<PeerTls>>,
    /// Bytes of the location's prefix, which a URI of `proxy_pass` replaces.
    pub prefix_len: usize,
    /// `proxy_set_header Host`.
    pub host: Option<Template>,
    /// The other header lines that are sent.
    pub lines: Vec<SetHeader>,
    /// Whether one of the lines is `TE`, perhaps an empty one.
    pub sets_te: bool,
    /// The client's header lines that are not passed on.
    pub replaced: HeaderSet,
    /// Those that are not passed on where the response may be cached.
    pub replaced_for_cache: HeaderSet,
    /// The response header lines that are not passed on.
    pub hidden: HeaderSet,
    /// `proxy_redirect`.
    pub redirects: Vec<Rule>,
}

/// The upstream of a location.
#[derive(Debug)]
pub enum PassTarget {
    /// The same for every request.
    Fixed {
        /// The URL.
        url: Url,
        /// The servers.
        upstream: Arc<Upstream>,
    },
    /// Evaluated for each request.
    Made(Template),
}

/// The directive that passes a location's requests on. With several lines the last one counts, as in nginx.
#[must_use]
pub fn chosen(settings: &dyn Groups) -> Option<Family> {
    let proxy = settings.own::<Proxy>().proxy_pass.as_ref();
    let mut all = vec![(Family::Proxy, proxy.map(|pass| &pass.place))];
    let others = Family::OTHERS.into_iter();
    all.extend(others.map(|family| (family, to(family, settings).map(|pass| &pass.place))));
    let said = all
        .into_iter()
        .filter_map(|(family, place)| Some((family, place?)));
    let start = |place: &Option<config::TextPlace>| place.as_ref().map(|place| place.span.start);
    said.max_by_key(|(_, place)| start(place))
        .map(|(family, _)| family)
}

/// The address of a gateway's line.
fn to(family: Family, settings: &dyn Groups) -> Option<&Placed<Template>> {
    match family {
        Family::Proxy => None,
        Family::Fastcgi => settings.own::<FastcgiPass>().fastcgi_pass.as_ref(),
        Family::Uwsgi => settings.own::<UwsgiPass>().uwsgi_pass.as_ref(),
        Family::Scgi => settings.own::<ScgiPass>().scgi_pass.as_ref(),
        Family::Grpc => settings.own::<GrpcPass>().grpc_pass.as_ref(),
    }
}

/// Makes the directives of a location ready; `None` where it does not pass requests on. `tls` makes what handshakes with
/// servers use, where there are any; it is told whether that is HTTP/2.
///
/// # Errors
/// The error, at its place: a server that is not found, buffers that do not fit together.
pub fn build(
    settings: &dyn Groups,
    (family, groups): (Option<Family>, impl FnOnce() -> ProxyGroups),
    kind: Option<&LocationKind>,
    name: &Bytes,
    upstreams: &mut Upstreams,
    tls: impl FnOnce((Family, bool), &Arc<ProxySsl>) -> Result<Arc<PeerTls>, Error>,
) -> Result<Option<PassSettings>, Error> {
    let passing = match family {
        None => None,
        Some(Family::Proxy) => of_proxy(settings, groups(), kind, name, upstreams)?,
        Some(family) => of_gateway(family, settings, groups(), upstreams)?,
    };
    let Some(mut passing) = passing else {
        return Ok(None);
    };
    let may_have_tls = match (&passing.target, passing.family) {
        (PassTarget::Fixed { url, .. }, _) => url.has_tls,
        (PassTarget::Made(_), family) => {
            matches!(family, Family::Proxy | Family::Uwsgi | Family::Grpc)
        }
    };
    if may_have_tls {
        passing.tls = Some(tls(
            (passing.family, passing.is_http2()),
            &passing.groups.ssl,
        )?);
    }
    Ok(Some(passing))
}

fn of_gateway(
    family: Family,
    settings: &dyn Groups,
    groups: ProxyGroups,
    upstreams: &mut Upstreams,
) -> Result<Option<PassSettings>, Error> {
    let Some(pass) = to(family, settings) else {
        return Ok(None);
    };
    let target = match pass.value.literal() {
        None => PassTarget::Made(pass.value.clone()),
        Some(whole) => {
            let url = place(family, whole).map_err(|sentence| pass.error(sentence))?;
            let mut host = upstreams.hosts().asking();
            let linked = upstreams.link(&url.place(), 0, &mut host);
            let directive = format!("{}pass", family.prefix());
            let upstream =
                linked.map_err(|problem| pass.error(problem.sentence_for(&directive)))?;
            PassTarget::Fixed { url, upstream }
        }
    };
    let is_grpc = family == Family::Grpc;
    let replaced = || match is_grpc {
        true => HeaderSet::of(OWN_LINES),
        false => HeaderSet::default(),
    };
    let mut passing = PassSettings {
        family,
        groups,
        params: (!is_grpc).then(|| Box::new(Params::new(family, settings))),
        target,
        tls: None,
        prefix_len: 0,
        host: None,
        lines: Vec::new(),
        sets_te: false,
        replaced: replaced(),
        replaced_for_cache: replaced(),
        hidden: hidden(family, settings.own::<ProxyAnswers>()),
        redirects: Vec::new(),
    };
    if is_grpc {
        for line in &settings.own::<GrpcPass>().grpc_set_header.0 {
            passing.add_line(line);
        }
    }
    Ok(Some(passing))
}

/// Parses the address of a gateway's line.
fn place(family: Family, whole: &[u8]) -> Result<Url, String> {
    let is = |scheme: &[u8]| {
        let start = whole.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let schemes: [&[u8]; 2] = match family {
        Family::Uwsgi => [b"suwsgi://", b"uwsgi://"],
        Family::Grpc => [b"grpcs://", b"grpc://"],
        Family::Proxy | Family::Fastcgi | Family::Scgi => [b"", b""],
    };
    let scheme = schemes.into_iter().find(|scheme| is(scheme));
    let scheme = scheme.unwrap_or_default();
    let has_tls = !scheme.is_empty() && scheme == schemes[0];
    let url = Url::of_place(&whole[scheme.len()..])?;
    // There is no `$proxy_host`. What gRPC has as `:authority` is the whole place.
    let host_header = match (family, &url.host) {
        (Family::Grpc, Host::Inet { .. }) => url.place().into(),
        (Family::Grpc, Host::Unix(_)) => url.host_header.clone(),
        _ => Bytes::new(),
    };
    Ok(Url {
        has_tls,
        host_header,
        port_text: Bytes::new(),
        ..url
    })
}

fn of_proxy(
    settings: &dyn Groups,
    groups: ProxyGroups,
    kind: Option<&LocationKind>,
    name: &Bytes,
    upstreams: &mut Upstreams,
) -> Result<Option<PassSettings>, Error> {
    let Some(pass) = &settings.own::<Proxy>().proxy_pass else {
        return Ok(None);
    };
    let is_prefix = matches!(
        kind,
        Some(LocationKind::Prefix { .. } | LocationKind::Exact)
    );
    let target = match &pass.value {
        ProxyPassUrl::Made(template) => PassTarget::Made(template.clone()),
        ProxyPassUrl::Fixed(url) if !is_prefix && !url.uri.is_empty() => {
            return Err(pass.error(
                "\"proxy_pass\" cannot have URI part in location given by regular expression, or inside named location, or \
                 inside \"if\" statement, or inside \"limit_except\" block",
            ));
        }
        ProxyPassUrl::Fixed(url) => {
            let mut host = upstreams.hosts().asking();
            let upstream = upstreams
                .link(&url.place(), url.usual_port(), &mut host)
                .map_err(|problem| pass.error(problem.sentence_for("proxy_pass")))?;
            PassTarget::Fixed {
                url: url.clone(),
                upstream,
            }
        }
    };
    let mut passing = PassSettings {
        family: Family::Proxy,
        groups,
        params: None,
        target,
        tls: None,
        prefix_len: if is_prefix { name.len() } else { 0 },
        host: None,
        lines: Vec::new(),
        sets_te: false,
        replaced: HeaderSet::of(OWN_LINES),
        replaced_for_cache: HeaderSet::of(OWN_LINES),
        hidden: hidden(Family::Proxy, settings.own::<ProxyAnswers>()),
        redirects: Vec::new(),
    };
    CACHE_LINES.iter().for_each(|id| {
        passing
            .replaced_for_cache
            .add(&Bytes::from_static(id.name().as_bytes()))
    });
    passing.redirects =
        redirects(&passing.target, name, settings).map_err(|sentence| pass.error(sentence))?;
    for line in &settings.own::<Proxy>().proxy_set_header.0 {
        passing.add_line(line);
    }
    Ok(Some(passing))
}

impl PassSettings {
    /// Whether HTTP/2 is spoken with its servers.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        let version = self.groups.proxy.proxy_http_version;
        match self.family {
            Family::Grpc => true,
            Family::Proxy => version == HttpVersion::Http2,
            Family::Fastcgi | Family::Uwsgi | Family::Scgi => false,
        }
    }

    /// Whether `/a` is redirected to `/a/` if only that location exists: as in nginx, not if its server of uwsgi or SCGI is
    /// made of variables.
    #[must_use]
    pub fn redirects_to_slash(&self) -> bool {
        let is_made = matches!(self.target, PassTarget::Made(_));
        !(is_made && matches!(self.family, Family::Uwsgi | Family::Scgi))
    }

    /// Whether trailers of responses are passed on: of gRPC they always are.
    pub(crate) fn passes_trailers(&self) -> bool {
        self.family == Family::Grpc || self.groups.proxy.proxy_pass_trailers
    }

    /// What is spoken with its servers.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        match self.is_http2() {
            true => Protocol::Http2,
            false => self.family.protocol(),
        }
    }

    /// Whether the configuration itself asks for ranges (`proxy_set_header Range $slice_range`). Then a 206 is the
    /// expected response.
    #[must_use]
    pub fn asks_for_ranges(&self) -> bool {
        if let Some(params) = &self.params {
            return params.asks_for_ranges();
        }
        let mut lines = self.lines.iter();
        lines.any(|line| line.name.eq_ignore_ascii_case(b"Range"))
    }

    /// Parses a URL or an address that was made from variables.
    ///
    /// # Errors
    /// nginx's sentence.
    pub fn url(&self, whole: &Bytes) -> Result<Url, String> {
        match self.family {
            Family::Proxy => Url::of_made(whole),
            family => place(family, whole),
        }
    }

    fn add_line(&mut self, line: &SetHeader) {
        self.sets_te |= line.name.eq_ignore_ascii_case(b"TE");
        self.replaced.add(&line.name);
        self.replaced_for_cache.add(&line.name);
        if line.name.eq_ignore_ascii_case(b"Host") {
            self.host = Some(line.value.clone());
        } else if line.value.parts().is_empty() {
            // Nothing is sent.
        } else {
            self.lines.push(line.clone());
        }
    }
}

/// Hands the rules for redirects down to the locations inside, as in nginx: the one that this location's `proxy_pass`
/// made, too.
pub fn hand_down_redirects(passing: &PassSettings, inner: &mut Group<ProxyRewrites>) {
    if passing.redirects.is_empty() {
        return;
    }
    let rules = passing.redirects.iter().cloned().map(Redirect::Rule);
    inner.edit().proxy_redirect.value = Some(Some(Lines::Rules(rules.collect())));
}

/// The rules for redirects: by default from the URL of `proxy_pass` to the location.
fn redirects(
    target: &PassTarget,
    location: &Bytes,
    settings: &dyn Groups,
) -> Result<Vec<Rule>, &'static str> {
    let default = || match target {
        PassTarget::Made(_) => None,
        PassTarget::Fixed { url, .. } if url.uri.is_empty() => {
            let from = [&url.whole[..], b"/"].concat();
            Some(Rule::literal(from.into(), Bytes::from_static(b"/")))
        }
        PassTarget::Fixed { url, .. } => Some(Rule::literal(url.whole.clone(), location.clone())),
    };
    let Some(lines) = &settings.own::<ProxyRewrites>().proxy_redirect else {
        return Ok(default().into_iter().collect());
    };
    let rule = |line: &Redirect| {
        match line {
        Redirect::Rule(rule) => Ok(rule.clone()),
        Redirect::Default => default().ok_or(
            "\"proxy_redirect default\" cannot be used with \"proxy_pass\" directive with variables",
        ),
    }
    };
    lines.rules().iter().map(rule).collect()
}

fn hidden(family: Family, settings: &ProxyAnswers) -> HeaderSet {
    let mut hidden = match family {
        Family::Proxy => HeaderSet::of(HIDDEN_LINES),
        Family::Grpc => HeaderSet::of(HIDDEN_OF_GRPC),
        Family::Fastcgi | Family::Uwsgi | Family::Scgi => HeaderSet::of(HIDDEN_OF_GATEWAYS),
    };
    if matches!(family, Family::Fastcgi | Family::Scgi) {
        hidden.add(&Bytes::from_static(b"Status"));
    }
    settings
        .proxy_hide_header
        .iter()
        .for_each(|name| hidden.add(name));
    settings
        .proxy_pass_header
        .iter()
        .for_each(|name| hidden.remove(name));
    hidden
}

/// Checks the buffer sizes against each other, as nginx does.
///
/// # Errors
/// nginx's sentence, at one of the lines concerned.
pub fn check_buffers(family: Family, settings: &ProxyAnswers) -> Result<(), Error> {
    let (one, all) = (&settings.proxy_buffer_size, &settings.proxy_buffers);
    let said = |place: &Option<TextPlace>| {
        let place = place.as_ref();
        place
            .filter(|place| place.text.origin() != TextOrigin::Default)
            .cloned()
    };
    let refuse = |sentence: &str, place: Option<TextPlace>| {
        let sentence = family.renamed(sentence);
        let place = place
            .or_else(|| said(&all.place))
            .or_else(|| said(&one.place));
        Err(match place {
            Some(place) => Error::at(sentence, &place),
            None => Error::without_place(sentence),
        })
    };
    let buffers = all.value;
    if buffers.count < 2 {
        return refuse("there must be at least 2 \"proxy_buffers\"", None);
    }
    let largest = one.value.0.max(buffers.size);
    let all_but_one = (buffers.count - 1).saturating_mul(buffers.size);
    let own = settings.proxy_busy_buffers_size.as_ref();
    let busy = own.map_or(2 * largest, |size| size.value.0);
    if busy < largest {
        return refuse(
            "\"proxy_busy_buffers_size\" must be equal to or greater than the maximum of the value of \"proxy_buffer_size\" \
             and one of the \"proxy_buffers\"",
            own.and_then(|size| said(&size.place)),
        );
    }
    if busy > all_but_one {
        return refuse(
            "\"proxy_busy_buffers_size\" must be less than the size of all \"proxy_buffers\" minus one buffer",
            own.and_then(|size| said(&size.place)),
        );
    }
    let written = settings.proxy_temp_file_write_size.as_ref();
    if let Some(size) = written.filter(|size| size.value.0 < largest) {
        return refuse(
            "\"proxy_temp_file_write_size\" must be equal to or greater than the maximum of the value of \"proxy_buffer_size\" \
             and one of the \"proxy_buffers\"",
            said(&size.place),
        );
    }
    let kept = settings.proxy_max_temp_file_size.as_ref();
    if let Some(size) = kept.filter(|size| size.value.0 != 0 && size.value.0 < largest) {
        return refuse(
            "\"proxy_max_temp_file_size\" must be equal to zero to disable temporary files usage or must be equal to or greater \
             than the maximum of the value of \"proxy_buffer_size\" and one of the \"proxy_buffers\"",
            said(&size.place),
        );
    }
    Ok(())
}
