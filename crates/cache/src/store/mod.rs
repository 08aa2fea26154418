//! One cache on one disk: its directory, index, space and journal together.
//!
//! A hit is [`Store::find`]. A fill is [`Store::begin`], then pieces, then [`EntryWriter::finish`]. [`Store::sweep`]
//! keeps the directory within its limits, and [`DirectoryWalk`] finds the entries that the journal does not know. A
//! store is shared by all loops; each passes its own [`Local`], and every wait is for the directory's pool.
//!
//! Not here: requests to the origin, and the requests that wait for them. Invariants: an entry gets its name when it is
//! complete; its space is reserved before it is written and given back when its file is gone; a damaged entry is
//! deleted and never served.

mod check;
mod distrust;
mod entry_writer;
mod limits;
mod lookup;
mod overhead;
mod publish_order;
mod purge;
mod purge_mark;
mod removal;
mod renew;
mod room;
mod segments;
mod sweep;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests;
mod verify;
mod walk;
mod written_body;

pub use check::Checked;
pub use entry_writer::{EntryWriter, WRITE_BYTES};
pub use lookup::{Hit, LookupOutcome, Miss, Uses};
pub use purge_mark::purge_mark;
pub use renew::Renewal;
pub use segments::{Conversion, SegmentMetrics};
pub use verify::{Checks, verify_blocks};
pub use walk::DirectoryWalk;
pub(crate) use walk::is_temp;
pub use written_body::WrittenBody;

use crate::entry::Entry;
use crate::error::{EntryFault, Error};
use crate::index::{Cursor, Displaced, Index, KeyState, KnownKey};
use crate::journal::{
    Journal, JournalRecord, Recovered, TEMP_BYTES, TICKET_RECORDS_MAX, Ticket, push_temp,
};
use crate::key::{Directory, Key, LEVELS_MAX, Levels};
use crate::purge::{FetchMoment, PurgeRules};
use crate::segments::ENTRY_BYTES_MAX;
use crate::space::{Reservation, Space, SpaceLimits};
use disk::{BatchStep, Disk, Errno, GroupCommit, Local, Pool, READ_MAX, STEPS_MAX};
use hashbrown::HashSet;
use message::date::Seconds;
use parking_lot::Mutex;
use publish_order::PublishOrder;
use removal::{Epochs, PendingDelete};
use segments::LostEntries;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Permissions of entries and of directories.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Maximum of files that one job deletes.
pub const DELETE_MAX: usize = 32;
/// Lost entries whose records one job of a start writes.
const LOST_OF_JOB: usize = 4096;
/// One job holds a small entry's directories, the files deleted for it and its own steps (`entry_writer`); or deleted
/// files and their records in the journal.
const _: () = assert!(LEVELS_MAX + DELETE_MAX + 3 <= STEPS_MAX);
const _: () = assert!(DELETE_MAX + DELETE_MAX.div_ceil(TICKET_RECORDS_MAX) <= STEPS_MAX);
/// Maximum of directories that are counted. (`levels=2:2:2` has 16 million; the rest is not counted.)
pub const DIRECTORIES_MAX: usize = 1 << 17;

/// Where entries lie (`store=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreKind {
    /// Each in a file of its own.
    #[default]
    Files,
    /// Small ones that come whole in segments, which hold many; all others in files of their own.
    Segments,
}

/// The parameters of `proxy_cache_path`.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// The directory: an absolute path, without a slash at its end. It exists and is writable.
    pub directory: Vec<u8>,
    /// `levels`.
    pub levels: Levels,
    /// Bytes of `keys_zone`.
    pub zone_bytes: u64,
    /// `max_size`, in bytes.
    pub max_bytes: Option<u64>,
    /// `min_free`, in bytes.
    pub min_free_bytes: u64,
    /// `inactive`, in seconds.
    pub inactive: Seconds,
    /// `store`.
    pub kind: StoreKind,
    /// The device that the segments lie on; None: they are files of the directory.
    pub device: Option<DeviceSettings>,
    /// The pool that does the work on files.
    pub pool: Pool,
}

/// A device for segments. The directory beside it has the journal, and the entries that have files of their own.
#[derive(Clone, Debug)]
pub struct DeviceSettings {
    /// Its name, for messages and commands: an absolute path.
    pub path: Vec<u8>,
    /// It, opened for reading and writing, with O_DIRECT.
    pub descriptor: Arc<OwnedFd>,
    /// Maximum of bytes of the directory (`files_size`); `max_bytes` is the device's.
    pub files_bytes: u64,
}

