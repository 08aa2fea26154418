//! The results of the steps in words: a report for each, with the lines of the configuration that caused it.
//!
//! Not here: when they are asked ([`super::observer`]).

use bytes::Bytes;
use config::Directive;

use crate::settings::tables;
use crate::settings::told::{How, Told};
use httpcore::files;
use httpcore::files::path;
use httpcore::outcome::{Outcome, Target};
use httpcore::request::Request;
use httpcore::settings::root::directory;
use httpcore::steps::satisfy::Verdict;
use modules::before::access;
use modules::before::access::Access;

use super::lines::Lines;
use super::report::{Report, shown};
use crate::explain::lines;

/// The texts for a step that says more than whether a request passes.
pub(super) fn told(step: &str) -> Option<&'static Told> {
    tables::TOLD.iter().find(|told| told.step == step)
}

/// The directives of the steps that are told in this way.
pub(super) fn lines_of(how: How) -> Vec<&'static str> {
    let steps = tables::TOLD.iter().filter(|told| told.how == how);
    steps.flat_map(|told| told.lines).copied().collect()
}

/// Reports the location, and the reason for it.
pub(super) fn tell_location(request: &Request, lines: &Lines<'_>, report: &mut Report) {
    let chain = lines.chain(request);
    let own = chain.last().copied();
    let first = own
        .and_then(|block| block.args.first())
        .map(|word| word.display());
    let why = match (own.map(|block| &block.name), first.as_deref()) {
        (Some(name), _) if *name == "server" => "none matches: the server itself answers",
        (Some(name), _) if *name == "limit_except" => {
            "the method is not among those of limit_except"
        }
        (Some(name), _) if *name == "if" => "the condition holds",
        (_, Some(word)) if word.starts_with('=') => {
            "it is the URI exactly, so nothing else is asked"
        }
        (_, Some(word)) if word.starts_with("^~") => {
            "the longest prefix, whose ^~ keeps regular expressions from being asked"
        }
        (_, Some(word)) if word.starts_with('~') => "the first regular expression that matches",
        (_, Some(word)) if word.starts_with('@') => "by its name",
        _ => "the longest prefix; no regular expression matches",
    };
    report.say_by(
        "location",
        format!("for {}: {why}", shown(&request.uri)),
        own.as_slice(),
    );
    if request.location().is_internal {
        let made = own.map(|block| lines::named(block, &["internal"]).collect::<Vec<_>>());
        let text = match request.is_internal {
            true => "for internal redirects alone, as this one is",
            false => "for internal redirects alone: 404",
        };
        report.say_by("internal", text, &made.unwrap_or_default());
    }
}

/// A URI with its arguments.
pub(super) fn with_args(uri: &Bytes, args: &[u8]) -> String {
    match args.is_empty() {
        true => shown(uri),
        false => format!("{}?{}", shown(uri), shown(args)),
    }
}

/// Reports the limits, which only count a request that is served.
pub(super) fn tell_limits(request: &Request, lines: &Lines<'_>, report: &mut Report) {
    let limits = lines.of_each(&lines.chain(request), &lines_of(How::Limit));
    if !limits.is_empty() {
        report.say_by("limits", "counted when it is served", &limits);
    }
}

/// Reports a body that is refused.
pub(super) fn tell_long_body(request: &Request, lines: &Lines<'_>, report: &mut Report) {
    let made = lines.of(&lines.chain(request), &["client_max_body_size"]);
    report.say_by("body", "longer than it may be", &made);
}

/// Reports the rule that is about the client's address.
pub(super) fn tell_access(request: &Request, lines: &Lines<'_>, report: &mut Report) {
    let rules = &request.location().own::<Access>().rules;
    if rules.is_empty() {
        return;
    }
    let ip = request.client.ip();
    let written = lines.of(&lines.chain(request), &["allow", "deny"]);
    let fits = (0..rules.len()).find(|at| access::is_allowed(&rules[*at..=*at], ip).is_some());
    let made: Vec<_> = fits
        .and_then(|at| written.get(at))
        .copied()
        .into_iter()
        .collect();
    let text = match access::is_allowed(rules, ip) {
        Some(true) => "the address is allowed",
        Some(false) => "the address is denied",
        None => "no rule is about the address",
    };
    report.say_by("access", text, &made);
}

