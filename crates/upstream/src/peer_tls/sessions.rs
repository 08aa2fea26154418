//! Sessions of peers, which new connections to them take up again (`proxy_ssl_session_reuse`).
//!
//! Invariant: a session is taken up only with the settings and the own certificate that it came from; its peer's
//! certificate is judged anew.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use runtime::listen::Address;
use tls::handshake::PeerSessions;

/// Maximum number of peers of one place of the configuration whose sessions are kept; one counts for each certificate
/// of our own whose name came with a request.
const PEERS_MAX: usize = 1024;

/// A peer, and the names of the own certificate and its key where they came with a request.
type Key = (Address, Option<Arc<(String, String)>>);

/// The sessions of peers; of all loops, which ask only when they open a connection.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<Key, Entry>>);

struct Entry {
    sessions: PeerSessions,
    used_ms: u64,
}

impl Sessions {
    /// Those of a peer. The peer that was asked longest ago gives way to a new one.
    pub(super) fn of(&self, key: Key, now_ms: u64) -> PeerSessions {
        let mut all = self.0.lock();
        if let Some(entry) = all.get_mut(&key) {
            entry.used_ms = now_ms;
            return entry.sessions.clone();
        }
        if all.len() >= PEERS_MAX {
            let oldest = all.iter().min_by_key(|(_, entry)| entry.used_ms);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                all.remove(&oldest);
            }
        }
        let sessions = PeerSessions::default();
        let entry = Entry {
            sessions: sessions.clone(),
            used_ms: now_ms,
        };
        all.insert(key, entry);
        sessions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_that_was_asked_longest_ago_gives_way() {
        let sessions = Sessions::default();
        let peer = |number: usize| (Address::Unix(format!("/{number}").into()), None);
        for number in 0..PEERS_MAX {
            sessions.of(peer(number), number as u64);
        }
        sessions.of(peer(0), 5000);
        sessions.of(peer(PEERS_MAX), 5001);
        let all = sessions.0.lock();
        assert_eq!(all.len(), PEERS_MAX);
        assert!(all.contains_key(&peer(0)) && !all.contains_key(&peer(1)));
    }
}
