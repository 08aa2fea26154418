//! What servers keep for clients that come back: sessions, keys for tickets, statuses of certificates.

use std::sync::Arc;

use config::Error;
use tls::ocsp::StatusCache;
use tls::sessions::{Sessions, Tickets};

use super::{Making, placed};
use crate::tls::directives::TlsSettings;
use crate::tls::server_tls::Resumption;
use crate::tls::values::{OcspCache, OwnCache, SharedZone};
use crate::tls::zones;

/// Bytes that a session of `builtin:number` is counted with.
const SESSION_BYTES: u64 = 1024;

/// The statuses of clients' certificates that are kept (`ssl_ocsp_cache`).
#[must_use]
pub fn status_cache(settings: &TlsSettings) -> Option<Arc<StatusCache>> {
    let OcspCache(zone) = settings.ssl_ocsp_cache.on()?;
    Some(zones::statuses(zone))
}

/// Whether a server's lines name a cache, be it none, or keys. `none` is what no line says, too.
pub(super) fn is_named(settings: &TlsSettings) -> bool {
    let cache = &settings.ssl_session_cache;
    let own = cache.own.as_ref();
    let has_own = own.is_some_and(|own| !matches!(own, OwnCache::None));
    has_own || cache.shared.is_some() || !settings.ssl_session_ticket_key.is_empty()
}

/// The sessions that are kept, and the zone that they are kept in.
fn sessions(settings: &TlsSettings) -> (Option<Arc<Sessions>>, Option<SharedZone>) {
    let cache = &settings.ssl_session_cache;
    let timeout = settings.ssl_session_timeout.duration();
    let sessions = match (cache.own, &cache.shared) {
        (Some(OwnCache::Off | OwnCache::None), _) | (None, None) => None,
        (_, Some(zone)) => Some(zones::sessions(zone, timeout)),
        (Some(OwnCache::Builtin(number)), None) => {
            let bytes = usize::try_from(number.saturating_mul(SESSION_BYTES));
            let bytes = bytes.unwrap_or(usize::MAX);
            Some(Arc::new(Sessions::new(bytes, timeout)))
        }
    };
    (sessions, cache.shared.clone())
}

impl Making<'_> {
    /// Where a server's sessions are kept, and its keys, also where it has no tickets.
    pub(super) fn resumption(&self, settings: &TlsSettings) -> Result<Resumption, Error> {
        let (sessions, zone) = sessions(settings);
        let tickets = self.tickets(settings, zone.as_ref())?;
        Ok(Resumption { sessions, tickets })
    }

    fn tickets(
        &self,
        settings: &TlsSettings,
        zone: Option<&SharedZone>,
    ) -> Result<Arc<Tickets>, Error> {
        let timeout = settings.ssl_session_timeout.duration();
        let lines = &settings.ssl_session_ticket_key;
        let names: Vec<_> = lines.iter().map(|line| self.name(&line.value.0)).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let place = lines.first().and_then(|line| line.place.as_ref());
        let told = |error: tls::Error| placed(error.to_string(), place);
        if lines.len() > tls::sessions::tickets::KEYS_MAX {
            let most = tls::sessions::tickets::KEYS_MAX;
            let sentence = format!("more than {most} lines of \"ssl_session_ticket_key\"");
            return Err(placed(sentence, place));
        }
        let tickets = match names.is_empty() {
            false => Tickets::of_files(&names, self.file, timeout).map(Arc::new),
            true => zones::tickets(zone, timeout),
        };
        tickets.map_err(told)
    }
}
