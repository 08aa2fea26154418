//! Certificates and challenges of ACME, as the process that serves shows them: put here by what gets them, looked up by
//! handshakes and requests.
//!
//! Not here: getting them (crate `acme`). There is one set for the process, for all configurations: a certificate belongs to an
//! issuer's and an order's name. Invariants: nothing here waits; a certificate and its key are put in together, and only if
//! they fit; a certificate that no configuration names is freed with [`retain`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::RwLock;
use tls::certificates::{Certificates, Pair};
use tls::configure::{Server, ServerOptions};
use tls::hello::Hello;
use tls::keys;

/// The protocol above TLS that a certificate of a challenge is asked for with (RFC 8737, 6.2).
const ALPN: &[u8] = b"acme-tls/1";
/// What the path of a token begins with (RFC 8555, 8.3).
const TOKEN_PREFIX: &[u8] = b"/.well-known/acme-challenge/";
/// Maximum number of challenges that are answered at a time.
pub const CHALLENGES_MAX: usize = 65_536;

/// The certificate of an order, once there is one.
pub struct AcmeSlot {
    issuer: String,
    order: String,
    shown: RwLock<Option<ShownCertificate>>,
}

#[derive(Clone)]
struct ShownCertificate {
    pair: Pair,
    /// `data:` and PEM: the value of `$acme_certificate`.
    certificate: Bytes,
    /// The same of its key.
    key: Bytes,
}

impl std::fmt::Debug for AcmeSlot {
    /// Without keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AcmeSlot({}, {})", self.issuer, self.order)
    }
}

impl AcmeSlot {
    /// The certificate with its key.
    #[must_use]
    pub fn pair(&self) -> Option<Pair> {
        self.shown
            .read()
            .as_ref()
            .map(|shown| Arc::clone(&shown.pair))
    }

    /// The values of `$acme_certificate` and `$acme_certificate_key`.
    #[must_use]
    pub fn texts(&self) -> Option<(Bytes, Bytes)> {
        let shown = self.shown.read();
        shown
            .as_ref()
            .map(|shown| (shown.certificate.clone(), shown.key.clone()))
    }

    /// What sessions are made in, and messages say: the names of issuer and order.
    #[must_use]
    pub fn name(&self) -> String {
        format!(
            "acme issuer: \"{}\", order: \"{}\"",
            self.issuer, self.order
        )
    }
}

type Slots = HashMap<(String, String), Arc<AcmeSlot>>;

static SLOTS: LazyLock<RwLock<Slots>> = LazyLock::new(RwLock::default);
static TOKENS: LazyLock<RwLock<HashMap<Vec<u8>, Bytes>>> = LazyLock::new(RwLock::default);
static SERVERS: LazyLock<RwLock<HashMap<Vec<u8>, Arc<Server>>>> = LazyLock::new(RwLock::default);
/// How many tokens there are: what a request asks first.
static TOKENS_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The place of an order's certificate.
#[must_use]
pub fn slot(issuer: &str, order: &str) -> Arc<AcmeSlot> {
    let mut slots = SLOTS.write();
    let name = (issuer.to_owned(), order.to_owned());
    let slot = slots.entry(name).or_insert_with(|| {
        Arc::new(AcmeSlot {
            issuer: issuer.to_owned(),
            order: order.to_owned(),
            shown: RwLock::default(),
        })
    });
    Arc::clone(slot)
}

/// Shows a certificate (PEM) with its key (PEM).
///
/// # Errors
/// They cannot be used together.
pub fn show(issuer: &str, order: &str, chain: &[u8], key: &[u8]) -> Result<(), tls::Error> {
    let read = |name: &str| match name {
        "key" => Ok(key.to_vec()),
        _ => Ok(chain.to_vec()),
    };
    let pair = keys::pair("certificate", "key", &[], &read)?;
    let text = |pem: &[u8]| Bytes::from([b"data:", pem].concat());
    *slot(issuer, order).shown.write() = Some(ShownCertificate {
        pair: Arc::new(pair),
        certificate: text(chain),
        key: text(key),
    });
    Ok(())
}

