//! Values that are taken literally: flags, texts, paths.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::Value;
use crate::syntax::error::Problem;
use crate::syntax::tree::Word;
use crate::value::scope::Scope;

/// `on` or `off`, in any case.
pub type Flag = bool;

impl Value for Flag {
    const SYNTAX: &'static str = "on | off";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        let [word] = args else {
            return Err(Problem::directive("takes \"on\" or \"off\""));
        };
        if word.bytes().eq_ignore_ascii_case(b"on") {
            Ok(true)
        } else if word.bytes().eq_ignore_ascii_case(b"off") {
            Ok(false)
        } else {
            Err(Problem::invalid_value(word.bytes(), ", it must be \"on\" or \"off\"").at(0))
        }
    }
}

/// One word, taken literally; `$` has no meaning in it.
impl Value for Bytes {
    const SYNTAX: &'static str = "text";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        match args {
            [] => Ok(Self::new()),
            [word] => Ok(word.bytes().clone()),
            _ => Err(Problem::directive("takes one text")),
        }
    }
}

/// All arguments of the line, taken literally.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Words(pub Vec<Word>);

impl std::ops::Deref for Words {
    type Target = [Word];

    fn deref(&self) -> &[Word] {
        &self.0
    }
}

impl Value for Words {
    const SYNTAX: &'static str = "word …";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        Ok(Self(args.to_vec()))
    }
}

/// A path without variables, absolute or relative to a directory that the manual's page of the directive names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathText(pub Bytes);

impl PathText {
    /// Whether it names a file: as in nginx an empty name is none, which takes back that of the level above.
    #[must_use]
    pub fn is_named(&self) -> bool {
        !self.0.is_empty()
    }

    /// The path, resolved against `directory` if it is relative.
    #[must_use]
    pub fn resolve(&self, directory: &Path) -> PathBuf {
        directory.join(OsStr::from_bytes(&self.0))
    }
}

impl Value for PathText {
    const SYNTAX: &'static str = "path";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let path = Bytes::parse(args, scope)?;
        if path.contains(&0) {
            return Err(Problem::directive("has a path with a zero byte").at(0));
        }
        Ok(Self(path))
    }
}
