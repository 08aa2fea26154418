//! Purges: an entry that was requested before a purge, and that its rule covers, is invalid.
//!
//! A purge is O(1): it gets the next number and is added to a list. Each entry has the number of the last purge that
//! had been made when it was requested from the origin ([`FetchMoment`]), or that it was found not to be covered by. A
//! hit that is behind the end of the list is compared once with the rules in between (its head has the key's text and
//! the tags), then noted as clean. A covered entry is invalid from the moment of the purge on. A sweep deletes it at
//! its own pace, and forgets rules that it has compared with every entry. The index has a [`PurgeFilter`] of each
//! entry, which tells the sweep which heads it need not read.
//!
//! Not here: files and the index (`store::purge`). Invariants: a rule is forgotten only when no entry and no running
//! fill is older than it; the order of numbers survives their wrapping (`is_before`).

mod filter;
mod rule;
#[cfg(test)]
mod tests;

pub(crate) use filter::FilterQuery;
pub(crate) use filter::{KEY_BITS_AT, PurgeFilter};
pub(crate) use rule::RULE_TEXT_MAX;
pub use rule::{PurgeRule, tags_of};

use crate::entry::Entry;
use crate::error::TooManyPurges;
use parking_lot::RwLock;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Maximum of pending rules. One more is refused ([`TooManyPurges`]) until a sweep has compared the oldest with every
/// entry.
pub(crate) const RULES_MAX: usize = 1024;
/// Pending rules from which on fills that are older than the last rule are not stored: a fill that takes hours would
/// keep every rule since its start.
pub(crate) const RULES_MANY: usize = RULES_MAX / 2;
/// A rule with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NumberedRule {
    pub number: u32,
    pub rule: PurgeRule,
    query: FilterQuery,
}

/// The pending rules, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PurgeList {
    /// The number of the last rule, pending or not.
    pub latest: u32,
    pending: VecDeque<NumberedRule>,
}

/// The moment at which a response was requested from the origin. A purge after it covers the response too, and a
/// response requested after it is newer. While it lives, later rules stay. Can be sent to other loops.
#[derive(Clone, Debug)]
pub struct FetchMoment {
    number: u32,
    interval: Arc<AtomicBool>,
    tag: u32,
}

/// The purge rules of one store.
#[derive(Debug)]
pub(crate) struct PurgeRules {
    /// The number of the last rule, which a hit compares with its own.
    latest: AtomicU32,
    state: RwLock<RulesState>,
}

#[derive(Debug)]
struct RulesState {
    purges: PurgeList,
    /// The intervals between two rules in which a fetch began that still runs; the last interval is now.
    intervals: VecDeque<PurgeInterval>,
}

#[derive(Debug)]
struct PurgeInterval {
    number: u32,
    /// Shared by the fetches that began in it. True: their responses are not to be stored.
    is_void: Arc<AtomicBool>,
}

/// The result of comparing an entry with the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PurgeCheck {
    /// It is not covered by any rule up to this number.
    Clean(u32),
    Purged,
}

/// Was the purge `a` made before `b`? (Numbers wrap. Two that are compared are never half the range apart, as each
/// sweep moves all entries on.)
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    b.wrapping_sub(a).cast_signed() > 0
}

impl NumberedRule {
    fn new(number: u32, rule: PurgeRule) -> Self {
        let query = FilterQuery::of(&rule);
        Self {
            number,
            rule,
            query,
        }
    }

    /// May it cover an entry with this filter that is clean of all rules up to `since`?
    pub(crate) fn may_cover(&self, purge_filter: PurgeFilter, since: u32) -> bool {
        is_before(since, self.number) && self.query.fits(purge_filter)
    }
}

impl PurgeList {
    /// Adds a rule and removes an older one that is the same. (Rules of several loops arrive nearly in order.)
    pub(crate) fn add(&mut self, number: u32, rule: PurgeRule) {
        self.pending
            .retain(|known| known.rule != rule || is_before(number, known.number));
        let is_known = self.pending.iter().any(|known| known.rule == rule);
        if !is_known {
            let before = |known: &NumberedRule| is_before(known.number, number);
            let at = self.pending.partition_point(before);
            self.pending.insert(at, NumberedRule::new(number, rule));
        }
        self.is_at_least(number);
    }

    /// Notes that numbers up to this one have been used.
    pub(crate) fn is_at_least(&mut self, number: u32) {
        if self.latest == 0 || is_before(self.latest, number) {
            self.latest = number;
        }
    }

    /// Forgets all rules up to this one.
    pub(crate) fn forget(&mut self, number: u32) {
        self.pending.retain(|known| is_before(number, known.number));
        self.is_at_least(number);
    }

