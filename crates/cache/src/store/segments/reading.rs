//! Reading entries that lie in segments.

use super::{SegmentStore, kept};
use crate::entry::Entry;
use crate::error::{EntryFault, Error};
use crate::index::{EntryExtent, KnownKey};
use crate::journal::entries_in;
use crate::segments::{PAGE, SegmentSource, SegmentUse, each_entry, pages, table_of};
use crate::store::Store;
use crate::store::lookup::{HEAD_BYTES, read_up_to};
use bytes::Bytes;
use disk::{Access, BODY_MAX, COPY_USES, Errno, Local, OpenFile};
use message::date::Seconds;
use std::rc::Rc;

/// Uses after which an entry that found no room for its copy asks again: more in use than there is room for would take turns.
const COPY_AGAIN: u8 = 8;
/// Bytes from which an entry that is used again gets a copy: smaller ones are written together with their head.
const COPIED_MIN: u64 = 8 << 10;
/// Bytes of an entry that is read whole though it is in memory: for larger ones sending by the page is cheaper.
const PIECE_BYTES_MAX: usize = 20 << 10;

/// An entry that was opened in its segment.
#[derive(Debug)]
pub(in crate::store) struct OpenedInSegment {
    pub file: Rc<OpenFile>,
    /// Where it begins in the file.
    pub base: u64,
    pub entry: Rc<Entry>,
}

impl Store {
    /// Opens the entry that the index knows at a place in a segment. Nothing is opened in the kernel; a small entry is
    /// read whole, and so is one of some size that is not in memory. None: the segment was emptied meanwhile, or another
    /// entry has the place.
    ///
    /// # Errors
    /// [`Error::Fault`]: it is damaged. [`Error::Disk`].
    pub(in crate::store) async fn open_in_segment(
        &self,
        local: &Local,
        access: &Access<'_>,
        known: &KnownKey,
    ) -> Result<Option<OpenedInSegment>, Error> {
        let Some(segments) = &self.0.segments else {
            return Ok(None);
        };
        let owner = owner_of(segments);
        // It is to be verified from the disk, of which what is kept knows no place.
        let is_doubted = !known.is_verified && self.was_distrusted();
        let kept = match is_doubted {
            true => None,
            false => kept::get(owner, known),
        };
        if let Some(kept) = &kept
            && let Some(file) = &kept.piece
        {
            let mut copied = None;
            if file.wants_copy() && is_copy_due(kept.uses) {
                // What it wants is tried once.
                file.want_copy(false);
                let source = segments.set.source(&known.extent);
                copied = source.and_then(|source| copy_kept(local, owner, &source, known, kept));
            }
            return Ok(Some(copied.unwrap_or_else(|| OpenedInSegment {
                file: Rc::clone(file),
                base: 0,
                entry: Rc::clone(&kept.entry),
            })));
        }
        let Some(source) = segments.set.source(&known.extent) else {
            return Ok(None);
        };
        let sequence = source.sequence;
        // Since the index was asked, the segment may have been emptied, and filled with others.
        let kept = kept.filter(|kept| kept.sequence == sequence);
        if let Some(kept) = kept {
            let copied = match is_copy_due(kept.uses) {
                true => copy_kept(local, owner, &source, known, &kept),
                false => None,
            };
            source
                .view
                .want_copy(kept.uses < COPY_USES && may_get_copy(owner, &kept.entry));
            return Ok(Some(copied.unwrap_or_else(|| OpenedInSegment {
                file: Rc::new(source.view),
                base: source.base,
                entry: kept.entry,
            })));
        }
        // On a device, which is not cleared, what was there before is found until it is written over.
        if owner.is_on_device && !self.is_at(known) {
            return Ok(None);
        }
        let read = read_from(local, access, source, known, is_doubted).await;
        let read = read.inspect_err(|error| self.note_unread(known, error));
        let Some((opened, is_piece)) = read? else {
            return Ok(None);
        };
        let is_kept = !is_doubted && kept::put(owner, known, sequence, &opened, is_piece);
        let wants_copy = is_kept && may_get_copy(owner, &opened.entry);
        opened.file.want_copy(wants_copy);
        Ok(Some(opened))
    }

