//! `ssl_session_cache`: sessions of TLS 1.2 by their ids and of TLS 1.3 by their tickets, for all loops together.
//!
//! Not here: tickets that carry their session (`tickets`). Invariants: never more bytes than configured, keys and
//! bookkeeping included; the oldest session goes first; a session is found only in the context that it was stored in.

use crate::sessions::Context;
use hashbrown::HashMap;
use parking_lot::Mutex;
use rustls::server::StoresServerSessions;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// What a session costs beside its bytes: its places in the table and in the queue.
pub const ENTRY_BYTES: usize = 160;
/// Maximum size of one session in bytes; a client's certificates are in it. Larger ones are not stored.
pub const SESSION_BYTES_MAX: usize = 32 * 1024;
/// Places in the queue that may be out of date before it is swept.
const STALE_MAX: usize = 1024;

/// Maximum of sessions of one connection that are noted.
pub const NOTED_MAX: usize = 16;

type Key = Box<[u8]>;

thread_local! {
    /// Sessions that the step of a handshake under way has stored or taken up; `None`: the step notes none.
    static NOTED: RefCell<Option<KeptSessions>> = const { RefCell::new(None) };
}

/// A cache of sessions.
#[derive(Debug)]
pub struct Sessions {
    bytes_max: usize,
    timeout: Duration,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    sessions: HashMap<Key, Session>,
    /// Keys by age, with the number that their session has if it is still the same.
    queue: VecDeque<(u64, Key)>,
    number: u64,
    bytes: usize,
}

struct Session {
    number: u64,
    value: Zeroizing<Vec<u8>>,
    stored: Instant,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} sessions", self.sessions.len())
    }
}

impl Sessions {
    /// A cache that holds at most `bytes_max`, each session for `timeout`.
    #[must_use]
    pub fn new(bytes_max: usize, timeout: Duration) -> Self {
        Self {
            bytes_max,
            timeout,
            table: Mutex::default(),
        }
    }

    /// How many sessions there are, old ones that nobody asked for included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.lock().sessions.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.table.lock().bytes
    }

    fn put(&self, key: Key, value: Vec<u8>, now: Instant) -> bool {
        let bytes = cost(&key, &value);
        if value.len() > SESSION_BYTES_MAX || bytes > self.bytes_max {
            return false;
        }
        let mut table = self.table.lock();
        table.remove(&key);
        table.expire(now, self.timeout);
        while table.bytes + bytes > self.bytes_max && table.remove_oldest() {}
        table.insert(key, value, now);
        true
    }

    fn get(&self, key: &[u8], now: Instant) -> Option<Vec<u8>> {
        let table = self.table.lock();
        let session = table.sessions.get(key)?;
        let is_fresh = now.duration_since(session.stored) <= self.timeout;
        is_fresh.then(|| session.value.to_vec())
    }

    fn take(&self, key: &[u8], now: Instant) -> Option<Vec<u8>> {
        let session = self.table.lock().remove(key)?;
        let is_fresh = now.duration_since(session.stored) <= self.timeout;
        is_fresh.then(|| session.value.to_vec())
    }
}

/// What a session takes: its key stands twice.
fn cost(key: &[u8], value: &[u8]) -> usize {
    2 * key.len() + value.len() + ENTRY_BYTES
}

impl Table {
    fn insert(&mut self, key: Key, value: Vec<u8>, now: Instant) {
        self.number += 1;
        self.bytes += cost(&key, &value);
        self.queue.push_back((self.number, key.clone()));
        let session = Session {
            number: self.number,
            value: Zeroizing::new(value),
            stored: now,
        };
        self.sessions.insert(key, session);
        if self.queue.len() > 2 * self.sessions.len() + STALE_MAX {
            let sessions = &self.sessions;
            self.queue.retain(|(number, key)| {
                sessions
                    .get(key)
                    .is_some_and(|session| session.number == *number)
            });
        }
    }

    fn remove(&mut self, key: &[u8]) -> Option<Session> {
        let session = self.sessions.remove(key)?;
        self.bytes -= cost(key, &session.value);
        Some(session)
    }

    /// Removes the oldest session; whether there was one.
    fn remove_oldest(&mut self) -> bool {
        self.drop_stale();
        match self.queue.pop_front() {
            Some((_, key)) => self.remove(&key).is_some(),
            None => false,
        }
    }

    /// Takes places from the queue's front whose sessions are gone or were stored anew. After it, the front is the
    /// oldest session.
    fn drop_stale(&mut self) {
        while let Some((number, key)) = self.queue.front() {
            match self.sessions.get(key) {
                Some(session) if session.number == *number => return,
                _ => drop(self.queue.pop_front()),
            }
        }
    }

    /// Removes what is over, two sessions at most: more would be a burst of work in one handshake.
    fn expire(&mut self, now: Instant, timeout: Duration) {
        for _ in 0..2 {
            self.drop_stale();
            let oldest = self.queue.front().map(|(_, key)| &self.sessions[key]);
            match oldest {
                Some(session) if now.duration_since(session.stored) > timeout => {
                    self.remove_oldest();
                }
                _ => return,
            }
        }
    }
}

