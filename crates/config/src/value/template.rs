//! Text with variables: `$uri`, `${uri}`, and captures `$1` to `$9`.
//!
//! Parsed once. To evaluate a template, walk over [`Template::parts`]; a text without variables is available directly
//! as [`Template::literal`]. The server knows the values of the variables.

use std::sync::Arc;

use bytes::Bytes;

use crate::syntax::error::Problem;
use crate::syntax::text::TextPlace;
use crate::syntax::tree::Word;
use crate::value::Value;
use crate::value::scope::{Scope, VariableIndex};

/// A part of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TemplatePart {
    /// Literal text; never empty.
    Literal(Bytes),
    /// The value of a variable.
    Variable(VariableIndex),
    /// A capture of the last regular expression, 1 to 9.
    Capture(u8),
}

/// Text with variables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    source: Bytes,
    parts: Arc<[TemplatePart]>,
    is_literal: bool,
}

impl Template {
    /// A literal text, in which `$` has no meaning.
    #[must_use]
    pub fn from_literal(text: Bytes) -> Self {
        let parts = if text.is_empty() {
            Vec::new()
        } else {
            vec![TemplatePart::Literal(text.clone())]
        };
        Self {
            source: text,
            parts: parts.into(),
            is_literal: true,
        }
    }

    /// Parses a word.
    ///
    /// # Errors
    /// As in nginx: `invalid variable name`, `the closing bracket in "x" variable is missing`.
    pub fn of_word(word: &Word, scope: &mut Scope) -> Result<Self, Problem> {
        Self::parse(word.bytes(), &word.place(), scope)
    }

    /// Parses a text at `place`, such as the part of a word after `pool=`.
    ///
    /// # Errors
    /// As [`Template::of_word`].
    pub fn parse(text: &Bytes, place: &TextPlace, scope: &mut Scope) -> Result<Self, Problem> {
        let mut parts = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let (part, next) = if text[at] == b'$' {
                reference(text, at + 1, place, scope)?
            } else {
                let length = text[at..]
                    .iter()
                    .position(|byte| *byte == b'$')
                    .unwrap_or(text.len() - at);
                (
                    TemplatePart::Literal(text.slice(at..at + length)),
                    at + length,
                )
            };
            parts.push(part);
            at = next;
        }
        let is_literal = parts
            .iter()
            .all(|part| matches!(part, TemplatePart::Literal(_)));
        Ok(Self {
            source: text.clone(),
            parts: parts.into(),
            is_literal,
        })
    }

    /// The whole text, if it has no variable and no capture.
    #[must_use]
    pub fn literal(&self) -> Option<&Bytes> {
        self.is_literal.then_some(&self.source)
    }

    /// The parts, in order; none if the text is empty.
    #[must_use]
    pub fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    /// The variables in it, in order.
    pub fn variables(&self) -> impl Iterator<Item = VariableIndex> + '_ {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Variable(index) => Some(*index),
            TemplatePart::Literal(_) | TemplatePart::Capture(_) => None,
        })
    }

    /// The text as it was written.
    #[must_use]
    pub fn source(&self) -> &Bytes {
        &self.source
    }

    /// Whether it uses `$1` to `$9`.
    #[must_use]
    pub fn has_captures(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, TemplatePart::Capture(_)))
    }
}

impl Value for Template {
    const SYNTAX: &'static str = "text";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        match args {
            [word] => Self::of_word(word, scope).map_err(|problem| problem.at(0)),
            [] => Ok(Self::from_literal(Bytes::new())),
            _ => Err(Problem::directive("takes one text")),
        }
    }
}

/// Parses the reference that begins at `at`, after a `$`; returns it with the offset after it.
fn reference(
    text: &Bytes,
    at: usize,
    place: &TextPlace,
    scope: &mut Scope,
) -> Result<(TemplatePart, usize), Problem> {
    let invalid = || {
        Problem::new("invalid variable name")
            .hint_that("a name follows \"$\": letters, digits, \"_\"")
    };
    let first = *text.get(at).ok_or_else(invalid)?;
    if (b'1'..=b'9').contains(&first) {
        return Ok((TemplatePart::Capture(first - b'0'), at + 1));
    }
    let is_braced = first == b'{';
    let start = at + usize::from(is_braced);
    if start == text.len() {
        return Err(invalid());
    }
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let end = text[start..]
        .iter()
        .position(|byte| !is_name(byte))
        .map_or(text.len(), |length| start + length);
    let name = String::from_utf8_lossy(&text[start..end]);
    if is_braced && text.get(end) != Some(&b'}') {
        return Err(Problem::new(format!(
            "the closing bracket in \"{name}\" variable is missing"
        )));
    }
    if name.is_empty() {
        return Err(invalid());
    }
    let index = scope.intern(&name, Some(place))?;
    Ok((TemplatePart::Variable(index), end + usize::from(is_braced)))
}
