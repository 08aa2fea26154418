//! The request rate of each key, as `limit_req` counts it: in thousandths of a request. nginx-drop-in 51.
//!
//! The caller supplies the time. Invariant: a request is charged to a key at most once, and to none if it is refused.

use super::keys::{KeyState, Keys};
use super::table::{Slot, Table};

/// A key that was silent for this many milliseconds makes room for others as soon as its excess is used up.
const SILENT_MS: i64 = 60_000;
/// Maximum number of silent keys that are removed when a key is added.
const SILENT_AT_ONCE_MAX: usize = 2;
/// One request, in thousandths.
const ONE: i64 = 1000;

/// The state of a key.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Excess over the rate, in thousandths of a request.
    excess: i64,
    /// Time of the last charged request, in milliseconds.
    last_ms: i64,
    /// Requests that passed here and are still being checked by other zones: the key must stay.
    asked: u32,
}

/// A rate, and the excess that is allowed, in thousandths of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Per second.
    pub rate: i64,
    /// A larger excess is refused.
    pub burst: i64,
    /// A larger excess is delayed.
    pub delay: i64,
}

/// A zone's verdict on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may pass, and is charged; the excess.
    Charged(i64),
    /// It may pass, and is not charged yet.
    Asked(Slot),
    /// It may not pass; the excess.
    Refused(i64),
    /// The zone has no room for the key.
    Full,
}

/// The keys of one zone, for all loops.
pub(crate) type Requests = Keys<Pace>;

impl KeyState for Pace {
    const NODE_BYTES: usize = 80;
}

impl Requests {
    /// Checks a request with this key; the last zone checked charges it at once (`is_last`).
    pub fn ask(&self, key: &[u8], rule: &Rule, is_last: bool, now_ms: i64) -> Verdict {
        let hash = self.hasher.hash(key);
        let mut keys = self.keys.lock();
        let Some(slot) = keys.find(hash, key) else {
            let (verdict, is_one_forgotten) = add(&mut keys, hash, key, rule, is_last, now_ms);
            self.figures
                .forgotten
                .add_shared(u64::from(is_one_forgotten));
            return verdict;
        };
        keys.touch(slot);
        let pace = keys.get_mut(slot);
        let (excess, passed_ms) = pace.with_one_more(rule.rate, now_ms);
        if excess > rule.burst {
            return Verdict::Refused(excess);
        }
        if !is_last {
            pace.asked += 1;
            return Verdict::Asked(slot);
        }
        pace.charge(excess, passed_ms, now_ms);
        Verdict::Charged(excess)
    }

    /// Charges a request that has passed in all zones; returns the excess.
    pub fn charge(&self, slot: Slot, rule: &Rule, now_ms: i64) -> i64 {
        let mut keys = self.keys.lock();
        let pace = keys.get_mut(slot);
        let (excess, passed_ms) = pace.with_one_more(rule.rate, now_ms);
        pace.charge(excess, passed_ms, now_ms);
        pace.asked -= 1;
        excess
    }

    /// Releases the key of a request that passed here and was refused by another zone.
    pub fn forget(&self, slot: Slot) {
        self.keys.lock().get_mut(slot).asked -= 1;
    }
}

impl Pace {
    /// The excess with one more request, and the milliseconds since the last one.
    fn with_one_more(&self, rate: i64, now_ms: i64) -> (i64, i64) {
        let passed_ms = match now_ms - self.last_ms {
            // A clock that went back by more than a minute counts as a new one.
            ..-60_000 => 1,
            passed => passed.max(0),
        };
        let gone = rate.saturating_mul(passed_ms) / 1000;
        let excess = self.excess.saturating_sub(gone).saturating_add(ONE);
        (excess.max(0), passed_ms)
    }

    fn charge(&mut self, excess: i64, passed_ms: i64, now_ms: i64) {
        self.excess = excess;
        if passed_ms > 0 {
            self.last_ms = now_ms;
        }
    }
}

/// Adds a key; true: the zone was full, so other keys were removed for it.
fn add(
    keys: &mut Table<Pace>,
    hash: u64,
    key: &[u8],
    rule: &Rule,
    is_last: bool,
    now_ms: i64,
) -> (Verdict, bool) {
    let pace = Pace {
        excess: 0,
        // A key that is only checked counts from its charge on, as with a first request.
        last_ms: if is_last { now_ms } else { 0 },
        asked: u32::from(!is_last),
    };
    make_room(keys, SILENT_AT_ONCE_MAX, false, rule.rate, now_ms);
    let mut is_one_forgotten = false;
    let slot = keys.insert(hash, key, pace).or_else(|| {
        let before = keys.room().keys;
        make_room(keys, SILENT_AT_ONCE_MAX + 1, true, rule.rate, now_ms);
        is_one_forgotten = keys.room().keys < before;
        keys.insert(hash, key, pace)
    });
    let verdict = match slot {
        None => Verdict::Full,
        Some(_) if is_last => Verdict::Charged(0),
        Some(slot) => Verdict::Asked(slot),
    };
    (verdict, is_one_forgotten)
}