/// Sessions in a cache that one connection has brought about, or was taken up by.
#[derive(Debug, Default)]
pub struct KeptSessions(Vec<(Arc<Sessions>, Key)>);

impl KeptSessions {
    /// Removes them, so that the client's next handshake is a full one.
    pub fn forget(&self) {
        for (sessions, key) in &self.0 {
            sessions.table.lock().remove(key);
        }
    }
}

/// Does a step of a handshake, and notes the sessions of a cache that it stores or takes up.
pub(crate) fn noting_sessions<T>(kept: &mut KeptSessions, step: impl FnOnce() -> T) -> T {
    NOTED.set(Some(std::mem::take(kept)));
    let result = step();
    *kept = NOTED.take().unwrap_or_default();
    result
}

/// A cache as one server sees it: sessions of its own context.
#[derive(Debug)]
pub(crate) struct InContext {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) context: Context,
}

impl InContext {
    fn key(&self, id: &[u8]) -> Key {
        [&self.context[..], id].concat().into_boxed_slice()
    }

    fn note(&self, key: &Key) {
        NOTED.with_borrow_mut(|noted| {
            if let Some(KeptSessions(noted)) = noted
                && noted.len() < NOTED_MAX
            {
                noted.push((Arc::clone(&self.sessions), key.clone()));
            }
        });
    }
}

impl StoresServerSessions for InContext {
    fn put(&self, id: Vec<u8>, value: Vec<u8>) -> bool {
        let key = self.key(&id);
        self.note(&key);
        self.sessions.put(key, value, Instant::now())
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        let key = self.key(id);
        self.note(&key);
        self.sessions.get(&key, Instant::now())
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.sessions.take(&self.key(id), Instant::now())
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        number.to_be_bytes().to_vec().into_boxed_slice()
    }

    #[test]
    fn bytes_are_bounded_and_the_oldest_goes() {
        let sessions = Sessions::new(10 * cost(&key(0), &[0; 100]), Duration::from_secs(9));
        let now = Instant::now();
        for number in 0..5000 {
            assert!(sessions.put(key(number), vec![0; 100], now));
            assert!(sessions.bytes() <= sessions.bytes_max);
        }
        assert_eq!(sessions.len(), 10);
        assert!(sessions.get(&key(4989), now).is_none());
        assert!(sessions.get(&key(4990), now).is_some());
        assert!(!sessions.put(key(1), vec![0; SESSION_BYTES_MAX + 1], now));
    }

    #[test]
    fn sessions_are_over_after_their_time() {
        let sessions = Sessions::new(100_000, Duration::from_secs(9));
        let now = Instant::now();
        sessions.put(key(1), vec![1], now);
        assert!(
            sessions
                .get(&key(1), now + Duration::from_secs(9))
                .is_some()
        );
        assert!(
            sessions
                .get(&key(1), now + Duration::from_secs(10))
                .is_none()
        );
        sessions.put(key(2), vec![1], now + Duration::from_secs(10));
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn what_is_taken_is_gone() {
        let sessions = Sessions::new(100_000, Duration::from_secs(9));
        let now = Instant::now();
        for _ in 0..10_000 {
            sessions.put(key(1), vec![1], now);
            assert_eq!(sessions.take(&key(1), now), Some(vec![1]));
        }
        assert_eq!((sessions.take(&key(1), now), sessions.bytes()), (None, 0));
        assert!(sessions.table.lock().queue.len() <= STALE_MAX + 1);
    }

    /// Of tickets that are taken once, the next handshake took one more, of another client.
    #[test]
    fn what_is_taken_takes_no_other_session() {
        let sessions = Sessions::new(100_000, Duration::from_secs(9));
        let now = Instant::now();
        for number in 1..=3 {
            sessions.put(key(number), vec![1], now);
        }
        assert_eq!(sessions.take(&key(1), now), Some(vec![1]));
        sessions.put(key(2), vec![2], now);
        sessions.put(key(4), vec![1], now);
        assert_eq!(sessions.len(), 3);
        assert_eq!(sessions.get(&key(2), now), Some(vec![2]));
        assert!(sessions.get(&key(3), now).is_some());
        // The oldest are over, whatever stands before them in the queue.
        let later = now + Duration::from_secs(10);
        sessions.take(&key(3), now);
        sessions.put(key(5), vec![1], later);
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn contexts_do_not_see_each_other() {
        let sessions = Arc::new(Sessions::new(100_000, Duration::from_secs(9)));
        let of = |context| InContext {
            sessions: Arc::clone(&sessions),
            context,
        };
        let (one, other) = (of([1; 32]), of([2; 32]));
        assert!(one.put(vec![7], vec![1]));
        assert_eq!(other.get(&[7]), None);
        assert_eq!(one.get(&[7]), Some(vec![1]));
    }
}
