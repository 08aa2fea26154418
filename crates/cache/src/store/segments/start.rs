//! What a start finds in the directory of the segments.
//!
//! After a clean end, and after one by `kill -9`, the journal says what is in them, and the segment that was being
//! filled is filled further. If the journal may be incomplete, none is filled further; a walk reads what is in them
//! ([`super::walk`]).

use super::Filling;
use crate::error::Error;
use crate::index::{Cursor, EntryExtent, Index, KnownKey, STEP_MAX};
use crate::journal::{Recovered, table_frame};
use crate::key::Key;
use crate::segments::{
    DeadMap, PAGE, SEGMENTS_FOLDER, SEGMENTS_MAX, Segment, SegmentHeader, SegmentState, SegmentUse,
    Segments, TRAILER_BYTES, Trailer, number_of, segment_bytes_for, segments_share,
};
use crate::store::{DIRECTORY_MODE, FILE_MODE, StoreKind, StoreSettings};
use disk::{
    BatchStep, Disk, FreeSpace, Lane, Local, Pool, SegmentFile, names_in, remove_waiting,
    take_steps,
};
use std::sync::Arc;

/// The segments of a directory.
#[derive(Debug)]
pub(in crate::store) struct FoundSegments {
    pub set: Segments,
    pub filling: Option<Filling>,
    /// Does the journal not know what is in them?
    pub is_unknown: bool,
}

/// A file in the directory.
struct FoundFile {
    number: u32,
    file: SegmentFile,
    header: Option<(SegmentHeader, DeadMap)>,
    is_sealed: bool,
}

/// Keys and tags of entries that the journal knows and segments do not have: a little each, they may be all.
pub(in crate::store) type LostEntries = Vec<(Key, u32)>;

impl FoundSegments {
    /// Opens the segments of a directory, which this process owns. Entries of the index that are in none leave it; they
    /// are returned as well. `None`: there are no segments. `room` is what the file system has.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub(in crate::store) async fn find(
        local: &Local,
        settings: &StoreSettings,
        index: &Index,
        recovered: &Recovered,
        room: &FreeSpace,
    ) -> Result<(Option<Self>, LostEntries), Error> {
        let folder = folder(settings);
        let (disk, pool) = (Arc::clone(local.disk()), settings.pool.clone());
        let (kind, max_bytes) = (settings.kind, settings.max_bytes);
        let most = max_bytes.unwrap_or(room.free_blocks.saturating_mul(room.block_bytes));
        let job = move || match kind {
            StoreKind::Files => look_for_leftovers(&disk, folder, &pool, max_bytes, most),
            StoreKind::Segments => look(&disk, folder, &pool, (max_bytes, most), false).map(Some),
        };
        let found = settings.pool.run(Lane::Write, job).await;
        let found = found.map_err(disk::Error::from)??;
        let Some((set, filling)) = found else {
            return Ok((None, forget_all_but(index, |_, _| false)));
        };
        Self::of(set, filling, settings, index, recovered).await
    }

    /// The segments of a set, whose entries the index knows; the one that was being filled, if there is one.
    pub(super) async fn of(
        set: Segments,
        filling: Option<SegmentUse>,
        settings: &StoreSettings,
        index: &Index,
        recovered: &Recovered,
    ) -> Result<(Option<Self>, LostEntries), Error> {
        let last = filling.as_ref().map(|of| of.number);
        let mut in_last = Vec::new();
        let lost = forget_all_but(index, |key, extent| {
            let is_there = set.enter_known(extent);
            if is_there && last == Some(set.place(extent.offset).0) {
                in_last.extend(index.peek(key));
            }
            is_there
        });
        let filling = filling.filter(|_| recovered.is_complete && !set.is_leftover);
        let filling = match filling {
            Some(of) => resumed(index, &set, of, in_last, &settings.pool).await?,
            None => None,
        };
        for one in set.readable() {
            let is_filled = filling
                .as_ref()
                .is_some_and(|it| it.of.number == one.number);
            if !is_filled {
                set.set_state(one.number, SegmentState::Sealed);
            }
        }
        let is_unknown = false;
        Ok((
            Some(Self {
                set,
                filling,
                is_unknown,
            }),
            lost,
        ))
    }
}

