//! The windows of stale use (stale-while-revalidate, stale-if-error): pairs of seconds that slots name by a number,
//! since the responses of an origin have few different ones.
//!
//! Invariant: a number, once given, means the same pair for as long as the index lives.

use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bits of a number.
pub(super) const NUMBER_BITS: u32 = 11;
/// Maximum of pairs that are kept as they are. Others are rounded down to powers of two.
pub(super) const PAIRS_MAX: usize = 1023;
/// Bits of each power in a number that is no pair's.
const POWER_BITS: u32 = 5;
/// The first number that stands for two powers.
const POWERS: u16 = 1 << (2 * POWER_BITS);

const _: () = assert!(PAIRS_MAX < POWERS as usize && 2 * POWERS == 1 << NUMBER_BITS);

/// The pairs of one index.
#[derive(Debug, Default)]
pub(super) struct StaleWindows {
    /// `updating` in the upper half, `error` in the lower.
    pairs: OnceLock<Box<[AtomicU64]>>,
    len: AtomicUsize,
    adding: Mutex<()>,
}

impl StaleWindows {
    /// Bytes of memory that it holds.
    pub(super) fn memory(&self) -> usize {
        self.pairs.get().map_or(0, |pairs| size_of_val(&**pairs))
    }

    /// The number of a pair of windows, in seconds.
    pub(super) fn number(&self, updating: u32, error: u32) -> u16 {
        let pair = u64::from(updating) << 32 | u64::from(error);
        match pair {
            0 => 0,
            _ => self.known(pair).unwrap_or_else(|| self.add(pair)),
        }
    }

    /// The pair of a number.
    pub(super) fn pair(&self, number: u16) -> (u32, u32) {
        if number >= POWERS {
            let powers = u32::from(number - POWERS);
            return (
                seconds(powers >> POWER_BITS),
                seconds(powers & ((1 << POWER_BITS) - 1)),
            );
        }
        let place = usize::from(number).checked_sub(1);
        let pairs = self.pairs.get().zip(place);
        let pair = pairs.and_then(|(pairs, place)| pairs.get(place));
        // Whoever has the number has it from under a lock that was taken after the pair was stored.
        let pair = pair.map_or(0, |pair| pair.load(Ordering::Relaxed));
        ((pair >> 32) as u32, pair as u32)
    }

    fn known(&self, pair: u64) -> Option<u16> {
        let pairs = self.pairs.get()?;
        let mut known = pairs[..self.len.load(Ordering::Acquire)].iter();
        let place = known.position(|known| known.load(Ordering::Relaxed) == pair)?;
        Some(place as u16 + 1)
    }

    fn add(&self, pair: u64) -> u16 {
        let _adding = self.adding.lock();
        if let Some(number) = self.known(pair) {
            return number;
        }
        let none = || std::iter::repeat_with(AtomicU64::default);
        let pairs = self.pairs.get_or_init(|| none().take(PAIRS_MAX).collect());
        let len = self.len.load(Ordering::Relaxed);
        let Some(place) = pairs.get(len) else {
            let powers = power((pair >> 32) as u32) << POWER_BITS | power(pair as u32);
            return POWERS | powers;
        };
        place.store(pair, Ordering::Relaxed);
        self.len.store(len + 1, Ordering::Release);
        len as u16 + 1
    }
}

/// The power of two below a number of seconds, plus one; 0 for 0.
fn power(seconds: u32) -> u16 {
    let power = seconds.checked_ilog2().map_or(0, |power| power + 1);
    power.min((1 << POWER_BITS) - 1) as u16
}

fn seconds(power: u32) -> u32 {
    power.checked_sub(1).map_or(0, |power| 1 << power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_kept_as_they_are_and_rounded_down_only_when_there_are_many() {
        let windows = StaleWindows::default();
        assert_eq!((windows.number(0, 0), windows.pair(0)), (0, (0, 0)));
        for number in 1..=PAIRS_MAX as u32 {
            let given = windows.number(number, u32::MAX - number);
            assert_eq!(windows.number(number, u32::MAX - number), given);
            assert_eq!(windows.pair(given), (number, u32::MAX - number));
        }
        let more = windows.number(86_400, u32::MAX);
        assert_eq!(windows.pair(more), (65_536, 1 << 30));
        let more = windows.number(0, 1);
        assert_eq!(windows.pair(more), (0, 1));
        assert!(more < 1 << NUMBER_BITS);
    }
}
