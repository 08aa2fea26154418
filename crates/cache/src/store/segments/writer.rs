//! The writer of the segments: many entries with one write, one frame of the journal, one wake-up.

use super::append::SegmentAppend;
use super::{Appended, Emptying, SegmentStore};
use crate::error::Error;
use crate::journal::{Ticket, table_frame};
use crate::segments::{PAGE, SegmentState, SegmentUse, TRAILER_BYTES, Trailer, pages};
use crate::space::NoRoom;
use crate::store::{FILE_MODE, Store};
use bytes::Bytes;
use disk::{BatchStep, Errno, SegmentFile, take_steps};
use std::sync::atomic::Ordering::Relaxed;

/// Segments in a row that are left since a write to them failed. A disk that takes no more is not asked with one after
/// the other: what they hold would be emptied for it.
const LEFT_MAX: u32 = 3;
/// Steps of an emptying that are taken at once if no segment is free.
const STEPS_AT_ONCE_MAX: usize = 256;

/// What only the writer knows.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    filling: Option<Filling>,
    /// The segment that is being emptied.
    pub emptying: Option<Emptying>,
    /// Segments that were left, one after the other, since a write failed.
    left: u32,
}

/// The segment that is being filled.
#[derive(Debug)]
pub(in crate::store) struct Filling {
    pub of: SegmentUse,
    /// Its first page without an entry.
    pub page: u32,
    /// Its table so far.
    pub table: Vec<Bytes>,
    /// Maximum of the table's bytes, with the entries that have a place.
    pub table_max: u64,
    /// These two, as they were when the last write had succeeded.
    written: (u32, u64),
}

impl Filling {
    pub(super) fn new(of: SegmentUse) -> Self {
        Self {
            of,
            page: 1,
            table: Vec::new(),
            table_max: 0,
            written: (1, 0),
        }
    }

    /// That of a segment whose entries were found: its table, and its first page without an entry.
    pub(super) fn found(of: SegmentUse, page: u32, table: Vec<Bytes>, table_max: u64) -> Self {
        Self {
            of,
            page,
            table,
            table_max,
            written: (page, table_max),
        }
    }

    /// Gives an entry its place. False: there is no room for it.
    fn place(&mut self, item: &mut SegmentAppend) -> bool {
        let all = pages(self.of.header.bytes);
        let table = self.table_max + item.table_bytes();
        let end = self.page + item.pages();
        if end + pages(table + TRAILER_BYTES as u64) > all {
            return false;
        }
        item.set_place(self.of.number * all + self.page);
        (self.page, self.table_max) = (end, table);
        true
    }

    /// Overwrites the heads of entries that were written and are in no journal: a start without one would find those
    /// that lie behind what gets their places.
    fn blot_out(&self, run: &[SegmentAppend]) {
        let nothing = Bytes::from(vec![0; PAGE as usize]);
        for item in run {
            let page = item.known.extent.offset % pages(self.of.header.bytes);
            // Where that fails, too, purges of their keys that come later do not cover them.
            let _ = (self.of.file).write(u64::from(page) * PAGE, std::slice::from_ref(&nothing));
        }
    }
}

impl SegmentWriter {
    pub(super) fn new(filling: Option<Filling>) -> Self {
        Self {
            filling,
            emptying: None,
            left: 0,
        }
    }

    /// Appends entries, in order. **Waits.**
    pub(super) fn append(&mut self, store: &Store, items: Vec<SegmentAppend>) -> Vec<Appended> {
        let mut done = Vec::with_capacity(items.len());
        let mut run = Vec::with_capacity(items.len());
        for mut item in items {
            if self.place(&mut item) {
                run.push(item);
                continue;
            }
            self.write_run(store, std::mem::take(&mut run), &mut done);
            match self.begin_next(store) {
                Ok(()) if self.place(&mut item) => run.push(item),
                Ok(()) => done.push(Err(NoRoom(u64::from(item.pages())).into())),
                Err(error) => done.push(Err(error)),
            }
        }
        self.write_run(store, run, &mut done);
        done
    }

