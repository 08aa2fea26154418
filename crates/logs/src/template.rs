//! Evaluates text with variables (`config::Template`) for a request.
//!
//! Not here: the variables themselves, which come from an implementation of [`Variables`].

use bytes::Bytes;
use config::{Template, TemplatePart, VariableIndex};
use message::escape::Escape;

/// Looks up the values of variables; implemented by `Request`.
pub trait Variables {
    /// Appends the value of a variable. `false`: it has none (nginx's "not found"; an empty value is a value), and
    /// nothing was appended.
    fn variable(&self, index: VariableIndex, out: &mut Vec<u8>) -> bool;

    /// Appends what the last regular expression captured as `$1` to `$9`; nothing when it captured nothing.
    fn capture(&self, number: u8, out: &mut Vec<u8>);
}

/// Appends the template's value; variables without a value count as empty.
pub fn evaluate(template: &Template, variables: &impl Variables, out: &mut Vec<u8>) {
    for part in template.parts() {
        match part {
            TemplatePart::Literal(text) => out.extend_from_slice(text),
            TemplatePart::Variable(index) => {
                variables.variable(*index, out);
            }
            TemplatePart::Capture(number) => variables.capture(*number, out),
        }
    }
}

/// The template's value, as [`evaluate`] appends it; shares the text of one without variables.
pub fn expand(template: &Template, variables: &impl Variables) -> Bytes {
    match template.literal() {
        Some(literal) => literal.clone(),
        None => {
            let mut out = Vec::with_capacity(64);
            evaluate(template, variables, &mut out);
            out.into()
        }
    }
}

/// The escaping of captures in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoting {
    /// As they are.
    Plain,
    /// Escaped as a URI's arguments.
    Escaped,
}

/// Like [`evaluate`], with this escaping of captures.
pub fn evaluate_quoted(
    template: &Template,
    variables: &impl Variables,
    quoting: Quoting,
    out: &mut Vec<u8>,
) {
    if quoting == Quoting::Plain {
        return evaluate(template, variables, out);
    }
    for part in template.parts() {
        match part {
            TemplatePart::Literal(text) => out.extend_from_slice(text),
            TemplatePart::Variable(index) => {
                variables.variable(*index, out);
            }
            TemplatePart::Capture(number) => {
                let mut captured = Vec::new();
                variables.capture(*number, &mut captured);
                Escape::Args.write(&captured, out);
            }
        }
    }
}

/// Whether a value counts as true where nginx asks for a condition (`if=`, `proxy_cache_bypass`): it is neither empty nor `0`.
#[must_use]
pub fn is_true(value: &[u8]) -> bool {
    !value.is_empty() && value != b"0"
}
