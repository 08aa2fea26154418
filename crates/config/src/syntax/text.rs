//! The texts of a configuration, and positions in them.
//!
//! A text holds the bytes of a file as they were read, the globals of the command line, or a default from a directive
//! table. It is shared: every [`Word`](crate::Word) refers to its text, so that an error found long after parsing can
//! still name file and line. Invariant: a text's bytes never change, and are fewer than 4 GiB.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

/// The origin of a text, which decides how a message names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextOrigin {
    /// A file: named by its path and a line.
    File,
    /// The argument of `-g`: named "command line", as nginx does.
    CommandLine,
    /// The default of a directive, from its table: named "the default".
    Default,
}

/// One text of the configuration.
#[derive(PartialEq, Eq)]
pub struct Text {
    path: PathBuf,
    bytes: Bytes,
    origin: TextOrigin,
}

impl Text {
    /// The text of a file.
    #[must_use]
    pub fn file(path: PathBuf, bytes: Bytes) -> Self {
        Self {
            path,
            bytes,
            origin: TextOrigin::File,
        }
    }

    /// The globals of the command line (`-g`).
    #[must_use]
    pub fn command_line(globals: Bytes) -> Self {
        Self {
            path: PathBuf::new(),
            bytes: globals,
            origin: TextOrigin::CommandLine,
        }
    }

    /// The default of a directive.
    #[must_use]
    pub(crate) fn default_of(directive: &str, text: &str) -> Self {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        Self {
            path: PathBuf::from(directive),
            bytes,
            origin: TextOrigin::Default,
        }
    }

    /// The file's path as it was opened; empty for the command line.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes, unchanged.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The origin of the text.
    #[must_use]
    pub fn origin(&self) -> TextOrigin {
        self.origin
    }

    /// The line of the byte at `offset`, counted from 1.
    #[must_use]
    pub fn line_of(&self, offset: u32) -> usize {
        let before = &self.bytes[..self.bytes.len().min(offset as usize)];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// `FILE:LINE`, or `command line`.
    pub(crate) fn locate(&self, offset: u32) -> String {
        match self.origin {
            TextOrigin::File => format!("{}:{}", self.path.display(), self.line_of(offset)),
            TextOrigin::CommandLine => "command line".to_owned(),
            TextOrigin::Default => format!("the default of \"{}\"", self.path.display()),
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "Text({}, {} bytes)",
            self.path.display(),
            self.bytes.len()
        )
    }
}

/// A range of a text, as byte offsets; `end` is exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TextSpan {
    /// The offset of the first byte.
    pub start: u32,
    /// The offset after the last byte.
    pub end: u32,
}

impl TextSpan {
    /// The range from `start` to before `end`.
    pub(crate) fn new(start: usize, end: usize) -> Self {
        let offset = |at| {
            u32::try_from(at).expect("a text is shorter than 4 GiB: the loader refuses longer ones")
        };
        Self {
            start: offset(start),
            end: offset(end),
        }
    }
}

/// A range of a particular text: the position that an error points at.
#[derive(Clone, PartialEq, Eq)]
pub struct TextPlace {
    /// The text.
    pub text: Arc<Text>,
    /// The range within it.
    pub span: TextSpan,
}

/// `FILE:LINE` of its first byte.
impl fmt::Display for TextPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text.locate(self.span.start))
    }
}

impl fmt::Debug for TextPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Place({self})")
    }
}
