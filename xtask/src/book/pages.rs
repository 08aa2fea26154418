//! The pages of the book: what the summary lists, and the reference below it; where they stand in the book.
//!
//! Not here: their links ([`super::links`]). Invariant: paths are of the project, with `/`, without `.` and `..`.

use std::collections::BTreeSet;

use super::links;

pub const SUMMARY: &str = "docs/SUMMARY.md";
/// The page whose first list is inserted below its line of the summary.
pub const REFERENCE: &str = "docs/reference/README.md";

/// Where a file of the project stands in the book: `docs` is its root.
pub fn place(path: &str) -> String {
    let below = path.strip_prefix("docs/").map(str::to_owned);
    let place = below.unwrap_or_else(|| format!("project/{path}"));
    match place.strip_suffix("README.md") {
        Some(folder) => format!("{folder}index.md"),
        None => place,
    }
}

/// The file of the project that a link on a page means, and its anchor; none for links to elsewhere.
pub fn target(page: &str, link: &str) -> Option<(String, Option<String>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor.to_owned())),
        None => (link, None),
    };
    if path.is_empty() {
        return Some((page.to_owned(), anchor));
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some((parts.join("/"), anchor))
}

/// The way from one file of the book to another.
pub fn way(from: &str, to: &str) -> String {
    let from: Vec<&str> = from.split('/').collect();
    let to: Vec<&str> = to.split('/').collect();
    let folders = &from[..from.len() - 1];
    let same = folders.iter().zip(&to[..to.len() - 1]);
    let same = same.take_while(|(one, other)| one == other).count();
    let up = std::iter::repeat_n("..", folders.len() - same);
    up.chain(to[same..].iter().copied())
        .collect::<Vec<_>>()
        .join("/")
}

/// The pages that a text links to, in order.
pub fn listed(page: &str, text: &str) -> Vec<String> {
    let links = links::links(text);
    let targets = links
        .iter()
        .filter_map(|link| target(page, &text[link.range.clone()]));
    targets.map(|(path, _)| path).collect()
}

/// The first list of the reference's index: a line for each of its pages.
pub fn reference_lines(index: &str) -> Vec<&str> {
    let lines = index.lines().skip_while(|line| !line.starts_with("* "));
    lines.take_while(|line| line.starts_with("* ")).collect()
}

/// All pages of the book: those of the summary, then those of the reference's index.
pub fn all(summary: &str, index: &str) -> BTreeSet<String> {
    let mut pages: BTreeSet<String> = listed(SUMMARY, summary).into_iter().collect();
    pages.extend(listed(REFERENCE, &reference_lines(index).join("\n")));
    let above = listed(REFERENCE, index.split("\n* ").next().unwrap_or_default());
    pages.extend(above);
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_means_a_file_of_the_project() {
        let of = |page, link| target(page, link).map(|(path, _)| path);
        assert_eq!(of("docs/a.md", "../b/c.md#d").as_deref(), Some("b/c.md"));
        assert_eq!(of("docs/a.md", "#d").as_deref(), Some("docs/a.md"));
        assert_eq!(of("README.md", "docs/").as_deref(), Some("docs"));
        assert_eq!(of("docs/a.md", "https://a.example/"), None);
    }

    #[test]
    fn pages_have_places_and_ways_between_them() {
        assert_eq!(place("docs/README.md"), "index.md");
        assert_eq!(place("docs/reference/README.md"), "reference/index.md");
        assert_eq!(place("bench/README.md"), "project/bench/index.md");
        assert_eq!(way("reference/a.md", "index.md"), "../index.md");
        assert_eq!(way("a.md", "reference/b.md"), "reference/b.md");
        assert_eq!(way("a/b/c.md", "a/d.md"), "../d.md");
        assert_eq!(way("a/b.md", "a/c.md"), "c.md");
    }
}