    /// Have so many bytes of entries room in the segment that is being filled?
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.filling.as_ref().is_some_and(|filling| {
            let end = filling.page + pages(bytes + filling.table_max) + 1;
            end < pages(filling.of.header.bytes)
        })
    }

    fn place(&mut self, item: &mut SegmentAppend) -> bool {
        let filling = self.filling.as_mut();
        filling.is_some_and(|filling| filling.place(item))
    }

    /// Writes entries that have their places, one behind the other.
    fn write_run(&mut self, store: &Store, run: Vec<SegmentAppend>, done: &mut Vec<Appended>) {
        if run.is_empty() {
            return;
        }
        match self.try_run(store, &run) {
            Ok(tickets) => {
                done.extend(run.into_iter().map(|item| Ok(item.enter(store))));
                // The index has what their frames say.
                drop(tickets);
            }
            Err(error) => {
                if let Some(segments) = &store.0.segments {
                    segments.failed.fetch_add(1, Relaxed);
                }
                if let Some(filling) = &mut self.filling {
                    // Nothing there is in the index: the next entries get these places.
                    (filling.page, filling.table_max) = filling.written;
                }
                done.extend(run.iter().map(|_| Err(same(&error))));
            }
        }
    }

    fn try_run(&mut self, store: &Store, run: &[SegmentAppend]) -> Result<Vec<Ticket>, Error> {
        let Some(filling) = &mut self.filling else {
            return Err(NoRoom(0).into());
        };
        let tickets = store
            .0
            .journal
            .tickets(run.iter().map(SegmentAppend::record))?;
        let first = run.first().map_or(0, |item| item.known.extent.offset);
        let page = first % pages(filling.of.header.bytes);
        let written = filling
            .of
            .file
            .write(u64::from(page) * PAGE, &parts_of(run));
        if let Err(error) = written {
            let number = filling.of.number;
            if self.may_leave(&error) {
                // What is in it stays; nothing more is written to it.
                self.filling = None;
                if let Some(segments) = &store.0.segments {
                    segments.set.set_state(number, SegmentState::Sealed);
                }
            }
            return Err(error.into());
        }
        self.left = 0;
        let steps: Vec<BatchStep> = tickets.iter().map(Ticket::step).collect();
        if let Err(error) = take_steps(&steps) {
            filling.blot_out(run);
            return Err(error.into());
        }
        filling.written = (filling.page, filling.table_max);
        let entries = run.iter().map(|item| &item.known);
        filling.table.extend(table_frame(&store.0.index, entries));
        Ok(tickets)
    }

    /// Is a segment to be left because a write to it failed? Another place may be better, if the fault is the place's.
    fn may_leave(&mut self, error: &disk::Error) -> bool {
        let may_leave = error.errno() == Some(Errno::IO) && self.left < LEFT_MAX;
        self.left += u32::from(may_leave);
        may_leave
    }

    /// Writes nothing more to a segment whose reads fail.
    pub(super) fn leave_unreadable(&mut self, segments: &SegmentStore) {
        let filling = self.filling.as_ref();
        if filling.is_some_and(|filling| segments.set.is_unreadable(filling.of.number)) {
            self.seal(segments);
        }
    }

    /// Seals the segment that is full, and begins the next.
    fn begin_next(&mut self, store: &Store) -> Result<(), Error> {
        let Some(segments) = &store.0.segments else {
            return Err(NoRoom(0).into());
        };
        self.seal(segments);
        for _ in 0..STEPS_AT_ONCE_MAX {
            if let Some(next) = segments.set.take_free() {
                return self.begin(segments, next);
            }
            if make_file(store, segments)? {
                continue;
            }
            if !self.empty_at_once(store) {
                break;
            }
        }
        Err(NoRoom(u64::from(segments.set.pages())).into())
    }

    fn begin(&mut self, segments: &SegmentStore, next: SegmentUse) -> Result<(), Error> {
        let first = next.header.page(&Default::default());
        if let Err(error) = next.file.write(0, &[first]) {
            match self.may_leave(&error) {
                // It would be the next one again.
                true => segments.set.retire(next.number),
                false => segments.set.set_state(next.number, SegmentState::Free),
            }
            return Err(error.into());
        }
        self.filling = Some(Filling::new(next));
        Ok(())
    }

    /// Writes the table of the segment that is full.
    fn seal(&mut self, segments: &SegmentStore) {
        let Some(Filling { of, table, .. }) = self.filling.take() else {
            return;
        };
        let bytes = of.header.bytes;
        let len: u64 = table.iter().map(|frame| frame.len() as u64).sum();
        let end = bytes - TRAILER_BYTES as u64;
        let at = (end - len) / PAGE * PAGE;
        let mut crc = crc32fast::Hasher::new();
        table.iter().for_each(|frame| crc.update(frame));
        let trailer = Trailer {
            sequence: of.header.sequence,
            table_at: at as u32,
            table_len: len as u32,
            table_crc: crc.finalize(),
        };
        let mut parts = table;
        parts.push(Bytes::from(vec![0; (end - at - len) as usize]));
        parts.push(trailer.encode());
        // Without its table it is read entry by entry.
        let _ = of.file.write(at, &parts);
        of.file.begin_writeback();
        segments.set.set_state(of.number, SegmentState::Sealed);
    }
}

