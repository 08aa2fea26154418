//! Kinds of keys, and keys of certificates.
//!
//! Not here: keys of accounts (`account`).

use rcgen::{KeyPair, RsaKeySize};

use crate::Error;

/// A kind of key: `ecdsa[:size]` or `rsa[:size]`, as nginx-acme has them.
///
/// The order of its values, and of their numbers, is part of the names of files ([`crate::Order::id`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// With a curve of so many bits: 256, 384 or 521.
    Ecdsa(u32),
    /// With a modulus of so many bits: 2048, 3072 or 4096.
    Rsa(u32),
}

impl Default for KeyKind {
    fn default() -> Self {
        Self::Ecdsa(256)
    }
}

impl KeyKind {
    /// The kind that a word names; `None`: it names none, and may be a file's name.
    ///
    /// # Errors
    /// A size that there is not: nginx-acme's sentence.
    pub fn parse(word: &str) -> Result<Option<Self>, &'static str> {
        let (name, size) = match word.split_once(':') {
            Some((name, size)) => (name, Some(size)),
            None => (word, None),
        };
        match (name, size) {
            ("ecdsa", None | Some("256")) => Ok(Some(Self::Ecdsa(256))),
            ("ecdsa", Some("384")) => Ok(Some(Self::Ecdsa(384))),
            ("ecdsa", Some("521")) => Ok(Some(Self::Ecdsa(521))),
            ("ecdsa", _) => Err("unsupported curve"),
            ("rsa", None | Some("2048")) => Ok(Some(Self::Rsa(2048))),
            ("rsa", Some("3072")) => Ok(Some(Self::Rsa(3072))),
            ("rsa", Some("4096")) => Ok(Some(Self::Rsa(4096))),
            ("rsa", _) => Err("unsupported key size"),
            _ => Ok(None),
        }
    }

    /// Makes a key of a certificate. Takes up to some seconds for RSA.
    ///
    /// # Errors
    /// The library fails.
    pub fn generate(self) -> Result<KeyPair, Error> {
        let key = match self {
            Self::Ecdsa(384) => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
            Self::Ecdsa(521) => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
            Self::Ecdsa(_) => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            Self::Rsa(size) => {
                let size = match size {
                    3072 => RsaKeySize::_3072,
                    4096 => RsaKeySize::_4096,
                    _ => RsaKeySize::_2048,
                };
                KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size)
            }
        };
        key.map_err(|error| Error::Local(format!("a key cannot be made: {error}")))
    }
}

impl std::fmt::Display for KeyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ecdsa(size) => write!(f, "ecdsa:{size}"),
            Self::Rsa(size) => write!(f, "rsa:{size}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_kinds() {
        assert_eq!(KeyKind::parse("ecdsa"), Ok(Some(KeyKind::Ecdsa(256))));
        assert_eq!(KeyKind::parse("rsa:4096"), Ok(Some(KeyKind::Rsa(4096))));
        assert_eq!(KeyKind::parse("ecdsa:234"), Err("unsupported curve"));
        assert_eq!(KeyKind::parse("rsa:1024"), Err("unsupported key size"));
        assert_eq!(KeyKind::parse("/etc/account.key"), Ok(None));
    }

    #[test]
    fn keys_of_all_curves_are_made() {
        for size in [256, 384, 521] {
            let key = KeyKind::Ecdsa(size).generate().unwrap();
            assert!(key.serialize_pem().contains("PRIVATE KEY"));
        }
    }
}
