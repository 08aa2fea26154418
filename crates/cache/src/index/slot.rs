//! The index's record of one key, unpacked ([`KnownKey`]) and as it lies in memory ([`KeySlot`]).

use super::windows::{NUMBER_BITS, StaleWindows};
use super::{VARY_MAX, VARY_UNKNOWN};
use crate::key::Key;
use crate::lifetime::{Lifetime, Reuse};
use crate::purge::{KEY_BITS_AT, PurgeFilter};
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

impl KeyState {
    fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Stored,
            2 => Self::Failed,
            _ => Self::Seen,
        }
    }
}

/// The variant that is stored under a key, as far as the index knows without asking the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Varies {
    /// Number of the names in `Vary`, for [`Index::vary_names`](super::Index::vary_names); 0: there are none.
    pub names: u16,
    /// The first two bytes of the variant's key. If they are equal, the entry decides, which has all sixteen.
    pub variant: u16,
}

impl Varies {
    /// The record of a variant's key.
    #[must_use]
    pub fn of(names: u16, variant: &Key) -> Self {
        Self {
            names,
            variant: start_of(variant),
        }
    }
}

/// The first two bytes of a key.
fn start_of(key: &Key) -> u16 {
    let [a, b, ..] = key.0;
    u16::from_le_bytes([a, b])
}

/// Maximum number of uses that are counted.
pub const USES_MAX: u16 = (1 << 15) - 1;

/// What the index knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownKey {
    /// The key (of the variant, if it is one).
    pub key: Key,
    /// What the key stands for.
    pub state: KeyState,
    /// The status code of the response.
    pub status: u16,
    /// How long it may be used. The index keeps seconds from 1970 to 2106; of the date and the initial age it keeps the
    /// difference, and returns that as a date.
    pub lifetime: Lifetime,
    /// Where the entry lies.
    pub extent: EntryExtent,
    /// Its variant.
    pub varies: Varies,
    /// Number of uses; saturates at [`USES_MAX`].
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

/// A [`KnownKey`] in 60 bytes.
///
/// Where they go: the key 16; when it was used, expires and was born (its date less its initial age) 12; tag and place
/// 8; the last purge 4; the purge filter, and of its main key or its variant what the key does not say, 8; the next slot
/// of its bucket 4; all that is small ([`Facts`], [`Shape`]) 8.
// In this order: a look-up goes from key to key.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct KeySlot {
    key: [u8; 16],
    /// The next slot of its bucket; in a free slot, the next free one.
    pub next: u32,
    facts: u32,
    shape: u32,
    pub used: u32,
    born: u32,
    expires: u32,
    tag: u32,
    /// Where it begins in the segments; or, if it has a file of its own, its blocks.
    place: u32,
    clean_of: u32,
    /// The purge filter's tags and prefixes, in parts: a number of 64 bits would cost four bytes more in each slot.
    filter: u32,
    filter_high: u16,
    /// A key is the main key, or that of a variant. Of the main key, the purge filter has two bytes, and so has
    /// [`Varies`] of the variant's: those of the one that it is not.
    other: u16,
}

const _: () = assert!(size_of::<KeySlot>() == 60);

/// Some bits of a word.
#[derive(Clone, Copy)]
struct Bits {
    at: u32,
    width: u32,
}

impl Bits {
    const fn behind(before: Self, width: u32) -> Self {
        let at = before.at + before.width;
        assert!(at + width <= 32);
        Self { at, width }
    }

    const fn max(self) -> u32 {
        (1 << self.width) - 1
    }

    const fn of(self, word: u32) -> u32 {
        word >> self.at & self.max()
    }

    /// The word with a value in these bits; one that is too large becomes the largest.
    fn set(self, word: &mut u32, value: u32) {
        *word &= !(self.max() << self.at);
        *word |= value.min(self.max()) << self.at;
    }
}

const STATUS: Bits = Bits { at: 0, width: 10 };
const STATE: Bits = Bits::behind(STATUS, 2);
const REUSE: Bits = Bits::behind(STATE, 2);
const VERIFIED: Bits = Bits::behind(REUSE, 1);
const TAKEN: Bits = Bits::behind(VERIFIED, 1);
/// Is the key its variant's, so that `other` is of the main key?
const OWN_KEY: Bits = Bits::behind(TAKEN, 1);
const USES: Bits = Bits::behind(OWN_KEY, 15);
/// Pages in a segment; 0: it is in none.
const PAGES: Bits = Bits { at: 0, width: 9 };
const VARY: Bits = Bits::behind(PAGES, 12);
const WINDOWS: Bits = Bits::behind(VARY, NUMBER_BITS);

const _: () = assert!(USES.max() == USES_MAX as u32);
const _: () = assert!(VARY_MAX < VARY.max() as usize);
/// Maximum of pages of an entry in a segment.
pub(crate) const ENTRY_PAGES_MAX: u32 = PAGES.max();

impl KeySlot {
    pub(super) const FREE: Self = Self {
        key: [0; 16],
        born: 0,
        expires: 0,
        used: 0,
        tag: 0,
        place: 0,
        clean_of: 0,
        next: NONE,
        filter: 0,
        filter_high: 0,
        other: 0,
        facts: 0,
        shape: 0,
    };

