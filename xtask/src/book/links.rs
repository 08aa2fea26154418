//! Links and headings of a Markdown text.
//!
//! Not a parser of Markdown: it knows fences, code between backticks, `](target)` and `#` headings, which is what the documents use.
//! Invariant: ranges are of the text as it was given, so that targets can be replaced.

use std::collections::BTreeMap;
use std::ops::Range;

/// A link or an image.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// Where its target stands in the text.
    pub range: Range<usize>,
    /// Its line, from 1.
    pub line: usize,
}

/// The lines outside of fences, each with its number from 1 and its offset.
fn lines(text: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    let (mut offset, mut is_fenced) = (0, false);
    text.split_inclusive('\n')
        .enumerate()
        .filter_map(move |(at, line)| {
            let start = offset;
            offset += line.len();
            let is_fence = line.trim_start().starts_with("```");
            is_fenced ^= is_fence;
            (!is_fence && !is_fenced).then_some((at + 1, start, line))
        })
}

/// All links, in order.
pub fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, offset, line) in lines(text) {
        if line.trim().is_empty() {
            is_code = false;
        }
        let mut at = 0;
        while let Some(byte) = line.as_bytes().get(at) {
            if *byte == b'`' {
                is_code = !is_code;
            }
            if !is_code && line.as_bytes()[at..].starts_with(b"](") {
                let rest = &line[at + 2..];
                let end = rest.find([')', ' ', '\n']).unwrap_or(rest.len());
                found.push(Link {
                    range: offset + at + 2..offset + at + 2 + end,
                    line: number,
                });
                at += 2 + end;
                continue;
            }
            at += 1;
        }
    }
    found
}

/// The anchors of all headings, as mdBook and GitHub make them, and those that are written as `<a id="…">`.
pub fn anchors(text: &str) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = Vec::new();
    for (_, _, line) in lines(text) {
        for rest in line.split("<a id=\"").skip(1) {
            anchors.extend(rest.split('"').next().map(str::to_owned));
        }
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let slug = slug(heading.trim());
        let count = counts.entry(slug.clone()).or_default();
        anchors.push(match *count {
            0 => slug,
            number => format!("{slug}-{number}"),
        });
        *count += 1;
    }
    anchors
}

fn slug(heading: &str) -> String {
    let mut slug = String::new();
    for letter in words_of(heading).chars() {
        match letter {
            ' ' => slug.push('-'),
            '-' | '_' => slug.push(letter),
            letter if letter.is_alphanumeric() => slug.extend(letter.to_lowercase()),
            _ => {}
        }
    }
    slug
}

/// A text whose links are their words.
fn words_of(text: &str) -> String {
    let mut out = text.to_owned();
    for link in links(text).iter().rev() {
        out.replace_range(
            link.range.start - 1..(link.range.end + 1).min(out.len()),
            "",
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<&str> {
        let links = links(text);
        links.iter().map(|link| &text[link.range.clone()]).collect()
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let text =
            "[a](x.md#y) `[b](z)` ![c](i.png)\n```\n[d](q)\n```\n[e](../f \"title\") `a\nb` [g](h)";
        assert_eq!(targets(text), ["x.md#y", "i.png", "../f", "h"]);
        assert_eq!(links(text)[2].line, 5);
    }

    #[test]
    fn anchors_are_those_of_headings() {
        let text = "# A `b_c`: d?\n## Same\n## Same\n```\n# none\n```\n#none\n<a id=\"own\"></a>\n### See [x](y.md)\n";
        assert_eq!(anchors(text), ["a-b_c-d", "same", "same-1", "own", "see-x"]);
    }
}