    /// The number that an entry of unknown age is clean of: the last before the pending rules.
    pub(crate) fn floor(&self) -> u32 {
        let first = self.pending.front();
        first.map_or(self.latest, |first| first.number.wrapping_sub(1))
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = &NumberedRule> {
        self.pending.iter()
    }
}

impl FetchMoment {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The tag of the entry that stores the response.
    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }

    /// Have too many purges been made since for the response to be stored?
    pub(crate) fn is_void(&self) -> bool {
        self.interval.load(Ordering::Acquire)
    }
}

impl PurgeInterval {
    fn new(number: u32) -> Self {
        Self {
            number,
            is_void: Arc::default(),
        }
    }

    fn is_running(&self) -> bool {
        Arc::strong_count(&self.is_void) > 1
    }
}

impl PurgeRules {
    pub(crate) fn new(purges: PurgeList) -> Self {
        Self {
            latest: AtomicU32::new(purges.latest),
            state: RwLock::new(RulesState {
                intervals: VecDeque::from([PurgeInterval::new(purges.latest)]),
                purges,
            }),
        }
    }

    /// Adds a rule, which holds from now on, unless `max` of them are pending, and returns its number.
    pub(crate) fn add(&self, rule: &PurgeRule, max: usize) -> Result<u32, TooManyPurges> {
        let mut state = self.state.write();
        let is_known = || state.purges.pending().any(|known| known.rule == *rule);
        if state.purges.pending.len() >= max && !is_known() {
            return Err(TooManyPurges(max));
        }
        let number = state.purges.latest.wrapping_add(1);
        state.purges.add(number, rule.clone());
        state.intervals.retain(PurgeInterval::is_running);
        state.intervals.push_back(PurgeInterval::new(number));
        self.latest.store(number, Ordering::Release);
        Ok(number)
    }

    /// Voids the fetches that are running: their responses are not stored.
    pub(crate) fn void_running(&self) {
        let mut state = self.state.write();
        let number = state.purges.latest;
        state.intervals.push_back(PurgeInterval::new(number));
        state.void_old_intervals();
    }

    /// The number of this rule, if it is pending.
    pub(crate) fn number_of(&self, rule: &PurgeRule) -> Option<u32> {
        let state = self.state.read();
        let mut pending = state.purges.pending();
        let known = pending.find(|known| known.rule == *rule)?;
        Some(known.number)
    }

    /// The present moment, for an entry with this tag.
    pub(crate) fn moment(&self, tag: u32) -> FetchMoment {
        let state = self.state.read();
        let interval = state
            .intervals
            .back()
            .expect("the last interval is never taken");
        FetchMoment {
            number: interval.number,
            interval: interval.is_void.clone(),
            tag,
        }
    }

    /// The number that an entry of unknown age is clean of.
    pub(crate) fn floor(&self) -> u32 {
        self.state.read().purges.floor()
    }

    /// Number of pending rules.
    pub(crate) fn len(&self) -> usize {
        self.state.read().purges.pending.len()
    }

    /// Is an entry that was clean of all rules up to `since` covered by a later one?
    pub(crate) fn check(&self, entry: &Entry, purge_filter: PurgeFilter, since: u32) -> PurgeCheck {
        let latest = self.latest.load(Ordering::Acquire);
        if latest == since {
            return PurgeCheck::Clean(since);
        }
        let state = self.state.read();
        let mut newest_first = state.purges.pending.iter().rev();
        let is_covered = newest_first
            .by_ref()
            .take_while(|rule| is_before(since, rule.number))
            .any(|rule| rule.may_cover(purge_filter, since) && rule.rule.covers(entry));
        match is_covered {
            true => PurgeCheck::Purged,
            false => PurgeCheck::Clean(state.purges.latest),
        }
    }

    /// The rules that are older than every running fetch, to be compared with every entry, and the number of the last.
    /// None: there are no such rules.
    pub(crate) fn settled(&self) -> Option<(u32, Vec<NumberedRule>)> {
        let mut state = self.state.write();
        if state.purges.pending.len() > RULES_MANY {
            state.void_old_intervals();
        }
        // The last interval is now.
        let last = state.intervals.len() - 1;
        let running = state
            .intervals
            .iter()
            .take(last)
            .filter(|interval| interval.is_running());
        let oldest = running.map(|interval| interval.number).next();
        let end = oldest.unwrap_or(state.purges.latest);
        let rules = state.purges.pending();
        let rules: Vec<_> = rules
            .filter(|rule| !is_before(end, rule.number))
            .cloned()
            .collect();
        (!rules.is_empty()).then_some((end, rules))
    }

    /// Notes that every entry was compared with the rules up to this one.
    pub(crate) fn forget(&self, number: u32) {
        self.state.write().purges.forget(number);
    }
}

impl RulesState {
    fn void_old_intervals(&mut self) {
        while self.intervals.len() > 1 {
            if let Some(interval) = self.intervals.pop_front() {
                interval.is_void.store(true, Ordering::Release);
            }
        }
    }
}
