//! Writing an entry. A large one goes to a temp file in the same directory, which is renamed when it is complete; a
//! small one is written by one job, under its own name if no reader can open it yet.

use super::publish_order::PublishTurn;
use super::removal::{ClaimedFiles, EpochGuard, PendingDelete, Removed, blocks_in_files};
use super::room::PlannedPlace;
use super::segments::AppendKind;
use super::{FILE_MODE, Store};
use crate::entry::{Description, EntryEncoder, Finished, PROLOGUE_BYTES};
use crate::error::Error;
use crate::freshness::FieldLine;
use crate::index::{self, Displaced, KeyState, KnownKey, Varies};
use crate::journal::{JournalRecord, Ticket, temp_ending};
use crate::key::Key;
use crate::purge::{FetchMoment, PurgeFilter};
use crate::space::Reservation;
use bytes::Bytes;
use disk::{BatchStep, Create, Errno, Local, NewFile, Output, in_place};
use message::date::Seconds;
use smallvec::SmallVec;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

/// Bytes that are collected before a write: an entry of at most this size is one job of the pool.
pub const WRITE_BYTES: usize = 256 << 10;

/// An entry that is being written. If it is dropped before its end, the next sweep deletes its temp file;
/// [`EntryWriter::abandon`] deletes it at once.
#[derive(Debug)]
#[must_use = "it is to be finished or abandoned"]
pub struct EntryWriter {
    store: Store,
    encoder: EntryEncoder,
    known: KnownKey,
    vary: Bytes,
    reservation: Reservation,
    /// Entries evicted for this one: the reservation includes their blocks; their files are deleted (or reused) when
    /// its own file is made.
    victims: Removed,
    waiting: SmallVec<[Bytes; 1]>,
    waiting_bytes: usize,
    /// The temp file, shared with readers of the written part ([`super::WrittenBody`]).
    output: Arc<OnceLock<Output>>,
    /// May there be a temp file?
    has_temp: bool,
    /// Bytes of the body that are collected before a file is made: for an entry that is to lie in a segment, all of it.
    collected_max: usize,
    moment: FetchMoment,
}

