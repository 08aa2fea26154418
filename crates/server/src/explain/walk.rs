//! Walks a request through the server's steps, and reports each.
//!
//! Each step is the server's own; this module has only their order, as in `respond` and `before`, and the reports.
//! Invariant: content that asks another server or writes is reported and not produced.

use bytes::Bytes;
use config::Directive;

use crate::Failure;
use crate::before::rewrite::machine::{Ended, Machine};
use crate::before::{access, auth_basic, client_max_body_size, real_ip, try_files};
use crate::find_location;
use crate::outcome::{Outcome, Settled, Target};
use crate::request::{Arrival, Request, URI_CHANGES_MAX};
use crate::satisfy::{Satisfy, Verdict};
use crate::steps::content;
use crate::steps::respond::settle;
use crate::{path, realpath_root};

use super::answer::tell_answer;
use super::lines::{self, Lines};
use super::passing;
use super::report::{Report, shown};
use super::values;

/// Maximum number of rounds, as in `respond`.
const ROUNDS_MAX: usize = URI_CHANGES_MAX as usize + 2;
/// Directives that limit.
const LIMITS: &[&str] = &[
    "limit_req",
    "limit_req_status",
    "limit_req_dry_run",
    "limit_conn",
    "limit_conn_status",
    "limit_rate",
    "limit_rate_after",
];
/// The text for a `rewrite` that does not match.
const UNCHANGED: &str = "changes nothing";
/// Methods that change files where `dav_methods` has them.
const WRITES: &[&str] = &["PUT", "DELETE", "MKCOL", "COPY", "MOVE"];

/// The result of a round.
enum Round {
    /// This.
    Goes(Outcome),
    /// The content was reported; its response is unknown.
    Told,
}

/// Walks the request through all steps.
pub async fn walk(request: &mut Request, lines: &Lines<'_>, report: &mut Report) {
    let mut arrival = Arrival::Fresh;
    for _ in 0..ROUNDS_MAX {
        report.pause();
        let outcome = match round(request, arrival, lines, report).await {
            Round::Goes(outcome) => outcome,
            Round::Told => return,
        };
        let failed = tell_failure(&outcome, request, lines, report);
        match settle(request, outcome) {
            Settled::Response(response) => return tell_answer(request, response, lines, report),
            Settled::Close(status) => {
                return report.say(
                    "answer",
                    format!("none: the connection is closed (logs say {status})"),
                );
            }
            Settled::Redirect(target) => {
                tell_redirect(&target, failed, report);
                if !request.may_change_uri() {
                    return report.say("answer", "500: more than 10 changes of the URI");
                }
                arrival = request.redirect(target);
            }
        }
    }
}

async fn round(
    request: &mut Request,
    arrival: Arrival,
    lines: &Lines<'_>,
    report: &mut Report,
) -> Round {
    match arrival {
        Arrival::Lost => return Round::Goes(Outcome::Failed(Failure::new(500))),
        Arrival::Named => tell_location(request, lines, report),
        Arrival::Fresh | Arrival::Redirected => {
            if arrival == Arrival::Fresh {
                named_by_proxy(request, lines, report);
            }
            realpath_root::run(request).await;
            if let Some(Ended::Answered(outcome)) = rewritten(request, lines, report).await {
                return Round::Goes(outcome);
            }
            let early = find_location::run(request);
            tell_location(request, lines, report);
            if let Some(early) = early {
                return Round::Goes(early);
            }
        }
    }
    for _ in 0..ROUNDS_MAX {
        realpath_root::run(request).await;
        if let Some(early) = client_max_body_size::run(request) {
            let chain = chain(request, lines);
            let made = lines.of(&chain, &["client_max_body_size"]);
            report.say_by("body", "longer than it may be", &made);
            return Round::Goes(early);
        }
        if request.location == request.server().location {
            break;
        }
        match rewritten(request, lines, report).await {
            None | Some(Ended::Whole { is_moved: false }) => break,
            Some(Ended::Answered(outcome)) => return Round::Goes(outcome),
            Some(Ended::Whole { is_moved: true }) => {
                if !request.may_change_uri() {
                    return Round::Goes(Outcome::Failed(Failure::new(500)));
                }
                let early = find_location::run(request);
                tell_location(request, lines, report);
                if let Some(early) = early {
                    return Round::Goes(early);
                }
            }
        }
    }
    named_by_proxy(request, lines, report);
    if let Some(refused) = judged(request, lines, report).await {
        return Round::Goes(refused);
    }
    if let Some(early) = tried(request, lines, report).await {
        return Round::Goes(early);
    }
    made(request, lines, report).await
}

/// The blocks around the request's location.
pub fn chain<'a>(request: &Request, lines: &Lines<'a>) -> Vec<&'a Directive> {
    lines.around(request.location().place.as_ref())
}