/// Removes the entries in segments that are not as they should be from the index.
pub(super) fn forget_all_but(
    index: &Index,
    mut is_right: impl FnMut(&Key, &EntryExtent) -> bool,
) -> LostEntries {
    let mut lost = LostEntries::new();
    let mut cursor = Cursor::default();
    loop {
        let step = index.scan_places(&mut cursor, STEP_MAX);
        if step.is_empty() {
            return lost;
        }
        for (key, extent) in step {
            if !is_right(&key, &extent) && index.remove_at(&key, &extent).is_some() {
                lost.push((key, extent.file));
            }
        }
    }
}

/// Goes on with the segment that was being filled, behind the last of its entries that the journal knows. What is behind
/// that is in no index any more: it is cleared, or passed over. None: it is not filled further, as a process that had
/// the directory before may still be sending what is there, or as it cannot be cleared.
async fn resumed(
    index: &Index,
    set: &Segments,
    of: SegmentUse,
    mut known: Vec<KnownKey>,
    pool: &Pool,
) -> Result<Option<Filling>, Error> {
    known.sort_unstable_by_key(|one| one.extent.offset);
    let end = known.last().map(|last| {
        let (_, page) = set.place(last.extent.offset);
        page + last.extent.blocks
    });
    let (number, end) = (of.number, end.unwrap_or(1));
    let file = Arc::clone(&of.file);
    let clear = move || file.alone(|| file.clear_from(u64::from(end) * PAGE));
    let cleared = pool.run(Lane::Write, clear).await;
    let page = match cleared.map_err(disk::Error::from)? {
        Some(Ok(from)) => (from / PAGE) as u32,
        _ => set.pages(),
    };
    if page == set.pages() {
        set.leave_from(number, end);
        return Ok(None);
    }
    // Before anything is written there: what is has no part in what was dead.
    if let Some(first) = set.reuse_from(number, (end, page)) {
        let file = Arc::clone(&of.file);
        let written = pool.run(Lane::Write, move || file.write(0, &[first])).await;
        if written.map_err(disk::Error::from)?.is_err() {
            set.leave_from(number, end);
            return Ok(None);
        }
    }
    let table = table_frame(index, known.iter());
    let table_max = table.iter().map(|frame| frame.len() as u64).sum();
    Ok(Some(Filling::found(of, page, table, table_max)))
}

/// The directory of the segments that are files, with a slash at its end.
pub(super) fn folder(settings: &StoreSettings) -> Vec<u8> {
    let below = format!("/{SEGMENTS_FOLDER}/");
    [&settings.directory[..], below.as_bytes()].concat()
}

/// Has a segment a table, as it has when it is full? **Waits.**
pub(super) fn has_table(file: &SegmentFile, header: &SegmentHeader) -> bool {
    let trailer = file.read(header.bytes - TRAILER_BYTES as u64, TRAILER_BYTES);
    trailer.is_ok_and(|trailer| Trailer::decode(&trailer, header).is_some())
}

/// Opens the segments of a cache that had some before. None: there are none with entries. **Waits.**
fn look_for_leftovers(
    disk: &Disk,
    folder: Vec<u8>,
    pool: &Pool,
    max_bytes: Option<u64>,
    most: u64,
) -> Result<Option<(Segments, Option<SegmentUse>)>, disk::Error> {
    if !remove_clear(disk, &folder, pool)? {
        return Ok(None);
    }
    look(disk, folder, pool, (max_bytes, most), true).map(Some)
}

/// Deletes the segments without entries. Returns whether there are others; files that are none stay. **Waits.**
fn remove_clear(disk: &Disk, folder: &[u8], pool: &Pool) -> Result<bool, disk::Error> {
    let mut has_others = false;
    for name in names_in(folder)? {
        let Some(number) = number_of(&name) else {
            continue;
        };
        let file = SegmentFile::open(disk, &[folder, &name].concat(), FILE_MODE, pool);
        let first = file.and_then(|file| Ok((file.len(), file.read(0, PAGE as usize)?)));
        let Ok((len, first)) = first else { continue };
        // One that was emptied, or not used yet, begins with zeros.
        let is_clear = len.is_power_of_two() && first.iter().all(|byte| *byte == 0);
        if is_clear {
            remove_waiting(&[folder, number.to_string().as_bytes()].concat())?;
        }
        has_others |= SegmentHeader::decode(&first).is_some();
    }
    Ok(has_others)
}

