//! Sessions of TLS that the servers of an address share.
//!
//! Not here: caches and keys ([`httpcore::tls`]). Invariant: the contexts of sessions keep servers apart; one takes up no
//! session of another.

use std::sync::Arc;

use hashbrown::HashSet;
use httpcore::settings::Settings;

/// Has servers that name neither a cache nor keys use those of the default server of their first address, as nginx has
/// all servers of an address.
pub(super) fn share(settings: &mut Settings) {
    let mut settled = HashSet::new();
    let entries = settings.listens.entries().iter();
    for entry in entries.filter(|entry| entry.protocols.has_ssl) {
        let default = settings.servers[entry.default as usize].tls.as_ref();
        let shared = default.and_then(|tls| tls.resumption.clone());
        for id in entry.servers.iter().filter(|id| **id != entry.default) {
            let is_first = settled.insert(*id);
            let tls = settings.servers[*id as usize].tls.as_mut();
            let tls = tls.filter(|tls| is_first && tls.resumption.is_none());
            let Some((tls, shared)) = tls.and_then(Arc::get_mut).zip(shared.as_ref()) else {
                continue;
            };
            let own = tls.handshakes.take();
            let sessions = shared.sessions.as_ref();
            tls.handshakes = own.map(|own| Arc::new(own.resuming_by(sessions, &shared.tickets)));
        }
    }
}
