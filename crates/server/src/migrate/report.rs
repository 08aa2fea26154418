//! What is told of a configuration, as data: the lines, sorted by what becomes of them.
//!
//! Not here: the form ([`super::page`]; `--json` is this, serialized). Invariant: every directive that was read is in exactly
//! one of `same`, `different`, `needless`, `ignored` and `refused`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use config::known::Fate;
use config::{Directive, Error, Fault, Grammar, Standing, Voice};
use serde::Serialize;

use super::difference::{Met, Row};
use super::gains;
use super::judging::Judged;
use super::paragraphs::{self, Paragraph};
use super::steps::{Steps, is_relative};

/// Whether a configuration runs here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Runs {
    /// As it is.
    Unchanged,
    /// Something is refused.
    Refused,
    /// Nothing is refused, but something could not be judged, or is missing.
    Unjudged,
}

/// See the module.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The configuration file.
    pub root: String,
    /// Number of files read.
    pub files: usize,
    /// Number of directives read, without lines of data.
    pub directives: usize,
    /// The verdict.
    pub runs: Runs,
    /// Directives that are the same, with the number of their lines.
    pub same: BTreeMap<String, usize>,
    /// Directives that are built and meet a difference, or a warning is about them.
    pub different: BTreeMap<String, usize>,
    /// Directives whose purpose is met without them.
    pub needless: BTreeMap<String, Reason>,
    /// Directives that are ignored.
    pub ignored: BTreeMap<String, Reason>,
    /// What is refused.
    pub refused: Vec<Refusal>,
    /// What only refers to something that is refused.
    pub follows: Vec<Refusal>,
    /// What could not be judged on this machine.
    pub unjudged: Vec<String>,
    /// What is missing on this machine.
    pub missing: Vec<String>,
    /// Warnings.
    pub warnings: Vec<String>,
    /// What gets better by itself.
    pub better: Vec<&'static str>,
    /// Differences that lines of this configuration meet.
    pub differences: Vec<Difference>,
    /// Differences that every configuration meets: their first sentences.
    pub everywhere: Vec<&'static str>,
    /// How to try it, to switch, and to go back.
    pub steps: Steps,
}

/// A number of lines, and why they have no effect.
#[derive(Debug, Serialize)]
pub(super) struct Reason {
    /// The number of lines.
    pub count: usize,
    /// The reason.
    pub why: String,
}

/// A line that is refused.
#[derive(Debug, Serialize)]
pub(super) struct Refusal {
    /// The directive; empty for an error of syntax.
    pub directive: String,
    /// Whether the message is one that nginx has, too: then it may refuse the line as well.
    pub is_of_nginx: bool,
    /// The sentence, with file and line.
    pub sentence: String,
    /// What to do instead.
    pub instead: Option<String>,
    /// Number of directives in its block, which were not judged.
    pub inside: usize,
}

/// A difference that lines of the configuration meet.
#[derive(Debug, Serialize)]
pub(super) struct Difference {
    /// Its first words in docs/differences.md.
    pub lead: &'static str,
    /// Its paragraph there.
    pub text: String,
    /// The heading that the paragraph stands under, and the link to it.
    pub section: &'static str,
    /// See `section`.
    pub link: String,
    /// The directives that meet it.
    pub directives: BTreeSet<String>,
    /// The first line that does: file and number.
    pub first: String,
    /// Number of lines that do.
    pub lines: usize,
}

impl Report {
    /// Sorts what was judged.
    pub(super) fn of(root: &Path, judged: &Judged, grammar: &Grammar) -> Self {
        let faults = || judged.faults.iter().chain(&judged.follows);
        let refused: usize = faults()
            .filter_map(|fault| fault.directive.as_ref())
            .map(|directive| 1 + inside(directive))
            .sum();
        let runs = match (faults().next(), &judged.unjudged[..], &judged.missing[..]) {
            (Some(_), ..) => Runs::Refused,
            (None, [], []) => Runs::Unchanged,
            (None, ..) => Runs::Unjudged,
        };
        let about = |error: &&Error| error.voice() != Voice::NoEffect;
        let mut report = Self {
            root: root.display().to_string(),
            files: judged.tree.texts.len(),
            directives: refused,
            runs,
            same: BTreeMap::new(),
            different: BTreeMap::new(),
            needless: BTreeMap::new(),
            ignored: BTreeMap::new(),
            refused: judged.faults.iter().map(refusal).collect(),
            follows: judged.follows.iter().map(refusal).collect(),
            unjudged: judged.unjudged.clone(),
            missing: judged.missing.clone(),
            warnings: judged.warnings.iter().filter(about).map(told).collect(),
            better: gains::of(&judged.tree),
            differences: Vec::new(),
            everywhere: Vec::new(),
            steps: Steps::of(root, &judged.tree),
        };
        report.sort(judged, grammar);
        report
    }

