//! A difference from nginx, and the lines that meet it.
//!
//! Not here: which there are ([`super::rows`]), and what is told of them ([`super::paragraphs`]).

use config::{Directive, Word};

/// When a difference is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Met {
    /// By every configuration; its lines are those that it is seen at.
    Every,
    /// By configurations with one of its lines.
    Lines,
    /// By an operator at the command line, not by requests.
    Command,
}

/// Which lines meet a difference. A line is `name` (unless it is switched off), `name=text` (one of its arguments begins
/// with the text; `name=`: any), `$variable` (any line that uses it; an `_` at the end stands for all that begin so), or
/// `$variable@name` (in lines of that name).
#[derive(Debug)]
pub(super) struct Row {
    /// The bold sentence that begins the paragraph.
    pub lead: &'static str,
    /// When it is met.
    pub met: Met,
    /// The lines.
    pub lines: &'static [&'static str],
}

macro_rules! rows {
    ($(#[doc = $doc:literal])* $($met:ident, $lead:literal: $($line:literal)*;)*) => {
        $(#[doc = $doc])*
        pub(super) const ROWS: &[Row] = &[$(Row {
            lead: $lead,
            met: super::difference::Met::$met,
            lines: &[$($line),*],
        },)*];
    };
}
pub(super) use rows;

impl Row {
    /// Whether a line of a configuration meets it.
    #[must_use]
    pub(super) fn is_met_by(&self, directive: &Directive) -> bool {
        self.lines.iter().any(|line| meets(line, directive))
    }
}

fn meets(line: &str, directive: &Directive) -> bool {
    if let Some(variable) = line.strip_prefix('$') {
        let (variable, name) = match variable.split_once('@') {
            Some((variable, name)) => (variable, Some(name)),
            None => (variable, None),
        };
        let is_there = name.is_none_or(|name| directive.name == *name);
        let mut words = directive.args.iter();
        return is_there && words.any(|word| uses(word, variable));
    }
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (line, None),
    };
    if directive.name != *name {
        return false;
    }
    match value {
        Some(value) => directive.args.iter().any(|word| begins(word, value)),
        None => !(directive.args.len() == 1 && directive.args[0] == "off"),
    }
}

fn begins(word: &Word, text: &str) -> bool {
    let bytes = word.bytes();
    bytes
        .get(..text.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(text.as_bytes()))
}

/// Whether a word has this variable.
fn uses(word: &Word, variable: &str) -> bool {
    let text = word.display().to_ascii_lowercase();
    text.split('$').skip(1).any(|rest| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        let Some(behind) = rest.strip_prefix(variable) else {
            return false;
        };
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        variable.ends_with('_') || !behind.starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_meet_what_they_name() {
        let tree = config::parse_bytes(
            b"gzip off; gzip on; aio threads=x; log_format a '${upstream_status}'; set $b $upstream_statuses; if (-f x) { }",
        )
        .unwrap();
        let met = |line: &str| -> Vec<bool> {
            let all = tree.directives.iter();
            all.map(|directive| meets(line, directive)).collect()
        };
        let only = |at: usize| -> Vec<bool> { (0..6).map(|number| number == at).collect() };
        assert_eq!(met("gzip"), only(1));
        assert_eq!(met("gzip=off"), only(0));
        assert_eq!(met("aio=threads"), only(2));
        assert_eq!(met("$upstream_status"), only(3));
        assert_eq!(met("$upstream_status@log_format"), only(3));
        assert_eq!(met("$upstream_status@set"), only(9));
        assert_eq!(met("if=(-"), only(5));
    }
}
