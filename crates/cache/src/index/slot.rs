//! The index's record of one key, unpacked ([`KnownKey`]) and as it lies in memory ([`KeySlot`]).

use crate::key::Key;
use crate::lifetime::{Lifetime, Reuse};
use crate::purge::PurgeFilter;
use message::date::Seconds;

/// The place of an entry on its disk. Nothing outside of this crate assumes a file per entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryExtent {
    /// The entry's tag, which is in its prologue too.
    pub file: u32,
    /// Where it begins in the segments, in pages, all segments counted one behind the other; 0 if it has a file of its
    /// own (named by its key). No entry begins on the first page of a segment.
    pub offset: u32,
    /// Number of blocks of the file system, or of pages in a segment.
    pub blocks: u32,
}

impl EntryExtent {
    /// Is it in a segment, so that it has no file of its own?
    #[must_use]
    pub fn is_in_segment(&self) -> bool {
        self.offset != 0
    }
}

/// What a slot of the index stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyState {
    /// No entry: the key was requested, which is counted (`proxy_cache_min_uses`).
    #[default]
    Seen = 0,
    /// An entry.
    Stored = 1,
    /// A response without an entry: the failure of the origin (`proxy_cache_valid 502`), or an intercepted error; only
    /// the status is known.
    Failed = 2,
}

/// The variant that is stored under a key, as far as the index knows without asking the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Varies {
    /// Number of the names in `Vary`, for [`Index::vary_names`](super::Index::vary_names); 0: there are none.
    pub names: u16,
    /// The first four bytes of the variant's key. If they are equal, the entry decides, which has all sixteen.
    pub variant: u32,
}

impl Varies {
    /// The record of a variant's key.
    #[must_use]
    pub fn of(names: u16, variant: &Key) -> Self {
        let [a, b, c, d, ..] = variant.0;
        Self {
            names,
            variant: u32::from_le_bytes([a, b, c, d]),
        }
    }
}

/// What the index knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownKey {
    /// The key (of the variant, if it is one).
    pub key: Key,
    /// What the key stands for.
    pub state: KeyState,
    /// The status code of the response.
    pub status: u16,
    /// How long it may be used. The index keeps seconds from 1970 to 2106.
    pub lifetime: Lifetime,
    /// Where the entry lies.
    pub extent: EntryExtent,
    /// Its variant.
    pub varies: Varies,
    /// Number of uses; saturates at 65535.
    pub uses: u16,
    /// When it was last used, in seconds since 1970.
    pub used: Seconds,
    /// Have all its bytes been verified since this process started (or were they written by it)?
    pub is_verified: bool,
    /// The last purge that it is known not to be covered by (`purge`).
    pub clean_of: u32,
    /// What it could be purged by.
    pub purge_filter: PurgeFilter,
}

impl KnownKey {
    /// The record of a new key: used once, at `now`.
    #[must_use]
    pub fn seen(key: Key, now: Seconds) -> Self {
        Self {
            key,
            state: KeyState::Seen,
            status: 0,
            lifetime: Lifetime::default(),
            extent: EntryExtent::default(),
            varies: Varies::default(),
            uses: 1,
            used: now,
            is_verified: false,
            clean_of: 0,
            purge_filter: PurgeFilter::default(),
        }
    }
}

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// A [`KnownKey`] in 88 bytes, links included.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeySlot {
    key: [u8; 16],
    date: u32,
    expires: u32,
    updating: u32,
    error: u32,
    initial_age: u32,
    pub used: u32,
    extent: EntryExtent,
    variant: u32,
    clean_of: u32,
    /// In halves: a number of 64 bits would cost four bytes more in each slot.
    purge_filter: [u32; 2],
    /// The slot used next after it; in a free slot, the next free one.
    pub newer: u32,
    /// The slot used last before it.
    pub older: u32,
    /// The next slot of its bucket.
    pub next: u32,
    vary: u16,
    uses: u16,
    status: u16,
    state: KeyState,
    /// Bits 0 and 1: [`Reuse`]; bit 2: verified; bit 3: not free.
    flags: u8,
}

const REUSE: u8 = 3;
const VERIFIED: u8 = 4;
const TAKEN: u8 = 8;

impl KeySlot {
    pub(super) const FREE: Self = Self {
        key: [0; 16],
        date: 0,
        expires: 0,
        updating: 0,
        error: 0,
        initial_age: 0,
        used: 0,
        extent: EntryExtent {
            file: 0,
            offset: 0,
            blocks: 0,
        },
        variant: 0,
        clean_of: 0,
        purge_filter: [0; 2],
        newer: NONE,
        older: NONE,
        next: NONE,
        vary: 0,
        uses: 0,
        status: 0,
        state: KeyState::Seen,
        flags: 0,
    };

    pub(super) fn key(&self) -> Key {
        Key(self.key)
    }

    pub(super) fn is_free(&self) -> bool {
        self.flags & TAKEN == 0
    }

    pub(super) fn is_stored(&self) -> bool {
        self.state == KeyState::Stored
    }

    pub(super) fn extent(&self) -> EntryExtent {
        self.extent
    }

    /// The number of the list that it is in, in order of use: 1 for entries in segments, which are evicted with their
    /// segment; 0 for all others.
    pub(super) fn list(&self) -> usize {
        usize::from(self.is_stored() && self.extent.is_in_segment())
    }

    /// Counts a use at `now`.
    pub(super) fn count(&mut self, now: u32) {
        self.uses = self.uses.saturating_add(1);
        self.used = self.used.max(now);
    }

    pub(super) fn unpack(&self) -> KnownKey {
        KnownKey {
            key: Key(self.key),
            state: self.state,
            status: self.status,
            lifetime: Lifetime {
                date: Seconds::from(self.date),
                expires: Seconds::from(self.expires),
                updating: self.updating,
                error: self.error,
                initial_age: self.initial_age,
                reuse: Reuse::from_number(self.flags & REUSE).unwrap_or(Reuse::Revalidate),
            },
            extent: self.extent,
            varies: Varies {
                names: self.vary,
                variant: self.variant,
            },
            uses: self.uses,
            used: Seconds::from(self.used),
            is_verified: self.flags & VERIFIED != 0,
            clean_of: self.clean_of,
            purge_filter: PurgeFilter(
                u64::from(self.purge_filter[1]) << 32 | u64::from(self.purge_filter[0]),
            ),
        }
    }

    /// Packs a record into the slot; the links stay.
    pub(super) fn pack(&mut self, known: &KnownKey) {
        let KnownKey { lifetime, .. } = known;
        let verified = if known.is_verified { VERIFIED } else { 0 };
        *self = Self {
            key: known.key.0,
            date: seconds(lifetime.date),
            expires: seconds(lifetime.expires),
            updating: lifetime.updating,
            error: lifetime.error,
            initial_age: lifetime.initial_age,
            used: seconds(known.used),
            extent: known.extent,
            variant: known.varies.variant,
            clean_of: known.clean_of,
            purge_filter: [
                known.purge_filter.0 as u32,
                (known.purge_filter.0 >> 32) as u32,
            ],
            newer: self.newer,
            older: self.older,
            next: self.next,
            vary: known.varies.names,
            uses: known.uses,
            status: known.status,
            state: known.state,
            flags: lifetime.reuse as u8 | verified | TAKEN,
        };
    }
}

/// Seconds since 1970 in 32 bits; times after 2106 become 2106.
pub(super) fn seconds(time: Seconds) -> u32 {
    u32::try_from(time.max(0)).unwrap_or(u32::MAX)
}
