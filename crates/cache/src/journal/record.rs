//! A change of a key, as the journal records it.

use crate::codec::FieldReader;
use crate::entry::VARY_BYTES_MAX;
use crate::index::{EntryExtent, KeyState, KnownKey, Varies};
use crate::key::Key;
use crate::lifetime::Lifetime;
use crate::purge::{PurgeFilter, PurgeRule, RULE_TEXT_MAX};
use bytes::Bytes;
use message::date::Seconds;

/// Maximum length of a record.
pub(super) const RECORD_BYTES_MAX: usize = 128 + VARY_BYTES_MAX + RULE_TEXT_MAX;

/// Minimum length of a `Put`.
pub(super) const PUT_BYTES_MIN: u64 = 88;

/// A record. The order on the disk is: `Begin` or `Put` before a temp file is created, `Put` before it is renamed,
/// `Ended` when there is no temp file any more, `Remove` after an entry's file is gone. So the journal never knows less
/// than the disk holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JournalRecord {
    /// A temp file for an incomplete entry is about to be created.
    Begin {
        /// The entry's key.
        key: Key,
        /// Its tag.
        tag: u32,
    },
    /// A complete entry is about to get its name; its temp file may not exist yet. (If no entry with its tag is found
    /// there later, the process was killed just before.)
    Put {
        /// The record in the index ([`Varies::names`] is without meaning: its numbers end with the process).
        known: KnownKey,
        /// The names in `Vary`, as written by [`crate::vary_names`]; at most [`VARY_BYTES_MAX`] bytes.
        vary: Bytes,
    },
    /// An entry was revalidated, its header lines unchanged.
    Renew {
        /// Its key.
        key: Key,
        /// Its tag.
        tag: u32,
        /// The new lifetime.
        lifetime: Lifetime,
    },
    /// There is no temp file of this fill: it was renamed, or is gone. Written together with the next records.
    Ended {
        /// The entry's key.
        key: Key,
        /// Its tag.
        tag: u32,
    },
    /// An entry in a segment lies at another place now.
    Move {
        /// Its key.
        key: Key,
        /// Where it was; the tag is the entry's.
        from: EntryExtent,
        /// Where it is, in pages.
        offset: u32,
    },
    /// An entry's file is gone.
    Remove {
        /// Its key.
        key: Key,
        /// Its tag.
        tag: u32,
    },
    /// Every entry of the directory is in the journal: a walk has found those that it did not know.
    Walked {
        /// Blocks of foreign files.
        foreign: u64,
    },
    /// A purge is about to be forgotten, which may cover what was left out: what a walk could not read, or a segment
    /// whose header could not be cleared. Until a walk has seen everything, what is found beside the journal counts as
    /// purged.
    LeftOut,
    /// The end of a snapshot; a snapshot without it is cut off.
    Complete {
        /// Entries in the snapshot.
        entries: u64,
        /// Was the directory walked, or known from its first entry on?
        is_walked: bool,
    },
    /// The first record of a log.
    Opened {
        /// The number of the log.
        generation: u64,
        /// The kernel's boot id (random/boot_id in proc_sys_kernel(5)): records from before another boot may not be on
        /// the disk. Zeros: not known.
        boot: [u8; 16],
        /// Was every entry of the directory known then?
        is_known: bool,
        /// Blocks of foreign files, as the last walk found them.
        foreign: u64,
        /// The log before it and its length, if that log had come to its end.
        before: (u64, u64),
    },
    /// A purge.
    Purge {
        /// Its number, which counts up.
        number: u32,
        /// What it covers.
        rule: PurgeRule,
    },
    /// No entry is left that a purge up to this one covers.
    Purged {
        /// The number of the purge.
        number: u32,
    },
    /// The owner closed the journal: nothing happened after this.
    Closed,
}

const BEGIN: u8 = 1;
const PUT: u8 = 2;
const RENEW: u8 = 3;
const REMOVE: u8 = 4;
const WALKED: u8 = 5;
const COMPLETE: u8 = 6;
const OPENED: u8 = 7;
const CLOSED: u8 = 8;
const PURGE: u8 = 9;
const PURGED: u8 = 10;
const ENDED: u8 = 11;
const MOVE: u8 = 12;
const LEFT_OUT: u8 = 13;

