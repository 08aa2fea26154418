//! The explanation of a request that is passed on: its cache, key and place there; the servers, and the request that
//! they get.

use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use cache::Key;
use cache::freshness::RequestControl;
use config::Directive;
use message::HeaderId;

use httpcore::request::Request;
use httpcore::request_body::RequestBody;
use proxy::caching::cache_request::{self, cache_name};
use proxy::caching::caches::control::{Answer, Order};
use proxy::caching::caches::placing;
use proxy::settings::cache_path::{Zone, Zones};
use proxy::settings::caching::{Caching, UseStale, rules};
use proxy::settings::family::Family;
use proxy::settings::proxy_pass::PassSettings;
use proxy::upstream_request::destination::destination;
use proxy::upstream_request::gateway_params;
use proxy::upstream_request::request::UpstreamRequest;
use proxy::upstream_request::variation::Variation;
use upstream::Upstream;
use wire::http2::hpack::{BlockLimits, Decoder};

use super::answer::{tell_added, tell_hidden};
use super::lines::Lines;
use super::report::{CacheQuestion, Report, shown};
use crate::cache_orders;

/// Maximum number of servers of a group that are named.
const PEERS_TOLD: usize = 16;
/// Maximum time that a running server gets to tell the state of a cache's disk.
const STATE_PATIENCE: Duration = Duration::from_secs(1);

/// Reports where the request is passed on to.
pub(super) fn tell(request: &mut Request, lines: &Lines<'_>, report: &mut Report) {
    request.is_passed_on = true;
    let chain = lines.chain(request);
    let family = family(request);
    let passed = of(lines, &chain, family, &["proxy_pass"]);
    report.say_by("content", "passed on", &passed);
    report.begin_cache();
    let asked = tell_cache(request, lines, report);
    report.end_cache(asked);
    let Some(passing) = request.location().made.share::<PassSettings>() else {
        return;
    };
    let to = match destination(request, &passing) {
        Ok(to) => to,
        Err(failure) => return report.say("status", failure.status.to_string()),
    };
    match &to.unresolved {
        Some(_) => report.say_by(
            "servers",
            "by a name that is looked up then",
            &lines.of(&chain, &["resolver"]),
        ),
        None => tell_servers(&to.upstream, lines, report),
    }
    let variation = Variation::default();
    match UpstreamRequest::new(request, &passing, &to, &variation, RequestBody::None) {
        Ok(order) if passing.is_http2() => tell_fields(&order, report),
        Ok(order) if family == Family::Proxy => tell_order(&order, report),
        Ok(_) => report.say("asks", tell_params(request, &passing)),
        Err(failure) => return report.say("status", failure.status.to_string()),
    }
    let set = of_each(
        lines,
        &chain,
        family,
        &[
            "proxy_set_header",
            "proxy_http_version",
            "proxy_method",
            "proxy_set_body",
            "proxy_param",
            "proxy_index",
            "proxy_split_path_info",
            "proxy_keep_conn",
            "proxy_modifier1",
            "proxy_modifier2",
            "proxy_string",
            "proxy_pass_request_headers",
            "proxy_pass_request_body",
        ],
    );
    report.by(&set);
    let sent = match family {
        Family::Proxy | Family::Grpc => family.renamed("proxy_set_header"),
        family => family.renamed("proxy_param"),
    };
    tell_hidden(&chain, &sent, lines, report);
    const ANSWERS: &[&str] = &[
        "proxy_hide_header",
        "proxy_redirect",
        "proxy_intercept_errors",
        "proxy_next_upstream",
    ];
    let mut answers = of_each(lines, &chain, family, ANSWERS);
    answers.extend(lines.of(&chain, &["error_page"]));
    report.pause();
    report.say("answer", "that of the server, unless it fails");
    report.by(&answers);
    tell_added(&chain, lines, report);
}

/// The family of directives that passes the request on.
fn family(request: &Request) -> Family {
    let passing = request.location().made::<PassSettings>();
    passing.map_or(Family::Proxy, |passing| passing.family)
}

