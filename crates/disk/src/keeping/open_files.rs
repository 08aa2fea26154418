//! One loop's open files: descriptors and small bodies kept from request to request, exact at every use.
//!
//! Each use reads the queued events of the directories above (see `inotify`), then calls `fstat` on the kept
//! descriptor, which shows writes, truncation, replacement, rename, unlink and chmod (each changes ctime, size or the
//! number of links). After any change the file is opened again. A check made after a request arrived is exact for that
//! request, so the requests of one moment share it. Not here: files that may be out of date, for callers that
//! ask for it (`open_file_cache`).
//!
//! Invariant: an entry is never used without a valid guard, but for the server's own files, of which `fstat` is called for
//! each use. A file is not kept if it changed so recently that its time stamp may not show the next change. Limits: a
//! writer through mmap(2) is seen when the kernel updates the time stamp (at its first store after each writeback); changes
//! below an overlay, or of the mounts, are seen a moment later.

use crate::files::copier::Copier;
use crate::files::memfd_copies::{COPY_MIN, MemfdCopies};
use crate::files::open_file::{Meta, OpenFile};
use crate::keeping::inotify::PathGuard;
use crate::keeping::slow_hand::{COPY_USES, SlowHand};
use crate::memory::{self, Charge, Holder, Keeps, MemoryLevel};
use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Files that one loop keeps open at most, however many descriptors and however much memory there is ([`memory`]).
pub const FILES_MAX: usize = 32_768;
/// Kept files take at most one descriptor in this many of the process: on one loop, and on all loops together.
const DESCRIPTORS_OF_A_LOOP: usize = 4;
const DESCRIPTORS_OF_ALL: usize = 2;
/// Files evicted for a new one at most, where fewer may be kept than there are.
const FILES_FOR_ONE: usize = 4;
/// Bytes of small bodies that one loop keeps at most; fewer where there is little memory ([`memory`]).
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;
/// Places looked at at most to make room for a body that was read with its open, or to drop those that there is no memory
/// for: a tenth of a millisecond at most.
const BODY_LOOKS_MAX: usize = 1024;
/// Places looked at at most to make room for a file, or for the body of one that is used again.
const LOOKS_MAX: usize = 64;
/// Uses of a file, behind the open, from which its body is kept; those of one moment count once. Of many files that are
/// in memory and used in turn, none comes to so many while it is open: to keep their bodies would cost memory and give none.
const BODY_USES: u8 = 1;
/// The age, in nanoseconds, from which a time stamp is certain to show the next change: two ticks of the coarsest
/// kernel clock (HZ=100).
const SETTLED_NS: i128 = 20_000_000;

#[derive(Debug)]
pub(crate) struct FileEntry {
    path: Box<[u8]>,
    hash: u64,
    pub file: Rc<OpenFile>,
    pub guard: Option<Rc<PathGuard>>,
    /// Does it need none ([`Access::is_own`](crate::Access::is_own))?
    is_own: bool,
    /// Was it used since the clock hand passed?
    used: bool,
    /// The moment for which it was last checked.
    checked: u64,
    /// Was it requested since the last sweep?
    asked: bool,
    /// Uses since it was opened, or since its body was evicted.
    uses: u8,
    /// Does its body get a copy once it has uses enough?
    wants_copy: bool,
}

impl FileEntry {
    /// Notes a use of the open file. With the last that it takes, its body gets a copy.
    fn note_use(&mut self, copies: &mut MemfdCopies) {
        self.uses = self.uses.saturating_add(1);
        if self.wants_copy && self.uses >= COPY_USES {
            self.wants_copy = false;
            let body = self.file.body();
            let copy = body.and_then(|body| copies.begin(&body, self.file.unsent.get()));
            self.file.set_copy(copy);
        }
    }
}

/// What the hand finds in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// A file that was used since it last passed.
    InUse,
    /// A body of one that was not: dropped.
    Evicted,
    /// Neither.
    Nothing,
}

/// The result of [`OpenFiles::keep`].
#[derive(Debug)]
pub(crate) enum Insertion {
    /// The file was in the table already, unchanged: this is the entry's.
    Known(Rc<OpenFile>),
    /// It was not.
    New(Rc<OpenFile>),
}

/// A table of open files with CLOCK eviction: an entry that was used survives the hand once.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    slots: Vec<Option<FileEntry>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    hand: usize,
    slow_hand: SlowHand,
    slow_hand_of_files: SlowHand,
    /// The process's limit on descriptors.
    descriptors: usize,
    /// Bytes of all kept bodies, those in `copies` included.
    body_bytes: usize,
    copies: MemfdCopies,
    /// Bytes of all entries without their bodies.
    open: Charge,
    _keeps: Keeps,
}

