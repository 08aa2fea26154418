//! The certificates of one server: one for each kind of key, replaced while connections go on.
//!
//! Not here: which server a name belongs to. Invariant: whoever has taken a certificate keeps it to the end of his
//! handshake, whatever replaces it.

use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};
use std::sync::Arc;

/// Maximum of certificates of a server.
pub const CERTIFICATES_MAX: usize = 64;

/// A certificate with its chain and key.
pub type Pair = Arc<CertifiedKey>;

/// The certificates of a server.
#[derive(Debug, Default)]
pub struct Certificates {
    pairs: RwLock<Vec<Pair>>,
    /// Schemes that signatures may have; empty: all.
    schemes: Vec<SignatureScheme>,
}

impl Certificates {
    /// Of certificates, at most [`CERTIFICATES_MAX`]. As with OpenSSL, of two with the same kind of key the last one
    /// counts.
    #[must_use]
    pub fn new(pairs: Vec<Pair>) -> Self {
        Self::with_schemes(pairs, Vec::new())
    }

    /// The same, with the schemes of `SignatureAlgorithms`.
    #[must_use]
    pub fn with_schemes(pairs: Vec<Pair>, schemes: Vec<SignatureScheme>) -> Self {
        let mut kept: Vec<Pair> = Vec::new();
        for pair in pairs.into_iter().take(CERTIFICATES_MAX) {
            match kept.iter_mut().find(|other| is_same_kind(other, &pair)) {
                Some(other) => *other = pair,
                None => kept.push(pair),
            }
        }
        Self {
            pairs: RwLock::new(kept),
            schemes,
        }
    }

    /// All of them.
    #[must_use]
    pub fn pairs(&self) -> Vec<Pair> {
        self.pairs.read().clone()
    }

    /// Puts a pair in the place of another one; whether that one was there.
    pub fn replace(&self, old: &Pair, new: Pair) -> bool {
        let mut pairs = self.pairs.write();
        let place = pairs.iter_mut().find(|pair| pair.cert == old.cert);
        place.is_some_and(|place| {
            *place = new;
            true
        })
    }

    /// Staples an OCSP response to a certificate, or takes it away; whether the certificate is there.
    pub fn staple(&self, certificate: &[u8], response: Option<Vec<u8>>) -> bool {
        let mut pairs = self.pairs.write();
        let mut pairs = pairs.iter_mut();
        let is_meant = |pair: &&mut Pair| {
            pair.cert
                .first()
                .is_some_and(|der| der.as_ref() == certificate)
        };
        pairs.find(is_meant).is_some_and(|pair| {
            let mut stapled = CertifiedKey::new(pair.cert.clone(), Arc::clone(&pair.key));
            stapled.ocsp = response;
            *pair = Arc::new(stapled);
            true
        })
    }

    /// The certificate for a client that takes these signatures: the first one that can make the signature that the
    /// client likes best.
    #[must_use]
    pub fn choose(&self, offered: &[SignatureScheme]) -> Option<Pair> {
        let pairs = self.pairs.read();
        let is_allowed = |scheme: &&SignatureScheme| self.allows(**scheme);
        let pair = offered.iter().filter(is_allowed).find_map(|scheme| {
            let signs = |pair: &&Pair| pair.key.choose_scheme(&[*scheme]).is_some();
            pairs.iter().find(signs).cloned()
        })?;
        if self.schemes.is_empty() {
            return Some(pair);
        }
        let key = Restricted {
            key: Arc::clone(&pair.key),
            schemes: self.schemes.clone(),
        };
        let mut restricted = CertifiedKey::new(pair.cert.clone(), Arc::new(key));
        restricted.ocsp.clone_from(&pair.ocsp);
        Some(Arc::new(restricted))
    }

    fn allows(&self, scheme: SignatureScheme) -> bool {
        self.schemes.is_empty() || self.schemes.contains(&scheme)
    }
}

/// A key that signs with some schemes only.
#[derive(Debug)]
struct Restricted {
    key: Arc<dyn SigningKey>,
    schemes: Vec<SignatureScheme>,
}

impl SigningKey for Restricted {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let allowed = offered
            .iter()
            .filter(|scheme| self.schemes.contains(scheme));
        self.key
            .choose_scheme(&allowed.copied().collect::<Vec<_>>())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Pair> {
        self.choose(hello.signature_schemes())
    }
}

fn is_same_kind(one: &Pair, other: &Pair) -> bool {
    let curve = |pair: &Pair| {
        let schemes = [
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ECDSA_NISTP521_SHA512,
        ];
        schemes.map(|scheme| pair.key.choose_scheme(&[scheme]).is_some())
    };
    one.key.algorithm() == other.key.algorithm() && curve(one) == curve(other)
}
