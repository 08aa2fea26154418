//! What TLS negotiates, by the names that a configuration has for it: versions, suites, groups, signature schemes.
//!
//! Not here: the cryptographic library (`provider`). Invariant: what is asked for and not offered is named, and an
//! empty rest is an error.

mod cipher_string;
pub mod conf_command;
pub mod groups;
mod protocols;
mod signature_schemes;
mod table;

pub use cipher_string::STRING_BYTES_MAX;
pub use groups::{Groups, group_name};
pub use protocols::{Offer, Protocols, version_name};
pub use signature_schemes::signature_scheme_name;
pub use table::cipher_name;

use crate::Error;
use crate::hello::Hello;
use crate::provider;
use rustls::{CipherSuite, SupportedCipherSuite};

/// nginx's `ssl_ciphers`, where none is given.
pub const DEFAULT_CIPHERS: &str = "HIGH:!aNULL:!MD5";

/// The suites of TLS 1.2 that a cipher string leaves, in its order.
///
/// # Errors
/// None is left that is offered here, or the string is none.
pub fn ciphers(string: &str) -> Result<Vec<SupportedCipherSuite>, Error> {
    let ids = cipher_string::expand(string);
    let ids = ids.ok_or_else(|| Error::CipherWord(string.to_owned()))?;
    let suites: Vec<_> = ids.into_iter().filter_map(offered).collect();
    if suites.is_empty() {
        return Err(Error::NoCipher(string.to_owned()));
    }
    Ok(suites)
}

/// The suites of TLS 1.3 with these names between colons, or all of them where none are given. Names that are not
/// known or not offered here are left out.
#[must_use]
pub fn ciphersuites(names: Option<&str>) -> Vec<SupportedCipherSuite> {
    let all = table::TLS13.iter();
    let Some(names) = names else {
        return all.filter_map(|(id, _)| offered(*id)).collect();
    };
    let id = |name: &str| {
        all.clone()
            .find(|(_, known)| *known == name)
            .map(|(id, _)| *id)
    };
    names
        .split(':')
        .filter_map(id)
        .filter_map(offered)
        .collect()
}

/// Everything that a cipher string leaves, by OpenSSL's names, whether offered here or not: for messages and tests.
#[must_use]
pub fn expanded(string: &str) -> Option<Vec<&'static str>> {
    let ids = cipher_string::expand(string)?;
    Some(ids.into_iter().filter_map(cipher_name).collect())
}

fn offered(id: u16) -> Option<SupportedCipherSuite> {
    let suites = provider::provider().cipher_suites.iter();
    suites
        .into_iter()
        .find(|suite| suite.suite() == CipherSuite::from(id))
        .copied()
}

impl Hello {
    /// The client's suites by their names: `$ssl_ciphers`.
    #[must_use]
    pub fn cipher_names(&self) -> String {
        names(&self.ciphers, cipher_name)
    }

    /// The client's groups by their names: `$ssl_curves`.
    #[must_use]
    pub fn group_names(&self) -> String {
        names(&self.groups, group_name)
    }

    /// The client's signature schemes by their names: `$ssl_sigalgs`.
    #[must_use]
    pub fn signature_scheme_names(&self) -> String {
        names(&self.signature_schemes, signature_scheme_name)
    }
}

/// Names between colons; the number of what has none.
fn names(ids: &[u16], name: impl Fn(u16) -> Option<&'static str>) -> String {
    let name = |id: &u16| name(*id).map_or_else(|| format!("0x{id:04x}"), str::to_owned);
    ids.iter().map(name).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_offered_is_left() {
        let suites = ciphers(DEFAULT_CIPHERS).unwrap();
        assert_eq!(suites.len(), 6);
        assert_eq!(suites[0].suite(), CipherSuite::from(0xc02c));
        let error = ciphers("AES128-SHA").unwrap_err().to_string();
        assert_eq!(
            error,
            "SSL_CTX_set_cipher_list(\"AES128-SHA\") failed (SSL: error:0A0000B9:SSL routines::no cipher match)"
        );
        assert_eq!(ciphersuites(None).len(), 3);
        assert_eq!(ciphersuites(Some("x:TLS_AES_128_GCM_SHA256")).len(), 1);
    }

    #[test]
    fn a_hellos_offers_have_names() {
        let hello = Hello {
            ciphers: vec![0x1301, 0xfafa],
            groups: vec![29, 23, 0x9999],
            signature_schemes: vec![0x403, 1],
            ..Hello::default()
        };
        assert_eq!(hello.cipher_names(), "TLS_AES_128_GCM_SHA256:0xfafa");
        assert_eq!(hello.group_names(), "X25519:prime256v1:0x9999");
        assert_eq!(
            hello.signature_scheme_names(),
            "ecdsa_secp256r1_sha256:0x0001"
        );
    }
}