/// Removes up to `count` keys, the least recently used first. If it `must`, the first goes whatever its excess; the
/// others go only if they were silent for long and their excess is used up.
fn make_room(keys: &mut Table<Pace>, count: usize, must: bool, rate: i64, now_ms: i64) {
    for number in 0..count {
        let Some(slot) = keys.oldest() else { return };
        let pace = keys.get(slot);
        if pace.asked > 0 {
            return;
        }
        let silent_ms = (now_ms - pace.last_ms).abs();
        let owes = pace.excess > rate.saturating_mul(silent_ms) / 1000;
        if !(must && number == 0) && (silent_ms < SILENT_MS || owes) {
            return;
        }
        keys.remove(slot);
    }
}

/// Delay in milliseconds of a request with this excess.
#[must_use]
pub(crate) fn delay_ms(excess: i64, rule: &Rule) -> u64 {
    let over = excess.saturating_sub(rule.delay).max(0);
    over.saturating_mul(1000).unsigned_abs() / rule.rate.max(1).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const RULE: Rule = Rule {
        rate: 2000,
        burst: 2000,
        delay: 1000,
    };

    fn zone() -> Requests {
        Requests::new(32 << 10, Arc::default()).expect("there is memory")
    }

    #[test]
    fn the_first_request_is_free_and_the_others_are_counted_in_thousandths() {
        let zone = zone();
        let ask = |now_ms| zone.ask(b"a", &RULE, true, now_ms);
        assert_eq!(ask(10_000), Verdict::Charged(0));
        assert_eq!(ask(10_000), Verdict::Charged(1000));
        assert_eq!(ask(10_001), Verdict::Charged(1998));
        // A refused request is not charged.
        assert_eq!(ask(10_001), Verdict::Refused(2998));
        assert_eq!(ask(10_001), Verdict::Refused(2998));
        assert_eq!(ask(10_500), Verdict::Charged(2000));
        assert_eq!(ask(60_000), Verdict::Charged(0));
        assert_eq!(zone.ask(b"b", &RULE, true, 10_001), Verdict::Charged(0));
    }

    #[test]
    fn delays_are_as_long_as_it_takes_to_be_within_the_rate() {
        assert_eq!(delay_ms(1000, &RULE), 0);
        assert_eq!(delay_ms(1500, &RULE), 250);
        assert_eq!(delay_ms(0, &RULE), 0);
        let nodelay = Rule {
            delay: i64::MAX,
            ..RULE
        };
        assert_eq!(delay_ms(i64::MAX, &nodelay), 0);
    }

    #[test]
    fn several_zones_charge_only_when_all_have_passed() {
        let zone = zone();
        let Verdict::Asked(slot) = zone.ask(b"a", &RULE, false, 5_000_000) else {
            panic!("it is not the last one");
        };
        zone.forget(slot);
        let Verdict::Asked(slot) = zone.ask(b"a", &RULE, false, 5_000_000) else {
            panic!("it is not the last one");
        };
        assert_eq!(zone.charge(slot, &RULE, 5_000_000), 0);
        assert_eq!(
            zone.ask(b"a", &RULE, true, 5_000_000),
            Verdict::Charged(1000)
        );
    }

    #[test]
    fn a_full_zone_forgets_who_was_silent_for_longest() {
        let zone = zone();
        let key = |number: u32| number.to_le_bytes();
        // Six pages with 32 nodes of 128 bytes each.
        for number in 0..6 * 32 {
            assert_eq!(zone.ask(&key(number), &RULE, true, 0), Verdict::Charged(0));
        }
        assert_eq!(zone.ask(&key(0), &RULE, true, 0), Verdict::Charged(1000));
        assert_eq!(zone.figures().forgotten.get(), 0);
        assert_eq!(zone.ask(b"new", &RULE, true, 0), Verdict::Charged(0));
        assert_eq!(zone.figures().forgotten.get(), 1);
        assert_eq!(zone.ask(&key(0), &RULE, true, 0), Verdict::Charged(2000));
        assert_eq!(zone.ask(&key(1), &RULE, true, 0), Verdict::Charged(0));
        assert_eq!(zone.ask(&key(3), &RULE, true, 0), Verdict::Charged(1000));
    }

    #[test]
    fn who_is_asked_about_stays_and_then_there_is_no_room() {
        let zone = zone();
        for number in 0..6 * 32_u32 {
            let verdict = zone.ask(&number.to_le_bytes(), &RULE, false, 0);
            assert!(matches!(verdict, Verdict::Asked(_)), "{number}");
        }
        assert_eq!(zone.ask(b"new", &RULE, true, 0), Verdict::Full);
    }
}
