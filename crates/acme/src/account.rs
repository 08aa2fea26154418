//! The key of an account, and what it signs: JSON Web Signatures (RFC 7515, RFC 8555, 6.2).
//!
//! Not here: requests ([`crate::client`]). Invariant: a key leaves this module as PEM for its file, or not at all.

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _, RsaKeyPair};
use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::Error;
use crate::keys::KeyKind;

/// base64url without padding (RFC 4648, 5).
#[must_use]
pub(crate) fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An account's key.
pub(crate) enum SigningKey {
    /// With its size in bits.
    Ecdsa(EcdsaKeyPair, u32),
    Rsa(RsaKeyPair),
}

/// What tells an authority which account signs.
pub(crate) enum Identity<'a> {
    /// The key itself.
    Key,
    /// The account's URL.
    Account(&'a str),
}

fn curve(size: u32) -> &'static EcdsaSigningAlgorithm {
    match size {
        384 => &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
        521 => &signature::ECDSA_P521_SHA512_FIXED_SIGNING,
        _ => &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
    }
}

impl SigningKey {
    /// Makes one.
    pub(crate) fn generate(kind: KeyKind) -> Result<Self, Error> {
        let failed = |_| Error::Local("an account's key cannot be made".to_owned());
        match kind {
            KeyKind::Ecdsa(size) => {
                let key = EcdsaKeyPair::generate(curve(size)).map_err(failed)?;
                Ok(Self::Ecdsa(key, size))
            }
            KeyKind::Rsa(size) => {
                let size = match size {
                    3072 => KeySize::Rsa3072,
                    4096 => KeySize::Rsa4096,
                    _ => KeySize::Rsa2048,
                };
                RsaKeyPair::generate(size).map(Self::Rsa).map_err(failed)
            }
        }
    }

    /// The key in a text of PEM, of any of its three forms.
    pub(crate) fn of_pem(text: &[u8]) -> Option<Self> {
        let der = PrivateKeyDer::from_pem_slice(text).ok()?;
        let ecdsa = |size| {
            let key = EcdsaKeyPair::from_private_key_der(curve(size), der.secret_der());
            key.ok().map(|key| Self::Ecdsa(key, size))
        };
        let rsa = || match &der {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()).ok(),
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).ok(),
            _ => None,
        };
        let key = [256, 384, 521].into_iter().find_map(ecdsa);
        key.or_else(|| rsa().map(Self::Rsa))
    }

    /// The key as PEM (PKCS #8).
    pub(crate) fn to_pem(&self) -> Result<Zeroizing<String>, Error> {
        let failed = |_| Error::Local("an account's key cannot be written".to_owned());
        let der = match self {
            Self::Ecdsa(key, _) => key.to_pkcs8v1().map_err(failed)?.as_ref().to_vec(),
            Self::Rsa(key) => key.as_der().map_err(failed)?.as_ref().to_vec(),
        };
        let der = Zeroizing::new(der);
        Ok(Zeroizing::new(tls::x509::facts::pem_of(
            "PRIVATE KEY",
            &der,
        )))
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Ecdsa(_, 384) => "ES384",
            Self::Ecdsa(_, 521) => "ES512",
            Self::Ecdsa(..) => "ES256",
            Self::Rsa(_) => "RS256",
        }
    }

    /// The public key (RFC 7517), its members in the order of a thumbprint.
    pub(crate) fn public(&self) -> Value {
        match self {
            Self::Ecdsa(key, size) => {
                // An uncompressed point: 4, x, y.
                let point = key.public_key().as_ref();
                let (x, y) = point[1..].split_at((point.len() - 1) / 2);
                json!({"crv": format!("P-{size}"), "kty": "EC", "x": base64url(x), "y": base64url(y)})
            }
            Self::Rsa(key) => {
                let (n, e) = integers(key.public_key().as_ref()).unwrap_or_default();
                json!({"e": base64url(e), "kty": "RSA", "n": base64url(n)})
            }
        }
    }

    /// The thumbprint (RFC 7638): a digest of the public key, its members sorted by name.
    pub(crate) fn thumbprint(&self) -> String {
        let text = self.public().to_string();
        base64url(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let failed = |_| Error::Local("an account's key does not sign".to_owned());
        let random = SystemRandom::new();
        match self {
            Self::Ecdsa(key, _) => {
                let signature = key.sign(&random, message).map_err(failed)?;
                Ok(signature.as_ref().to_vec())
            }
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(
                    &signature::RSA_PKCS1_SHA256,
                    &random,
                    message,
                    &mut signature,
                )
                .map_err(failed)?;
                Ok(signature)
            }
        }
    }

    /// A signed request: to this URL, with this nonce and payload.
    pub(crate) fn signed(
        &self,
        identity: &Identity<'_>,
        (url, nonce): (&str, &str),
        payload: &[u8],
    ) -> Result<String, Error> {
        let mut head = json!({"alg": self.algorithm(), "nonce": nonce, "url": url});
        match identity {
            Identity::Key => head["jwk"] = self.public(),
            Identity::Account(url) => head["kid"] = json!(url),
        }
        let input = signing_input(&head, payload);
        let signature = self.sign(input.as_bytes())?;
        Ok(assembled(&input, &signature).to_string())
    }

    /// What binds a new account to one that the authority knows outside of ACME (RFC 8555, 7.3.4).
    pub(crate) fn bound(&self, kid: &str, mac_key: &[u8], url: &str) -> Value {
        let head = json!({"alg": "HS256", "kid": kid, "url": url});
        let input = signing_input(&head, self.public().to_string().as_bytes());
        let key = hmac::Key::new(hmac::HMAC_SHA256, mac_key);
        assembled(&input, hmac::sign(&key, input.as_bytes()).as_ref())
    }
}

