//! The observer of the steps: has each reported as it runs.
//!
//! Invariant: content that asks another server or writes is reported and not made; a step or a kind of content that is
//! not known here appears under its own name.

use std::cell::RefCell;
use std::net::IpAddr;

use bytes::Bytes;
use config::Directive;

use crate::settings::told::How;
use httpcore::Failure;
use httpcore::outcome::{Outcome, Target};
use httpcore::request::Request;
use httpcore::settings::admission::Satisfy;
use httpcore::steps::observe::{Obeyed, Observe};
use httpcore::steps::satisfy::Verdict;
use modules::before::try_files;

use super::lines::Lines;
use super::report::Report;
use super::values::ValuesBefore;
use super::{findings, passing};
use crate::explain::lines;
use crate::explain::values;

/// The text for a `rewrite` that does not match.
const UNCHANGED: &str = "changes nothing";
/// Methods that change files where `dav_methods` has them.
const WRITES: &[&str] = &["PUT", "DELETE", "MKCOL", "COPY", "MOVE"];

/// Reports the steps of one request.
pub struct Observer<'l, 'a> {
    lines: &'l Lines<'a>,
    seen: RefCell<ObserverState<'a>>,
}

/// The report, and what is remembered from one step to the next.
struct ObserverState<'a> {
    report: Report,
    /// The client's address as it was reported last.
    ip: Option<IpAddr>,
    /// The instructions of the program that runs.
    instructions: Vec<&'a Directive>,
    /// The values before the instruction that runs.
    values: Option<ValuesBefore>,
    /// The URI and its arguments before the step that runs.
    uri: (Bytes, Bytes),
    has_limits: bool,
    has_film: bool,
    has_file: bool,
    /// The status of the round's failure.
    failed: Option<u16>,
    is_made: bool,
}

impl<'l, 'a> Observer<'l, 'a> {
    /// Goes on with this report.
    pub fn new(request: &Request, lines: &'l Lines<'a>, report: Report) -> Self {
        let seen = ObserverState {
            report,
            ip: request.client.ip(),
            instructions: Vec::new(),
            values: None,
            uri: (Bytes::new(), Bytes::new()),
            has_limits: false,
            has_film: false,
            has_file: false,
            failed: None,
            is_made: true,
        };
        Self {
            lines,
            seen: seen.into(),
        }
    }

    /// The report, and whether the content was made.
    pub fn into_report(self) -> (Report, bool) {
        let seen = self.seen.into_inner();
        (seen.report, seen.is_made)
    }
}

impl Observe for &Observer<'_, '_> {
    fn begins(self, _: &Request) {
        let seen = &mut *self.seen.borrow_mut();
        seen.report.pause();
        seen.has_limits = false;
        seen.has_film = false;
        seen.has_file = false;
        seen.failed = None;
    }

    fn lets(self, step: &'static str, request: &mut Request) -> bool {
        let seen = &mut *self.seen.borrow_mut();
        seen.uri = (
            request.uri.clone(),
            request.args.clone().unwrap_or_default(),
        );
        let Some(told) = findings::told(step) else {
            return true;
        };
        match told.how {
            How::Limit => seen.tell_limits(request, self.lines),
            How::Instead(title, text) => {
                let made = self.lines.of(&self.lines.chain(request), told.lines);
                if !made.is_empty() {
                    seen.report.say_by(title, text, &made);
                }
            }
            How::Silent => {}
            How::Judge(..) | How::Film => return true,
        }
        false
    }

    fn ran(self, step: &'static str, request: &Request, outcome: Option<&Outcome>) {
        let seen = &mut *self.seen.borrow_mut();
        let (lines, report) = (self.lines, &mut seen.report);
        match step {
            "find_location" => findings::tell_location(request, lines, report),
            "real_ip" => seen.tell_ip(request, lines),
            "client_max_body_size" if outcome.is_some() => {
                findings::tell_long_body(request, lines, report);
            }
            "try_files" if try_files::is_on(request.location()) => {
                findings::tell_tried(request, &seen.uri.0, outcome, lines, report);
            }
            // Its judges were reported.
            "satisfy" | "client_max_body_size" => {}
            step => findings::tell_step(step, request, outcome, lines, report),
        }
    }

    fn judged(self, judge: &'static str, request: &Request, verdict: &Verdict) {
        let seen = &mut *self.seen.borrow_mut();
        let (lines, report) = (self.lines, &mut seen.report);
        let chain = lines.chain(request);
        match judge {
            "access" => findings::tell_access(request, lines, report),
            judge if let Some(told) = findings::told(judge) => {
                findings::tell_verdict(told, verdict, &chain, lines, report);
            }
            judge => {
                let text = match verdict {
                    Verdict::Silent => "has no verdict".to_owned(),
                    Verdict::Passed => "lets it pass".to_owned(),
                    Verdict::Refused(failure) => format!("refuses it: {}", failure.status),
                };
                report.say_by(judge, text, &lines.of(&chain, &[judge]));
            }
        }
        let is_enough = request.location().settings.admission.satisfy == Satisfy::Any;
        if is_enough && matches!(verdict, Verdict::Passed) {
            let text = "one that lets pass is enough";
            report.say_by("satisfy", text, &lines.of(&chain, &["satisfy"]));
        }
    }

    fn obeys(self, request: &Request, at: usize) {
        let seen = &mut *self.seen.borrow_mut();
        if at == 0 {
            seen.instructions.clear();
            if let Some(block) = self.lines.chain(request).last() {
                lines::instructions(block, &mut seen.instructions);
            }
        }
        seen.uri = (
            request.uri.clone(),
            request.args.clone().unwrap_or_default(),
        );
        let line = seen.instructions.get(at);
        seen.values = line.map(|line| values::before(request, self.lines, line));
    }

