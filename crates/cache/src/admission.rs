//! Which keys were asked for lately, in very little memory: `admission=second_hit` stores a response only when its key
//! is asked for again, so that what is asked for once costs no write and displaces nothing.
//!
//! A key is in one of two Bloom filters: the present one, or the one before. When the present one has as many keys as it
//! is made for, it becomes the one before, and the oldest is used anew: it has been cleared meanwhile, a word with each
//! key that was added. So no call takes long, and a key is remembered for a quarter to a half of as many other keys as
//! the zone has room for.
//!
//! Invariant: a key that is asked for twice within that time is admitted; of those that are not, one or two in a hundred
//! are.

use crate::key::Key;
use parking_lot::Mutex;

/// Bits for each key of the zone.
const BITS_OF_KEY: usize = 8;
/// Filters: the present one, the one before, and one that is being cleared.
const FILTERS: usize = 3;
/// Keys of a filter: one of so many keys of the zone.
const SHARE: usize = 4;
/// Bits that a key sets in a filter.
const HASHES: usize = 4;

/// The keys of one cache.
#[derive(Debug)]
pub struct Admission(Mutex<SeenKeys>);

#[derive(Debug)]
struct SeenKeys {
    filters: [Box<[u64]>; FILTERS],
    present: usize,
    /// Keys that were added to the present filter.
    added: usize,
    /// Keys that a filter is made for.
    keys_max: usize,
    /// Words of the filter that is used next that are clear.
    cleared: usize,
}

impl Admission {
    /// For a zone of so many keys.
    #[must_use]
    pub fn new(zone_keys: usize) -> Self {
        let words = (zone_keys * BITS_OF_KEY / FILTERS).div_ceil(64).max(1);
        let filter = || vec![0; words].into_boxed_slice();
        Self(Mutex::new(SeenKeys {
            filters: std::array::from_fn(|_| filter()),
            present: 0,
            added: 0,
            keys_max: (zone_keys / SHARE).max(1),
            cleared: words,
        }))
    }

    /// Was the key asked for before? From now on it was.
    pub fn admits(&self, key: &Key) -> bool {
        let seen = &mut *self.0.lock();
        let bits = seen.bits(key);
        let before = (seen.present + FILTERS - 1) % FILTERS;
        let has = |filter: &[u64]| bits.iter().all(|(word, bit)| filter[*word] & bit != 0);
        let is_present = has(&seen.filters[seen.present]);
        let is_seen = is_present || has(&seen.filters[before]);
        if !is_present {
            seen.add(&bits);
        }
        is_seen
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let filters = &self.0.lock().filters;
        filters.iter().map(|filter| size_of_val(&**filter)).sum()
    }
}

impl SeenKeys {
    /// The places of a key in a filter: its bytes are a hash already.
    fn bits(&self, key: &Key) -> [(usize, u64); HASHES] {
        let words = self.filters[0].len() as u64;
        let mut parts = key.0.chunks_exact(size_of::<u32>());
        std::array::from_fn(|_| {
            let part = parts.next().and_then(|part| part.try_into().ok());
            let hash = u64::from(u32::from_le_bytes(part.unwrap_or_default()));
            let place = (hash * (words * 64)) >> 32;
            ((place / 64) as usize, 1 << (place % 64))
        })
    }

    fn add(&mut self, bits: &[(usize, u64); HASHES]) {
        for (word, bit) in bits {
            self.filters[self.present][*word] |= bit;
        }
        self.added += 1;
        let next = (self.present + 1) % FILTERS;
        if let Some(word) = self.filters[next].get_mut(self.cleared) {
            *word = 0;
            self.cleared += 1;
        }
        if self.added >= self.keys_max && self.cleared >= self.filters[next].len() {
            (self.present, self.added, self.cleared) = (next, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: usize = 8000;

    fn key(number: usize) -> Key {
        Key::of(number.to_string().as_bytes())
    }

    #[test]
    fn a_key_is_admitted_the_second_time_and_forgotten_after_many_others() {
        let admission = Admission::new(ZONE);
        assert!(!admission.admits(&key(0)));
        assert!(admission.admits(&key(0)));
        let mut wrong = 0;
        for number in 1..ZONE * 3 {
            wrong += usize::from(admission.admits(&key(number)));
            if number % 100 == 0 {
                assert!(admission.admits(&key(number - 50)), "lately asked for");
            }
        }
        assert!(wrong < ZONE * 3 / 30, "{wrong} were admitted at once");
        assert!(!admission.admits(&key(1)), "it was long ago");
        assert!(admission.memory() <= ZONE + 64);
        assert!(Admission::new(0).memory() > 0);
    }
}
