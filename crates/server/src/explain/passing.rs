//! What is told of a request that is passed on: which cache, which key, which place; which servers, and what they are asked.

use std::rc::Rc;

use cache::Key;

use crate::caching::{directives, inquiry};
use crate::content::proxy;
use crate::content::proxy::order::{Order, Variation};
use crate::request::Request;
use crate::request_body::RequestBody;
use crate::upstream::Upstream;

use super::answer::tell_added;
use super::lines::Lines;
use super::report::{Report, shown};
use super::walk::chain;

/// Servers of a group that are named.
const PEERS_TOLD: usize = 16;

/// Tells where the request is passed on to.
pub fn tell(request: &mut Request, lines: &Lines<'_>, report: &mut Report) {
    let chain = chain(request, lines);
    report.say_by("content", "passed on", &lines.of(&chain, &["proxy_pass"]));
    tell_cache(request, lines, report);
    let Some(passing) = request.location().passing.clone() else {
        return;
    };
    let to = match proxy::destination(request, &passing) {
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
    match Order::new(request, &passing, &to, &variation, RequestBody::None) {
        Ok(order) => tell_order(&order, report),
        Err(failure) => return report.say("status", failure.status.to_string()),
    }
    let set = lines.of_each(
        &chain,
        &[
            "proxy_set_header",
            "proxy_http_version",
            "proxy_method",
            "proxy_set_body",
        ],
    );
    report.by(&set);
    const ANSWERS: &[&str] = &[
        "proxy_hide_header",
        "proxy_redirect",
        "proxy_intercept_errors",
        "error_page",
        "proxy_next_upstream",
    ];
    let answers = lines.of_each(&chain, ANSWERS);
    report.pause();
    report.say("answer", "that of the server, unless it fails");
    report.by(&answers);
    tell_added(&chain, lines, report);
}

fn tell_order(order: &Rc<Order>, report: &mut Report) {
    let head = shown_lines(&order.head);
    report.say("asks", head);
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
    let made = lines.upstream(upstream.name());
    let text = format!("\"{}\": {}{more}", upstream.name(), peers.join(", "));
    report.say_by("servers", text, made.as_slice());
}

/// Which cache, which key, which file, whose threads.
fn tell_cache(request: &Request, lines: &Lines<'_>, report: &mut Report) {
    let chain = chain(request, lines);
    let caching = &request.location().settings.caching;
    let Some(name) = directives::name(request).filter(|name| !name.is_empty() && name != "off")
    else {
        return;
    };
    let zones = &request.settings().zones;
    let Some(zone) = zones.named(&name).map(|at| &zones.all()[at]) else {
        return report.say("cache", format!("\"{}\" is none: 500", shown(&name)));
    };
    let made = lines.of(&chain, &["proxy_cache"]);
    if !inquiry::is_asked(request, caching) {
        return report.say_by(
            "cache",
            "not asked for this method",
            &lines.of(&chain, &["proxy_cache_methods"]),
        );
    }
    report.say_by("cache", format!("\"{}\"", shown(&name)), &made);
    report.by(&lines.zone(&name));
    let text = inquiry::key_text(request);
    let key = Key::of(&text);
    report.say_by("key", shown(&text), &lines.of(&chain, &["proxy_cache_key"]));
    let entry = format!("{}/{}", shown(&zone.directory), key.path(zone.levels));
    report.say("entry", entry);
    let probe = request.client.loop_.disk.disk().probe(&zone.directory);
    report.say("disk", probe.to_string());
    if let Ok(pool) = crate::content::files::pool(request) {
        let text = format!("\"{}\", {} threads", pool.name(), pool.threads());
        report.say_by("pool", text, &lines.of(&chain, &["aio"]));
    }
    if caching.proxy_cache_bypass.hold(request) {
        report.say_by(
            "bypass",
            "what is stored is not used",
            &lines.of(&chain, &["proxy_cache_bypass"]),
        );
    }
    let rules = lines.of_each(
        &chain,
        &[
            "proxy_cache_valid",
            "proxy_no_cache",
            "proxy_cache_use_stale",
            "proxy_cache_lock",
            "proxy_ignore_headers",
            "proxy_cache_min_uses",
        ],
    );
    if !rules.is_empty() {
        report.say_by("stored", "as the answer says, and these", &rules);
    }
}
