//! Media types by file name extension (`types`, `default_type`), without a hash table's cost on the hot path.

use bytes::Bytes;

/// Extensions and their types. Extensions are compared without case.
#[derive(Clone, Debug, Default)]
pub struct MediaTypes {
    /// Sorted by length, then by lower-cased extension.
    types: Vec<(Box<[u8]>, Bytes)>,
}

/// The types that nginx has without a `types` block.
const BUILT_IN: [(&str, &str); 3] = [
    ("html", "text/html"),
    ("gif", "image/gif"),
    ("jpg", "image/jpeg"),
];

impl MediaTypes {
    /// No types: every file has the default type (`types { }`).
    pub fn empty() -> MediaTypes {
        MediaTypes::default()
    }

    /// The types used where there is no `types` block: html, gif and jpg.
    pub fn built_in() -> MediaTypes {
        let mut types = MediaTypes::default();
        for (extension, media_type) in BUILT_IN {
            types.insert(
                extension.as_bytes(),
                Bytes::from_static(media_type.as_bytes()),
            );
        }
        types
    }

    /// Adds a type; returns the previous type of the extension (nginx warns and takes the later one).
    pub fn insert(&mut self, extension: &[u8], media_type: Bytes) -> Option<Bytes> {
        let extension = extension.to_ascii_lowercase();
        match self
            .types
            .binary_search_by(|(known, _)| order(known, &extension))
        {
            Ok(index) => Some(std::mem::replace(&mut self.types[index].1, media_type)),
            Err(index) => {
                self.types.insert(index, (extension.into(), media_type));
                None
            }
        }
    }

    /// The type of an extension (given without its dot).
    pub fn get(&self, extension: &[u8]) -> Option<&Bytes> {
        let index = self
            .types
            .binary_search_by(|(known, _)| order(known, extension))
            .ok()?;
        Some(&self.types[index].1)
    }
}

fn order(known: &[u8], wanted: &[u8]) -> std::cmp::Ordering {
    known.len().cmp(&wanted.len()).then_with(|| {
        known
            .iter()
            .copied()
            .cmp(wanted.iter().map(u8::to_ascii_lowercase))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_in_any_case() {
        let mut types = MediaTypes::built_in();
        assert_eq!(types.get(b"HTML").unwrap(), "text/html");
        assert_eq!(types.get(b"txt"), None);
        assert_eq!(types.get(b""), None);
        assert_eq!(types.insert(b"TXT", "text/plain".into()), None);
        assert_eq!(
            types.insert(b"txt", "text/x".into()),
            Some("text/plain".into())
        );
        assert_eq!(types.get(b"Txt").unwrap(), "text/x");
    }
}
