//! Hints from the text around an error: typical mistakes in a first configuration, which are found late and reported as
//! something else.
//!
//! Not here: what counts as an error. Invariant: this module accepts and refuses nothing; it only adds a hint below
//! nginx's sentence.

mod braces;

use std::sync::Arc;

use braces::Finding;

use crate::syntax::error::Error;
use crate::syntax::lookalikes;
use crate::syntax::text::{Text, TextOrigin, TextPlace};

/// The byte order mark that some editors write at the start of a text (U+FEFF in UTF-8).
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Characters that look like a space or are invisible.
const INVISIBLE: &str = "\u{a0}\u{2002}\u{2003}\u{2007}\u{2009}\u{202f}\u{200b}\u{3000}\u{feff}";
/// Words that continue a condition in other languages.
const ELSE: [&str; 3] = ["else", "elseif", "elsif"];
/// Bytes of a line that are examined on each side of the error.
const LINE_BYTES_MAX: usize = 4096;

impl Error {
    /// Adds a hint from the text around the position of the error.
    #[must_use]
    pub fn advised(self) -> Self {
        add(self)
    }
}

/// Adds the hint that the text gives; otherwise the error keeps its own.
pub(crate) fn add(error: Error) -> Error {
    let Some(place) = error
        .place()
        .filter(|place| place.text.origin() == TextOrigin::File)
    else {
        return error;
    };
    let found = about_characters(place).or_else(|| about_word(place, error.sentence()));
    if let Some(hint) = found {
        return error.with_hint(Some(&hint));
    }
    if braces::may_be_why(error.sentence()) {
        return about_braces(error);
    }
    error
}

fn about_characters(place: &TextPlace) -> Option<String> {
    let bytes = place.text.bytes();
    let start = place.span.start as usize;
    if bytes.starts_with(BYTE_ORDER_MARK) && start <= BYTE_ORDER_MARK.len() {
        let hint =
            "the file begins with a byte order mark (EF BB BF): save it as UTF-8 without one";
        return Some(hint.to_owned());
    }
    let line = line_around(bytes, start);
    let words = || line.split(|letter: char| letter.is_ascii_whitespace() || letter == ';');
    let quotes = |letter: &char| lookalikes::is_quote(*letter);
    let edges = words().flat_map(|word| word.chars().next().into_iter().chain(word.chars().last()));
    if let Some(quote) = edges.into_iter().find(quotes) {
        return Some(lookalikes::typeset(quote));
    }
    let marked = &bytes[start.min(bytes.len())..bytes.len().min(place.span.end as usize)];
    let marked = String::from_utf8_lossy(marked);
    let unseen = marked.chars().find(|letter| INVISIBLE.contains(*letter))?;
    Some(format!(
        "a character that looks like a space stands here (U+{:04X}): write a space in its place",
        unseen as u32
    ))
}

fn about_word(place: &TextPlace, sentence: &str) -> Option<String> {
    let name = sentence
        .strip_prefix("unknown directive \"")?
        .strip_suffix('"')?;
    if lookalikes::is_comment(name) {
        return Some(lookalikes::COMMENT.to_owned());
    }
    if ELSE.contains(&name) {
        let hint = "there is no \"else\": a \"map\" gives a variable its value for each case, and its default";
        return Some(hint.to_owned());
    }
    if name.starts_with("if(") {
        return Some("a space must stand between \"if\" and \"(\"".to_owned());
    }
    if name.starts_with('<') {
        let hint = "this is Apache's language: a block is \"server { … }\" or \"location PATH { … }\" here";
        return Some(hint.to_owned());
    }
    if name.contains('}') && before(place).ends_with('{') {
        let hint =
            "a \"{\" or \"}\" in a pattern opens or ends a block: put the whole pattern in quotes";
        return Some(hint.to_owned());
    }
    let letter = name
        .chars()
        .find(|letter| letter.is_alphabetic() && !letter.is_ascii())?;
    Some(format!(
        "\"{letter}\" (U+{:04X}) is no ASCII letter, however much it looks like one: type the name anew",
        letter as u32
    ))
}

fn about_braces(error: Error) -> Error {
    let (Some(place), Some(line)) = (error.place(), error.line()) else {
        return error;
    };
    let text: &Arc<Text> = &place.text;
    match braces::find(text) {
        Some(Finding::Unclosed { name, span, before }) if before <= line => {
            let opened = text.line_of(span.start);
            let hint = format!(
                "is a \"}}\" missing before line {before}? The block \"{name}\" of line {opened} is open there, and the line stands no deeper than that one"
            );
            let is_end = error.sentence().starts_with("unexpected end");
            let error = if is_end { error.marking(span) } else { error };
            error.with_hint(Some(&hint))
        }
        Some(Finding::TooMany { line: extra }) if extra <= line => error.with_hint(Some(&format!(
            "is the \"}}\" of line {extra} one too many? It ends a block whose line stands less deep"
        ))),
        _ => error,
    }
}

/// The line that holds the byte at `start`, without a comment that follows.
fn line_around(bytes: &[u8], start: usize) -> String {
    let start = start.min(bytes.len());
    let from = start.saturating_sub(LINE_BYTES_MAX);
    let to = bytes.len().min(start + LINE_BYTES_MAX);
    let begin = bytes[from..start].iter().rposition(|byte| *byte == b'\n');
    let end = bytes[start..to]
        .iter()
        .position(|byte| *byte == b'\n' || *byte == b'#');
    let line = &bytes[begin.map_or(from, |at| from + at + 1)..end.map_or(to, |at| start + at)];
    String::from_utf8_lossy(line).into_owned()
}

/// The part of the line before the position.
fn before(place: &TextPlace) -> String {
    let bytes = place.text.bytes();
    let start = bytes.len().min(place.span.start as usize);
    let from = start.saturating_sub(LINE_BYTES_MAX);
    let begin = bytes[from..start].iter().rposition(|byte| *byte == b'\n');
    String::from_utf8_lossy(&bytes[begin.map_or(from, |at| from + at + 1)..start]).into_owned()
}
