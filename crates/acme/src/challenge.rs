//! What a server answers to be believed: a token's text over HTTP (RFC 8555, 8.3), or a certificate (RFC 8737).

use std::net::IpAddr;

use aws_lc_rs::digest;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};

use crate::{Error, Identifier};

/// The protocol above TLS that a certificate of a challenge is asked for with.
pub const ALPN: &[u8] = b"acme-tls/1";
/// What the path of a token begins with.
pub const TOKEN_PREFIX: &str = "/.well-known/acme-challenge/";
/// Maximum length of a token in bytes.
pub const TOKEN_BYTES_MAX: usize = 256;

/// How an authority convinces itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChallengeKind {
    /// `http-01`: by a request at port 80.
    #[default]
    Http01,
    /// `tls-alpn-01`: by a handshake at port 443.
    TlsAlpn01,
}

impl ChallengeKind {
    /// The protocol's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

/// An answer that a server has ready.
#[derive(Clone, PartialEq, Eq)]
pub enum Challenge {
    /// To a request for the token.
    Token {
        /// The token: letters, digits, `-` and `_`.
        token: String,
        /// The text to answer with.
        text: String,
    },
    /// To a handshake with the protocol [`ALPN`] that asks for the name.
    Certificate {
        /// The name, in small letters.
        name: String,
        /// The certificate, as PEM.
        certificate: String,
        /// Its key, as PEM.
        key: String,
    },
}

impl std::fmt::Debug for Challenge {
    /// Without keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Token { token, .. } => write!(f, "Token({token})"),
            Self::Certificate { name, .. } => write!(f, "Certificate({name})"),
        }
    }
}

impl Challenge {
    /// The answer to a challenge.
    ///
    /// # Errors
    /// A token that is none; the library fails.
    pub(crate) fn new(
        kind: ChallengeKind,
        identifier: &Identifier,
        token: &str,
        thumbprint: &str,
    ) -> Result<Self, Error> {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_token = (1..=TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(is_fit);
        if !is_token {
            return Err(Error::Answer("the challenge has no token".to_owned()));
        }
        let text = format!("{token}.{thumbprint}");
        match kind {
            ChallengeKind::Http01 => Ok(Self::Token {
                token: token.to_owned(),
                text,
            }),
            ChallengeKind::TlsAlpn01 => certificate(identifier, &text).map_err(|error| {
                Error::Local(format!("no certificate for the challenge: {error}"))
            }),
        }
    }
}

fn certificate(identifier: &Identifier, text: &str) -> Result<Challenge, rcgen::Error> {
    let mut params = CertificateParams::new(vec![identifier.value().to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Challenge::Certificate {
        name: asked_name(identifier),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// The name that a handshake asks for: of an address, its name in the reverse tree (RFC 8738, 6).
fn asked_name(identifier: &Identifier) -> String {
    match identifier {
        Identifier::Dns(name) => name.to_ascii_lowercase(),
        Identifier::Ip(text) => match text.parse() {
            Ok(IpAddr::V4(four)) => {
                let [a, b, c, d] = four.octets();
                format!("{d}.{c}.{b}.{a}.in-addr.arpa")
            }
            Ok(IpAddr::V6(six)) => {
                let digits: Vec<String> = six
                    .octets()
                    .iter()
                    .rev()
                    .map(|byte| format!("{:x}.{:x}", byte & 15, byte >> 4))
                    .collect();
                format!("{}.ip6.arpa", digits.join("."))
            }
            Err(_) => text.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_addresses_are_reversed() {
        assert_eq!(
            asked_name(&Identifier::Ip("192.0.2.1".to_owned())),
            "1.2.0.192.in-addr.arpa"
        );
        let six = asked_name(&Identifier::Ip("2001:db8::1".to_owned()));
        assert!(
            six.starts_with("1.0.0.0.") && six.ends_with("8.b.d.0.1.0.0.2.ip6.arpa"),
            "{six}"
        );
    }

    #[test]
    fn only_tokens_are_answered() {
        let name = Identifier::Dns("a.example".to_owned());
        let made = |token| Challenge::new(ChallengeKind::Http01, &name, token, "t");
        assert_eq!(
            made("ab-_1").unwrap(),
            Challenge::Token {
                token: "ab-_1".to_owned(),
                text: "ab-_1.t".to_owned()
            }
        );
        for token in ["", "a/b", "a b", "..", &"a".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(made(token).is_err(), "{token}");
        }
        let tls = Challenge::new(ChallengeKind::TlsAlpn01, &name, "a", "t").unwrap();
        assert!(matches!(tls, Challenge::Certificate { name, .. } if name == "a.example"));
    }
}
