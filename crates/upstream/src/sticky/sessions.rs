//! The sessions of `sticky learn`: the server that each one belongs to.
//!
//! Bounded by the size of its zone: when it is full, the least recently used session goes. Shared by all loops, behind
//! one short lock. Invariant: every session is in both maps, under the same order.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use md5::{Digest, Md5};
use parking_lot::Mutex;

/// Bytes of a zone for each session: nginx keeps 8000 in 1 MiB.
const SESSION_BYTES: u64 = 128;
/// Maximum of sessions that are remembered, whatever the zone's size.
pub(crate) const SESSIONS_MAX: usize = 10_000_000;
/// Maximum of sessions that are forgotten at once when one is added.
const FORGOTTEN_MAX: usize = 16;

type SessionKey = [u8; 16];

/// A zone's sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    most: usize,
    inner: Mutex<SessionIndex>,
}

#[derive(Debug, Default)]
struct SessionIndex {
    by_key: HashMap<SessionKey, BoundSession>,
    /// By the time of the last use, and a number that makes it unique.
    by_use: BTreeMap<(u64, u64), SessionKey>,
    uses: u64,
}

#[derive(Debug)]
struct BoundSession {
    sid: Box<[u8]>,
    used: (u64, u64),
}

impl Sessions {
    /// No sessions yet, in a zone of that many bytes.
    #[must_use]
    pub(crate) fn new(size: u64) -> Sessions {
        let most = usize::try_from(size / SESSION_BYTES).unwrap_or(SESSIONS_MAX);
        Sessions {
            most: most.clamp(1, SESSIONS_MAX),
            inner: Mutex::default(),
        }
    }

    /// The server ([`crate::Peer::sid`]) that a session belongs to, if it was used within `timeout_ms`.
    #[must_use]
    pub(crate) fn find(&self, id: &[u8], timeout_ms: u64, now_ms: u64) -> Option<Box<[u8]>> {
        let mut inner = self.inner.lock();
        inner.forget(timeout_ms, now_ms);
        let session = inner.by_key.get(&key(id))?;
        let is_valid = session.used.0.saturating_add(timeout_ms) > now_ms;
        is_valid.then(|| session.sid.clone())
    }

    /// Records the server that answered a session. An unknown session is remembered if it `is_new`.
    pub(crate) fn learn(&self, id: &[u8], sid: &[u8], is_new: bool, timeout_ms: u64, now_ms: u64) {
        let key = key(id);
        let mut inner = self.inner.lock();
        inner.forget(timeout_ms, now_ms);
        if !is_new && !inner.by_key.contains_key(&key) {
            return;
        }
        if let Some(before) = inner.by_key.remove(&key) {
            inner.by_use.remove(&before.used);
        }
        while inner.by_key.len() >= self.most {
            let Some((_, oldest)) = inner.by_use.pop_first() else {
                break;
            };
            inner.by_key.remove(&oldest);
        }
        inner.uses += 1;
        let used = (now_ms, inner.uses);
        inner.by_use.insert(used, key);
        let session = BoundSession {
            sid: sid.into(),
            used,
        };
        inner.by_key.insert(key, session);
    }
}

impl SessionIndex {
    /// Forgets some of the expired sessions.
    fn forget(&mut self, timeout_ms: u64, now_ms: u64) {
        for _ in 0..FORGOTTEN_MAX {
            let Some(first) = self.by_use.first_entry() else {
                return;
            };
            if first.key().0.saturating_add(timeout_ms) > now_ms {
                return;
            }
            let oldest = first.remove();
            self.by_key.remove(&oldest);
        }
    }
}

fn key(id: &[u8]) -> SessionKey {
    Md5::digest(id).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(sessions: &Sessions, id: &str, now_ms: u64) -> Option<String> {
        let found = sessions.find(id.as_bytes(), 100, now_ms)?;
        Some(String::from_utf8(found.into()).unwrap())
    }

    #[test]
    fn sessions_are_learned_used_and_forgotten() {
        let sessions = Sessions::new(1 << 20);
        let learn = |id: &str, sid: &str, is_new, now_ms| {
            sessions.learn(id.as_bytes(), sid.as_bytes(), is_new, 100, now_ms);
        };
        learn("a", "1", true, 0);
        learn("b", "2", false, 0);
        assert_eq!(find(&sessions, "a", 10), Some("1".into()));
        assert_eq!(find(&sessions, "b", 10), None, "not a new one");
        learn("a", "2", false, 50);
        assert_eq!(find(&sessions, "a", 120), Some("2".into()));
        assert_eq!(find(&sessions, "a", 150), None, "not used for too long");
    }

    #[test]
    fn the_one_used_least_recently_gives_way() {
        let sessions = Sessions::new(3 * SESSION_BYTES);
        for (number, id) in ["a", "b", "c", "a", "d"].into_iter().enumerate() {
            sessions.learn(id.as_bytes(), b"1", true, 100, number as u64);
        }
        assert_eq!(find(&sessions, "b", 5), None);
        assert!(
            ["a", "c", "d"]
                .iter()
                .all(|id| find(&sessions, id, 5).is_some())
        );
        assert_eq!(sessions.inner.lock().by_use.len(), 3);
    }

    #[test]
    fn none_that_is_too_old_is_found_among_many() {
        let sessions = Sessions::new(1 << 20);
        for number in 0..100u32 {
            sessions.learn(&number.to_le_bytes(), b"1", true, 100, 0);
        }
        assert!(sessions.find(&99u32.to_le_bytes(), 100, 200).is_none());
    }
}