impl OpenFiles {
    /// An empty table. `descriptors`: the process's limit; `copier` writes copies, if there are to be any.
    pub(crate) fn new(descriptors: usize, copier: Option<Copier>) -> OpenFiles {
        OpenFiles {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            hand: 0,
            slow_hand: SlowHand::default(),
            slow_hand_of_files: SlowHand::default(),
            descriptors,
            body_bytes: 0,
            copies: MemfdCopies::new(copier),
            open: memory::charge(Holder::Files, 0),
            _keeps: Keeps::begin(),
        }
    }

    /// The file of a path, if it is known to be unchanged; the caller has read the events before. (None also for an
    /// entry without a valid guard: open it again, and [`OpenFiles::keep`] returns it as known.)
    pub(crate) fn look_up(&mut self, path: &[u8], moment: u64) -> Option<Rc<OpenFile>> {
        let slot = self.slot(path)?;
        if !self.is_current(slot, moment) {
            return None;
        }
        Some(self.slots[slot as usize].as_ref()?.file.clone())
    }

    /// Is the file in this slot still what its path names, and unchanged? As [`OpenFiles::look_up`].
    pub(crate) fn is_current(&mut self, slot: u32, moment: u64) -> bool {
        let Some(entry) = self.slots[slot as usize].as_mut() else {
            return false;
        };
        (entry.used, entry.asked) = (true, true);
        if !entry.is_own && !entry.guard.as_ref().is_some_and(|guard| guard.is_valid()) {
            entry.guard = None;
            return false;
        }
        // An own file may have changed since by the request that asks (a revalidated entry).
        if !entry.is_own && moment != 0 && entry.checked >= moment {
            return true;
        }
        if !is_as_it_was(&entry.file) {
            self.remove(slot);
            return false;
        }
        entry.checked = moment;
        entry.note_use(&mut self.copies);
        true
    }

    /// Notes a use of the file in this slot.
    pub(crate) fn note_use(&mut self, slot: u32) {
        if let Some(entry) = &mut self.slots[slot as usize] {
            (entry.used, entry.asked) = (true, true);
        }
    }