/// Totals since the start, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// Entries written.
    pub stored: u64,
    /// Fills that were not stored: no room, a full pool, a failing disk.
    pub shed: u64,
    /// Entries deleted for room, `inactive` or a full zone.
    pub evicted: u64,
    /// Entries deleted because they were damaged.
    pub damaged: u64,
    /// Files of evicted entries that could not be deleted; their blocks count until a sweep deletes them.
    pub undeleted: u64,
    /// Entries that purges covered, by key, prefix or tag.
    pub purged: u64,
}

/// One cache. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store(Arc<StoreInner>);

#[derive(Debug)]
struct StoreInner {
    settings: StoreSettings,
    /// Shared with the jobs that fill it at a start.
    index: Arc<Index>,
    space: Space,
    journal: Journal,
    /// Groups the jobs that write small entries with files of their own.
    group: GroupCommit,
    /// The small entries, if they lie in segments.
    segments: Option<segments::SegmentStore>,
    disk: Arc<Disk>,
    /// The next fetch's tag. Within a process, tags increase in the order in which origins are asked.
    next_tag: AtomicU32,
    /// `inactive`, in seconds; a reload may change it.
    inactive: AtomicI64,
    /// May there be entries that the index does not know?
    is_cold: AtomicBool,
    /// May a later start find what purges cover that were forgotten: what the walk could not read, or a segment whose
    /// header stays as it was?
    may_leave_out: AtomicBool,
    /// Directories that are counted, with a block each.
    directories: Mutex<HashSet<Directory>>,
    /// Space reserved for the journal when it was last counted.
    journal_room: Mutex<Reservation>,
    /// Bytes that the journal may grow to before it is counted again.
    journal_counted: AtomicU64,
    /// Space taken by foreign files in the directory.
    foreign_room: Mutex<Reservation>,
    pending_deletes: Mutex<VecDeque<PendingDelete>>,
    epochs: Epochs,
    publish_order: PublishOrder,
    rules: PurgeRules,
    /// The running purge pass of the sweep through the index.
    pass: Mutex<Option<purge::PurgePass>>,
    /// Was every entry distrusted since the start? Then memory proves nothing of the disk.
    was_distrusted: AtomicBool,
    /// Is the file made that says that purges are pending?
    is_purge_marked: tokio::sync::Mutex<bool>,
    stored: AtomicU64,
    shed: AtomicU64,
    evicted: AtomicU64,
    damaged: AtomicU64,
    undeleted: AtomicU64,
    purged: AtomicU64,
}

impl Store {
    /// Opens a cache directory and locks it. On return, the index holds the keys that the journal knows. If the journal
    /// may be incomplete (`Recovered::is_complete`), unknown keys are looked up on the disk until a [`DirectoryWalk`]
    /// has finished.
    ///
    /// # Errors
    /// [`Error::InUse`]; [`Error::Disk`].
    pub async fn open(local: &Local, settings: StoreSettings) -> Result<(Self, Recovered), Error> {
        let (directory, pool) = (&settings.directory, &settings.pool);
        let room = local.room(directory, pool).await?;
        let space = Space::new(&SpaceLimits {
            block_bytes: u32::try_from(room.block_bytes).unwrap_or(u32::MAX),
            max_bytes: settings.max_bytes,
            min_free_bytes: settings.min_free_bytes,
        });
        space.set_free(room.free_blocks);
        let index = Arc::new(Index::of_zone(settings.zone_bytes));
        let (journal, mut recovered) =
            Journal::open(local, directory, settings.levels, pool, &index).await?;
        let (found, lost) = match segments::find(local, &settings, &index, &recovered, &room).await
        {
            Ok(found) => found,
            Err(error) => {
                journal.withdraw().await;
                return Err(error);
            }
        };
        recovered.is_complete &= found.as_ref().is_none_or(|found| !found.is_unknown);
        // Far from the tags of the previous start.
        let first_tag = (journal.generation() as u32).wrapping_mul(0x9E37_79B9);
        let group = GroupCommit::new(pool);
        let store = Self(Arc::new_cyclic(|weak| StoreInner {
            segments: found
                .map(|found| segments::SegmentStore::new(found, weak.clone(), &settings)),
            disk: Arc::clone(local.disk()),
            group,
            inactive: AtomicI64::new(settings.inactive),
            settings,
            index,
            journal,
            next_tag: AtomicU32::new(first_tag),
            is_cold: AtomicBool::new(!recovered.is_complete),
            may_leave_out: AtomicBool::new(false),
            directories: Mutex::default(),
            journal_room: Mutex::new(space.adopt(0)),
            journal_counted: AtomicU64::new(0),
            foreign_room: Mutex::new(space.adopt(0)),
            space,
            pending_deletes: Mutex::default(),
            epochs: Epochs::default(),
            publish_order: PublishOrder::default(),
            rules: PurgeRules::new(recovered.purges.clone()),
            pass: Mutex::default(),
            was_distrusted: AtomicBool::new(false),
            // Whatever a former process has left is changed.
            is_purge_marked: tokio::sync::Mutex::new(!recovered.has_purged()),
            stored: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            undeleted: AtomicU64::new(0),
            purged: AtomicU64::new(0),
        }));
        store.count_all(recovered.foreign_blocks);
        if let Err(error) = store.delete_leftovers(local, &recovered, lost).await {
            // The next try finds the same.
            store.0.journal.clone().withdraw().await;
            return Err(error);
        }
        // A sweep tries again.
        let _ = store.set_purge_mark(local).await;
        store.poke_segments();
        Ok((store, recovered))
    }