/// Reports the verdict of a judge that has words of its own.
pub(super) fn tell_verdict(
    told: &Told,
    verdict: &Verdict,
    chain: &[&Directive],
    lines: &Lines<'_>,
    report: &mut Report,
) {
    let How::Judge(passed, refused) = told.how else {
        return;
    };
    let text = match verdict {
        Verdict::Silent => return,
        Verdict::Passed => passed,
        Verdict::Refused(_) => refused,
    };
    report.say_by(told.step, text, &lines.of_each(chain, told.lines));
}

/// Reports which of several files exists; `before`: the URI before they were looked for.
pub(super) fn tell_tried(
    request: &Request,
    before: &Bytes,
    outcome: Option<&Outcome>,
    lines: &Lines<'_>,
    report: &mut Report,
) {
    let made = lines.of(&lines.chain(request), &["try_files"]);
    let text = match outcome {
        None if *before == request.uri => "there is what the URI names".to_owned(),
        None => format!("there is {}", shown(&request.uri)),
        Some(Outcome::Failed(failure)) => format!("nothing of it is there: {}", failure.status),
        Some(_) => "nothing of it is there: the last one is gone to".to_owned(),
    };
    report.say_by("try_files", text, &made);
}

/// Reports why there is no file to send.
pub(super) fn tell_why(
    status: u16,
    is_directory: bool,
    chain: &[&Directive],
    lines: &Lines<'_>,
    report: &mut Report,
) {
    let text = match status {
        404 => "there is none with this name",
        403 if is_directory => "a directory with none of its index files, and no listing of it",
        403 => "it may not be read",
        _ => return,
    };
    let made = match is_directory {
        true => lines.of_each(chain, &["index", "autoindex"]),
        false => Vec::new(),
    };
    report.say_by("file", text, &made);
}

/// Reports the file, its disk, and the thread pool that reads it.
pub(super) fn tell_file(request: &Request, lines: &Lines<'_>, report: &mut Report) {
    let chain = lines.chain(request);
    let mut mapped = path::Mapped::default();
    if path::map(request, &mut mapped).is_err() {
        return;
    }
    report.say_by(
        "file",
        shown(&mapped.path),
        &lines.of(&chain, &["root", "alias"]),
    );
    let mut root = Vec::new();
    path::root(request, &mut root);
    let probe = request.client.loop_.disk.disk().probe(directory(&root));
    report.say("disk", probe.to_string());
    if let Ok(pool) = files::pool(request) {
        let text = format!(
            "\"{}\", {} threads, for what is not in memory",
            pool.name(),
            pool.threads()
        );
        report.say_by("pool", text, &lines.of(&chain, &["aio"]));
    }
}

/// Reports a failure.
pub(super) fn tell_failure(status: u16, request: &Request, lines: &Lines<'_>, report: &mut Report) {
    report.say("status", status.to_string());
    if !request.error_page_taken {
        let chain = lines.chain(request);
        let code = status.to_string();
        let mut made = lines.of(&chain, &["error_page"]);
        made.retain(|line| line.args.iter().any(|word| word.display() == code));
        if let Some(first) = made.first() {
            report.say_by("error_page", "an error page covers it", &[first]);
        }
    }
}

/// Reports where the request goes on; `failed`: the status of the failure that leads there.
pub(super) fn tell_redirect(target: &Target, failed: Option<u16>, report: &mut Report) {
    let to = match target {
        Target::Uri(uri, args) => with_args(uri, args),
        Target::Named(name) => shown(name),
    };
    let why = failed.map_or_else(String::new, |status| format!(" for {status}"));
    report.say("goes on", format!("with {to}{why}"));
}

/// Reports a step that has no words of its own, if it did something or the configuration has lines of its name.
pub(super) fn tell_step(
    step: &'static str,
    request: &Request,
    outcome: Option<&Outcome>,
    lines: &Lines<'_>,
    report: &mut Report,
) {
    let made = lines.of(&lines.chain(request), &[step]);
    let text = match outcome {
        None if made.is_empty() => return,
        None => "lets it pass".to_owned(),
        Some(Outcome::Answer(_)) => "answers".to_owned(),
        Some(Outcome::Failed(failure)) => format!("refuses it: {}", failure.status),
        Some(Outcome::Redirect(_)) => "has it go on elsewhere".to_owned(),
        Some(Outcome::Close(_)) => "closes the connection".to_owned(),
    };
    report.say_by(step, text, &made);
}