    /// Keeps a file that was just opened, if its time stamp will show its next change. Returns the file kept before if
    /// it is the same and unchanged, so that its body and slot live on. `is_own`: see
    /// [`Access::is_own`](crate::Access::is_own).
    pub(crate) fn keep(&mut self, path: &[u8], file: Rc<OpenFile>, is_own: bool) -> Insertion {
        if let Some(slot) = self.slot(path) {
            match &mut self.slots[slot as usize] {
                Some(entry)
                    if entry.file.meta() == file.meta() && entry.file.direct == file.direct =>
                {
                    entry.note_use(&mut self.copies);
                    return Insertion::Known(entry.file.clone());
                }
                _ => self.remove(slot),
            }
        }
        if !is_settled(file.meta()) || !self.has_room_for_file() {
            return Insertion::New(file);
        }
        let hash = self.hasher.hash_one(path);
        let entry = FileEntry {
            path: path.into(),
            hash,
            file: file.clone(),
            guard: None,
            is_own,
            used: false,
            checked: 0,
            asked: true,
            uses: 0,
            wants_copy: false,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            slot_number(self.slots.len() - 1)
        });
        self.slots[slot as usize] = Some(entry);
        let slots = &self.slots;
        self.index.insert_unique(hash, slot, |slot| {
            slots[*slot as usize].as_ref().map_or(0, |entry| entry.hash)
        });
        self.open.set(self.index.len() * memory::FILE_BYTES);
        file.place.set(Some(slot));
        // It was read with the open, by the pool.
        if let Some(body) = file.body() {
            self.put_new_body(slot, &body);
        }
        Insertion::New(file)
    }

    /// Is there room for one more file? If not, a little is done for those that ask.
    fn has_room_for_file(&mut self) -> bool {
        let most = self.files_max();
        for _ in 0..FILES_FOR_ONE {
            if self.index.len() > most {
                self.evict();
            }
        }
        if self.index.len() < most {
            return true;
        }
        if most == 0 || !self.slow_hand_of_files.moves() {
            return false;
        }
        let mut looks = (0..LOOKS_MAX).map(|_| self.look_for_file());
        looks.find(|look| *look != Look::Nothing) == Some(Look::Evicted)
    }

    /// Files that may be kept now.
    fn files_max(&self) -> usize {
        let of_all = self.descriptors / DESCRIPTORS_OF_ALL / memory::loops();
        (self.descriptors / DESCRIPTORS_OF_A_LOOP)
            .min(of_all)
            .min(memory::files_of_a_loop())
            .min(FILES_MAX)
    }

    /// The entry of a path.
    pub(crate) fn entry(&mut self, path: &[u8]) -> Option<&mut FileEntry> {
        let slot = self.slot(path)?;
        self.slots[slot as usize].as_mut()
    }

    /// Keeps a body with its file, if the file is kept and was used before, and there is room.
    pub(crate) fn keep_body(&mut self, file: &OpenFile, body: &Bytes) {
        if let Some(slot) = file.place.get()
            && self.takes_body(file, body.len())
        {
            self.put_body(slot, body);
        }
    }

    /// Is the file kept, was it used before, has it no body yet, and is there room for one?
    pub(crate) fn takes_body(&mut self, file: &OpenFile, len: usize) -> bool {
        let Some(slot) = file.place.get() else {
            return false;
        };
        let uses = self.slots[slot as usize].as_ref().map(|entry| entry.uses);
        if file.counted.get() > 0 || uses.is_none_or(|uses| uses < BODY_USES) {
            return false;
        }
        let has_room = self.has_room(len);
        if !has_room && let Some(entry) = &mut self.slots[slot as usize] {
            // It does not ask with every use.
            entry.uses = 0;
        }
        has_room
    }

    /// Is there room for a body? If not, a little is done for those that ask.
    fn has_room(&mut self, len: usize) -> bool {
        let most = body_bytes_max();
        if self.body_bytes + len > most && !self.slow_hand.moves() {
            return false;
        }
        for _ in 0..LOOKS_MAX {
            if self.body_bytes + len <= most || self.look_for_body() == Look::InUse {
                break;
            }
        }
        self.body_bytes + len <= most
    }

    /// Is the file kept, and was it used since it was opened (and lately, where more are in use than may be kept)?
    pub(crate) fn is_used_again(&self, file: &OpenFile) -> bool {
        let slot = file.place.get();
        let entry = slot.and_then(|slot| self.slots[slot as usize].as_ref());
        entry.is_some_and(|entry| entry.used)
    }

    /// Will the file's body have a copy after some more uses?
    pub(crate) fn wants_copy(&self, file: &OpenFile) -> bool {
        let slot = file.place.get();
        let entry = slot.and_then(|slot| self.slots[slot as usize].as_ref());
        entry.is_some_and(|entry| entry.wants_copy)
    }

    /// The same for one that was read with the open.
    fn put_new_body(&mut self, slot: u32, body: &Bytes) {
        let most = body_bytes_max();
        for _ in 0..BODY_LOOKS_MAX {
            if self.body_bytes + body.len() <= most || self.body_bytes == 0 {
                break;
            }
            self.look_for_body();
        }
        if self.body_bytes + body.len() <= most {
            self.put_body(slot, body);
        } else if let Some(entry) = &self.slots[slot as usize] {
            entry.file.drop_body();
        }
    }

    fn put_body(&mut self, slot: u32, body: &Bytes) {
        let Some(entry) = &mut self.slots[slot as usize] else {
            return;
        };
        entry.file.set_body(body);
        entry.file.counted.set(body.len());
        entry.wants_copy = body.len() >= COPY_MIN;
        self.body_bytes += body.len();
    }

    /// Gives a piece its body: in the heap, until it has a copy. False: it gets none.
    pub(crate) fn place_body(&mut self, file: &OpenFile, body: &Bytes) -> bool {
        let copy = self.copies.begin(body, file.unsent.get());
        let is_copied = copy.is_some();
        file.set_body(body);
        file.set_copy(copy);
        is_copied
    }

    /// Drops up to `count` bodies, while there are more than allowed now. False: there is nothing more to drop.
    pub(crate) fn shed_bodies(&mut self, count: usize) -> bool {
        let (most, mut dropped) = (body_bytes_max(), 0);
        for _ in 0..BODY_LOOKS_MAX {
            if self.body_bytes <= most || dropped == count {
                break;
            }
            dropped += usize::from(self.look_for_body() == Look::Evicted);
        }
        self.body_bytes > most
    }

    /// Evicts entries until `to` are left.
    pub(crate) fn shrink(&mut self, to: usize) {
        while self.index.len() > to {
            self.evict();
        }
    }

    /// Drops, in the slots `from .. from + count`, files that were not requested since the last sweep, and those that
    /// have changed (a deleted file's blocks are not free while it is open). False: that was the end of the table.
    pub(crate) fn sweep(&mut self, from: usize, count: usize) -> bool {
        let end = (from + count).min(self.slots.len());
        for at in from..end {
            let Some(entry) = &mut self.slots[at] else {
                continue;
            };
            let has_changed = !is_as_it_was(&entry.file);
            if !std::mem::take(&mut entry.asked) || has_changed {
                match has_changed {
                    true => self.remove(slot_number(at)),
                    false => self.let_go(slot_number(at)),
                }
            }
        }
        end < self.slots.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    fn slot(&self, path: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(path);
        let same = |slot: &u32| {
            self.slots[*slot as usize]
                .as_ref()
                .is_some_and(|entry| *entry.path == *path)
        };
        self.index.find(hash, same).copied()
    }

    fn remove(&mut self, slot: u32) {
        let Some(entry) = self.slots[slot as usize].take() else {
            return;
        };
        if let Ok(found) = self.index.find_entry(entry.hash, |other| *other == slot) {
            found.remove();
        }
        self.open.set(self.index.len() * memory::FILE_BYTES);
        self.forget_body(&entry.file);
        entry.file.place.set(None);
        self.free.push(slot);
    }

    /// Removes a file, and takes its body away: other holders may keep the file for long (`open_file_cache`), and read it
    /// then. (Of one that has changed they keep the body, which goes with its metadata.)
    fn let_go(&mut self, slot: u32) {
        let entry = self.slots[slot as usize].as_ref();
        let file = entry.map(|entry| Rc::clone(&entry.file));
        self.remove(slot);
        if let Some(file) = file {
            file.drop_body();
        }
    }

    /// Takes a file's body out of the accounts.
    fn forget_body(&mut self, file: &OpenFile) {
        self.body_bytes -= file.counted.take();
    }

    /// Moves the hand by a place, and drops the body there if its file was not used since the hand last passed.
    fn look_for_body(&mut self) -> Look {
        self.hand = (self.hand + 1) % self.slots.len();
        match &mut self.slots[self.hand] {
            Some(entry) if entry.used => {
                // Without a body it keeps its mark, by which files are evicted.
                entry.used = entry.file.counted.get() == 0;
                Look::InUse
            }
            Some(entry) if entry.file.counted.get() > 0 => {
                (entry.uses, entry.wants_copy) = (0, false);
                let file = Rc::clone(&entry.file);
                self.forget_body(&file);
                file.drop_body();
                Look::Evicted
            }
            _ => Look::Nothing,
        }
    }

    /// Removes one entry: the first after the hand that was not used since the hand last passed, or the last of so many that
    /// were.
    fn evict(&mut self) {
        let mut in_use = 0;
        for _ in 0..self.slots.len() + LOOKS_MAX {
            match self.look_for_file() {
                Look::Evicted => return,
                Look::InUse => in_use += 1,
                Look::Nothing => {}
            }
            if in_use == LOOKS_MAX {
                return self.let_go(slot_number(self.hand));
            }
        }
    }

    /// Moves the hand by a place, and removes the file there if it was not used since the hand last passed.
    fn look_for_file(&mut self) -> Look {
        self.hand = (self.hand + 1) % self.slots.len();
        match &mut self.slots[self.hand] {
            Some(entry) if entry.used => {
                entry.used = false;
                Look::InUse
            }
            Some(_) => {
                self.let_go(slot_number(self.hand));
                Look::Evicted
            }
            None => Look::Nothing,
        }
    }
}

fn slot_number(at: usize) -> u32 {
    u32::try_from(at).expect("there are at most FILES_MAX slots")
}

/// Bytes of bodies that one loop may keep now.
pub(crate) fn body_bytes_max() -> usize {
    if memory::level::level() >= MemoryLevel::Copies {
        return 0;
    }
    let share = usize::try_from(memory::copies_of_a_loop()).unwrap_or(usize::MAX);
    share.min(BODY_BYTES_MAX)
}

fn is_as_it_was(file: &OpenFile) -> bool {
    rustix::fs::fstat(file.as_fd()).is_ok_and(|stat| Meta::from_stat(&stat) == *file.meta())
}

/// Will the next change of this file show in its time stamp? A change in the same tick of the kernel's clock as the
/// last one would not (before the finer stamps of Linux 6.13).
fn is_settled(meta: &Meta) -> bool {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_nanos() as i128);
    now - (i128::from(meta.ctime) * 1_000_000_000 + i128::from(meta.ctime_nsec)) > SETTLED_NS
}