/// Makes another file, or takes another part of the device. False: there are as many as may be, or the file system is
/// full.
fn make_file(store: &Store, segments: &SegmentStore) -> Result<bool, Error> {
    let (set, space) = (&segments.set, &store.0.space);
    let number = match set.next_number() {
        None if store.take_room_for_segment(segments) => set.next_number(),
        number => number,
    };
    let Some(number) = number else {
        return Ok(false);
    };
    if let Some(device) = &set.device {
        set.add(number, device.part(number));
        return Ok(true);
    }
    if !space.has_free(space.blocks(set.bytes)) {
        set.set_full(true);
        return Ok(false);
    }
    let (path, pool) = (set.path(number), &store.0.settings.pool);
    let made = SegmentFile::open(&store.0.disk, &path, FILE_MODE, pool);
    let made = made.and_then(|mut file| {
        let was = file.len();
        file.allocate(set.bytes)?;
        if was > 0 {
            file.clear(0, set.bytes)?;
        }
        Ok(file)
    });
    match made {
        Ok(file) => {
            space.take_free(space.blocks(set.bytes));
            set.add(number, file);
            Ok(true)
        }
        Err(error) => {
            // The error reported is the first one.
            let _ = disk::remove_waiting(&path);
            set.set_full(true);
            let is_full = matches!(
                error.errno(),
                Some(Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE)
            );
            if is_full {
                Ok(false)
            } else {
                Err(error.into())
            }
        }
    }
}

/// The bytes of entries, each padded to a page.
fn parts_of(run: &[SegmentAppend]) -> Vec<Bytes> {
    static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
    let mut parts = Vec::with_capacity(run.len() * 4);
    for item in run {
        parts.extend(item.parts.iter().cloned());
        let pad = (u64::from(item.pages()) * PAGE - item.len) as usize;
        parts.push(Bytes::from_static(&ZEROS[..pad]));
    }
    parts
}

/// The error of a batch, for each of its entries.
fn same(error: &Error) -> Error {
    match error {
        Error::Disk(disk::Error::System { call, errno }) => {
            let (call, errno) = (*call, *errno);
            Error::Disk(disk::Error::System { call, errno })
        }
        Error::InUse => Error::InUse,
        Error::NoRoom(lacking) => Error::NoRoom(*lacking),
        // Nothing else comes out of a write.
        _ => Error::NoRoom(NoRoom(0)),
    }
}
