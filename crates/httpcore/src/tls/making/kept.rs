//! What servers keep for clients that come back: sessions, keys for tickets, statuses of certificates.
//!
//! Invariant: a zone of shared memory has one size and one use in a configuration.

use std::sync::Arc;

use config::Error;
use tls::ocsp::StatusCache;
use tls::sessions::{Sessions, Tickets};

use super::{Making, placed};
use crate::tls::directives::TlsSettings;
use crate::tls::values::{OcspCache, OwnCache, SharedZone};
use crate::tls::zones;

/// Bytes that a session of `builtin:number` is counted with.
const SESSION_BYTES: u64 = 1024;

/// What a zone of shared memory is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ZoneUse {
    Sessions,
    Statuses,
}

impl Making<'_> {
    /// The statuses of clients' certificates that are kept (`ssl_ocsp_cache`).
    ///
    /// # Errors
    /// nginx's sentence: the zone is declared otherwise elsewhere.
    pub fn status_cache(
        &mut self,
        settings: &TlsSettings,
    ) -> Result<Option<Arc<StatusCache>>, Error> {
        let Some(OcspCache(zone)) = settings.ssl_ocsp_cache.on() else {
            return Ok(None);
        };
        self.declare(zone, ZoneUse::Statuses)?;
        Ok(Some(zones::statuses(zone)))
    }

    /// Notes a zone's size and use.
    fn declare(&mut self, zone: &SharedZone, what: ZoneUse) -> Result<(), Error> {
        let name = String::from_utf8_lossy(&zone.name);
        let own = (zone.bytes, what);
        let known = *self.zones.entry(zone.name.clone()).or_insert(own);
        let sentence = match known {
            _ if known == own => return Ok(()),
            (_, other) if other != what => {
                format!("the shared memory zone \"{name}\" is already declared for a different use")
            }
            (size, _) => format!(
                "the size {} of shared memory zone \"{name}\" conflicts with already declared size {size}",
                zone.bytes
            ),
        };
        Err(Error::at(sentence, &zone.place))
    }

    /// The sessions that are kept, and the zone that they are kept in.
    pub(super) fn sessions(
        &mut self,
        settings: &TlsSettings,
    ) -> Result<(Option<Arc<Sessions>>, Option<SharedZone>), Error> {
        let cache = &settings.ssl_session_cache;
        let timeout = settings.ssl_session_timeout.duration();
        if let Some(zone) = &cache.shared {
            self.declare(zone, ZoneUse::Sessions)?;
        }
        let sessions = match (cache.own, &cache.shared) {
            (Some(OwnCache::Off | OwnCache::None), _) | (None, None) => None,
            (_, Some(zone)) => Some(zones::sessions(zone, timeout)),
            (Some(OwnCache::Builtin(number)), None) => {
                let bytes = usize::try_from(number.saturating_mul(SESSION_BYTES));
                let bytes = bytes.unwrap_or(usize::MAX);
                Some(Arc::new(Sessions::new(bytes, timeout)))
            }
        };
        Ok((sessions, cache.shared.clone()))
    }

    pub(super) fn tickets(
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