/// Reports the location, and the reason for it.
fn tell_location(request: &Request, lines: &Lines<'_>, report: &mut Report) {
    let chain = chain(request, lines);
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

/// Runs the rewrite instructions at the request's place, and reports each that does something.
async fn rewritten(request: &mut Request, lines: &Lines<'_>, report: &mut Report) -> Option<Ended> {
    let generation = request.generation.clone();
    let program = generation
        .settings
        .location(request.location)
        .program
        .as_ref()?;
    let mut written = Vec::new();
    if let Some(block) = chain(request, lines).last() {
        lines::instructions(block, &mut written);
    }
    let mut machine = Machine::new(request, program);
    // The interpreter cannot go back, so this ends.
    loop {
        realpath_root::run(request).await;
        let is_met = match machine.file_test() {
            None => false,
            Some(test) => match test.ask(request).await {
                Ok(is_met) => is_met,
                Err(failure) => return Some(Ended::Answered(Outcome::Failed(failure))),
            },
        };
        let (at, uri, args) = (machine.at, request.uri.clone(), request.args.clone());
        let before = written
            .get(at)
            .map(|line| values::before(request, lines, line));
        let ended = machine.step(request, is_met);
        if let (Some(line), Some(before)) = (written.get(at), before) {
            let is_new = uri != request.uri || args != request.args;
            let text = match &ended {
                Some(Ended::Answered(_)) => "answers".to_owned(),
                _ if *line.name.bytes() == "if" => match machine.at == at + 1 {
                    true => "holds".to_owned(),
                    false => "does not hold".to_owned(),
                },
                _ if is_new => format!("the URI is now {}", with_args(&request.uri, &request.args)),
                _ if *line.name.bytes() == "rewrite" => UNCHANGED.to_owned(),
                _ => "is obeyed".to_owned(),
            };
            let is_idle = *line.name.bytes() == "rewrite" && text == UNCHANGED;
            let used = match is_idle {
                true => Vec::new(),
                false => values::after(request, before, lines, line),
            };
            report.say_with("rewrite", &text, line, used);
        }
        if ended.is_some() {
            return ended;
        }
    }
}

fn with_args(uri: &Bytes, args: &Bytes) -> String {
    match args.is_empty() {
        true => shown(uri),
        false => format!("{}?{}", shown(uri), shown(args)),
    }
}

/// The client's address, where a proxy names it.
fn named_by_proxy(request: &mut Request, lines: &Lines<'_>, report: &mut Report) {
    let before = request.client.ip();
    real_ip::run(request);
    if let Some(ip) = request.client.ip().filter(|ip| Some(*ip) != before) {
        let chain = chain(request, lines);
        let made = lines.of_each(&chain, &["set_real_ip_from", "real_ip_header"]);
        report.say_by("from", format!("{ip}, as a trusted proxy says"), &made);
    }
}

/// The access checks: addresses and passwords are judged; a check that asks another server is reported and taken as
/// passed.
async fn judged(request: &Request, lines: &Lines<'_>, report: &mut Report) -> Option<Outcome> {
    let chain = chain(request, lines);
    let limits = lines.of_each(&chain, LIMITS);
    if !limits.is_empty() {
        report.say_by("limits", "counted when it is served", &limits);
    }
    let settings = &request.location().settings;
    let by_address = access::judge(request);
    tell_access(request, &chain, lines, report);
    let by_password = auth_basic::judge(request).await;
    let text = match &by_password {
        Verdict::Silent => None,
        Verdict::Passed => Some("the user and the password are right"),
        Verdict::Refused(_) => Some("no user with the right password"),
    };
    if let Some(text) = text {
        report.say_by(
            "auth_basic",
            text,
            &lines.of_each(&chain, &["auth_basic", "auth_basic_user_file"]),
        );
    }
    let asked = lines.of(&chain, &["auth_request"]);
    if settings.auth_request.auth_request.is_some() {
        report.say_by(
            "auth",
            "a sub-request is asked; taken to let pass here",
            &asked,
        );
    }
    let verdicts = [by_address, by_password];
    let is_any = settings.admission.satisfy == Satisfy::Any;
    let lets_pass = |verdict: &Verdict| matches!(verdict, Verdict::Passed);
    if is_any && (settings.auth_request.auth_request.is_some() || verdicts.iter().any(lets_pass)) {
        report.say_by(
            "satisfy",
            "one that lets pass is enough",
            &lines.of(&chain, &["satisfy"]),
        );
        return None;
    }
    // With `any`, a 401 is reported before a 403: the client may still authenticate.
    let refused = verdicts.into_iter().filter_map(|verdict| match verdict {
        Verdict::Refused(failure) => Some(failure),
        Verdict::Silent | Verdict::Passed => None,
    });
    let failure = match is_any {
        true => refused.min_by_key(|failure| failure.status),
        false => refused.into_iter().next(),
    };
    failure.map(Outcome::Failed)
}

fn tell_access(request: &Request, chain: &[&Directive], lines: &Lines<'_>, report: &mut Report) {
    let rules = &request.location().settings.access.rules;
    if rules.is_empty() {
        return;
    }
    let ip = request.client.ip();
    let written = lines.of(chain, &["allow", "deny"]);
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

/// Reports which of several files exists.
async fn tried(request: &mut Request, lines: &Lines<'_>, report: &mut Report) -> Option<Outcome> {
    let chain = chain(request, lines);
    let made = lines.of(&chain, &["try_files"]);
    request.location().settings.trying.try_files.as_ref()?;
    let before = request.uri.clone();
    let outcome = try_files::run(request).await;
    let text = match &outcome {
        None if before == request.uri => "there is what the URI names".to_owned(),
        None => format!("there is {}", shown(&request.uri)),
        Some(Outcome::Failed(failure)) => format!("nothing of it is there: {}", failure.status),
        Some(_) => "nothing of it is there: the last one is gone to".to_owned(),
    };
    report.say_by("try_files", text, &made);
    outcome
}

/// The content, as far as it needs no other server and no writing.
async fn made(request: &mut Request, lines: &Lines<'_>, report: &mut Report) -> Round {
    let chain = chain(request, lines);
    let mirrors = lines.of(&chain, &["mirror"]);
    if !mirrors.is_empty() {
        report.say_by(
            "mirror",
            "the request is also sent there, whose answer does not count",
            &mirrors,
        );
    }
    let location = request.location();
    if location.handler.is_some() || location.shown.is_some() {
        report.say_by(
            "content",
            "made by a module",
            &lines.of(
                &chain,
                &["stub_status", "metrics", "status_json", "dashboard"],
            ),
        );
        return Round::Told;
    }
    if location.passing.is_some() {
        passing::tell(request, lines, report);
        return Round::Told;
    }
    if location.tunnelling.is_some() {
        report.say_by("content", "a tunnel", &lines.of(&chain, &["tunnel_pass"]));
        return Round::Told;
    }
    let method = String::from_utf8_lossy(request.method_text()).into_owned();
    let dav = lines.of(&chain, &["dav_methods"]);
    if WRITES.contains(&method.as_str()) && !dav.is_empty() {
        report.say_by(
            "content",
            format!("{method} changes files, where dav_methods has it"),
            &dav,
        );
        return Round::Told;
    }
    if location.settings.empty_gif.empty_gif.is_some() {
        let made = lines.of(&chain, &["empty_gif"]);
        report.say_by("content", "a picture of one pixel", &made);
        return Round::Goes(content::make(request).await);
    }
    let films = lines.of(&chain, &["mp4", "flv"]);
    if !films.is_empty() {
        let text = "a film, from the time on that the arguments say";
        report.say_by("content", text, &films);
    }
    tell_file(request, lines, report);
    let is_directory = request.uri.ends_with(b"/");
    let outcome = content::make(request).await;
    if is_directory && let Outcome::Redirect(_) = &outcome {
        let (text, name) = match crate::content::random_index::is_on(request) {
            true => ("any file of the directory", "random_index"),
            false => ("there is a file for the directory", "index"),
        };
        report.say_by("index", text, &lines.of(&chain, &[name]));
    }
    if let Outcome::Failed(failure) = &outcome {
        tell_why(failure.status, is_directory, &chain, lines, report);
    }
    Round::Goes(outcome)
}

/// Reports why there is no file to send.
fn tell_why(
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
fn tell_file(request: &Request, lines: &Lines<'_>, report: &mut Report) {
    let chain = chain(request, lines);
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
    let probe = request.client.loop_.disk.disk().probe(&root);
    report.say("disk", probe.to_string());
    if let Ok(pool) = crate::content::files::pool(request) {
        let text = format!(
            "\"{}\", {} threads, for what is not in memory",
            pool.name(),
            pool.threads()
        );
        report.say_by("pool", text, &lines.of(&chain, &["aio"]));
    }
}

/// Reports a failure; returns its status.
fn tell_failure(
    outcome: &Outcome,
    request: &Request,
    lines: &Lines<'_>,
    report: &mut Report,
) -> Option<u16> {
    let Outcome::Failed(failure) = outcome else {
        return None;
    };
    report.say("status", failure.status.to_string());
    if !request.error_page_taken {
        let chain = chain(request, lines);
        let code = failure.status.to_string();
        let mut made = lines.of(&chain, &["error_page"]);
        made.retain(|line| line.args.iter().any(|word| word.display() == code));
        if let Some(first) = made.first() {
            report.say_by("error_page", "an error page covers it", &[first]);
        }
    }
    Some(failure.status)
}

fn tell_redirect(target: &Target, failed: Option<u16>, report: &mut Report) {
    let to = match target {
        Target::Uri(uri, args) => with_args(uri, args),
        Target::Named(name) => shown(name),
    };
    let why = failed.map_or_else(String::new, |status| format!(" for {status}"));
    report.say("goes on", format!("with {to}{why}"));
}