    /// The file of an entry that [`Store::recall`] has returned, and where it begins in it, for those that send what is in
    /// memory. None: it is in no segment that is a file, or is being moved.
    #[must_use]
    pub fn place_of(&self, known: &KnownKey) -> Option<(Rc<OpenFile>, u64)> {
        let segments = self.0.segments.as_ref()?;
        if !known.extent.is_in_segment() || segments.set.device.is_some() {
            return None;
        }
        let source = segments.set.source(&known.extent)?;
        // Since the index was asked, the segment may have been emptied, and filled with others.
        (self.is_at(known)).then(|| (Rc::new(source.view), source.base))
    }

    /// Whether the index has the entry at this place.
    fn is_at(&self, known: &KnownKey) -> bool {
        let present = self.0.index.peek(&known.key);
        present.is_some_and(|present| present.extent == known.extent)
    }

    /// Notes that an entry could not be read, if it is the disk that has no bytes there.
    pub(in crate::store) fn note_unread(&self, known: &KnownKey, error: &Error) {
        if let (Some(segments), Error::Disk(error)) = (&self.0.segments, error)
            && known.extent.is_in_segment()
            && error.errno() == Some(Errno::IO)
        {
            segments.set.note_read_error(&known.extent);
        }
    }

    /// The entries that were written to a segment, as they were known then, in the order of writing. **Waits.**
    ///
    /// # Errors
    /// [`Error::Disk`]; [`Error::Fault`]: it lies on a device and has no table.
    pub(in crate::store) fn entries_of(&self, of: &SegmentUse) -> Result<Vec<KnownKey>, Error> {
        if let Some(table) = table_of(&of.header, |at, len| of.file.read(at, len))? {
            let all = pages(of.header.bytes);
            let is_inside = |known: &KnownKey| known.extent.offset / all == of.number;
            let mut entries = entries_in(&self.0.index, &table);
            entries.retain(is_inside);
            return Ok(entries);
        }
        let segments = self.0.segments.as_ref();
        if segments.is_some_and(|segments| segments.set.device.is_some()) {
            // It was not cleared: behind the last entry may be some of what it held before.
            return Err(EntryFault::Incomplete.into());
        }
        let mut entries = Vec::new();
        let read = |at, len| of.file.read(at, len);
        each_entry(of.header.bytes, read, |page, entry, len| {
            let now = entry.lifetime().date;
            entries.push(self.known_in(entry, of, page, len, now));
        })?;
        Ok(entries)
    }

    /// The index's record of an entry that was found in a segment.
    fn known_in(
        &self,
        entry: &Entry,
        of: &SegmentUse,
        page: u32,
        len: u64,
        now: Seconds,
    ) -> KnownKey {
        let known = self.known_of(entry, len, now);
        KnownKey {
            extent: EntryExtent {
                offset: of.number * pages(of.header.bytes) + page,
                blocks: pages(len),
                ..known.extent
            },
            ..known
        }
    }
}

impl SegmentStore {
    /// Reads the first bytes of an entry. None: it is there no more. **Waits.**
    pub(in crate::store) fn read_head(&self, known: &KnownKey) -> Option<(Entry, u64)> {
        let source = self.set.source(&known.extent)?;
        let most = usize::try_from(u64::from(known.extent.blocks) * PAGE).ok()?;
        let mut wanted = HEAD_BYTES.min(most);
        loop {
            let head = source.file.read(source.at, wanted).ok()?;
            match decode(&head, known) {
                Ok(found) => return Some(found),
                Err(EntryFault::Needs(more)) if more > wanted && more <= most => wanted = more,
                Err(_) => return None,
            }
        }
    }
}

/// Whose entries these are, for what loops keep.
fn owner_of(segments: &SegmentStore) -> kept::Owner {
    kept::Owner {
        store: segments.id,
        is_on_device: segments.set.device.is_some(),
    }
}

/// Is an entry with so many uses to get a copy now?
fn is_copy_due(uses: u8) -> bool {
    uses >= COPY_USES && (uses - COPY_USES).is_multiple_of(COPY_AGAIN)
}

