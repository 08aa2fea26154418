//! Purges: what was asked for before one, and is covered by it, is no answer any more.
//!
//! A purge is O(1): it gets the next number and goes onto a list. Each entry has the number of the last purge that had been made
//! when it was asked for at the origin ([`FetchMoment`]), or that it was found to be clean of; a hit that is behind the list's end is
//! compared once with the rules in between (its head has the key's text and the tags), then noted as clean. What is covered is
//! invalid from the moment of the purge on; a sweep deletes it at its own pace, and rules that it has compared with everything
//! are forgotten. [`PurgeFilter`] in the index tell it which heads need not be read.
//!
//! Not here: files and the index (`store::purge`). Invariants: a rule is forgotten only when no entry and no running fill is
//! older than it; numbers are compared as they count up and around (`is_before`).

mod filter;
#[cfg(test)]
mod tests;

pub(crate) use filter::FilterQuery;
pub use filter::PurgeFilter;

use crate::codec::Reader;
use crate::entry::Entry;
use crate::key::Key;
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Rules that may be pending. One more is refused ([`TooManyPurges`]) until a sweep has compared the oldest with every entry.
pub const RULES_MAX: usize = 1024;
/// With so many pending, fills that are older than the last rule are not stored any more: one that takes hours would keep every
/// rule since its start.
pub const RULES_MANY: usize = RULES_MAX / 2;
/// Bytes of a prefix or a tag.
pub const RULE_TEXT_MAX: usize = 1024;

/// What a purge covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeRule {
    /// A key, in all its variants.
    Key(Key),
    /// Keys whose text begins with this.
    Prefix(Bytes),
    /// Answers that had this tag: a member of `Surrogate-Key` (between blanks) or `Cache-Tag` (between commas). Case is not
    /// looked at.
    Tag(Bytes),
}

/// [`RULES_MAX`] rules are pending: nothing was purged, and it is to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{RULES_MAX} purges are pending already")]
pub struct TooManyPurges;

/// A rule with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NumberedRule {
    pub number: u32,
    pub rule: PurgeRule,
    marking: FilterQuery,
}

/// The rules that are pending, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PurgeList {
    /// The number of the last rule, pending or not.
    pub latest: u32,
    pending: VecDeque<NumberedRule>,
}

/// When something was asked for at the origin: what is purged from then on is purged for it too, and what was asked for later is
/// newer. While it lives, later rules stay. Goes from loop to loop.
#[derive(Clone, Debug)]
pub struct FetchMoment {
    number: u32,
    interval: Arc<AtomicBool>,
    tag: u32,
}

/// The rules of one store.
#[derive(Debug)]
pub(crate) struct PurgeRules {
    /// The number of the last one: what a hit looks at.
    latest: AtomicU32,
    state: RwLock<RulesState>,
}

#[derive(Debug)]
struct RulesState {
    purges: PurgeList,
    /// The time between two rules each, if something that was asked for in it still runs; the last is now.
    intervals: VecDeque<PurgeInterval>,
}

#[derive(Debug)]
struct PurgeInterval {
    number: u32,
    /// Shared by what was asked for in it. True: it is not to be stored.
    is_void: Arc<AtomicBool>,
}

/// What the rules say of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PurgeCheck {
    /// It is clean of all up to this number.
    Clean(u32),
    Purged,
}

/// Did the purge `a` come before `b`? (They count around; never are two of interest half a circle apart, as each sweep moves all
/// entries on.)
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    b.wrapping_sub(a).cast_signed() > 0
}

impl PurgeRule {
    pub(crate) fn covers(&self, entry: &Entry) -> bool {
        match self {
            Self::Key(key) => entry.main() == *key,
            Self::Prefix(prefix) => entry.key_text().starts_with(prefix),
            Self::Tag(tag) => {
                let lines = entry.head().iter();
                let mut tags = lines.flat_map(|(name, value, _)| tags_of(name, value));
                tags.any(|other| other.eq_ignore_ascii_case(tag))
            }
        }
    }

    fn text(&self) -> &[u8] {
        match self {
            Self::Key(key) => &key.0,
            Self::Prefix(text) | Self::Tag(text) => text,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Key(_) => 0,
            Self::Prefix(_) => 1,
            Self::Tag(_) => 2,
        });
        // At most RULE_TEXT_MAX.
        out.extend_from_slice(&(self.text().len() as u16).to_le_bytes());
        out.extend_from_slice(self.text());
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Option<Self> {
        let kind = from.u8()?;
        let len = usize::from(from.u16()?);
        let text = from.take(len)?;
        match kind {
            0 => Some(Self::Key(Key(text.try_into().ok()?))),
            _ if len > RULE_TEXT_MAX => None,
            1 => Some(Self::Prefix(Bytes::copy_from_slice(text))),
            2 => Some(Self::Tag(Bytes::copy_from_slice(text))),
            _ => None,
        }
    }
}

