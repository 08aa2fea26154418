//! The configuration as a tree of directives.
//!
//! The tree holds the text as written, with each `include` replaced by the included lines. It does not hold their
//! meaning: [`Grammar`](crate::Grammar) checks names, contexts and argument counts, and the directive tables the
//! values.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::known;
use crate::syntax::error::{Error, Problem};
use crate::syntax::text::{Text, TextPlace, TextSpan};

/// Maximum nesting depth of blocks.
pub const BLOCKS_DEEP_MAX: usize = 100;

/// A word of a directive: its name or an argument, unquoted and unescaped.
#[derive(Clone, PartialEq, Eq)]
pub struct Word {
    bytes: Bytes,
    text: Arc<Text>,
    span: TextSpan,
    is_quoted: bool,
}

impl Word {
    pub(crate) fn new(bytes: Bytes, text: Arc<Text>, span: TextSpan, is_quoted: bool) -> Self {
        Self {
            bytes,
            text,
            span,
            is_quoted,
        }
    }

    /// The same word with other bytes, at the same place.
    pub(crate) fn with_bytes(self, bytes: Bytes) -> Self {
        Self { bytes, ..self }
    }

    /// The word's bytes, without quotes and with escapes undone. Not necessarily UTF-8.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The word for a message; invalid UTF-8 is replaced.
    #[must_use]
    pub fn display(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Whether the word was quoted. nginx never asks; in a quoted word `;` and `{` need no escape.
    #[must_use]
    pub fn is_quoted(&self) -> bool {
        self.is_quoted
    }

    /// The position of the word, including its quotes.
    #[must_use]
    pub fn place(&self) -> TextPlace {
        TextPlace {
            text: Arc::clone(&self.text),
            span: self.span,
        }
    }

    /// The error for a problem with this word, outside of the checks of any directive.
    #[must_use]
    pub fn error(&self, problem: &Problem) -> Error {
        Error::at(problem.sentence_for(&self.display()), &self.place()).with_hint(problem.hint())
    }
}

/// Compares the word's bytes.
impl PartialEq<str> for Word {
    fn eq(&self, other: &str) -> bool {
        self.bytes == other.as_bytes()
    }
}

/// Compares the word's bytes.
impl PartialEq<&str> for Word {
    fn eq(&self, other: &&str) -> bool {
        self.bytes == other.as_bytes()
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.display())
    }
}

/// A directive: a name, its arguments, and an optional block. In a block of data lines (`types`, `map`, …) each line is
/// one too, with its first word as the name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directive {
    /// The first word.
    pub name: Word,
    /// The words after it.
    pub args: Vec<Word>,
    /// The content of its block; `None` if it ended in `;`.
    pub block: Option<Vec<Directive>>,
    /// The offset of its `;` or `{`: nginx reports that line in errors.
    pub(crate) end: u32,
}

impl Directive {
    /// The range from its name to its `;` or `{`.
    #[must_use]
    pub fn place(&self) -> TextPlace {
        let mut place = self.name.place();
        place.span.end = self.end;
        place
    }

    /// The error for a problem with this directive: nginx's line, and the excerpt with the word marked that the problem
    /// is about (or else the directive's name).
    #[must_use]
    pub fn error(&self, problem: &Problem) -> Error {
        let word = problem
            .word()
            .and_then(|number| self.args.get(number))
            .unwrap_or(&self.name);
        let sentence = problem.sentence_for(&self.name.display());
        let error = Error::at(sentence, &word.place())
            .on_line_of(self.end)
            .of(problem.voice())
            .with_hint(problem.hint());
        match (problem.word(), self.swallowed()) {
            (Some(wrong), Some(swallowed)) if wrong >= swallowed.argument => {
                error.with_hint(Some(&swallowed.hint))
            }
            _ => error,
        }
    }

    /// The first argument that begins a line and is the name of a directive: the line before lacks its `;`.
    pub(crate) fn swallowed(&self) -> Option<Swallowed> {
        let mut before = self.name.place();
        for (argument, word) in self.args.iter().enumerate() {
            let place = word.place();
            let between = &place.text.bytes()[before.span.end as usize..place.span.start as usize];
            let opens_line = between.contains(&b'\n') && !word.is_quoted();
            if opens_line && !known::find(word.bytes()).is_empty() {
                let line = before.text.line_of(before.span.end);
                let hint = format!(
                    "is a \";\" missing before \"{}\", at the end of line {line}?",
                    word.display()
                );
                return Some(Swallowed { argument, hint });
            }
            before = place;
        }
        None
    }

    /// As [`Directive::error`], but a warning.
    #[must_use]
    pub fn warning(&self, problem: &Problem) -> Error {
        self.error(problem).into_warning()
    }

    /// The directives of its block; empty if it has no block.
    #[must_use]
    pub fn children(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// An argument that was meant as the next directive.
pub(crate) struct Swallowed {
    /// Its index among the arguments, counted from 0.
    pub(crate) argument: usize,
    /// The hint.
    pub(crate) hint: String,
}

/// What templates took from the environment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Taken {
    /// The variables that were asked for, with their values; `None`: not set.
    pub asked: BTreeMap<String, Option<Bytes>>,
    /// The words that were changed, at most one for each word of the text: where, and what stands there now.
    pub words: Vec<(TextPlace, Bytes)>,
}

/// A configuration as it was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    /// Every file once, in the order first opened; without the globals of the command line.
    pub texts: Vec<Arc<Text>>,
    /// Every pattern of an `include`, with the paths that it matched at that time (sorted).
    pub globs: Vec<(PathBuf, Vec<PathBuf>)>,
    /// The directives outside of all blocks: those of the command line, then the root file's.
    pub directives: Vec<Directive>,
    /// What templates took from the environment.
    pub(crate) taken: Taken,
}

impl Tree {
    /// Calls `see` for every directive, each before those within it; blocks nest at most
    /// [`BLOCKS_DEEP_MAX`](crate::BLOCKS_DEEP_MAX) deep.
    pub fn each<'a>(&'a self, see: &mut dyn FnMut(&'a Directive)) {
        fn all<'a>(lines: &'a [Directive], see: &mut dyn FnMut(&'a Directive)) {
            for line in lines {
                see(line);
                all(line.children(), see);
            }
        }
        all(&self.directives, see);
    }

    /// The output of `-T`: each file once, in the order first opened, its bytes unchanged, but for words of templates in
    /// which variables of the environment were replaced: these are written as they were read, in quotes.
    #[must_use]
    pub fn dump(&self) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        let mut out = Vec::new();
        for text in &self.texts {
            out.extend_from_slice(b"# configuration file ");
            out.extend_from_slice(text.path().as_os_str().as_bytes());
            out.extend_from_slice(b":\n");
            self.append_text(text, &mut out);
            out.push(b'\n');
        }
        out
    }

    fn append_text(&self, text: &Arc<Text>, out: &mut Vec<u8>) {
        let words = self.taken.words.iter();
        let mut changed: Vec<_> = words
            .filter(|(place, _)| Arc::ptr_eq(&place.text, text))
            .map(|(place, word)| (place.span, word))
            .collect();
        // A file that is included several times has its words several times.
        changed.sort_by_key(|(span, _)| span.start);
        changed.dedup_by_key(|(span, _)| span.start);
        let mut at = 0;
        for (span, word) in changed {
            out.extend_from_slice(&text.bytes()[at..span.start as usize]);
            append_quoted(word, out);
            at = span.end as usize;
        }
        out.extend_from_slice(&text.bytes()[at..]);
    }
}

/// Appends a word so that it is read as one word again, with these bytes.
fn append_quoted(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in bytes {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}