/// Opens all segments, and tells which was being filled. New ones are as long as a cache of `most` bytes needs them.
/// **Waits.**
fn look(
    disk: &Disk,
    folder: Vec<u8>,
    pool: &Pool,
    (max_bytes, most): (Option<u64>, u64),
    is_leftover: bool,
) -> Result<(Segments, Option<SegmentUse>), disk::Error> {
    take_steps(&[BatchStep::Directory(
        folder[..folder.len() - 1].into(),
        DIRECTORY_MODE,
    )])?;
    let mut files = files_in(disk, &folder, pool)?;
    if is_leftover {
        files.retain(|one| one.header.is_some());
    }
    let share = |bytes| match max_bytes {
        Some(max) => segments_share(max, bytes).map(|(count, _)| count as usize),
        None => Some(SEGMENTS_MAX),
    };
    // The length that they have stays, unless too few of that length may be there.
    let has = files
        .iter()
        .find_map(|one| Some(one.header.as_ref()?.0.bytes));
    let wished = segment_bytes_for(most);
    let bytes = has
        .filter(|bytes| is_leftover || share(*bytes).is_some())
        .unwrap_or(wished);
    let mut segments: Vec<Option<Segment>> = Vec::new();
    let mut open: Option<(u64, u32)> = None;
    for FoundFile {
        number,
        mut file,
        header,
        is_sealed,
    } in files
    {
        let header = header.filter(|(header, _)| header.bytes == bytes);
        // One that is too long is not cut: a process that had the directory before may still be sending from it.
        let has_len = file.len() == bytes || file.len() < bytes && file.allocate(bytes).is_ok();
        if !has_len {
            remove_waiting(&[&folder[..], number.to_string().as_bytes()].concat())?;
            continue;
        }
        let segment = match header {
            Some((header, dead)) => {
                if !is_sealed {
                    open = open.max(Some((header.sequence, number)));
                }
                Segment::new(file, SegmentState::Sealed, header.sequence, dead)
            }
            // Whatever is in it is no entry's.
            None => Segment::new(file, SegmentState::Draining, 0, DeadMap::full()),
        };
        let place = number as usize;
        if segments.len() <= place {
            segments.resize_with(place + 1, || None);
        }
        segments[place] = Some(segment);
    }
    let max = share(bytes).unwrap_or(1);
    let mut set = Segments::new(folder, bytes, max, segments);
    set.is_leftover = is_leftover;
    let filling = open.and_then(|(_, number)| {
        set.set_state(number, SegmentState::Filling);
        set.readable().into_iter().find(|one| one.number == number)
    });
    // The newest only: another that has no table is read entry by entry.
    let newest = set.readable().first().map(|one| one.number);
    Ok((set, filling.filter(|one| Some(one.number) == newest)))
}

fn files_in(disk: &Disk, folder: &[u8], pool: &Pool) -> Result<Vec<FoundFile>, disk::Error> {
    let names = names_in(folder)?;
    let numbers = names.iter().filter_map(|name| number_of(name));
    numbers
        .map(|number| look_at(disk, folder, number, pool))
        .collect()
}

fn look_at(disk: &Disk, folder: &[u8], number: u32, pool: &Pool) -> Result<FoundFile, disk::Error> {
    let path = [folder, number.to_string().as_bytes()].concat();
    let file = SegmentFile::open(disk, &path, FILE_MODE, pool)?;
    // What cannot be read has no entries.
    let first = file.read(0, PAGE as usize).unwrap_or_default();
    let header = SegmentHeader::decode(&first);
    let is_sealed = header
        .as_ref()
        .is_some_and(|(header, _)| file.len() == header.bytes && has_table(&file, header));
    Ok(FoundFile {
        number,
        file,
        header,
        is_sealed,
    })
}
