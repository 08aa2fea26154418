//! Sessions, keys for tickets and statuses of certificates that outlive a configuration: the zones of
//! `ssl_session_cache shared:…` and `ssl_ocsp_cache shared:…`, and random keys.
//!
//! A configuration that is built while another one still serves takes over what that one has, by name. Not here: sessions
//! themselves ([`tls::sessions`]). Invariant: what no configuration uses is freed with the last one that did.

use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tls::ocsp::StatusCache;
use tls::sessions::{Sessions, Tickets};

use super::values::SharedZone;

type Kept<K, V> = LazyLock<Mutex<HashMap<K, Weak<V>>>>;

static SESSIONS: Kept<(SharedKey, Duration), Sessions> = LazyLock::new(Mutex::default);
static TICKETS: Kept<(Option<SharedKey>, Duration), Tickets> = LazyLock::new(Mutex::default);
static STATUSES: Kept<SharedKey, StatusCache> = LazyLock::new(Mutex::default);

/// A zone's name and size: another size is another zone.
type SharedKey = (Bytes, u64);

fn key(zone: &SharedZone) -> SharedKey {
    (zone.name.clone(), zone.bytes)
}

/// The sessions of a zone, for servers with this timeout.
pub(super) fn sessions(zone: &SharedZone, timeout: Duration) -> Arc<Sessions> {
    let bytes_max = usize::try_from(zone.bytes).unwrap_or(usize::MAX);
    let make = || Ok(Sessions::new(bytes_max, timeout));
    let made: Result<_, std::convert::Infallible> = kept(&SESSIONS, (key(zone), timeout), make);
    made.unwrap_or_else(|never| match never {})
}

/// The statuses of clients' certificates in a zone.
pub(super) fn statuses(zone: &SharedZone) -> Arc<StatusCache> {
    let bytes_max = usize::try_from(zone.bytes).unwrap_or(usize::MAX);
    let make = || Ok(StatusCache::new(bytes_max));
    let made: Result<_, std::convert::Infallible> = kept(&STATUSES, key(zone), make);
    made.unwrap_or_else(|never| match never {})
}

/// Random keys for tickets: those of a zone, or of all servers that name none.
///
/// # Errors
/// The system gives no random bytes.
pub(super) fn tickets(
    zone: Option<&SharedZone>,
    timeout: Duration,
) -> Result<Arc<Tickets>, tls::Error> {
    kept(&TICKETS, (zone.map(key), timeout), || {
        Tickets::random(timeout)
    })
}

fn kept<K: Eq + std::hash::Hash, V, E>(
    all: &Kept<K, V>,
    key: K,
    make: impl FnOnce() -> Result<V, E>,
) -> Result<Arc<V>, E> {
    let mut all = all.lock();
    all.retain(|_, one| one.strong_count() > 0);
    if let Some(one) = all.get(&key).and_then(Weak::upgrade) {
        return Ok(one);
    }
    let one = Arc::new(make()?);
    all.insert(key, Arc::downgrade(&one));
    Ok(one)
}