impl Store {
    /// Begins an entry for a response that was requested at `moment`, whose tag it gets ([`Description::tag`] is
    /// overwritten). Nothing is written yet, but space is reserved for the first of `expected` bytes of body (the value
    /// of `Content-Length`, or 0), for which other entries may be evicted.
    ///
    /// # Errors
    /// [`Error::Fault`]: the response cannot be encoded. [`Error::NoRoom`], [`Error::Disk`].
    pub async fn begin<'a>(
        &self,
        local: &Local,
        description: &Description<'_>,
        fields: impl Iterator<Item = FieldLine<'a>>,
        expected: u64,
        now: Seconds,
        moment: FetchMoment,
    ) -> Result<EntryWriter, Error> {
        let description = Description {
            tag: moment.tag(),
            ..*description
        };
        let mut purge_filter = PurgeFilter::of_key(description.main, description.key_text);
        let fields =
            fields.inspect(|(name, value, _)| purge_filter = purge_filter.and_line(name, value));
        let encoder = EntryEncoder::new(&description, fields)?;
        let place = self.place_for(encoder.entry_len(expected));
        let bytes = match place {
            // Its room is the segments'; the reservation is for a file that it may become.
            PlannedPlace::Segment => 0,
            PlannedPlace::File => encoder.entry_len(expected),
        };
        if let Some(segments) = &self.0.segments {
            segments.note_now(now);
        }
        let mut reservation = self.0.space.reserve(0)?;
        let mut victims = Removed::default();
        if bytes > 0 && expected <= WRITE_BYTES as u64 {
            victims = self.make_way(&mut reservation, bytes);
        }
        if let Err(error) = self.grow_first(local, &mut reservation, bytes).await {
            self.0.shed.fetch_add(1, Relaxed);
            let lost = PendingDelete {
                temp: None,
                victims: victims.known,
                room: reservation,
                epoch: victims.epoch,
                failures: 0,
            };
            in_place::boxed(|| self.delete_pending(local, lost, None)).await?;
            return Err(error);
        }
        let known = KnownKey {
            clean_of: moment.number(),
            purge_filter,
            ..self.known_by(&description, now)
        };
        Ok(EntryWriter {
            store: self.clone(),
            encoder,
            known,
            vary: Bytes::copy_from_slice(description.vary),
            reservation,
            victims,
            waiting: SmallVec::new(),
            waiting_bytes: 0,
            output: Arc::default(),
            has_temp: false,
            collected_max: match place {
                PlannedPlace::Segment => self.collected_max(expected),
                PlannedPlace::File => WRITE_BYTES,
            },
            moment,
        })
    }

    /// What the index is to know of an entry, as far as its description says that.
    fn known_by(&self, description: &Description<'_>, now: Seconds) -> KnownKey {
        let names = self.0.index.vary_number(description.vary);
        let varies = match names {
            0 => Varies::default(),
            _ => Varies::of(names, &description.variant),
        };
        let was = self.0.index.peek(&description.key);
        KnownKey {
            state: KeyState::Stored,
            status: description.status,
            lifetime: description.lifetime,
            extent: index::EntryExtent {
                file: description.tag,
                offset: 0,
                blocks: 0,
            },
            varies,
            uses: was.map_or(1, |was| was.uses),
            is_verified: true,
            ..KnownKey::seen(description.key, now)
        }
    }

    /// The key that a response is stored under: its variant's, if that was looked up. (As in nginx, the variant that
    /// came first is the main entry, and a response that does not vary replaces it.)
    #[must_use]
    pub fn key_for(main: Key, looked_for: Option<Key>, variant: Option<Key>) -> Key {
        match looked_for {
            Some(key) if variant == Some(key) => key,
            _ => main,
        }
    }
}

impl EntryWriter {
    /// The entry's key.
    #[must_use]
    pub fn key(&self) -> Key {
        self.known.key
    }

    /// Sets the last purge that the entry is known not to be covered by: that of the entry it is copied from.
    pub(super) fn clean_of(&mut self, number: u32) {
        self.known.clean_of = number;
    }

    pub(super) fn output(&self) -> &Arc<OnceLock<Output>> {
        &self.output
    }

    fn temp_path(&self) -> Vec<u8> {
        self.store
            .temp_path(&self.known.key, self.known.extent.file)
    }

    /// Offset of the body in the file.
    #[must_use]
    pub(crate) fn body_offset(&self) -> u64 {
        self.encoder.entry_len(0)
    }

    /// Bytes of the body so far.
    #[must_use]
    pub fn body_len(&self) -> u64 {
        self.encoder.body_len()
    }