/// Forgets the certificates that no configuration uses.
pub fn retain() {
    SLOTS.write().retain(|_, slot| Arc::strong_count(slot) > 1);
}

/// Has requests for a token answered with a text. `false`: there are [`CHALLENGES_MAX`] already.
#[must_use]
pub fn put_token(token: &[u8], text: Bytes) -> bool {
    let mut tokens = TOKENS.write();
    let has_room = tokens.len() < CHALLENGES_MAX;
    if has_room {
        tokens.insert(token.to_vec(), text);
    }
    TOKENS_COUNT.store(tokens.len(), Ordering::Relaxed);
    has_room
}

/// Ends that.
pub fn remove_token(token: &[u8]) {
    let mut tokens = TOKENS.write();
    tokens.remove(token);
    TOKENS_COUNT.store(tokens.len(), Ordering::Relaxed);
}

/// Whether a request may be for a token.
#[must_use]
pub fn has_tokens() -> bool {
    TOKENS_COUNT.load(Ordering::Relaxed) > 0
}

/// The text for the token that a path names.
#[must_use]
pub fn token_text(path: &[u8]) -> Option<Bytes> {
    let token = path.strip_prefix(TOKEN_PREFIX)?;
    TOKENS.read().get(token).cloned()
}

/// Has handshakes of `acme-tls/1` for a name answered with a certificate (PEM) and its key (PEM). `false`: there are
/// [`CHALLENGES_MAX`] already.
///
/// # Errors
/// They cannot be used.
pub fn put_certificate(name: &[u8], certificate: &[u8], key: &[u8]) -> Result<bool, tls::Error> {
    let read = |name: &str| match name {
        "key" => Ok(key.to_vec()),
        _ => Ok(certificate.to_vec()),
    };
    let pair = keys::pair("certificate", "key", &[], &read)?;
    let server = Server::new(ServerOptions {
        certificates: Arc::new(Certificates::new(vec![Arc::new(pair)])),
        alpn: vec![ALPN.to_vec()],
        ..ServerOptions::default()
    })?;
    let mut servers = SERVERS.write();
    let has_room = servers.len() < CHALLENGES_MAX;
    if has_room {
        servers.insert(name.to_vec(), Arc::new(server));
    }
    Ok(has_room)
}

/// Ends that.
pub fn remove_certificate(name: &[u8]) {
    SERVERS.write().remove(name);
}

/// What a handshake is answered with that only asks for a challenge's certificate.
#[must_use]
pub fn challenged(hello: &Hello) -> Option<Arc<Server>> {
    if !hello.alpn.iter().any(|protocol| protocol == ALPN) {
        return None;
    }
    let name = hello.server_name.as_deref()?.to_ascii_lowercase();
    SERVERS.read().get(&name).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_answered_while_they_are_there() {
        let path = b"/.well-known/acme-challenge/one";
        assert_eq!(token_text(path), None);
        assert!(put_token(b"one", Bytes::from_static(b"one.x")));
        assert!(has_tokens());
        assert_eq!(token_text(path).as_deref(), Some(&b"one.x"[..]));
        assert_eq!(token_text(b"/.well-known/acme-challenge/"), None);
        assert_eq!(token_text(b"/one"), None);
        remove_token(b"one");
        assert_eq!(token_text(path), None);
    }

    #[test]
    fn a_place_is_one_and_has_what_fits_together() {
        let one = slot("i", "a");
        assert!(Arc::ptr_eq(&one, &slot("i", "a")) && !Arc::ptr_eq(&one, &slot("j", "a")));
        assert!(one.pair().is_none() && one.texts().is_none());
        assert!(show("i", "a", b"no PEM", b"no PEM").is_err());
        assert!(one.pair().is_none());
        retain();
        assert!(
            Arc::ptr_eq(&one, &slot("i", "a")),
            "a configuration uses it"
        );
    }
}
