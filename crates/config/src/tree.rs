//! The configuration as a tree of directives.
//!
//! What was written, with `include` already replaced by what it included; not what it means: names, contexts and argument
//! counts are [`Grammar`](crate::Grammar)'s, values are the directive tables'.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Problem};
use crate::known;
use crate::text::{Place, Span, Text};

/// A word of a directive: its name or an argument, unquoted and unescaped.
#[derive(Clone, PartialEq, Eq)]
pub struct Word {
    bytes: Bytes,
    text: Arc<Text>,
    span: Span,
    is_quoted: bool,
}

impl Word {
    pub(crate) fn new(bytes: Bytes, text: Arc<Text>, span: Span, is_quoted: bool) -> Self {
        Self {
            bytes,
            text,
            span,
            is_quoted,
        }
    }

    /// The word's bytes (not always UTF-8), without quotes and with escapes undone.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The word for a message; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn display(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Whether the word stood in quotes. nginx never asks; a `;` or `{` in it needs none.
    #[must_use]
    pub fn is_quoted(&self) -> bool {
        self.is_quoted
    }

    /// Where the word stands, quotes included.
    #[must_use]
    pub fn place(&self) -> Place {
        Place {
            text: Arc::clone(&self.text),
            span: self.span,
        }
    }

    /// The error of a problem with this word, outside of any directive's own checks.
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

/// A directive: a name, its arguments, and a block where it has one. In a block of data lines (`types`, `map`, …) also
/// such a line, whose first word is then the "name".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directive {
    /// The first word.
    pub name: Word,
    /// The words after it.
    pub args: Vec<Word>,
    /// What stands between its braces; `None` when it ended in `;`.
    pub block: Option<Vec<Directive>>,
    /// The offset of its `;` or `{`: nginx names that line in errors.
    pub(crate) end: u32,
}

impl Directive {
    /// From its name to its `;` or `{`.
    #[must_use]
    pub fn place(&self) -> Place {
        let mut place = self.name.place();
        place.span.end = self.end;
        place
    }

    /// The error of a problem with this directive: nginx's line, with the word marked that the problem names (else the
    /// directive's name).
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

    /// The first argument that opens a line and is the name of a directive: the `;` of the line before was forgotten.
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

    /// The same as [`Directive::error`], but a warning.
    #[must_use]
    pub fn warning(&self, problem: &Problem) -> Error {
        self.error(problem).as_warning()
    }

    /// The directives of its block; none when it has no block.
    #[must_use]
    pub fn children(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// An argument that was meant as the next directive.
pub(crate) struct Swallowed {
    /// Its number, counted from 0.
    pub(crate) argument: usize,
    /// What helps.
    pub(crate) hint: String,
}

/// A configuration as it was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    /// Every file, once, in the order first opened; the globals of the command line are not among them.
    pub texts: Vec<Arc<Text>>,
    /// Every pattern that an `include` had, with the paths that it matched then (sorted).
    pub globs: Vec<(PathBuf, Vec<PathBuf>)>,
    /// The directives outside of every block: the command line's first, then the root file's.
    pub directives: Vec<Directive>,
}

impl Tree {
    /// Shows every directive, each before those inside of it; blocks nest at most [`BLOCKS_DEEP_MAX`](crate::BLOCKS_DEEP_MAX) deep.
    pub fn each<'a>(&'a self, see: &mut dyn FnMut(&'a Directive)) {
        fn all<'a>(lines: &'a [Directive], see: &mut dyn FnMut(&'a Directive)) {
            for line in lines {
                see(line);
                all(line.children(), see);
            }
        }
        all(&self.directives, see);
    }

    /// What `-T` prints: each file once, in the order first opened, its bytes unchanged.
    #[must_use]
    pub fn dump(&self) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        let mut out = Vec::new();
        for text in &self.texts {
            out.extend_from_slice(b"# configuration file ");
            out.extend_from_slice(text.path().as_os_str().as_bytes());
            out.extend_from_slice(b":\n");
            out.extend_from_slice(text.bytes());
            out.push(b'\n');
        }
        out
    }
}