/// As [`Lines::of`], for the directives of a family that correspond to these.
fn of<'a>(
    lines: &Lines<'a>,
    chain: &[&'a Directive],
    family: Family,
    names: &[&str],
) -> Vec<&'a Directive> {
    let own: Vec<String> = names.iter().map(|name| family.renamed(name)).collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    lines.of(chain, &own)
}

fn of_each<'a>(
    lines: &Lines<'a>,
    chain: &[&'a Directive],
    family: Family,
    names: &[&str],
) -> Vec<&'a Directive> {
    let each = names.iter().map(|name| of(lines, chain, family, &[name]));
    each.flatten().collect()
}

/// The parameters, line by line.
fn tell_params(request: &Request, passing: &PassSettings) -> String {
    let shown_param =
        |(name, value): &(Vec<u8>, Vec<u8>)| format!("{}: {}", shown(name), shown(value));
    let all = passing
        .params
        .as_ref()
        .map(|params| gateway_params::list(params, request));
    let all = all.unwrap_or_default();
    all.iter().map(shown_param).collect::<Vec<_>>().join("\n")
}

fn tell_order(order: &Rc<UpstreamRequest>, report: &mut Report) {
    let head = shown_lines(&order.head);
    report.say("asks", head);
}

/// The fields of a request over HTTP/2.
fn tell_fields(order: &Rc<UpstreamRequest>, report: &mut Report) {
    let (mut decoder, mut lines) = (Decoder::default(), Vec::new());
    let mut fields = decoder.block(order.fields(), &BlockLimits::default());
    // What was just encoded can be decoded.
    while let Ok(Some(_)) = fields.next(&mut lines) {}
    report.say("asks", shown_lines(&lines));
}

fn shown_lines(head: &[u8]) -> String {
    let lines = head.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| shown(line.strip_suffix(b"\r").unwrap_or(line)));
    lines
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

fn tell_servers(upstream: &Upstream, lines: &Lines<'_>, report: &mut Report) {
    let group = upstream.group();
    let peers: Vec<String> = group
        .peers()
        .take(PEERS_TOLD)
        .map(|peer| peer.name.to_string())
        .collect();
    let rest = group.peers().count().saturating_sub(PEERS_TOLD);
    let more = if rest > 0 {
        format!(", and {rest} more")
    } else {
        String::new()
    };
    let made = lines.upstream(&upstream.name());
    let text = format!("\"{}\": {}{more}", upstream.name(), peers.join(", "));
    report.say_by("servers", text, made.as_slice());
}

/// Reports the cache, the key, the file and the thread pool.
fn tell_cache(request: &Request, lines: &Lines<'_>, report: &mut Report) -> Option<CacheQuestion> {
    let chain = lines.chain(request);
    let caching = request.location().own::<Caching>();
    let family = family(request);
    let made = of(lines, &chain, family, &["proxy_cache"]);
    let passing = request.location().made::<PassSettings>();
    let named = passing.and_then(|passing| Some((passing, cache_name(request, passing)?)));
    let is_one = |(_, name): &(&PassSettings, Bytes)| !name.is_empty() && name != "off";
    let Some((passing, name)) = named.filter(is_one) else {
        let text = match made.is_empty() {
            true => format!("none: there is no \"{}\"", family.renamed("proxy_cache")),
            false => "none".to_owned(),
        };
        report.say_by("cache", text, &made);
        return None;
    };
    let disks = request.settings().made::<Zones>().disks_of(&name);
    let key = Key::of(&cache_request::key_text(request, passing));
    let place = placing::place(&key, disks.iter().map(|zone| &zone.directory[..]));
    let Some(zone) = place.map(|at| &disks[at]) else {
        report.say("cache", format!("\"{}\" is none: 500", shown(&name)));
        return None;
    };
    if !cache_request::is_asked(request, caching) {
        report.say_by(
            "cache",
            "not asked for this method, and nothing is stored",
            &of(lines, &chain, family, &["proxy_cache_methods"]),
        );
        return None;
    }
    report.say_by("cache", format!("\"{}\"", shown(&name)), &made);
    report.by(&lines.zone(&name));
    tell_key(request, passing, zone, lines, report);
    Some(cache_question(request, passing, zone))
}