/// The tags in a header line, if it is one that has tags.
pub fn tags_of<'a>(name: &[u8], value: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let is_list = name.eq_ignore_ascii_case(b"cache-tag");
    let value = if is_list || name.eq_ignore_ascii_case(b"surrogate-key") {
        value
    } else {
        b""
    };
    let is_end = move |byte: &u8| match is_list {
        true => *byte == b',',
        false => matches!(byte, b' ' | b'\t'),
    };
    value
        .split(is_end)
        .map(<[u8]>::trim_ascii)
        .filter(|tag| !tag.is_empty())
}

impl NumberedRule {
    fn new(number: u32, rule: PurgeRule) -> Self {
        let marking = FilterQuery::of(&rule);
        Self {
            number,
            rule,
            marking,
        }
    }

    /// May it cover an entry with these marks, last noted as clean of `since`?
    pub fn may_cover(&self, purge_filter: PurgeFilter, since: u32) -> bool {
        is_before(since, self.number) && self.marking.fits(purge_filter)
    }
}

impl PurgeList {
    /// Takes note of a rule; the same one from before is in it. (Those of several loops come nearly in their order.)
    pub fn add(&mut self, number: u32, rule: PurgeRule) {
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

    /// Numbers up to this one have been used.
    pub fn is_at_least(&mut self, number: u32) {
        if self.latest == 0 || is_before(self.latest, number) {
            self.latest = number;
        }
    }

    /// Forgets all rules up to this one.
    pub fn forget(&mut self, number: u32) {
        self.pending.retain(|known| is_before(number, known.number));
        self.is_at_least(number);
    }

    /// Whatever was known before the pending rules is clean of all up to this one.
    pub fn floor(&self) -> u32 {
        let first = self.pending.front();
        first.map_or(self.latest, |first| first.number.wrapping_sub(1))
    }

    pub fn pending(&self) -> impl Iterator<Item = &NumberedRule> {
        self.pending.iter()
    }
}

impl FetchMoment {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// What is stored of the answer has this tag.
    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }

    /// Have too many purges been made since, so that what was asked for then is not to be stored?
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
    pub fn new(purges: PurgeList) -> Self {
        Self {
            latest: AtomicU32::new(purges.latest),
            state: RwLock::new(RulesState {
                intervals: VecDeque::from([PurgeInterval::new(purges.latest)]),
                purges,
            }),
        }
    }

    /// Adds a rule, and says its number. It holds from now on.
    pub fn add(&self, rule: &PurgeRule) -> Result<u32, TooManyPurges> {
        let mut state = self.state.write();
        let is_known = || state.purges.pending().any(|known| known.rule == *rule);
        if state.purges.pending.len() >= RULES_MAX && !is_known() {
            return Err(TooManyPurges);
        }
        let number = state.purges.latest.wrapping_add(1);
        state.purges.add(number, rule.clone());
        state.intervals.retain(PurgeInterval::is_running);
        state.intervals.push_back(PurgeInterval::new(number));
        self.latest.store(number, Ordering::Release);
        Ok(number)
    }

    /// The number of this rule, if it is pending.
    pub fn number_of(&self, rule: &PurgeRule) -> Option<u32> {
        let state = self.state.read();
        let mut pending = state.purges.pending();
        let known = pending.find(|known| known.rule == *rule)?;
        Some(known.number)
    }

    /// Now, for an entry with this tag.
    pub fn moment(&self, tag: u32) -> FetchMoment {
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

    /// What something of which nothing is known is clean of.
    pub fn floor(&self) -> u32 {
        self.state.read().purges.floor()
    }

    /// Rules that are pending.
    pub fn len(&self) -> usize {
        self.state.read().purges.pending.len()
    }

    /// Is an entry that was clean of all up to `since` covered by a later one?
    pub fn check(&self, entry: &Entry, purge_filter: PurgeFilter, since: u32) -> PurgeCheck {
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

    /// The rules that everything that is yet to be stored is newer than, for a look at all that is stored; beside them, the number
    /// of the last. None: there are no such rules.
    pub fn settled(&self) -> Option<(u32, Vec<NumberedRule>)> {
        let mut state = self.state.write();
        if state.purges.pending.len() > RULES_MANY {
            state.void_old_eras();
        }
        // The last era is now.
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

    /// Everything was compared with the rules up to this one.
    pub fn forget(&self, number: u32) {
        self.state.write().purges.forget(number);
    }
}

impl RulesState {
    fn void_old_eras(&mut self) {
        while self.intervals.len() > 1 {
            if let Some(interval) = self.intervals.pop_front() {
                interval.is_void.store(true, Ordering::Release);
            }
        }
    }
}