    fn sort(&mut self, judged: &Judged, grammar: &Grammar) {
        let mut rows: Vec<_> = paragraphs::all()
            .map(|(row, paragraph)| (row, met(row, paragraph)))
            .collect();
        let mut relative = Vec::new();
        grammar.each(&judged.tree, &mut |directive, standing| {
            self.directives += 1;
            let name = directive.name.display().into_owned();
            let mut is_met = false;
            for (row, difference) in rows.iter_mut().filter(|(row, _)| row.is_met_by(directive)) {
                is_met |= row.met != Met::Command;
                difference.add(directive);
            }
            if is_relative(directive) {
                is_met = true;
                relative.push(directive.place().to_string());
            }
            let about = |warning: &&Error| is_about(warning, directive, &name);
            let warning = judged.warnings.iter().find(about);
            if let Some(warning) = warning.filter(|one| one.voice() == Voice::NoEffect) {
                let sentence = warning.sentence().to_owned();
                return note(&mut self.ignored, name, &sentence);
            }
            match standing {
                Standing::Known(row) => match row.fate {
                    Fate::Met(why) => note(&mut self.needless, name, why),
                    Fate::Ignored(why) => note(&mut self.ignored, name, why),
                    // A switch that is off asks for nothing.
                    Fate::NotYet | Fate::Refused(_) => *self.same.entry(name).or_default() += 1,
                },
                Standing::Built(_) if is_met || warning.is_some() => {
                    *self.different.entry(name).or_default() += 1;
                }
                Standing::Built(_) => *self.same.entry(name).or_default() += 1,
            }
        });
        if let Some(first) = relative.first() {
            let count = relative.len();
            self.warnings.push(format!(
                "{count} relative paths, the first in {first}, start at the prefix: start Freewheel with -p and nginx's (\"nginx -V\" says --prefix)"
            ));
        }
        // Of a directive one line of which is different, none is told to be the same.
        let names: Vec<_> = self.different.keys().cloned().collect();
        for name in names {
            let same = self.same.remove(&name).unwrap_or_default();
            *self.different.entry(name).or_default() += same;
        }
        for (row, difference) in rows {
            match row.met {
                Met::Every => self.everywhere.push(row.lead),
                Met::Lines if difference.lines > 0 => self.differences.push(difference),
                Met::Lines | Met::Command => {}
            }
        }
    }
}

impl Difference {
    fn add(&mut self, directive: &Directive) {
        self.lines += 1;
        self.directives
            .insert(directive.name.display().into_owned());
        if self.first.is_empty() {
            self.first = directive.place().to_string();
        }
    }
}

fn met(row: &'static Row, paragraph: Paragraph) -> Difference {
    Difference {
        lead: row.lead,
        text: paragraph.text,
        section: paragraph.section,
        link: paragraphs::link(paragraph.section),
        directives: BTreeSet::new(),
        first: String::new(),
        lines: 0,
    }
}

/// Whether a warning is about this directive. One without effect is told once for all lines of its name.
fn is_about(warning: &Error, directive: &Directive, name: &str) -> bool {
    let Some(place) = warning.place() else {
        return false;
    };
    let own = directive.place();
    let is_same_text = std::sync::Arc::ptr_eq(&own.text, &place.text);
    let is_inside = (own.span.start..own.span.end).contains(&place.span.start);
    let is_named = warning.sentence().contains(&format!("\"{name}\""));
    (is_same_text && is_inside && directive.block.is_none())
        || (warning.voice() == Voice::NoEffect && is_named)
}

fn note(all: &mut BTreeMap<String, Reason>, name: String, why: &str) {
    let reason = all.entry(name).or_insert_with(|| Reason {
        count: 0,
        why: why.to_owned(),
    });
    reason.count += 1;
}

fn told(error: &Error) -> String {
    let hint = error.hint().map(|hint| format!(" ({hint})"));
    format!("{error}{}", hint.unwrap_or_default())
}

fn refusal(fault: &Fault) -> Refusal {
    let directive = fault.directive.as_ref();
    Refusal {
        directive: directive.map_or_else(String::new, |line| line.name.display().into_owned()),
        is_of_nginx: fault.error.voice() == Voice::Nginx,
        sentence: fault.error.to_string(),
        instead: fault.error.hint().map(str::to_owned),
        inside: directive.map_or(0, inside),
    }
}

/// Number of directives in a block; the nesting is bounded by [`config::BLOCKS_DEEP_MAX`].
fn inside(directive: &Directive) -> usize {
    let children = directive.children();
    children.iter().map(|line| 1 + inside(line)).sum()
}