/// Reports the key, the file, the disk and the thread pool.
fn tell_key(
    request: &Request,
    passing: &PassSettings,
    zone: &Zone,
    lines: &Lines<'_>,
    report: &mut Report,
) {
    let (chain, family) = (lines.chain(request), family(request));
    let caching = request.location().own::<Caching>();
    let text = cache_request::key_text(request, passing);
    let key = Key::of(&text);
    report.say_by(
        "key",
        shown(&text),
        &of(lines, &chain, family, &["proxy_cache_key"]),
    );
    let entry = format!("{}/{}", shown(&zone.directory), key.path(zone.levels));
    report.say("entry", entry);
    let probe = request.client.loop_.disk.disk().probe(&zone.directory);
    report.say("disk", probe.to_string());
    tell_disk_state(zone, report);
    if zone.disks > 1 {
        let text = format!("one of {} disks; if it is out, another one's", zone.disks);
        report.say("placed on", text);
    } else if let Ok(pool) = httpcore::files::pool(request) {
        let text = format!("\"{}\", {} threads", pool.name(), pool.threads());
        report.say_by("pool", text, &lines.of(&chain, &["aio"]));
    }
    if caching.proxy_cache_bypass.hold(request) {
        report.say_by(
            "bypass",
            "what is stored is not used",
            &of(lines, &chain, family, &["proxy_cache_bypass"]),
        );
    }
    tell_storing(request, lines, family, report);
}

/// Reports the state of the disk, if a server runs that has the cache.
fn tell_disk_state(zone: &Zone, report: &mut Report) {
    let directory = std::path::Path::new(std::ffi::OsStr::from_bytes(&zone.directory));
    let Ok(Some(stream)) = cache_orders::connect(directory) else {
        return;
    };
    let answer = cache_orders::ask(stream, &Order::Disk, STATE_PATIENCE);
    let Ok(Some(Answer::Disk(state))) = answer else {
        return;
    };
    let reason = state.changes.last().map_or_else(String::new, |change| {
        format!(", since {} s: {}", change.age(), change.reason)
    });
    let text = format!("{}, writing: {}{reason}", state.state, state.writing);
    report.say("disk state", text);
}

/// What the cache would be asked.
fn cache_question(request: &Request, passing: &PassSettings, zone: &Zone) -> CacheQuestion {
    let caching = request.location().own::<Caching>();
    let rules = rules(request.location());
    let wishes = RequestControl::of(
        request.head.get_each(HeaderId::CacheControl),
        request.head.get_each(HeaderId::Pragma),
    );
    let fields = cache_request::lines(request);
    CacheQuestion {
        directory: zone.directory.clone(),
        levels: zone.levels,
        key_text: cache_request::key_text(request, passing),
        fields: fields
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect(),
        rules: rules.clone(),
        wishes: if rules.obeys_requests {
            wishes
        } else {
            RequestControl::default()
        },
        is_bypassed: caching.proxy_cache_bypass.hold(request),
        stale: (
            caching.proxy_cache_use_stale.has(UseStale::UPDATING),
            caching.updates_behind(),
        ),
    }
}

/// Reports whether the response is stored, and for how long.
fn tell_storing(request: &Request, lines: &Lines<'_>, family: Family, report: &mut Report) {
    let chain = lines.chain(request);
    let caching = request.location().own::<Caching>();
    if caching.proxy_no_cache.hold(request) {
        let made = of(lines, &chain, family, &["proxy_no_cache"]);
        return report.say_by("stored", "nothing: a condition holds", &made);
    }
    const RULES: &[&str] = &[
        "proxy_cache_valid",
        "proxy_no_cache",
        "proxy_cache_use_stale",
        "proxy_cache_lock",
        "proxy_ignore_headers",
        "proxy_cache_min_uses",
    ];
    let rules = of_each(lines, &chain, family, RULES);
    if !of(lines, &chain, family, &["proxy_cache_valid"]).is_empty() {
        return report.say_by("stored", "as the answer says, and these", &rules);
    }
    let valid = family.renamed("proxy_cache_valid");
    let text =
        format!("if the answer says how long (Cache-Control, Expires); there is no \"{valid}\"");
    report.say_by("stored", text, &rules);
}
