//! The page: a report as text of at most 100 columns.
//!
//! Not here: what is told ([`super::report`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::report::{Difference, Reason, Refusal, Report, Runs};

/// Columns of a line; commands may be longer.
const COLUMNS: usize = 100;
/// The place of the complete texts.
const PAGE: &str = "docs/differences.md";

/// Directives that a difference is shown with; more are an ellipsis.
const NAMES_MAX: usize = 3;
/// Maximum length of the place of a difference's first line, in characters; a longer path loses its first directories.
const PLACE_MAX: usize = 40;

/// The page that is read once: the verdict, what stands in the way, what to do, and the differences, each with one sentence.
#[must_use]
pub(super) fn short(report: &Report) -> String {
    let mut out = String::new();
    verdict(&mut out, report);
    obstacles(&mut out, report);
    to_do(&mut out, report);
    brief_differences(&mut out, report);
    let _ = writeln!(
        out,
        "\nWith --long: every directive by what becomes of it, {} things that get better by themselves,\n\
         {} differences that every configuration meets, and all texts.",
        report.better.len(),
        report.everywhere.len()
    );
    out
}

/// The page with all that is known.
#[must_use]
pub(super) fn long(report: &Report) -> String {
    let mut out = String::new();
    verdict(&mut out, report);
    obstacles(&mut out, report);
    counts(
        &mut out,
        "The same, beside the differences that every configuration meets",
        &report.same,
    );
    counts(
        &mut out,
        "Works, with a difference below or a warning above",
        &report.different,
    );
    reasons(&mut out, "Needs nothing here", &report.needless);
    list(&mut out, "Gets better by itself", &report.better);
    differences(&mut out, report);
    out.push('\n');
    out.push_str(&steps(report));
    out
}

/// The commands.
#[must_use]
pub(super) fn steps(report: &Report) -> String {
    let mut out = String::new();
    commands(&mut out, "To try it beside nginx", &report.steps.trial);
    commands(
        &mut out,
        "To switch without a lost connection (docs/upgrading.md)",
        &report.steps.switch,
    );
    commands(&mut out, "To go back", &report.steps.back);
    out.trim_start().to_owned()
}

/// What is not as it should be, whole in each form of the page.
fn obstacles(out: &mut String, report: &Report) {
    refusals(out, "Refused", &report.refused);
    refusals(
        out,
        "Refers to what is refused, and is judged with it",
        &report.follows,
    );
    list(out, "Not judged on this machine", &report.unjudged);
    list(
        out,
        "Missing on this machine (nginx would not start here, either)",
        &report.missing,
    );
    reasons(out, "Ignored", &report.ignored);
    list(out, "Warnings", &report.warnings);
}

fn to_do(out: &mut String, report: &Report) {
    title(out, "To do");
    if !report.refused.is_empty() {
        wrapped(
            out,
            "  - ",
            "change what is refused, or take it out; what is written to be filled in by a script is judged when it is filled in",
        );
    }
    if !report.unjudged.is_empty() || !report.missing.is_empty() {
        wrapped(
            out,
            "  - ",
            "ask again where it can be judged: as root, on the machine that serves it",
        );
    }
    if !report.differences.is_empty() {
        wrapped(out, "  - ", "read the differences below");
    }
    wrapped(
        out,
        "  - ",
        "try it beside nginx, on other ports; switch without a lost connection; go back: the commands for it are printed by",
    );
    let _ = writeln!(out, "      freewheel migrate --steps {}", report.root);
}

fn brief_differences(out: &mut String, report: &Report) {
    if report.differences.is_empty() {
        return;
    }
    let count = report.differences.len();
    title(
        out,
        &format!("{count} differences that this configuration meets, with the first line of each"),
    );
    let mut section = "";
    for difference in &report.differences {
        if difference.section != section {
            section = difference.section;
            let _ = writeln!(out, "  {section}: {}", difference.link);
        }
        wrapped(out, "  - ", &brief(difference, &report.root));
    }
}

