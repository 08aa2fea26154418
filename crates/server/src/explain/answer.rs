//! The explanation of a response: its header as it would be sent, and the lines that add to it or change its body.

use config::Directive;
use message::{Method, date};
use wire::http1::response_writer;

use crate::settings::tables::{ADDED_TO_HEADS, BODY_FILTERS};
use httpcore::Response;
use httpcore::connection::absolute_redirect;
use httpcore::request::Request;

use super::lines::Lines;
use super::report::Report;

/// The answer's head, and the lines that added to it.
pub(super) fn tell_answer(
    request: &mut Request,
    mut response: Box<Response>,
    lines: &Lines<'_>,
    report: &mut Report,
) {
    let chain = lines.chain(request);
    absolute_redirect::complete(request, &mut response);
    let mut head = Vec::new();
    let context = response_writer::HeadContext {
        server_line: b"",
        date: &date::format(0),
        connection: response_writer::ConnectionHeader::Close,
        is_chunked: false,
    };
    response.omits_date = true;
    response_writer::head(&mut head, &response, &context);
    let head = String::from_utf8_lossy(&head).into_owned();
    let shown: Vec<&str> = head
        .lines()
        .filter(|line| !line.is_empty() && *line != "Connection: close")
        .collect();
    report.pause();
    report.say("answer", shown.join("\n"));
    let mut added = lines.of_each(&chain, &adding());
    added.retain(|line| adds(line, &shown));
    if !added.is_empty() {
        report.say_by("added", "to its head", &added);
    }
    tell_hidden(&chain, "add_header", lines, report);
    tell_filters(&chain, lines, report);
    request.response = Some(response);
    if request.method == Method::Head {
        report.say("body", "none: the method is HEAD");
    }
}

/// The directives that add to a head.
fn adding() -> Vec<&'static str> {
    ADDED_TO_HEADS.iter().map(|(name, _)| *name).collect()
}

/// Did this line add to this head?
fn adds(line: &Directive, head: &[&str]) -> bool {
    let has = |name: &str| {
        let mut names = head.iter().filter_map(|line| line.split(':').next());
        names.any(|known| known.eq_ignore_ascii_case(name))
    };
    if line.name == "add_header" {
        return line.args.first().is_some_and(|name| has(&name.display()));
    }
    let mut known = ADDED_TO_HEADS.iter();
    let known = known.find(|(directive, _)| line.name == **directive);
    known.is_none_or(|(_, names)| names.is_empty() || names.iter().any(|name| has(name)))
}

/// The lines that may add to an answer's head or change its body.
pub(super) fn tell_added(chain: &[&Directive], lines: &Lines<'_>, report: &mut Report) {
    let added = lines.of_each(chain, &adding());
    if !added.is_empty() {
        report.say_by(
            "added",
            "to its head, as far as its status has them",
            &added,
        );
    }
    tell_hidden(chain, "add_header", lines, report);
    tell_filters(chain, lines, report);
}

/// The lines around that an inner level's own ones keep from being obeyed: what operators look for longest.
pub(super) fn tell_hidden(
    chain: &[&Directive],
    name: &str,
    lines: &Lines<'_>,
    report: &mut Report,
) {
    let hidden = lines.hidden(chain, name);
    // With that line they may be obeyed.
    let may_be_obeyed =
        name == "add_header" && !lines.of(chain, &["add_header_inherit"]).is_empty();
    if !hidden.is_empty() && !may_be_obeyed {
        let text = format!("not obeyed: an inner level has lines of {name} of its own");
        report.say_aside("hidden", &text, &hidden);
    }
}

fn tell_filters(chain: &[&Directive], lines: &Lines<'_>, report: &mut Report) {
    let filters = lines.of_each(chain, BODY_FILTERS);
    if !filters.is_empty() {
        let text = "that may change its body, as far as request and answer are for it";
        report.say_by("filters", text, &filters);
    }
}
