//! Man pages in mdoc: Markdown of the tables in, lines of mdoc out.
//!
//! Of Markdown it knows what the tables use: paragraphs, lists with `*`, code between backticks, links. Invariant: no line of text
//! begins with a control character, is longer than [`COLUMNS`] (but for a longer word), or has a second sentence in it, so that
//! `mandoc -Tlint` finds nothing.

use message::date::Civil;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of bytes of a line of text.
const COLUMNS: usize = 78;
/// The time that a reproducible build names, in seconds since 1970.
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// A page that grows.
pub(super) struct Page(String);

impl Page {
    /// The head of a page: its title, section, name and the line of its name.
    pub(super) fn new(title: &str, section: u8, name: &str, about: &str) -> Self {
        let mut page = Self(String::new());
        let _ = write!(
            page.0,
            ".\\\" Made by \"freewheel --generate {name}.{section}\".\n.Dd {}\n.Dt {title} {section}\n.Os\n",
            date()
        );
        page.section("NAME");
        let _ = write!(page.0, ".Nm {name}\n.Nd {about}\n");
        page
    }

    /// The page's text.
    pub(super) fn end(self) -> String {
        self.0
    }

    /// A section.
    pub(super) fn section(&mut self, name: &str) {
        let _ = writeln!(self.0, ".Sh {}", words(name));
    }

    /// A part of a section.
    pub(super) fn part(&mut self, name: &str) {
        let _ = writeln!(self.0, ".Ss {}", words(name));
    }

    /// A line that is mdoc already.
    pub(super) fn line(&mut self, line: &str) {
        let _ = writeln!(self.0, "{line}");
    }

    /// Paragraphs in Markdown; `.Pp` stands between them, not before the first.
    pub(super) fn text(&mut self, markdown: &str) {
        for (at, block) in blocks(markdown).iter().enumerate() {
            if at > 0 && !block.is_item {
                self.line(".Pp");
            }
            if block.begins_list {
                self.line(".Bl -bullet -compact");
            }
            if block.is_item {
                self.line(".It");
            }
            self.paragraph(&block.text);
            if block.ends_list {
                self.line(".El");
            }
        }
    }

    /// Lines as they are, in a fixed face.
    pub(super) fn literal(&mut self, lines: &str) {
        self.line(".Bd -literal -compact");
        for line in lines.lines() {
            let line = escaped(line);
            self.line(&guarded(&line));
        }
        self.line(".Ed");
    }

    /// One paragraph, a line for each sentence or part of one.
    fn paragraph(&mut self, text: &str) {
        let mut line = String::new();
        let mut is_code = false;
        for word in unlinked(text).split_whitespace() {
            let shown = fonts(word, &mut is_code);
            let is_first = line.is_empty();
            if !is_first && line.len() + 1 + shown.len() > COLUMNS {
                self.line(&guarded(&line));
                line.clear();
            } else if !is_first {
                line.push(' ');
            }
            line.push_str(&shown);
            if !is_code && ends_sentence(word) {
                self.line(&guarded(&line));
                line.clear();
            }
        }
        if !line.is_empty() {
            self.line(&guarded(&line));
        }
    }
}

/// A paragraph or an item of a list.
struct Block {
    text: String,
    is_item: bool,
    begins_list: bool,
    ends_list: bool,
}

/// The paragraphs and items of a text.
fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for line in markdown.lines() {
        let line = line.trim();
        let item = line.strip_prefix("* ");
        match (item, line.is_empty()) {
            (None, true) => is_open = false,
            (None, false) if is_open => {
                if let Some(last) = blocks.last_mut() {
                    last.text.push('\n');
                    last.text.push_str(line);
                }
            }
            _ => {
                blocks.push(Block {
                    text: item.unwrap_or(line).to_owned(),
                    is_item: item.is_some(),
                    begins_list: false,
                    ends_list: false,
                });
                is_open = true;
            }
        }
    }
    let items: Vec<bool> = blocks.iter().map(|block| block.is_item).collect();
    for (at, block) in blocks
        .iter_mut()
        .enumerate()
        .filter(|(_, block)| block.is_item)
    {
        block.begins_list = at == 0 || !items[at - 1];
        block.ends_list = items.get(at + 1) != Some(&true);
    }
    blocks
}

/// A text whose links are their words.
fn unlinked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let parts = link.split_once("](").and_then(|(words, behind)| {
            let (_, after) = behind.split_once(')')?;
            (!words.contains(']')).then_some((words, after))
        });
        out.push_str(before);
        match parts {
            Some((words, after)) => {
                out.push_str(words);
                rest = after;
            }
            None => {
                out.push('[');
                rest = link;
            }
        }
    }
    out.push_str(rest);
    out
}

/// A word whose backticks are changes of the face.
fn fonts(word: &str, is_code: &mut bool) -> String {
    let mut out = String::new();
    for (at, part) in word.split('`').enumerate() {
        if at > 0 {
            *is_code = !*is_code;
            out.push_str(if *is_code { "\\fB" } else { "\\fP" });
        }
        out.push_str(&escaped(part));
    }
    out
}

/// A text without characters that mean something to the formatter, and without letters beyond ASCII.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            ' '..='~' => out.push(letter),
            '\t' => out.push_str("    "),
            other => {
                let _ = write!(out, "\\[u{:04X}]", u32::from(other));
            }
        }
    }
    out
}

/// Words behind a macro, none of which is taken for a macro.
pub(super) fn words(text: &str) -> String {
    let guarded = text.split_whitespace().map(|word| {
        let word = escaped(word).replace('"', "\\(dq");
        match word.len() <= 3 {
            true => format!("\\&{word}"),
            false => word,
        }
    });
    guarded.collect::<Vec<_>>().join(" ")
}

/// A line of text that is not taken for a request.
fn guarded(line: &str) -> String {
    match line.starts_with(['.', '\'']) || line.is_empty() {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    }
}

/// Whether the next sentence begins behind this word.
fn ends_sentence(word: &str) -> bool {
    word.trim_end_matches([')', '"', '`', '\'', '*'])
        .ends_with(['.', '!', '?', ':'])
}

/// The page's date: of [`EPOCH`], else today's.
fn date() -> String {
    let named = std::env::var(EPOCH).ok().and_then(|text| text.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    let day = Civil::at(i64::try_from(named.unwrap_or(now)).unwrap_or_default());
    let month = MONTHS[(day.month as usize).clamp(1, 12) - 1];
    format!("{month} {}, {}", day.day, day.year)
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(markdown: &str) -> String {
        let mut page = Page(String::new());
        page.text(markdown);
        page.end()
    }

    #[test]
    fn paragraphs_become_lines_of_sentences() {
        assert_eq!(
            lines_of("Sets `a b`. See [that\npage](x.md).\n\n.5 is \\n…"),
            "Sets \\fBa b\\fP.\nSee that page.\n.Pp\n\\&.5 is \\en\\[u2026]\n"
        );
        let long = lines_of(&"some words ".repeat(40));
        assert!(long.lines().all(|line| line.len() <= COLUMNS), "{long}");
    }

    #[test]
    fn lists_are_opened_and_closed() {
        assert_eq!(
            lines_of("Some:\n* one\n  goes on;\n* two.\n\nThen."),
            "Some:\n.Bl -bullet -compact\n.It\none goes on;\n.It\ntwo.\n.El\n.Pp\nThen.\n"
        );
    }

    #[test]
    fn no_word_is_a_macro() {
        assert_eq!(
            words("In \"a\" file-name"),
            "\\&In \\(dqa\\(dq \\&file\\-name".replace("\\&file", "file")
        );
    }
}