/// A difference in a sentence: its bold words, or its first sentence where they are less than one; and its first line.
fn brief(difference: &Difference, root: &str) -> String {
    let directory = root.rsplit_once('/').map_or("", |(directory, _)| directory);
    let first = difference.first.strip_prefix(directory);
    let first = first.and_then(|path| path.strip_prefix('/'));
    let first = first.unwrap_or(&difference.first);
    let mut names: Vec<_> = difference.directives.iter().map(String::as_str).collect();
    if names.len() > NAMES_MAX {
        names.truncate(NAMES_MAX);
        names.push("…");
    }
    let by = met_by(&names, &end_of_path(first), difference.lines);
    format!("{} {by}", told(difference).trim_end_matches('.'))
}

/// What is told of a difference.
fn told(difference: &Difference) -> Cow<'_, str> {
    match difference.lead.ends_with('.') {
        true => Cow::Owned(difference.lead.replace('`', "")),
        false => Cow::Borrowed(sentence(&difference.text, difference.lead)),
    }
}

/// A path and its line, without the first directories where it is long; a longer name loses its first letters.
fn end_of_path(path: &str) -> Cow<'_, str> {
    let length = path.chars().count();
    if length <= PLACE_MAX {
        return Cow::Borrowed(path);
    }
    let room = PLACE_MAX - 2;
    let start = path.char_indices().nth(length - room);
    let end = start.map_or(path, |(start, _)| &path[start..]);
    match end.split_once('/') {
        Some((_, end)) => Cow::Owned(format!("…/{end}")),
        None => Cow::Owned(format!("…{end}")),
    }
}

/// The lines that meet a difference.
fn met_by(names: &[&str], first: &str, lines: usize) -> String {
    let more = match lines {
        1 => String::new(),
        lines => format!(" and {} more", lines - 1),
    };
    format!("[{}: {first}{more}]", names.join(", "))
}

fn verdict(out: &mut String, report: &Report) {
    let sentence = match report.runs {
        Runs::Unchanged => "It runs unchanged.",
        Runs::Refused => "It does not run unchanged: see what is refused.",
        Runs::Unjudged => {
            "Nothing is refused; something could not be judged, or is missing, on this machine."
        }
    };
    let _ = writeln!(
        out,
        "{}: {} directives in {} files\n{sentence}",
        report.root, report.directives, report.files
    );
    let sum = |counts: &BTreeMap<String, usize>| counts.values().sum::<usize>();
    let all = |reasons: &BTreeMap<String, Reason>| {
        reasons.values().map(|reason| reason.count).sum::<usize>()
    };
    let refused = report.refused.iter().chain(&report.follows);
    let refused: usize = refused
        .map(|one| one.inside + usize::from(!one.directive.is_empty()))
        .sum();
    let _ = writeln!(
        out,
        "{} lines are the same, {} work with a difference, {} need nothing here, {} are ignored, {refused} are refused.",
        sum(&report.same),
        sum(&report.different),
        all(&report.needless),
        all(&report.ignored),
    );
}

fn title(out: &mut String, text: &str) {
    let _ = writeln!(out, "\n{text}:");
}

fn list<T: AsRef<str>>(out: &mut String, heading: &str, items: &[T]) {
    if items.is_empty() {
        return;
    }
    title(out, heading);
    for item in items {
        wrapped(out, "  - ", item.as_ref());
    }
}

fn refusals(out: &mut String, heading: &str, all: &[Refusal]) {
    if all.is_empty() {
        return;
    }
    title(out, heading);
    for one in all {
        let inside = match one.inside {
            0 => String::new(),
            count => format!(", with {count} directives inside"),
        };
        wrapped(out, "  - ", &format!("{}{inside}", one.sentence));
        if let Some(instead) = &one.instead {
            wrapped(out, "      instead: ", instead);
        }
    }
}

fn reasons(out: &mut String, heading: &str, all: &BTreeMap<String, Reason>) {
    if all.is_empty() {
        return;
    }
    title(out, heading);
    for (name, reason) in all {
        let text = format!("{name} ({}): {}", reason.count, reason.why);
        wrapped(out, "  - ", &text);
    }
}

fn counts(out: &mut String, heading: &str, all: &BTreeMap<String, usize>) {
    if all.is_empty() {
        return;
    }
    title(out, heading);
    let all = all.iter().map(|(name, count)| match count {
        1 => name.clone(),
        count => format!("{name} ({count})"),
    });
    wrapped(out, "  ", &all.collect::<Vec<_>>().join(", "));
}

