//! The page: a report as text of at most 100 columns.
//!
//! Not here: what is told ([`super::report`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::report::{Reason, Refusal, Report, Runs};

/// Columns of a line; commands may be longer.
const COLUMNS: usize = 100;
/// The place of the complete texts.
const PAGE: &str = "docs/differences.md";

/// The text. `is_long`: differences whole, and not only their first sentences.
#[must_use]
pub(super) fn page(report: &Report, is_long: bool) -> String {
    let mut out = String::new();
    verdict(&mut out, report);
    refusals(&mut out, "Refused", &report.refused);
    refusals(
        &mut out,
        "Refers to what is refused, and is judged with it",
        &report.follows,
    );
    list(&mut out, "Not judged on this machine", &report.unjudged);
    list(
        &mut out,
        "Missing on this machine (nginx would not start here, either)",
        &report.missing,
    );
    reasons(&mut out, "Ignored", &report.ignored);
    list(&mut out, "Warnings", &report.warnings);
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
    differences(&mut out, report, is_long);
    commands(&mut out, "To try it beside nginx", &report.steps.trial);
    commands(
        &mut out,
        "To switch without a lost connection (docs/upgrading.md)",
        &report.steps.switch,
    );
    commands(&mut out, "To go back", &report.steps.back);
    out
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

fn differences(out: &mut String, report: &Report, is_long: bool) {
    if !report.differences.is_empty() {
        title(
            out,
            &format!("Differences that this configuration meets ({PAGE} has all of them)"),
        );
    }
    for difference in &report.differences {
        let text = match is_long {
            true => &difference.text[..],
            false => sentence(&difference.text, difference.lead),
        };
        let names: Vec<_> = difference.directives.iter().map(String::as_str).collect();
        let more = match difference.lines {
            1 => String::new(),
            lines => format!(" and {} more", lines - 1),
        };
        let by = format!("[{}: {}{more}]", names.join(", "), difference.first);
        wrapped(out, "  - ", &format!("{text} {by}"));
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
