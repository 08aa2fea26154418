//! The paragraphs of docs/differences.md, each with its row.
//!
//! Not here: the rows ([`super::rows`]). Invariant: what is printed of a difference is what the page says.

use std::borrow::Cow;

use super::difference::Row;
use super::rows::ROWS;

/// The page; the link beside it makes it part of the package.
const PAGE: &str = include_str!("../../differences.md");

/// All rows, each with its paragraph, without marks of Markdown.
pub(super) fn all() -> impl Iterator<Item = (&'static Row, String)> {
    ROWS.iter().map(|row| (row, paragraph(row.lead)))
}

/// The paragraph that begins with this sentence; empty if the page has none.
fn paragraph(lead: &str) -> String {
    let mut all = paragraphs();
    let found = all.find(|(known, _)| *known == lead);
    let (_, text) = found.unwrap_or_default();
    plain(&text)
}

/// Each paragraph of the page that begins with a bold sentence: that sentence, and the whole.
fn paragraphs() -> impl Iterator<Item = (Cow<'static, str>, String)> {
    let blocks = PAGE.split("\n\n");
    let parts = blocks.flat_map(|block| block.split("\n* "));
    parts.filter_map(|part| {
        let part = part.trim().trim_start_matches("* ");
        let (lead, _) = part.strip_prefix("**")?.split_once("**")?;
        let whole: Vec<&str> = part.split_whitespace().collect();
        Some((Cow::Owned(lead.replace('\n', " ")), whole.join(" ")))
    })
}

/// Without the marks of Markdown.
fn plain(text: &str) -> String {
    let mut out = text.replace("**", "").replace('`', "");
    while let Some(start) = out.find("](") {
        let Some(length) = out[start..].find(')') else {
            break;
        };
        out.replace_range(start..=start + length, "");
        if let Some(open) = out[..start].rfind('[') {
            out.remove(open);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::difference::Met;

    #[test]
    fn the_page_and_the_rows_are_the_same() {
        let page: Vec<_> = paragraphs().map(|(lead, _)| lead).collect();
        let rows: Vec<_> = ROWS.iter().map(|row| row.lead).collect();
        assert_eq!(
            page, rows,
            "each paragraph of docs/differences.md has its row in migrate/rows.rs"
        );
    }

    #[test]
    fn every_line_names_a_directive_or_a_variable() {
        let tables = crate::process::tables();
        let is_directive = |name: &str| {
            !config::known::find(name.as_bytes()).is_empty()
                || tables
                    .iter()
                    .any(|table| table.named(name.as_bytes()).next().is_some())
        };
        for line in ROWS.iter().flat_map(|row| row.lines) {
            let name = match line.strip_prefix('$') {
                Some(variable) => match variable.split_once('@') {
                    Some((_, name)) => name,
                    None => continue,
                },
                None => line.split_once('=').map_or(*line, |(name, _)| name),
            };
            assert!(is_directive(name), "{line}");
        }
        for row in ROWS.iter().filter(|row| row.met == Met::Lines) {
            assert!(!row.lines.is_empty(), "{}", row.lead);
        }
    }

    #[test]
    fn marks_are_left_out() {
        assert_eq!(plain("**A `b`** [c d](e.md) f."), "A b c d f.");
    }
}