    /// The index: for reading, and to note [`KeyState::Seen`] and [`KeyState::Failed`], which have no file.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.0.index
    }

    /// The space of the directory.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.0.space
    }

    /// Bytes that it takes on its disk, reserved ones included; segments count whole.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let space = &self.0.space;
        let segments = self.0.segments.as_ref();
        let segments = segments.map_or(0, |segments| segments.set.bytes_made());
        space.used().saturating_mul(space.block_bytes()) + segments
    }

    /// `max_size`, in bytes; `None`: no limit.
    #[must_use]
    pub fn max_bytes(&self) -> Option<u64> {
        let space = &self.0.space;
        let segments = self.0.segments.as_ref();
        let segments = segments.map_or(0, |segments| segments.set.bytes_max());
        let max = space.max()?.saturating_mul(space.block_bytes());
        Some(max.saturating_add(segments))
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &StoreSettings {
        &self.0.settings
    }

    /// The present moment, to be taken before the origin is asked and passed to [`Store::begin`]: a purge during the
    /// fetch then covers its response too, and the response does not replace one that was requested later.
    #[must_use]
    pub fn moment(&self) -> FetchMoment {
        let tag = self.0.next_tag.fetch_add(1, Relaxed);
        self.0.rules.moment(tag)
    }

    /// Notes a key that has no file: one that was requested ([`KeyState::Seen`]), or whose origin failed
    /// ([`KeyState::Failed`]). A key whose response another request has stored meanwhile keeps it. If another key had
    /// to give way, the returned future deletes its file; no request needs to wait for it.
    ///
    /// # Errors
    /// Of the returned future: [`Error::Disk`]; a sweep tries again.
    #[must_use = "a file is to be deleted"]
    pub fn note(
        &self,
        local: &Local,
        known: &KnownKey,
    ) -> Option<impl Future<Output = Result<(), Error>> + use<>> {
        let is_stored = |known: &KnownKey| known.state == KeyState::Stored;
        let present = self.0.index.peek(&known.key);
        if present.is_some_and(|known| is_stored(&known)) {
            return None;
        }
        let gone = self.take_out(|index| {
            let Displaced { replaced, evicted } = index.put(known);
            // Also a file of this key, if it was stored just now: no write will replace it.
            let gone = replaced.into_iter().chain(evicted);
            gone.filter(is_stored)
        });
        if gone.known.is_empty() {
            return None;
        }
        self.0.evicted.fetch_add(gone.known.len() as u64, Relaxed);
        let (store, local) = (self.clone(), local.clone());
        Some(async move { store.delete(&local, gone).await })
    }

    /// Writes that wait for the disk. If there are many, fills should not be stored.
    #[must_use]
    pub fn writes_waiting(&self) -> usize {
        let segments = self.0.segments.as_ref();
        let appends = segments.map_or(0, segments::SegmentStore::waiting);
        self.0.settings.pool.writes_waiting() + self.0.group.waiting() + appends
    }

    /// May there be entries that the index does not know?
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.0.is_cold.load(Relaxed)
    }

    /// Age of the newest index snapshot on the disk, in seconds; None: there is none yet.
    #[must_use]
    pub fn snapshot_age(&self) -> Option<u64> {
        let age = self.0.journal.snapshot_at()?.elapsed();
        Some(age.map_or(0, |age| age.as_secs()))
    }

    /// The totals since the start.
    #[must_use]
    pub fn counters(&self) -> StoreCounters {
        StoreCounters {
            stored: self.0.stored.load(Relaxed),
            shed: self.0.shed.load(Relaxed),
            evicted: self.0.evicted.load(Relaxed),
            damaged: self.0.damaged.load(Relaxed),
            undeleted: self.0.undeleted.load(Relaxed),
            purged: self.0.purged.load(Relaxed),
        }
    }

    /// Closes the store: writes a snapshot of the index, so that the next start reads one file. To be called after the
    /// last write.
    ///
    /// # Errors
    /// [`Error::Disk`]; nothing is lost.
    pub async fn close(&self, local: &Local) -> Result<(), Error> {
        // A start that finds the journal does not need them.
        let maps = self.write_dead_maps(false).await;
        let closed = self.0.journal.clone().close(local, &self.0.index).await;
        closed.and(maps)
    }

    /// Gives the directory to the next process that asks for it. Entries that were found can be read further; what would
    /// change the directory fails with [`Error::InUse`] from now on. Returns once the lock is free. No sweep or walk may
    /// be running.
    ///
    /// # Errors
    /// [`Error::Disk`]; nothing is lost.
    pub async fn give_up(&self, local: &Local) -> Result<(), Error> {
        self.close_segments().await;
        self.0.journal.give_up(local).await
    }

    /// The path of a key's entry.
    #[must_use]
    pub fn path(&self, key: &Key) -> Vec<u8> {
        let StoreSettings {
            directory, levels, ..
        } = &self.0.settings;
        // Exact: most paths are boxed.
        let mut path = Vec::with_capacity(directory.len() + 1 + levels.path_len());
        path.extend_from_slice(directory);
        path.push(b'/');
        key.push_path(*levels, &mut path);
        path
    }

    /// The path of a fill's temp file, in the directory of the entry.
    #[must_use]
    pub fn temp_path(&self, key: &Key, tag: u32) -> Vec<u8> {
        let mut path = self.path(key);
        path.reserve_exact(TEMP_BYTES);
        push_temp(&mut path, tag);
        path
    }

    /// Counts what is there, and sets the limits.
    fn count_all(&self, foreign_blocks: u64) {
        let set = &self.0.settings;
        self.limit(set.max_bytes, set.min_free_bytes, set.inactive);
        let small = self.count_what_is_there();
        self.count_foreign(foreign_blocks);
        self.keep_small_files(small);
        self.pay_for_segments();
    }

    /// Counts the blocks of the entries that the journal knew. Returns the bytes of those with small files.
    fn count_what_is_there(&self) -> u64 {
        let (index, space) = (&self.0.index, &self.0.space);
        let (mut cursor, mut small) = (Cursor::default(), 0);
        // A look at millions of entries in segments takes most of a second.
        while index.has_files() {
            let step = index.scan(&mut cursor, crate::index::STEP_MAX);
            if step.is_empty() {
                break;
            }
            let has_file = |known: &&KnownKey| {
                known.state == KeyState::Stored && !known.extent.is_in_segment()
            };
            for known in step.iter().filter(has_file) {
                let blocks = u64::from(known.extent.blocks);
                let bytes = blocks * space.block_bytes();
                small += if bytes <= ENTRY_BYTES_MAX { bytes } else { 0 };
                space.charge(blocks);
                self.count_directories(&known.key, space.adopt(0));
            }
        }
        self.count_journal_found();
        small
    }

    /// Makes the directories of a key.
    async fn make_directories(&self, local: &Local, key: &Key) -> Result<(), Error> {
        let room = self.room_for_directories(local, key).await?;
        let steps = self.directories(key, |_| true);
        local.change(steps, &self.0.settings.pool).await?;
        self.count_directories(key, room);
        Ok(())
    }

    /// Steps that create those directories of a key that are not known to exist.
    fn unknown_directories(&self, key: &Key) -> Vec<BatchStep> {
        let known = self.0.directories.lock();
        let mut all = key.directories(self.0.settings.levels);
        if all.all(|(directory, _)| known.contains(&directory)) {
            return Vec::new();
        }
        self.directories(key, |directory| !known.contains(directory))
    }

    fn directories(&self, key: &Key, is_wanted: impl Fn(&Directory) -> bool) -> Vec<BatchStep> {
        let settings = &self.0.settings;
        let place = key.path(settings.levels);
        let path = |end| [&settings.directory[..], b"/", &place.as_bytes()[..end]].concat();
        key.directories(settings.levels)
            .filter(|(directory, _)| is_wanted(directory))
            .map(|(_, end)| BatchStep::Directory(path(end).into(), DIRECTORY_MODE))
            .collect()
    }

    /// Does the index know an entry with a file of its own under this key?
    fn has(&self, key: &Key) -> bool {
        self.0.index.peek(key).is_some_and(|known| has_file(&known))
    }

    /// Deletes the temp files that a killed process left, and the entries for which the index had no room. What cannot
    /// be deleted now is left to a sweep. Records which entries in segments are `lost`.
    async fn delete_leftovers(
        &self,
        local: &Local,
        recovered: &Recovered,
        lost: LostEntries,
    ) -> Result<(), Error> {
        for (key, tag) in &recovered.unfinished {
            let _ = self.delete_cut(local, key, *tag).await;
        }
        for part in recovered.unfinished.chunks(DELETE_MAX) {
            if self.delete_temps(local, part).await.is_err() {
                let lost = part.iter().map(|temp| PendingDelete {
                    temp: Some(*temp),
                    victims: Vec::new(),
                    room: self.0.space.adopt(0),
                    epoch: None,
                    failures: 0,
                });
                self.0.pending_deletes.lock().extend(lost);
            }
        }
        self.0.journal.write_rest(local).await?;
        for part in lost.chunks(LOST_OF_JOB) {
            let gone = |&(key, tag): &(Key, u32)| JournalRecord::Remove { key, tag };
            let tickets = self.0.journal.tickets(part.iter().map(gone))?;
            let steps = tickets.iter().map(Ticket::step).collect();
            local.change(steps, &self.0.settings.pool).await?;
        }
        drop(lost);
        let has_file = |known: &&KnownKey| !known.extent.is_in_segment();
        for known in recovered.evicted.iter().filter(has_file) {
            // Its blocks were never counted.
            self.0.space.charge(u64::from(known.extent.blocks));
        }
        let evicted = recovered.evicted.clone();
        let _ = self.delete(local, self.take_out(|_| evicted)).await;
        Ok(())
    }

    /// Checks the file of an entry whose writer was killed, and deletes it if it is incomplete. If it still is the file
    /// that was to be replaced, the index gets that entry instead, with its own age; pending purges may cover it.
    async fn delete_cut(&self, local: &Local, key: &Key, tag: u32) -> Result<(), Error> {
        let pool = &self.0.settings.pool;
        let is_it = |known: &KnownKey| known.state == KeyState::Stored && known.extent.file == tag;
        let Some(known) = self.0.index.peek(key).filter(is_it) else {
            return Ok(());
        };
        let (head, meta) = match local.read_front(&self.path(key), READ_MAX, pool).await {
            Ok(front) => front,
            Err(error) => {
                if error.errno() == Some(Errno::NOENT) {
                    self.forget(&known);
                }
                return Ok(());
            }
        };
        let is_cut = match Entry::decode(&head, meta.len) {
            Ok(entry) if entry.key() == *key && entry.tag() != tag => {
                let used = known.used;
                self.learn(local, &entry, meta.len, Some(known), used)
                    .await?;
                false
            }
            Ok(entry) => entry.key() != *key,
            Err(EntryFault::Needs(more)) => more as u64 > meta.len,
            Err(_) => true,
        };
        if !is_cut {
            return Ok(());
        }
        let cut = self.take_out(|index| index.remove_entry(key, tag));
        self.delete(local, cut).await
    }

    /// Deletes temp files, at most [`DELETE_MAX`].
    async fn delete_temps(&self, local: &Local, fills: &[(Key, u32)]) -> Result<(), Error> {
        if fills.is_empty() {
            return Ok(());
        }
        let unlink = |(key, tag): &(Key, u32)| BatchStep::Unlink(self.temp_path(key, *tag).into());
        let steps = fills.iter().map(unlink).collect();
        local.change(steps, &self.0.settings.pool).await?;
        for (key, tag) in fills {
            self.0.journal.ended(*key, *tag);
        }
        Ok(())
    }
}

/// The blocks of an entry with a file that was taken out of the index; they count until the result is dropped.
fn blocks_of(space: &Space, known: &KnownKey) -> Option<Reservation> {
    has_file(known).then(|| space.adopt(u64::from(known.extent.blocks)))
}

/// Has it a file of its own?
fn has_file(known: &KnownKey) -> bool {
    known.state == KeyState::Stored && !known.extent.is_in_segment()
}