impl JournalRecord {
    /// The key that it is about.
    pub(super) fn key(&self) -> Option<&Key> {
        match self {
            Self::Put { known, .. } => Some(&known.key),
            Self::Begin { key, .. }
            | Self::Renew { key, .. }
            | Self::Ended { key, .. }
            | Self::Move { key, .. }
            | Self::Remove { key, .. } => Some(key),
            _ => None,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Begin { key, tag } => named(BEGIN, key, *tag, out),
            Self::Remove { key, tag } => named(REMOVE, key, *tag, out),
            Self::Ended { key, tag } => named(ENDED, key, *tag, out),
            Self::Move { key, from, offset } => {
                named(MOVE, key, from.file, out);
                for number in [from.offset, from.blocks, *offset] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
            }
            Self::Renew { key, tag, lifetime } => {
                named(RENEW, key, *tag, out);
                out.extend_from_slice(&lifetime.encode());
            }
            Self::Put { known, vary } => put(known, vary, out),
            Self::Walked { foreign } => {
                out.push(WALKED);
                out.extend_from_slice(&foreign.to_le_bytes());
            }
            Self::LeftOut => out.push(LEFT_OUT),
            Self::Closed => out.push(CLOSED),
            Self::Purge { number, rule } => {
                out.push(PURGE);
                out.extend_from_slice(&number.to_le_bytes());
                rule.encode(out);
            }
            Self::Purged { number } => {
                out.push(PURGED);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Self::Opened {
                generation,
                boot,
                is_known,
                foreign,
                before,
            } => {
                out.push(OPENED);
                out.extend_from_slice(&generation.to_le_bytes());
                out.extend_from_slice(boot);
                out.push(u8::from(*is_known));
                out.extend_from_slice(&foreign.to_le_bytes());
                out.extend_from_slice(&before.0.to_le_bytes());
                out.extend_from_slice(&before.1.to_le_bytes());
            }
            Self::Complete { entries, is_walked } => {
                out.push(COMPLETE);
                out.extend_from_slice(&entries.to_le_bytes());
                out.push(u8::from(*is_walked));
            }
        }
    }

    /// The entry of the next record and the names in its `Vary`, if that record is a [`JournalRecord::Put`]; no other is
    /// read.
    pub(super) fn decode_put<'a>(from: &mut FieldReader<'a>) -> Option<(KnownKey, &'a [u8])> {
        let mut ahead = *from;
        let put = (ahead.u8()? == PUT).then(|| read_put(&mut ahead))??;
        *from = ahead;
        Some(put)
    }

    /// The next record; None if it is malformed.
    pub(super) fn decode(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            BEGIN => Self::Begin {
                key: Key(from.array()?),
                tag: from.u32()?,
            },
            PUT => {
                let (known, vary) = read_put(from)?;
                let vary = Bytes::copy_from_slice(vary);
                Self::Put { known, vary }
            }
            RENEW => Self::Renew {
                key: Key(from.array()?),
                tag: from.u32()?,
                lifetime: Lifetime::decode(from)?,
            },
            REMOVE => Self::Remove {
                key: Key(from.array()?),
                tag: from.u32()?,
            },
            ENDED => Self::Ended {
                key: Key(from.array()?),
                tag: from.u32()?,
            },
            MOVE => Self::Move {
                key: Key(from.array()?),
                from: EntryExtent {
                    file: from.u32()?,
                    offset: from.u32()?,
                    blocks: from.u32()?,
                },
                offset: from.u32()?,
            },
            WALKED => Self::Walked {
                foreign: from.u64()?,
            },
            COMPLETE => Self::Complete {
                entries: from.u64()?,
                is_walked: from.u8()? == 1,
            },
            OPENED => Self::Opened {
                generation: from.u64()?,
                boot: from.array()?,
                is_known: from.u8()? == 1,
                foreign: from.u64()?,
                before: (from.u64()?, from.u64()?),
            },
            LEFT_OUT => Self::LeftOut,
            CLOSED => Self::Closed,
            PURGE => Self::Purge {
                number: from.u32()?,
                rule: PurgeRule::decode(from)?,
            },
            PURGED => Self::Purged {
                number: from.u32()?,
            },
            _ => return None,
        })
    }
}

fn named(kind: u8, key: &Key, tag: u32, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&key.0);
    out.extend_from_slice(&tag.to_le_bytes());
}

fn put(known: &KnownKey, vary: &[u8], out: &mut Vec<u8>) {
    let EntryExtent {
        file,
        offset,
        blocks,
    } = known.extent;
    named(PUT, &known.key, file, out);
    for number in [offset, blocks, u32::from(known.varies.variant)] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [known.status, known.uses] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&known.used.to_le_bytes());
    out.extend_from_slice(&known.lifetime.encode());
    out.extend_from_slice(&known.clean_of.to_le_bytes());
    out.extend_from_slice(&known.purge_filter.0.to_le_bytes());
    // Longer names are never stored; cut, they would only make a variant that never matches.
    let vary = &vary[..vary.len().min(VARY_BYTES_MAX)];
    out.extend_from_slice(&(vary.len() as u16).to_le_bytes());
    out.extend_from_slice(vary);
}

fn read_put<'a>(from: &mut FieldReader<'a>) -> Option<(KnownKey, &'a [u8])> {
    let key = Key(from.array()?);
    let extent = EntryExtent {
        file: from.u32()?,
        offset: from.u32()?,
        blocks: from.u32()?,
    };
    // Of four bytes, the first two.
    let variant = from.u32()? as u16;
    let (status, uses) = (from.u16()?, from.u16()?);
    let used: Seconds = from.i64()?;
    let lifetime = Lifetime::decode(from)?;
    let (clean_of, purge_filter) = (from.u32()?, PurgeFilter(from.u64()?));
    let len = usize::from(from.u16()?);
    if len > VARY_BYTES_MAX {
        return None;
    }
    let vary = from.take(len)?;
    let known = KnownKey {
        key,
        state: KeyState::Stored,
        status,
        lifetime,
        extent,
        varies: Varies { names: 0, variant },
        uses,
        used,
        is_verified: false,
        clean_of,
        purge_filter,
    };
    Some((known, vary))
}