fn signing_input(head: &Value, payload: &[u8]) -> String {
    let head = base64url(head.to_string().as_bytes());
    format!("{head}.{}", base64url(payload))
}

fn assembled(input: &str, signature: &[u8]) -> Value {
    let (head, payload) = input.split_once('.').unwrap_or_default();
    json!({"protected": head, "payload": payload, "signature": base64url(signature)})
}

/// Modulus and exponent of an `RSAPublicKey` (RFC 8017, A.1.1), without zeros in front.
fn integers(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (inner, _) = value(der, 0x30)?;
    let (modulus, rest) = value(inner, 2)?;
    let (exponent, _) = value(rest, 2)?;
    let plain = |bytes: &'_ [u8]| bytes.iter().take_while(|byte| **byte == 0).count();
    Some((&modulus[plain(modulus)..], &exponent[plain(exponent)..]))
}

/// The contents of the first value, which has this tag, and what follows it.
fn value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..0x80 => (usize::from(short), rest),
        long => {
            let digits = usize::from(long & 0x7f);
            let (digits, rest) = rest.split_at_checked(digits).filter(|_| digits <= 4)?;
            let length = digits
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (length, rest)
        }
    };
    (*first == tag)
        .then(|| rest.split_at_checked(length))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::UnparsedPublicKey;

    #[test]
    fn keys_come_back_from_their_files_and_sign() {
        for kind in ["ecdsa", "ecdsa:384", "ecdsa:521", "rsa"] {
            let kind = KeyKind::parse(kind).unwrap().unwrap();
            let key = SigningKey::generate(kind).unwrap();
            let back = SigningKey::of_pem(key.to_pem().unwrap().as_bytes()).unwrap();
            assert_eq!(key.thumbprint(), back.thumbprint());
            let signed = back
                .signed(&Identity::Key, ("https://a/", "n"), b"{}")
                .unwrap();
            let signed: Value = serde_json::from_str(&signed).unwrap();
            let part = |name: &str| signed[name].as_str().unwrap().to_owned();
            let input = format!("{}.{}", part("protected"), part("payload"));
            let signature = URL_SAFE_NO_PAD.decode(part("signature")).unwrap();
            let is_good = match &key {
                SigningKey::Ecdsa(key, size) => {
                    let algorithm = match size {
                        256 => &signature::ECDSA_P256_SHA256_FIXED,
                        384 => &signature::ECDSA_P384_SHA384_FIXED,
                        _ => &signature::ECDSA_P521_SHA512_FIXED,
                    };
                    UnparsedPublicKey::new(algorithm, key.public_key().as_ref())
                        .verify(input.as_bytes(), &signature)
                }
                SigningKey::Rsa(key) => {
                    let algorithm = &signature::RSA_PKCS1_2048_8192_SHA256;
                    UnparsedPublicKey::new(algorithm, key.public_key().as_ref())
                        .verify(input.as_bytes(), &signature)
                }
            };
            assert!(is_good.is_ok(), "{kind}");
        }
        assert!(SigningKey::of_pem(b"no key").is_none());
    }

    #[test]
    fn the_thumbprint_is_that_of_the_rfc() {
        // RFC 7638, 3.1: the example's modulus and exponent.
        let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
        let text = json!({"e": "AQAB", "kty": "RSA", "n": n}).to_string();
        let thumbprint = base64url(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
        assert_eq!(thumbprint, "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    }
}
