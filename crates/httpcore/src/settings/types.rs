//! `types` and `default_type`: the media type of a file by its extension.

use std::sync::Arc;

use bytes::Bytes;
use config::{Directive, DirectiveTable, Error, Problem, Scope, Section, blocks};
use message::media_type::MediaTypes;

/// Extensions of one `types` block.
pub const EXTENSIONS_MAX: usize = 65_536;

blocks! {
    /// Media types of files.
    pub fn lines in Location {
        /// Maps file name extensions to media types: each line has a type and its extensions. By default `html`, `gif`
        /// and `jpg` are known. A level with a block of its own inherits none.
        "types": [HTTP | SERVER | LOCATION] 0 => LINES;
        /// Sets the media type of files with an unknown extension.
        "default_type" = "text/plain": [HTTP | SERVER | LOCATION] 1, syntax "mime-type";
    }
}

/// The types that hold.
#[derive(Debug, Clone)]
pub struct Types {
    /// By extension.
    pub types: Arc<MediaTypes>,
    /// Else.
    pub default_type: Bytes,
}

/// What one level says.
#[derive(Debug, Clone, Default)]
pub struct Raw {
    types: Option<Arc<MediaTypes>>,
    default_type: Option<Bytes>,
}

config::own!(Types);

/// By hand, since `types` is a block of data.
impl Section for Types {
    type Raw = Raw;

    fn tables() -> Vec<&'static DirectiveTable> {
        vec![lines()]
    }

    fn set(raw: &mut Raw, directive: &Directive, scope: &mut Scope) -> Result<bool, Error> {
        if directive.name == "default_type" {
            if raw.default_type.is_some() {
                return Err(directive.error(&Problem::duplicate()));
            }
            raw.default_type = Some(directive.args[0].bytes().clone());
            return Ok(true);
        }
        if directive.name != "types" {
            return Ok(false);
        }
        let types = raw
            .types
            .get_or_insert_with(|| Arc::new(MediaTypes::empty()));
        let types = Arc::make_mut(types);
        let mut count = 0;
        for line in directive.children() {
            for extension in &line.args {
                count += 1;
                if count > EXTENSIONS_MAX {
                    return Err(line.error(&Problem::new(format!(
                        "more than {EXTENSIONS_MAX} extensions in \"types\""
                    ))));
                }
                // As in nginx, it is not that of files without one.
                if extension.bytes().is_empty() {
                    continue;
                }
                if let Some(old) = types.insert(extension.bytes(), line.name.bytes().clone()) {
                    let sentence = format!(
                        "duplicate extension \"{}\", content type: \"{}\", previous content type: \"{}\"",
                        extension.display(),
                        line.name.display(),
                        String::from_utf8_lossy(&old)
                    );
                    scope.warn(line.error(&Problem::new(sentence)));
                }
            }
        }
        Ok(true)
    }

    fn merge(parent: &Raw, child: Raw) -> Raw {
        Raw {
            types: child.types.or_else(|| parent.types.clone()),
            default_type: child.default_type.or_else(|| parent.default_type.clone()),
        }
    }

    fn fill(raw: &mut Raw, _: &mut Scope) -> Result<(), Error> {
        raw.types
            .get_or_insert_with(|| Arc::new(MediaTypes::built_in()));
        raw.default_type
            .get_or_insert_with(|| Bytes::from_static(b"text/plain"));
        Ok(())
    }

    fn finish(mut raw: Raw, scope: &mut Scope) -> Result<Self, Error> {
        Self::fill(&mut raw, scope)?;
        Ok(Self {
            types: raw
                .types
                .unwrap_or_else(|| Arc::new(MediaTypes::built_in())),
            default_type: raw.default_type.unwrap_or_default(),
        })
    }
}
