//! How long a stored response may be used: the result of `freshness`, in numbers that the index keeps and entries
//! carry.
//!
//! Reads no clock: every question comes with its `now`, in seconds since 1970.

use crate::codec::{FieldReader, FieldWriter};
use message::date::Seconds;

/// Length of its encoding.
pub(crate) const LIFETIME_BYTES: usize = 29;

/// The period in which a response may be used, and how it ages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// When the response was received, or last revalidated.
    pub date: Seconds,
    /// The last second in which it is fresh, as nginx counts (`valid`); by a strict reading freshness ends a second
    /// earlier.
    pub expires: Seconds,
    /// Seconds after `expires` in which it may be used while it is being updated (stale-while-revalidate, RFC 5861, 3).
    pub updating: u32,
    /// Seconds after `expires` in which it may be used if the origin fails (stale-if-error, RFC 5861, 4).
    pub error: u32,
    /// Its age when it was received: corrected_initial_age of RFC 9111, 4.2.3, in seconds.
    pub initial_age: u32,
    /// Restrictions of its reuse by the origin.
    pub reuse: Reuse,
}

/// Whether a response may be used without asking the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Reuse {
    /// While fresh; and stale, if a rule allows it.
    #[default]
    Plain = 0,
    /// While fresh; a shared cache may not use it stale (`must-revalidate`, `proxy-revalidate`, `s-maxage`; RFC 9111,
    /// 5.2.2.2, 5.2.2.8, 5.2.2.10).
    NeverStale = 1,
    /// Only after revalidation (`no-cache` without fields; RFC 9111, 5.2.2.4).
    Revalidate = 2,
}

impl Lifetime {
    /// When it was made, as far as its age says: `date` less `initial_age`, in seconds since 1970.
    #[must_use]
    pub fn born(&self) -> Seconds {
        self.date.saturating_sub(i64::from(self.initial_age))
    }

    /// Its age at `now`, in seconds: current_age of RFC 9111, 4.2.3, the value of the field `Age`.
    #[must_use]
    pub fn age(&self, now: Seconds) -> u32 {
        let resident = now.saturating_sub(self.date).max(0);
        let age = resident.saturating_add(i64::from(self.initial_age));
        u32::try_from(age).unwrap_or(u32::MAX).min(AGE_MAX)
    }

    /// Is `now` within the window of stale-while-revalidate? (True also while it is fresh.)
    #[must_use]
    pub(crate) fn is_within_updating(&self, now: Seconds) -> bool {
        self.expires.saturating_add(i64::from(self.updating)) >= now
    }

    /// Is `now` within the window of stale-if-error? (True also while it is fresh.)
    #[must_use]
    pub(crate) fn is_within_error(&self, now: Seconds) -> bool {
        self.expires.saturating_add(i64::from(self.error)) >= now
    }

    pub(crate) fn encode(&self) -> [u8; LIFETIME_BYTES] {
        let mut out = [0; LIFETIME_BYTES];
        let mut fields = FieldWriter::new(&mut out);
        fields.put(self.date.to_le_bytes());
        fields.put(self.expires.to_le_bytes());
        fields.put(self.updating.to_le_bytes());
        fields.put(self.error.to_le_bytes());
        fields.put(self.initial_age.to_le_bytes());
        fields.put([self.reuse as u8]);
        out
    }

    pub(crate) fn decode(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self {
            date: from.i64()?,
            expires: from.i64()?,
            updating: from.u32()?,
            error: from.u32()?,
            initial_age: from.u32()?,
            reuse: Reuse::from_number(from.u8()?)?,
        })
    }
}

/// The value at which delta-seconds saturate (RFC 9111, 1.2.2).
pub const AGE_MAX: u32 = 1 << 31;

impl Reuse {
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Plain),
            1 => Some(Self::NeverStale),
            2 => Some(Self::Revalidate),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ages_from_its_initial_age() {
        let lifetime = Lifetime {
            date: 1_000,
            initial_age: 7,
            ..Lifetime::default()
        };
        assert_eq!(lifetime.age(1_000), 7);
        assert_eq!(lifetime.age(1_010), 17);
        assert_eq!(lifetime.age(900), 7, "a clock that went back");
        assert_eq!(lifetime.age(i64::MAX), AGE_MAX);
    }

    #[test]
    fn windows_begin_where_freshness_ends() {
        let lifetime = Lifetime {
            expires: 100,
            updating: 10,
            error: 20,
            ..Lifetime::default()
        };
        assert!(lifetime.is_within_updating(110) && !lifetime.is_within_updating(111));
        assert!(lifetime.is_within_error(120) && !lifetime.is_within_error(121));
    }
}
