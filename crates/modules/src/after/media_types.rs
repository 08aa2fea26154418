//! Lists of media types (`gzip_types`, `sub_filter_types` and the like): the answers whose bodies a filter looks at.

use std::sync::Arc;

use bytes::Bytes;
use config::{Problem, Scope, Value, Word};
use hashbrown::HashSet;

use httpcore::Response;

/// Media types of one level of one directive.
pub const MEDIA_TYPES_MAX: usize = 4096;

/// The type that every list contains, as in nginx: only a default may omit it.
const ALWAYS: &[u8] = b"text/html";

/// The value of a `…_types` directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaTypes {
    /// `*`.
    All,
    /// These, in lower case.
    Some(Arc<HashSet<Bytes>>),
}

impl MediaTypes {
    /// Whether the list contains the answer's type, as [`message::Response::media_type`] reads it.
    #[must_use]
    pub fn has(&self, response: &Response) -> bool {
        let kind = response.media_type();
        match self {
            MediaTypes::All => true,
            MediaTypes::Some(_) if kind.is_empty() => false,
            MediaTypes::Some(known) if kind.iter().any(u8::is_ascii_uppercase) => {
                known.contains(&kind.to_ascii_lowercase()[..])
            }
            MediaTypes::Some(known) => known.contains(kind),
        }
    }
}

impl Value for MediaTypes {
    const SYNTAX: &'static str = "mime-type …";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        add(HashSet::new(), args, scope)
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let known = match slot.take() {
            Some(MediaTypes::All) => {
                *slot = Some(MediaTypes::All);
                return Ok(());
            }
            Some(MediaTypes::Some(known)) => Arc::unwrap_or_clone(known),
            None => HashSet::from_iter([Bytes::from_static(ALWAYS)]),
        };
        *slot = Some(add(known, args, scope)?);
        Ok(())
    }
}

/// Adds the types of one line. A duplicate is only worth a warning.
fn add(mut known: HashSet<Bytes>, args: &[Word], scope: &mut Scope) -> Result<MediaTypes, Problem> {
    for (at, word) in args.iter().enumerate() {
        if *word == "*" {
            return Ok(MediaTypes::All);
        }
        if known.len() == MEDIA_TYPES_MAX {
            let sentence = format!("there are more than {MEDIA_TYPES_MAX} media types");
            return Err(Problem::new(sentence).at(at));
        }
        if !known.insert(word.bytes().to_ascii_lowercase().into()) {
            let sentence = format!("duplicate MIME type \"{}\"", word.display());
            scope.warn(word.error(&Problem::new(sentence)));
        }
    }
    Ok(MediaTypes::Some(Arc::new(known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &'static str) -> Response {
        let mut response = Response::new(200);
        response.content_type = Bytes::from_static(text.as_bytes());
        response.type_declares_charset = true;
        response
    }

    #[test]
    fn a_charset_is_no_part_of_the_type() {
        for (text, kind) in [
            ("text/html", "text/html"),
            ("text/html; charset=utf-8", "text/html"),
            ("text/html;Charset=utf-8", "text/html"),
            ("text/html; a=b; charset=x", "text/html; a=b"),
            ("text/html; a=b", "text/html; a=b"),
            ("", ""),
        ] {
            assert_eq!(of(text).media_type(), kind.as_bytes(), "{text}");
        }
    }

    #[test]
    fn a_type_of_the_configuration_counts_as_a_whole() {
        let mut response = of("text/html; charset=utf-8");
        response.type_declares_charset = false;
        assert_eq!(response.media_type(), b"text/html; charset=utf-8");
        assert_eq!(response.declared_charset(), "");
    }

    #[test]
    fn types_are_compared_without_case() {
        let known = MediaTypes::Some(Arc::new(HashSet::from_iter([Bytes::from_static(ALWAYS)])));
        assert!(known.has(&of("Text/HTML; charset=x")));
        assert!(!known.has(&of("text/plain")));
        assert!(!known.has(&of("")));
        assert!(MediaTypes::All.has(&of("")));
    }
}
