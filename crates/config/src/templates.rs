//! Variables of the environment in included templates (`include_template`).
//!
//! They are put into words that are complete already: a value is data, whatever is in it, and never makes another word,
//! a `;` or a block. Not here: who knows the environment ([`TextSource::variable`](crate::TextSource::variable)).
//! Invariant: files that are included by `include` are left as they are.

use bytes::Bytes;

use crate::syntax::error::{Error, Problem};
use crate::syntax::tree::{Taken, Word};

/// Maximum number of variables of the environment that one configuration names.
pub const ENVIRONMENT_MAX: usize = 4096;

/// A variable in a word: its name, and the text behind `:-`.
struct Named<'a> {
    name: &'a str,
    default: Option<&'a [u8]>,
    is_braced: bool,
    /// Bytes that it takes in the word.
    length: usize,
}

impl Taken {
    /// The word with its variables replaced; `ask` asks the environment.
    pub(crate) fn replace(
        &mut self,
        word: Word,
        ask: &mut dyn FnMut(&str) -> Option<Vec<u8>>,
    ) -> Result<Word, Error> {
        let text = word.bytes();
        let Some(mut at) = position(text, b'$') else {
            return Ok(word);
        };
        let mut out = text[..at].to_vec();
        let mut is_changed = false;
        while at < text.len() {
            let Some(named) = named(&text[at..]) else {
                out.push(text[at]);
                at += 1;
                continue;
            };
            match self.value(&named, &word, ask)? {
                Some(value) => {
                    out.extend_from_slice(&value);
                    is_changed = true;
                }
                None => out.extend_from_slice(&text[at..at + named.length]),
            }
            at += named.length;
        }
        if !is_changed {
            return Ok(word);
        }
        let bytes = Bytes::from(out);
        self.words.push((word.place(), bytes.clone()));
        Ok(word.with_bytes(bytes))
    }

    /// `None`: a name without braces that the environment does not have is a variable of the configuration.
    fn value(
        &mut self,
        named: &Named<'_>,
        word: &Word,
        ask: &mut dyn FnMut(&str) -> Option<Vec<u8>>,
    ) -> Result<Option<Bytes>, Error> {
        let name = named.name;
        let refuse = |sentence: String, hint: &str| {
            Err(word.error(&Problem::new(sentence).own().hint_that(hint)))
        };
        if !self.asked.contains_key(name) {
            if self.asked.len() == ENVIRONMENT_MAX {
                let sentence = format!("templates name more than {ENVIRONMENT_MAX} variables");
                return refuse(sentence, "each name counts once");
            }
            self.asked
                .insert(name.to_owned(), ask(name).map(Bytes::from));
        }
        let known = self.asked.get(name).cloned().flatten();
        match (known, named.default) {
            (Some(value), _) if value.contains(&b'$') => refuse(
                format!("the value of \"{name}\" in the environment has a \"$\""),
                "it would name a variable of the configuration: values are data",
            ),
            (Some(value), Some(default)) if value.is_empty() => {
                Ok(Some(Bytes::copy_from_slice(default)))
            }
            (Some(value), _) => Ok(Some(value)),
            (None, Some(default)) => Ok(Some(Bytes::copy_from_slice(default))),
            (None, None) if named.is_braced => refuse(
                format!("\"{name}\" is not set in the environment"),
                &format!("\"${{{name}:-default}}\" says what stands here without it"),
            ),
            (None, None) => Ok(None),
        }
    }
}

/// The variable that this text begins with: `${NAME}`, `${NAME:-default}` or `$NAME`, in capital letters, digits and `_`.
fn named(text: &[u8]) -> Option<Named<'_>> {
    let rest = text.strip_prefix(b"$")?;
    let is_braced = rest.first() == Some(&b'{');
    let rest = &rest[usize::from(is_braced)..];
    let is_part = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    let length = rest
        .iter()
        .position(|byte| !is_part(byte))
        .unwrap_or(rest.len());
    let name = std::str::from_utf8(&rest[..length]).ok()?;
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let behind = &rest[length..];
    if !is_braced {
        // `$Name` is a variable of the configuration.
        let is_longer = behind.first().is_some_and(u8::is_ascii_lowercase);
        return (!is_longer).then_some(Named {
            name,
            default: None,
            is_braced,
            length: 1 + length,
        });
    }
    let (default, end) = match behind.strip_prefix(b":-") {
        Some(default) => {
            let end = position(default, b'}')?;
            (Some(&default[..end]), 2 + end)
        }
        None => (None, 0),
    };
    (behind.get(end) == Some(&b'}')).then_some(Named {
        name,
        default,
        is_braced,
        length: 2 + length + end + 1,
    })
}

fn position(text: &[u8], wanted: u8) -> Option<usize> {
    text.iter().position(|byte| *byte == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<(String, Option<String>, usize)> {
        let named = named(text.as_bytes())?;
        let default = named
            .default
            .map(|text| String::from_utf8_lossy(text).into());
        Some((named.name.to_owned(), default, named.length))
    }

    #[test]
    fn names_are_capital_letters() {
        assert_eq!(shown("${PORT}x"), Some(("PORT".into(), None, 7)));
        assert_eq!(
            shown("${A_1:-a b}"),
            Some(("A_1".into(), Some("a b".into()), 11))
        );
        assert_eq!(shown("$HOST/"), Some(("HOST".into(), None, 5)));
        for none in [
            "$host", "${host}", "$1", "${1A}", "$Host", "${A", "${A:-b", "$", "${A-b}",
        ] {
            assert_eq!(shown(none), None, "{none}");
        }
    }
}