    fn obeyed(self, request: &Request, obeyed: &Obeyed) {
        let seen = &mut *self.seen.borrow_mut();
        let line = seen.instructions.get(obeyed.at).copied();
        let (Some(line), Some(before)) = (line, seen.values.take()) else {
            return;
        };
        let is_new = seen.uri.0 != request.uri || seen.uri.1 != request.args();
        let text = match &line.name.bytes()[..] {
            _ if obeyed.has_answered => "answers".to_owned(),
            b"if" if obeyed.next == obeyed.at + 1 => "holds".to_owned(),
            b"if" => "does not hold".to_owned(),
            _ if is_new => {
                let uri = findings::with_args(&request.uri, request.args());
                format!("the URI is now {uri}")
            }
            b"rewrite" => UNCHANGED.to_owned(),
            _ => "is obeyed".to_owned(),
        };
        let used = match text == UNCHANGED {
            true => Vec::new(),
            false => values::after(request, before, self.lines, line),
        };
        seen.report.say_with("rewrite", &text, line, used);
    }

    fn makes(self, content: &'static str, request: &mut Request) -> bool {
        let seen = &mut *self.seen.borrow_mut();
        let lines = self.lines;
        let chain = lines.chain(request);
        seen.tell_limits(request, lines);
        let report = &mut seen.report;
        seen.is_made = match content {
            "empty_gif" => {
                let made = lines.of(&chain, &["empty_gif"]);
                report.say_by("content", "a picture of one pixel", &made);
                true
            }
            film if findings::told(film).is_some_and(|told| told.how == How::Film) => {
                seen.tell_film(&chain, lines);
                seen.tell_file(request, lines);
                true
            }
            "random_index" | "index" | "autoindex" | "gzip_static" | "static_files" => {
                seen.tell_file(request, lines);
                true
            }
            "dav" => !tell_writing(request, &chain, lines, report),
            "proxy" => {
                passing::tell(request, lines, report);
                false
            }
            "tunnel_pass" => {
                report.say_by("content", "a tunnel", &lines.of(&chain, &["tunnel_pass"]));
                false
            }
            "module" | "status" => {
                let names = ["stub_status", "metrics", "status_json", "dashboard"];
                let made = lines.of(&chain, &names);
                report.say_by("content", "made by a module", &made);
                false
            }
            content => {
                let made = lines.of(&chain, &[content]);
                report.say_by("content", format!("made by {content}"), &made);
                false
            }
        };
        seen.is_made
    }

    fn made(self, content: &'static str, request: &Request, outcome: Option<&Outcome>) {
        let seen = &mut *self.seen.borrow_mut();
        let (lines, report) = (self.lines, &mut seen.report);
        let chain = lines.chain(request);
        let text = match (content, outcome) {
            (_, Some(Outcome::Failed(failure))) => {
                let is_directory = request.uri.ends_with(b"/");
                return findings::tell_why(failure.status, is_directory, &chain, lines, report);
            }
            ("random_index", Some(Outcome::Redirect(_))) => "any file of the directory",
            ("index", Some(Outcome::Redirect(_))) => "there is a file for the directory",
            _ => return,
        };
        report.say_by("index", text, &lines.of(&chain, &[content]));
    }

    fn fails(self, request: &Request, failure: &Failure) {
        let seen = &mut *self.seen.borrow_mut();
        seen.failed = Some(failure.status);
        findings::tell_failure(failure.status, request, self.lines, &mut seen.report);
    }

    fn goes_on(self, _: &Request, target: &Target, is_last: bool) {
        let seen = &mut *self.seen.borrow_mut();
        findings::tell_redirect(target, seen.failed, &mut seen.report);
        if is_last {
            seen.report.say("cycle", "more than 10 changes of the URI");
        }
    }
}

impl ObserverState<'_> {
    /// Once in a round.
    fn tell_limits(&mut self, request: &Request, lines: &Lines<'_>) {
        if !std::mem::replace(&mut self.has_limits, true) {
            findings::tell_limits(request, lines, &mut self.report);
        }
    }

    /// Once in a round.
    fn tell_file(&mut self, request: &Request, lines: &Lines<'_>) {
        if !std::mem::replace(&mut self.has_file, true) {
            findings::tell_file(request, lines, &mut self.report);
        }
    }

    /// Once in a round.
    fn tell_film(&mut self, chain: &[&Directive], lines: &Lines<'_>) {
        if !std::mem::replace(&mut self.has_film, true) {
            let text = "a film, from the time on that the arguments say";
            let made = lines.of(chain, &findings::lines_of(How::Film));
            self.report.say_by("content", text, &made);
        }
    }

    /// Reports the client's address, where a proxy names another one.
    fn tell_ip(&mut self, request: &Request, lines: &Lines<'_>) {
        let known = std::mem::replace(&mut self.ip, request.client.ip());
        if let Some(ip) = self.ip.filter(|ip| Some(*ip) != known) {
            let chain = lines.chain(request);
            let made = lines.of_each(&chain, &["set_real_ip_from", "real_ip_header"]);
            let text = format!("{ip}, as a trusted proxy says");
            self.report.say_by("from", text, &made);
        }
    }
}

/// Reports a method that changes files, if there are such lines.
fn tell_writing(
    request: &Request,
    chain: &[&Directive],
    lines: &Lines<'_>,
    report: &mut Report,
) -> bool {
    let method = String::from_utf8_lossy(request.method_text()).into_owned();
    let dav = lines.of(chain, &["dav_methods"]);
    let writes = WRITES.contains(&method.as_str()) && !dav.is_empty();
    if writes {
        let text = format!("{method} changes files, where dav_methods has it");
        report.say_by("content", text, &dav);
    }
    writes
}
