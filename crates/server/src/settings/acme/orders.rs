//! The certificate that a server asks for, out of `acme_certificate` and `server_name`.

use acme::{Identifier, Order};
use config::{Error, Problem, Scope};
use httpcore::settings::server::Names;

use super::directives::{self, CertificateWords};

/// The order of a server.
///
/// # Errors
/// A name that no certificate can be for, or none at all.
pub(super) fn order(
    words: &CertificateWords,
    names: &Names,
    scope: &mut Scope,
) -> Result<Order, Error> {
    let mut identifiers = words.identifiers.clone();
    if identifiers.is_empty() {
        identifiers = of_server(names, scope)?;
    }
    if identifiers.is_empty() {
        let sentence = "\"acme_certificate\": no identifiers found in \"server_name\"";
        return Err(Error::at(sentence, &words.place));
    }
    Ok(Order {
        identifiers,
        key: words.key,
    })
}

fn of_server(names: &Names, scope: &mut Scope) -> Result<Vec<Identifier>, Error> {
    let mut identifiers = Vec::new();
    for (_, word) in &names.names {
        if word.bytes().starts_with(b"~") {
            let sentence = format!(
                "\"acme_certificate\": unsupported regular expression in server_name: {}",
                word.display()
            );
            scope.warn(word.error(&Problem::new(sentence)));
            continue;
        }
        if word.bytes().is_empty() {
            continue;
        }
        directives::add(&mut identifiers, word).map_err(|sentence| {
            word.error(&Problem::new(format!("\"acme_certificate\": {sentence}")))
        })?;
    }
    Ok(identifiers)
}