    pub(super) fn key(&self) -> Key {
        Key(self.key)
    }

    pub(super) fn is_free(&self) -> bool {
        TAKEN.of(self.facts) == 0
    }

    pub(super) fn is_stored(&self) -> bool {
        STATE.of(self.facts) == KeyState::Stored as u32
    }

    pub(super) fn tag(&self) -> u32 {
        self.tag
    }

    pub(super) fn extent(&self) -> EntryExtent {
        let (offset, blocks) = match PAGES.of(self.shape) {
            0 => (0, self.place),
            pages => (self.place, pages),
        };
        EntryExtent {
            file: self.tag,
            offset,
            blocks,
        }
    }

    /// Is it evicted for the space of its file? All others are evicted with their segment, or have nothing on the disk.
    pub(super) fn has_file(&self) -> bool {
        self.is_stored() && PAGES.of(self.shape) == 0
    }

    /// Counts a use at `now`.
    pub(super) fn count(&mut self, now: u32) {
        // The largest stays.
        let uses = USES.of(self.facts) + 1;
        USES.set(&mut self.facts, uses);
        self.used = self.used.max(now);
    }

    pub(super) fn set_verified(&mut self, is_verified: bool) {
        VERIFIED.set(&mut self.facts, u32::from(is_verified));
    }

    pub(super) fn set_clean_of(&mut self, number: u32) {
        self.clean_of = number;
    }

    /// Sets the lifetime, with the number of its windows.
    pub(super) fn set_lifetime(&mut self, lifetime: &Lifetime, windows: u16) {
        self.born = seconds(lifetime.born());
        self.expires = seconds(lifetime.expires);
        REUSE.set(&mut self.facts, lifetime.reuse as u32);
        WINDOWS.set(&mut self.shape, u32::from(windows));
    }

    /// Sets the tag, and the purge filter of an entry of the same main key.
    pub(super) fn set_head(&mut self, tag: u32, filter: PurgeFilter) {
        self.tag = tag;
        self.filter = filter.0 as u32;
        self.filter_high = (filter.0 >> 32) as u16;
    }

    pub(super) fn set_extent(&mut self, extent: EntryExtent) {
        self.tag = extent.file;
        let (place, pages) = match extent.is_in_segment() {
            true => (extent.offset, extent.blocks.max(1)),
            false => (extent.blocks, 0),
        };
        self.place = place;
        PAGES.set(&mut self.shape, pages);
    }

    pub(super) fn unpack(&self, windows: &StaleWindows) -> KnownKey {
        let own = start_of(&self.key());
        let (main, variant) = match OWN_KEY.of(self.facts) {
            0 => (own, self.other),
            _ => (self.other, own),
        };
        let (updating, error) = windows.pair(WINDOWS.of(self.shape) as u16);
        let names = match VARY.of(self.shape) {
            unknown if unknown == VARY.max() => VARY_UNKNOWN,
            names => names as u16,
        };
        KnownKey {
            key: self.key(),
            state: KeyState::from_number(STATE.of(self.facts)),
            status: STATUS.of(self.facts) as u16,
            lifetime: Lifetime {
                date: Seconds::from(self.born),
                expires: Seconds::from(self.expires),
                updating,
                error,
                initial_age: 0,
                reuse: Reuse::from_number(REUSE.of(self.facts) as u8).unwrap_or(Reuse::Revalidate),
            },
            extent: self.extent(),
            varies: Varies { names, variant },
            uses: USES.of(self.facts) as u16,
            used: Seconds::from(self.used),
            is_verified: VERIFIED.of(self.facts) != 0,
            clean_of: self.clean_of,
            purge_filter: PurgeFilter(
                u64::from(main) << KEY_BITS_AT
                    | u64::from(self.filter_high) << 32
                    | u64::from(self.filter),
            ),
        }
    }

    /// Packs a record into the slot; the link stays. `windows` is the number of its lifetime's windows.
    pub(super) fn pack(&mut self, known: &KnownKey, windows: u16) {
        *self = Self {
            key: known.key.0,
            used: seconds(known.used),
            next: self.next,
            ..Self::FREE
        };
        self.set_lifetime(&known.lifetime, windows);
        self.set_head(known.extent.file, known.purge_filter);
        self.set_extent(known.extent);
        self.set_clean_of(known.clean_of);
        self.set_verified(known.is_verified);
        let Varies { names, variant } = known.varies;
        VARY.set(&mut self.shape, u32::from(names));
        let is_own = names != 0 && variant == start_of(&known.key);
        self.other = match is_own {
            true => (known.purge_filter.0 >> KEY_BITS_AT) as u16,
            false => variant,
        };
        OWN_KEY.set(&mut self.facts, u32::from(is_own));
        STATUS.set(&mut self.facts, u32::from(known.status));
        STATE.set(&mut self.facts, known.state as u32);
        USES.set(&mut self.facts, u32::from(known.uses));
        TAKEN.set(&mut self.facts, 1);
    }
}

/// Seconds since 1970 in 32 bits; times after 2106 become 2106.
pub(super) fn seconds(time: Seconds) -> u32 {
    u32::try_from(time.max(0)).unwrap_or(u32::MAX)
}
