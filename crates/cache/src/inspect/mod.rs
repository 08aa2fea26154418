//! A cache directory as a process sees it that does not own it: what lies where, what the journal says, and purging
//! while nothing owns it.
//!
//! Not here: the owner's work ([`crate::Store`]). Invariant: nothing is changed without the directory's lock.

use crate::entry::Entry;
use crate::error::{EntryFault, Error};
use crate::index::KnownKey;
use crate::key::{Key, Levels};
use crate::purge::{PurgeRule, RULE_TEXT_MAX};
use crate::segments::device::DeviceHeader;
use crate::segments::{PAGE, SegmentHeader, pages};
use disk::{Local, Lock, Pool};

pub use crate::journal::JournalView;
pub use crate::segments::{PlacedEntry, entries_in_segment};

/// What a path below a cache directory names, by its form alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An entry, and the levels that place it there. Its bytes may still be foreign: nginx's names are the same.
    Entry(Key, Levels),
    /// An entry that is being written, or one that a killed process left.
    Temporary,
    /// A file of this program that is no entry: the journal.
    Journal,
    /// A file that holds many entries, and its number.
    Segment(u32),
    /// Anything else.
    Foreign,
}

impl Place {
    /// The place of a path, relative to the cache directory.
    #[must_use]
    pub fn of(path: &[u8]) -> Self {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let first = path.split(|byte| *byte == b'/').next();
        if first == Some(crate::JOURNAL_FOLDER.as_bytes()) {
            return Self::Journal;
        }
        if first == Some(crate::SEGMENTS_FOLDER.as_bytes())
            && let Some(number) = crate::segments::number_of(name)
        {
            return Self::Segment(number);
        }
        if crate::store::is_temp(name) {
            return Self::Temporary;
        }
        let found = Key::from_name(name).and_then(|key| Some((key, Levels::of_path(&key, path)?)));
        found.map_or(Self::Foreign, |(key, levels)| Self::Entry(key, levels))
    }
}

/// Where an entry that the journal knows lies in the segments: the number of the segment, and the offset in bytes.
/// `first_page` are the first 4096 bytes of any of them. None: it has a file of its own, or these begin no segment.
#[must_use]
pub fn place_in_segment(first_page: &[u8], known: &KnownKey) -> Option<(u32, u64)> {
    let (header, _) = SegmentHeader::decode(first_page)?;
    let (offset, all) = (known.extent.offset, pages(header.bytes));
    let place = (offset / all, u64::from(offset % all) * PAGE);
    known.extent.is_in_segment().then_some(place)
}

/// The entries that the journal knows on a device, with their places on it and the bytes of their pages, in the order of
/// these places.
#[must_use]
pub fn entries_on_device(journal: &JournalView, header: &DeviceHeader) -> Vec<PlacedEntry> {
    let stored = journal.stored();
    let mut found: Vec<_> = stored
        .iter()
        .filter_map(|known| place_on_device(header, known))
        .collect();
    found.sort_unstable_by_key(|entry| entry.at);
    found
}

/// Where an entry that the journal knows lies on a device. None: it has a file of its own.
#[must_use]
pub fn place_on_device(header: &DeviceHeader, known: &KnownKey) -> Option<PlacedEntry> {
    let all = pages(header.segment_bytes);
    let (number, page) = (known.extent.offset / all, known.extent.offset % all);
    (known.extent.is_in_segment() && number < header.segments).then(|| PlacedEntry {
        key: known.key,
        tag: known.extent.file,
        at: header.segment_at(number) + u64::from(page) * PAGE,
        len: u64::from(known.extent.blocks) * PAGE,
    })
}

/// The key and the tag of the entry that begins with these bytes; None: none does.
#[must_use]
pub fn entry_names(front: &[u8]) -> Option<(Key, u32)> {
    Entry::names_in(front)
}

/// The length of the entry that begins with these bytes; None: none does.
#[must_use]
pub fn entry_len(front: &[u8]) -> Option<u64> {
    Entry::len_in(front).ok()
}

/// Locks a cache directory that no process owns; until the lock is dropped, none can. None: a process owns it.
///
/// # Errors
/// [`Error::Disk`], with ENOENT if the directory has no journal.
pub async fn lock(local: &Local, directory: &[u8], pool: &Pool) -> Result<Option<Lock>, Error> {
    let path = [directory, b"/", crate::JOURNAL_FOLDER.as_bytes(), b"/lock"].concat();
    Ok(local.lock(&path, pool).await?)
}

/// Writes purges into the journal of a directory that no process owns; the next owner obeys them as its own.
///
/// # Errors
/// [`Error::InUse`]: a process owns it, and nothing was written. [`Error::Fault`]: a text is longer than 1024 bytes.
/// [`Error::TooManyPurges`], [`Error::JournalVersion`], [`Error::Disk`].
pub async fn purge(
    local: &Local,
    directory: &[u8],
    pool: &Pool,
    rules: &[PurgeRule],
) -> Result<(), Error> {
    let is_long = |rule: &PurgeRule| match rule {
        PurgeRule::Key(_) => false,
        PurgeRule::Prefix(text) | PurgeRule::Tag(text) => text.len() > RULE_TEXT_MAX,
    };
    if rules.iter().any(is_long) {
        return Err(EntryFault::Unstorable("too long a text to purge by").into());
    }
    crate::journal::purge(local, directory, pool, rules).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_by_its_form() {
        let key = Key::of(b"abc");
        let levels = Levels::parse("1:2").unwrap();
        let path = key.path(levels);
        assert_eq!(Place::of(path.as_bytes()), Place::Entry(key, levels));
        let temp = format!("{path}.4fa01c22");
        assert_eq!(Place::of(temp.as_bytes()), Place::Temporary);
        assert_eq!(
            Place::of(format!("{path}.0000000001").as_bytes()),
            Place::Temporary
        );
        assert_eq!(Place::of(b".freewheel/log.1"), Place::Journal);
        assert_eq!(Place::of(b"segments/12"), Place::Segment(12));
        for foreign in [
            "lost+found",
            ".freewheel2",
            "a/b/c",
            "segments/012",
            &path[2..],
        ] {
            assert_eq!(Place::of(foreign.as_bytes()), Place::Foreign, "{foreign}");
        }
    }
}