    /// Bytes of the body that are in the file: none before [`WRITE_BYTES`] have come or [`EntryWriter::flush`] was
    /// called.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.encoder.body_len() - self.waiting_bytes as u64
    }

    /// Adds the next bytes of the body. Waits for the disk when [`WRITE_BYTES`] have been collected.
    ///
    /// # Errors
    /// [`Error::NoRoom`], [`Error::Disk`], [`Error::Fault`] (too long), [`Error::Purged`]: it is to be abandoned.
    pub async fn push(&mut self, local: &Local, bytes: Bytes) -> Result<(), Error> {
        // Purges wait for the entries that were evicted for it.
        if self.moment.is_void() {
            return Err(Error::Purged);
        }
        self.encoder.body(&bytes)?;
        self.waiting_bytes += bytes.len();
        self.waiting.push(bytes);
        if self.waiting_bytes < self.collected_max {
            return Ok(());
        }
        in_place::boxed(|| self.flush(local)).await
    }

    /// Writes the collected bytes, for readers that wait for them to be in the file.
    ///
    /// # Errors
    /// As [`EntryWriter::push`].
    pub async fn flush(&mut self, local: &Local) -> Result<(), Error> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.delete_victims(local, None).await?;
        let len = self.encoder.entry_len(self.encoder.body_len());
        self.store.grow(local, &mut self.reservation, len).await?;
        let pool = self.store.0.settings.pool.clone();
        let output = match self.output.get() {
            Some(output) => output.clone(),
            None => {
                let output = self.create(local).await?;
                self.waiting.insert(0, self.encoder.front());
                self.output.get_or_init(|| output).clone()
            }
        };
        let chunks = std::mem::take(&mut self.waiting).into_vec();
        self.waiting_bytes = 0;
        local.append(&output, chunks, &pool).await?;
        self.reservation.written(len);
        Ok(())
    }

    /// Deletes the files of the evicted entries, if they are not reused. `turn`: one that it has.
    async fn delete_victims(
        &mut self,
        local: &Local,
        turn: Option<&PublishTurn>,
    ) -> Result<(), Error> {
        let victims = &self.victims.known;
        let left = self.store.delete_files(local, victims, turn).await?;
        self.leave_to_sweep(left);
        self.victims = Removed::default();
        Ok(())
    }

    /// Takes the places of the evicted entries' files, to be used again or deleted while what is returned lives.
    fn claim_victims(&mut self, turn: &PublishTurn) -> ClaimedFiles {
        let victims = self.victims.known.drain(..);
        let mut claimed = self.store.claim_files(victims, Some(turn));
        self.victims.known = std::mem::take(&mut claimed.gone);
        self.leave_to_sweep(std::mem::take(&mut claimed.left));
        claimed
    }

    /// Leaves evicted entries to a sweep, with the room of their files.
    fn leave_to_sweep(&mut self, victims: Vec<KnownKey>) {
        if victims.is_empty() {
            return;
        }
        let lost = PendingDelete {
            temp: None,
            room: self.reservation.split_off(blocks_in_files(&victims)),
            victims,
            epoch: self.victims.epoch.clone(),
            failures: 0,
        };
        self.store.0.pending_deletes.lock().push_back(lost);
    }

    async fn create(&mut self, local: &Local) -> Result<Output, Error> {
        self.has_temp = true;
        let (store, known) = (&self.store, &self.known);
        let (key, tag) = (known.key, known.extent.file);
        store
            .0
            .journal
            .write(local, &[JournalRecord::Begin { key, tag }])
            .await?;
        let (path, pool) = (self.temp_path(), &store.0.settings.pool);
        match local.create(&path, Create::New, FILE_MODE, pool).await {
            Err(error) if error.errno() == Some(Errno::NOENT) => {
                store.make_directories(local, &key).await?;
                Ok(local.create(&path, Create::New, FILE_MODE, pool).await?)
            }
            result => Ok(result?),
        }
    }

    /// Publishes the entry ([`EntryWriter::publish`]), and abandons it on an error.
    ///
    /// # Errors
    /// As [`EntryWriter::publish`].
    pub async fn finish(mut self, local: &Local) -> Result<KnownKey, Error> {
        let published = self.publish(local).await;
        if let Err(error) = &published {
            // The first error is reported, not that the temp file cannot be deleted either.
            let _ = self.abandon(local, Some(error)).await;
        }
        published
    }

    /// Publishes the entry, whose body is complete: it gets its name, and the index knows it. Returns what the index
    /// knows.
    ///
    /// # Errors
    /// [`Error::NoRoom`], [`Error::Disk`], [`Error::Purged`], [`Error::Superseded`]: it is not stored, and to be
    /// abandoned.
    pub async fn publish(&mut self, local: &Local) -> Result<KnownKey, Error> {
        let store = self.store.clone();
        // Taken before the check whether the fetch is void: a sweep that begins after the check then waits for this
        // guard.
        let epoch = store.0.epochs.begin();
        if self.moment.is_void() {
            return Err(Error::Purged);
        }
        let turn = store.turn(self.known.key, self.known.extent.file).await?;
        if self.is_for_segment() {
            return in_place::boxed(|| self.publish_in_segment(local, turn, epoch)).await;
        }
        self.has_temp = true;
        let finished = self.encoder.finish();
        if self.output.get().is_none() && self.victims.known.is_empty() {
            self.victims = store.make_way(&mut self.reservation, finished.entry_len);
        }
        let claimed = self.claim_victims(&turn);
        store
            .grow(local, &mut self.reservation, finished.entry_len)
            .await?;
        let blocks = store.0.space.blocks(finished.entry_len);
        self.known.extent.blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let entry_len = finished.entry_len;
        let (known, vary) = (self.known, self.vary.clone());
        let mut put = store
            .0
            .journal
            .ticket(&[JournalRecord::Put { known, vary }])?;
        let done = match self.output.get().cloned() {
            None => self.place(local, finished, &mut put, &claimed).await,
            Some(output) => {
                let steps = self.last_steps(output, finished, put.step());
                let done = in_place::boxed(|| local.change(steps, &store.0.settings.pool)).await;
                done.map_err(Error::from)
            }
        };
        // If the record was written without the file, the next start notices when the key is requested.
        if let Err(error) = done {
            put.defer();
            return Err(error);
        }
        for victim in std::mem::take(&mut self.victims).known {
            store.0.journal.gone(victim.key, victim.extent.file);
        }
        self.reservation.shrink_to(entry_len);
        let empty = store.0.space.adopt(0);
        std::mem::replace(&mut self.reservation, empty).keep();
        self.has_temp = false;
        store.0.journal.ended(known.key, known.extent.file);
        let displaced = store.0.index.put(&known);
        drop((put, turn, claimed));
        store.0.stored.fetch_add(1, Relaxed);
        // The entry is stored. A file of another entry that cannot be deleted is counted, and does not fail this one.
        let _ = store.settle(local, displaced, epoch.clone()).await;
        // A sweep that begins from now on finds it in the index; one that began before could not wait for it.
        if self.moment.is_void() {
            in_place::boxed(|| store.drop_purged(local, &known)).await?;
            return Err(Error::Purged);
        }
        Ok(known)
    }

    /// Is it to be appended to a segment, now that it is complete?
    fn is_for_segment(&self) -> bool {
        let segments = self.store.0.segments.as_ref();
        let len = self.encoder.entry_len(self.encoder.body_len());
        self.output.get().is_none() && segments.is_some_and(|segments| segments.takes(len))
    }

    /// Appends the entry to a segment.
    async fn publish_in_segment(
        &mut self,
        local: &Local,
        turn: PublishTurn,
        epoch: EpochGuard,
    ) -> Result<KnownKey, Error> {
        let store = self.store.clone();
        self.delete_victims(local, Some(&turn)).await?;
        let Finished {
            front,
            table,
            entry_len,
        } = self.encoder.finish();
        let mut parts = Vec::with_capacity(self.waiting.len() + 2);
        parts.push(front);
        parts.extend(self.waiting.drain(..));
        parts.push(table);
        let kind = AppendKind::New(self.vary.clone());
        let stored = store.append(self.known, kind, parts, entry_len).await?;
        let known = stored.known;
        store.0.stored.fetch_add(1, Relaxed);
        // While it is this one's turn, no other gives the file a new entry.
        store
            .delete_replaced(local, stored.displaced.replaced, &turn)
            .await;
        drop(turn);
        let displaced = Displaced {
            replaced: None,
            ..stored.displaced
        };
        // The entry is stored, whatever becomes of another's file.
        let _ = store.settle(local, displaced, epoch).await;
        if self.moment.is_void() {
            in_place::boxed(|| store.drop_purged(local, &known)).await?;
            return Err(Error::Purged);
        }
        Ok(known)
    }

    /// The steps that complete the temp file and give it its name.
    fn last_steps(&mut self, output: Output, finished: Finished, put: BatchStep) -> Vec<BatchStep> {
        let (from, to) = (self.temp_path(), self.store.path(&self.known.key));
        let mut rest = std::mem::take(&mut self.waiting).into_vec();
        rest.push(finished.table);
        vec![
            BatchStep::Append(output.clone(), rest),
            BatchStep::Overwrite(output, 0, finished.front.slice(..PROLOGUE_BYTES)),
            put,
            BatchStep::Rename(from.into(), to.into()),
        ]
    }

    /// Makes a small entry in one job, grouped with other writes; creates its directory if that is missing.
    async fn place(
        &mut self,
        local: &Local,
        finished: Finished,
        put: &mut Ticket,
        claimed: &ClaimedFiles,
    ) -> Result<(), Error> {
        let (store, key) = (self.store.clone(), self.known.key);
        let mut steps = store.unknown_directories(&key);
        let new = match steps.is_empty() {
            true => None,
            false => Some(in_place::boxed(|| store.room_for_directories(local, &key)).await?),
        };
        self.push_place(finished, &mut steps, claimed);
        let (log, record) = put.record();
        let (done, steps) = local.change_in(&store.0.group, log, record, steps).await;
        match done {
            // Another program has deleted the directory.
            Err(error) if error.errno() == Some(Errno::NOENT) => {
                in_place::boxed(|| store.make_directories(local, &key)).await?;
                in_place::boxed(|| local.change(steps, &store.0.settings.pool)).await?;
            }
            done => done?,
        }
        if let Some(room) = new {
            store.count_directories(&key, room);
        }
        Ok(())
    }

    /// Adds the steps that make the file. Deletions come before the write, so that the directory never exceeds its
    /// limit.
    fn push_place(
        &mut self,
        finished: Finished,
        steps: &mut Vec<BatchStep>,
        claimed: &ClaimedFiles,
    ) {
        let (store, key) = (&self.store, &self.known.key);
        let mut contents = Vec::with_capacity(self.waiting.len() + 2);
        contents.push(finished.front);
        contents.extend(self.waiting.drain(..));
        contents.push(finished.table);
        let mut files = claimed.own.iter().map(|key| store.path(key).into());
        let file = NewFile {
            path: store.path(key).into(),
            ending: temp_ending(self.known.extent.file),
            is_watched: store.is_cold() || store.has(key),
            from: files.next(),
            mode: FILE_MODE,
            contents,
        };
        steps.extend(files.map(BatchStep::Unlink));
        steps.push(BatchStep::Create(file));
    }

    /// Abandons the entry: deletes the temp file and gives the space back. `because`: the error that prevents it from
    /// being stored, if one does; only want of room and a disk that fails count as shed.
    ///
    /// # Errors
    /// [`Error::Disk`]; a sweep tries again, and the space counts until then.
    pub async fn abandon(mut self, local: &Local, because: Option<&Error>) -> Result<(), Error> {
        let KnownKey { key, extent, .. } = self.known;
        if matches!(because, Some(Error::NoRoom(_) | Error::Disk(_))) {
            self.store.0.shed.fetch_add(1, Relaxed);
        }
        if self.has_temp {
            self.store
                .delete_temps(local, &[(key, extent.file)])
                .await?;
            self.has_temp = false;
        }
        self.delete_victims(local, None).await
    }
}

impl Drop for EntryWriter {
    /// Leaves the temp file and the evicted entries' files to a sweep.
    fn drop(&mut self) {
        if self.has_temp || !self.victims.known.is_empty() {
            let nothing = self.store.0.space.adopt(0);
            let room = std::mem::replace(&mut self.reservation, nothing);
            let KnownKey { key, extent, .. } = self.known;
            let Removed {
                known: victims,
                epoch,
            } = std::mem::take(&mut self.victims);
            let lost = PendingDelete {
                temp: self.has_temp.then_some((key, extent.file)),
                victims,
                room,
                epoch,
                failures: 0,
            };
            self.store.0.pending_deletes.lock().push_back(lost);
        }
    }
}
