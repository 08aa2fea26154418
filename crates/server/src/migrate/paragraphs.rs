//! The paragraphs of docs/differences.md, each with its row and its section.
//!
//! Not here: the rows ([`super::rows`]). Invariant: what is printed of a difference is what the page says.

use super::difference::Row;
use super::rows::ROWS;

/// The page; the link beside it makes it part of the package.
const PAGE: &str = include_str!("../../differences.md");

/// A paragraph of the page.
#[derive(Debug, Default)]
pub(super) struct Paragraph {
    /// The text, without marks of Markdown.
    pub text: String,
    /// The heading that it stands under.
    pub section: &'static str,
}

/// All rows, each with its paragraph.
pub(super) fn all() -> impl Iterator<Item = (&'static Row, Paragraph)> {
    ROWS.iter().map(|row| (row, paragraph(row.lead)))
}

/// Where a section of the page is, as a link.
#[must_use]
pub(super) fn link(section: &str) -> String {
    let anchor = section.to_lowercase().replace(' ', "-");
    format!("docs/differences.md#{anchor}")
}

/// The paragraph that begins with this sentence; empty if the page has none.
fn paragraph(lead: &str) -> Paragraph {
    let mut all = paragraphs().into_iter();
    let found = all.find(|(known, _)| *known == lead);
    found.map(|(_, paragraph)| paragraph).unwrap_or_default()
}

/// Each paragraph of the page that begins with a bold sentence: that sentence, and the whole.
fn paragraphs() -> Vec<(String, Paragraph)> {
    let mut all = Vec::new();
    let mut section = "";
    for block in PAGE.split("\n\n") {
        if let Some(heading) = block.trim().strip_prefix("## ") {
            section = heading;
        }
        for part in block.split("\n* ") {
            let part = part.trim().trim_start_matches("* ");
            let Some((lead, _)) = part
                .strip_prefix("**")
                .and_then(|rest| rest.split_once("**"))
            else {
                continue;
            };
            let whole: Vec<&str> = part.split_whitespace().collect();
            let text = plain(&whole.join(" "));
            all.push((lead.replace('\n', " "), Paragraph { text, section }));
        }
    }
    all
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
        let paragraphs = paragraphs();
        assert!(
            paragraphs
                .iter()
                .all(|(_, paragraph)| !paragraph.section.is_empty())
        );
        let page: Vec<_> = paragraphs.into_iter().map(|(lead, _)| lead).collect();
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
    fn a_paragraph_is_linked_by_its_section() {
        let found = paragraph("All loops share the state of a group's servers,");
        assert_eq!(link(found.section), "docs/differences.md#upstream-groups");
        assert!(PAGE.contains("\n## Upstream groups\n"));
    }

    #[test]
    fn marks_are_left_out() {
        assert_eq!(plain("**A `b`** [c d](e.md) f."), "A b c d f.");
    }
}