fn differences(out: &mut String, report: &Report) {
    if !report.differences.is_empty() {
        title(
            out,
            &format!("Differences that this configuration meets ({PAGE} has all of them)"),
        );
    }
    for difference in &report.differences {
        let names: Vec<_> = difference.directives.iter().map(String::as_str).collect();
        let by = met_by(&names, &difference.first, difference.lines);
        wrapped(out, "  - ", &format!("{} {by}", difference.text));
    }
    title(
        out,
        &format!("Differences that every configuration meets, by their first words in {PAGE}"),
    );
    let leads = report.everywhere.iter();
    let leads: Vec<_> = leads
        .map(|lead| lead.trim_end_matches(['.', ':', ',']).replace('`', ""))
        .collect();
    wrapped(out, "  ", &leads.join("; "));
}

/// The text up to the end of the first sentence that tells more than the bold words.
fn sentence<'t>(text: &'t str, lead: &str) -> &'t str {
    let least = lead.replace('`', "").len();
    let behind = text.get(least..).unwrap_or_default();
    let end = behind.find(". ").map(|at| least + at + 1);
    &text[..end.unwrap_or(text.len())]
}

fn commands(out: &mut String, heading: &str, lines: &[String]) {
    title(out, heading);
    for line in lines {
        let _ = writeln!(out, "  {line}");
    }
}

/// A paragraph whose first line begins with `mark` and whose others are as far to the right.
fn wrapped(out: &mut String, mark: &str, text: &str) {
    let mut line = mark.to_owned();
    let indent = " ".repeat(mark.chars().count());
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let length = line.chars().count() + 1 + word.chars().count();
        if !is_empty && length > COLUMNS {
            let _ = writeln!(out, "{}", line.trim_end());
            line.clone_from(&indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maximum length of what is told of a difference on the page, in characters: two lines.
    const SENTENCE_MAX: usize = 192;

    #[test]
    fn a_long_path_keeps_its_end() {
        let kept = "sites-available/conf.d/10_loop.conf:100";
        assert_eq!(end_of_path(kept), kept);
        let long = "/tmp/a/directory/of/somebody/sites-available/example.org.conf:12";
        assert_eq!(end_of_path(long), "…/sites-available/example.org.conf:12");
        let name = format!("/etc/{}.conf:1", "é".repeat(60));
        let end = format!("…{}.conf:1", "é".repeat(31));
        assert_eq!(end_of_path(&name), end);
    }

    #[test]
    fn a_place_is_told_from_the_directory_of_the_configuration() {
        let place = |first: &str| {
            let difference = difference("A lead.", "A lead.", first);
            brief(&difference, "/etc/nginx/nginx.conf")
        };
        assert!(place("/etc/nginx/a.conf:1").contains(": a.conf:1 and"));
        assert!(place("/etc/nginx-old/a.conf:1").contains(": /etc/nginx-old/a.conf:1 and"));
    }

    #[test]
    fn a_difference_is_told_in_a_whole_sentence() {
        for (row, paragraph) in crate::migrate::paragraphs::all() {
            let path =
                "/home/somebody/projects/infrastructure/roles/web/sites-available/loop.conf:100";
            let difference = difference(row.lead, &paragraph.text, path);
            let sentence = told(&difference).into_owned();
            let length = sentence.chars().count();
            assert!(
                length <= SENTENCE_MAX,
                "{length} characters; end the sentence before its details: {sentence}"
            );
            let mut out = String::new();
            wrapped(
                &mut out,
                "  - ",
                &brief(&difference, "/etc/nginx/nginx.conf"),
            );
            assert!(out.lines().count() <= 3, "{out}");
            assert!(
                out.lines().all(|line| line.chars().count() <= COLUMNS),
                "{out}"
            );
            let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
            let by = "[a_directive, b_directive, c_directive, …: …/web/sites-available/loop.conf:100 and 9 more]";
            let whole = format!("- {} {by}", sentence.trim_end_matches('.'));
            assert_eq!(flat, whole);
        }
    }

    fn difference(lead: &'static str, text: &str, first: &str) -> Difference {
        Difference {
            lead,
            text: text.to_owned(),
            section: "Processes",
            link: String::new(),
            directives: ["a_directive", "b_directive", "c_directive", "d"]
                .map(str::to_owned)
                .into(),
            first: first.to_owned(),
            lines: 10,
        }
    }
}