/// May an entry get a copy once it was used enough?
fn may_get_copy(owner: kept::Owner, entry: &Entry) -> bool {
    let is_of_size = |len: u64| (COPIED_MIN..=BODY_MAX as u64).contains(&len);
    !owner.is_on_device && entry.entry_len().is_some_and(is_of_size)
}

/// Keeps a copy of an entry of some size that is used again and is in memory: `sendfile` needs no proof for that, and it is
/// cheaper than to read the body and to write it. None: it gets none.
fn copy_kept(
    local: &Local,
    owner: kept::Owner,
    source: &SegmentSource,
    known: &KnownKey,
    kept: &kept::Kept,
) -> Option<OpenedInSegment> {
    let (entry, sequence) = (&kept.entry, source.sequence);
    let len = entry.entry_len()?;
    let is_it = sequence == kept.sequence && known.is_verified;
    if !is_it || !may_get_copy(owner, entry) || !kept::has_room(owner, len) {
        return None;
    }
    let bytes = local.try_read(&source.view, source.base, len as usize);
    let bytes = bytes.ok()?.ok()?;
    if bytes.len() as u64 != len {
        return None;
    }
    let piece = source.file.piece(bytes);
    let unsent = usize::try_from(len - entry.body().end).unwrap_or(0);
    if !local.copy_body(&piece, unsent) {
        return None;
    }
    let copied = OpenedInSegment {
        file: Rc::new(piece),
        base: 0,
        entry: Rc::clone(entry),
    };
    // Where there is no room after all, it serves this use.
    let _ = kept::put(owner, known, sequence, &copied, true);
    Some(copied)
}

/// Reads an entry. Also returns whether all of it was read; then its file is a piece. Of one that `is_doubted` the head is
/// read, and its file is the segment.
async fn read_from(
    local: &Local,
    access: &Access<'_>,
    source: SegmentSource,
    known: &KnownKey,
    is_doubted: bool,
) -> Result<Option<(OpenedInSegment, bool)>, Error> {
    let (view, base) = (Rc::new(source.view), source.base);
    let most = usize::try_from(u64::from(known.extent.blocks) * PAGE).unwrap_or(usize::MAX);
    // What is in memory is sent by the page, behind its head; a disk is asked once.
    let is_of_size = !is_doubted && (PIECE_BYTES_MAX + 1..=BODY_MAX).contains(&most);
    let mut in_memory = is_of_size.then(|| local.try_read(&view, base, HEAD_BYTES));
    let mut wanted = match &in_memory {
        Some(Err(_)) => most,
        None if !is_doubted && most <= PIECE_BYTES_MAX => most,
        _ => HEAD_BYTES.min(most),
    };
    loop {
        let head = match in_memory.take() {
            Some(Ok(head)) => head?,
            _ => read_up_to(local, &view, base, wanted, access).await?,
        };
        match decode(&head, known) {
            Ok((entry, len)) => {
                let entry = Rc::new(entry);
                let whole = usize::try_from(len).ok();
                let whole = whole.filter(|len| !is_doubted && *len <= head.len());
                let (file, base) = match whole {
                    Some(len) => (Rc::new(source.file.piece(head.slice(..len))), 0),
                    None => (view, base),
                };
                let opened = OpenedInSegment { file, base, entry };
                return Ok(Some((opened, whole.is_some())));
            }
            Err(EntryFault::Needs(more)) if more > head.len() && more <= most => wanted = more,
            Err(EntryFault::Foreign) => return Ok(None),
            Err(fault) => return Err(fault.into()),
        }
    }
}

/// Decodes the entry that the index knows, and its length. [`EntryFault::Foreign`]: it is another one.
fn decode(head: &Bytes, known: &KnownKey) -> Result<(Entry, u64), EntryFault> {
    let len = Entry::len_in(head)?;
    if Entry::names_in(head) != Some((known.key, known.extent.file))
        || pages(len) != known.extent.blocks
    {
        return Err(EntryFault::Foreign);
    }
    Ok((Entry::decode(head, len)?, len))
}
