//! Walking the directory to find what the journal does not know: some names at a time, at a pace that the caller sets.
//!
//! It also finds foreign files. Entries of an nginx that used the directory before (32 hexadecimal digits, at the right
//! path) are put into the index as the first to be evicted, and are overwritten by our entries of the same key; nginx's
//! temp files are deleted like ours. Everything else is left alone, and its blocks are subtracted from the cache's
//! space.

use super::publish_order::PublishTurn;
use super::segments::SegmentsWalk;
use super::{Store, has_file};
use crate::entry::Entry;
use crate::error::{EntryFault, Error};
use crate::index::{EntryExtent, KeyState, KnownKey};
use crate::journal::{FOLDER, temp_of};
use crate::key::{KEY_BYTES, Key};
use crate::segments::SEGMENTS_FOLDER;
use disk::{Access, BatchStep, EntryName, Errno, FileKind, Local, Meta};
use message::date::Seconds;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Names that one step looks at (nginx's default for `loader_files`).
pub(super) const NAMES_OF_STEP: usize = 100;
/// Pause of a step that comes to an entry which is just being written.
const WRITING_TICK: Duration = Duration::from_millis(5);
/// Seconds since the last write for which a temp file is left to the next walk.
const TEMP_AGE: Seconds = 60;
/// Attempts to list a directory, each after all others, until its entries count as lost.
const LIST_ATTEMPTS: u32 = 3;
/// Bytes of a file that the first read of its head asks for.
const HEAD_BYTES: usize = 4096;
/// The tag of an entry that cannot be used: no tag is older or newer than it.
const NO_TAG: u32 = 0;
/// Digits of the number in the names of nginx's temp files (`KEY.0000000001`).
const NGINX_TEMP_DIGITS: usize = 10;

/// A walk through a cache directory.
#[derive(Debug)]
pub struct DirectoryWalk {
    store: Store,
    /// Directories that were not visited yet.
    left: Vec<WalkDirectory>,
    /// The directory that is being visited, and its remaining names.
    current: Option<(WalkDirectory, std::vec::IntoIter<EntryName>)>,
    /// Blocks of foreign files.
    foreign_blocks: u64,
    /// The file system of the cache.
    dev: Option<u64>,
    /// The segments, which come first.
    segments: Option<SegmentsWalk>,
    /// Was anything left out, because it cannot be listed, read or deleted? The next start walks again.
    is_partial: bool,
}

#[derive(Clone, Debug)]
struct WalkDirectory {
    /// The path relative to the cache directory, with a slash at its end.
    path: Vec<u8>,
    /// Is it a foreign directory?
    is_foreign: bool,
    /// Attempts to list it that failed.
    failures: u32,
}

impl WalkDirectory {
    /// Has another program deleted it, below the cache's own directory?
    fn is_gone(&self, error: &disk::Error) -> bool {
        let is_missing = matches!(error.errno(), Some(Errno::NOENT | Errno::NOTDIR));
        is_missing && !self.path.is_empty()
    }
}

impl DirectoryWalk {
    /// A walk from the beginning.
    #[must_use]
    pub fn new(store: &Store) -> Self {
        let root = WalkDirectory {
            path: Vec::new(),
            is_foreign: false,
            failures: 0,
        };
        Self {
            store: store.clone(),
            left: vec![root],
            current: None,
            foreign_blocks: 0,
            dev: None,
            segments: SegmentsWalk::new(store),
            is_partial: false,
        }
    }

    /// Looks at the next names, at most `NAMES_OF_STEP`. True: those were the last, the index knows every entry, and
    /// the journal records that.
    ///
    /// # Errors
    /// [`Error::Disk`]: the step is to be repeated.
    pub async fn step(
        &mut self,
        local: &Local,
        access: &Access<'_>,
        now: Seconds,
    ) -> Result<bool, Error> {
        if let Some(segments) = &mut self.segments {
            if segments.step(local, &self.store).await? {
                self.is_partial |= segments.is_partial;
                self.segments = None;
            }
            return Ok(false);
        }
        if self.current.is_none() {
            self.begin_directory(local, access).await?;
        }
        for _ in 0..NAMES_OF_STEP {
            let Some((directory, names)) = &mut self.current else {
                break;
            };
            let Some(name) = names.as_slice().first().cloned() else {
                self.current = None;
                break;
            };
            let directory = directory.clone();
            if !self.look_at(local, access, &directory, &name, now).await? {
                tokio::time::sleep(WRITING_TICK).await;
                break;
            }
            // Only after success, so that a name that failed is tried again.
            self.current.as_mut().and_then(|(_, names)| names.next());
        }
        if self.current.is_some() || !self.left.is_empty() {
            return Ok(false);
        }
        self.store.count_foreign(self.foreign_blocks);
        self.end(local).await?;
        self.store.pay_for_segments();
        self.store.compact(local).await?;
        Ok(true)
    }

    /// From now on the index alone is asked. Where something was left out, purges are forgotten all the same, as they
    /// would soon be too many.
    async fn end(&self, local: &Local) -> Result<(), Error> {
        let inner = &self.store.0;
        if self.is_partial {
            inner.may_leave_out.store(true, Relaxed);
            inner.is_cold.store(false, Relaxed);
            return Ok(());
        }
        if inner.journal.has_left_out() {
            // What counts as purged in segments is not found again.
            self.store.write_dead_maps(true).await?;
        }
        inner.is_cold.store(false, Relaxed);
        inner.journal.walked(local, self.foreign_blocks).await
    }

    /// Blocks of foreign files found so far.
    #[cfg(test)]
    pub(crate) fn foreign_blocks(&self) -> u64 {
        self.foreign_blocks
    }

    async fn begin_directory(&mut self, local: &Local, access: &Access<'_>) -> Result<(), Error> {
        if self.dev.is_none() {
            let root = &self.store.0.settings.directory;
            self.dev = Some(local.stat(root, access).await?.dev);
        }
        let Some(directory) = self.left.last().cloned() else {
            return Ok(());
        };
        let names = local.names(&self.path(&directory.path), access.pool).await;
        let names = match names {
            // Foreign directories need not be readable.
            Err(error) if directory.is_foreign && error.errno().is_some() => Vec::new(),
            Err(error) if directory.is_gone(&error) => Vec::new(),
            Err(error) => return self.put_off(error),
            Ok(names) => names,
        };
        self.left.pop();
        self.current = Some((directory, names.into_iter()));
        Ok(())
    }

    /// Leaves the next directory, which could not be listed, until the others were visited; after some attempts, for
    /// good.
    fn put_off(&mut self, error: disk::Error) -> Result<(), Error> {
        let is_below = |directory: &mut WalkDirectory| !directory.path.is_empty();
        if error.errno().is_some()
            && let Some(mut directory) = self.left.pop_if(is_below)
        {
            directory.failures += 1;
            match directory.failures < LIST_ATTEMPTS {
                true => self.left.insert(0, directory),
                false => self.is_partial = true,
            }
        }
        Err(error.into())
    }

    fn path(&self, relative: &[u8]) -> Vec<u8> {
        [&self.store.0.settings.directory[..], b"/", relative].concat()
    }

    /// Looks at a name. False: that is to be done later.
    async fn look_at(
        &mut self,
        local: &Local,
        access: &Access<'_>,
        directory: &WalkDirectory,
        name: &EntryName,
        now: Seconds,
    ) -> Result<bool, Error> {
        let relative = [&directory.path[..], &name.name].concat();
        let is_ours = !directory.is_foreign;
        match name.kind {
            FileKind::Directory if is_ours && is_level(&name.name) => self.enter(relative, false),
            FileKind::Directory if is_ours && is_own_folder(&relative) => {}
            FileKind::File if is_ours && is_temp(&name.name) => {
                self.delete_old_temp(local, access, &relative, name, now)
                    .await?;
            }
            FileKind::File if is_ours && self.key_of(&relative, &name.name).is_some() => {
                let key = self.key_of(&relative, &name.name);
                let key = key.unwrap_or(Key([0; KEY_BYTES]));
                return self.look_at_entry(local, access, &key, now).await;
            }
            _ => self.count_foreign(local, access, relative).await?,
        }
        Ok(true)
    }

    /// Looks at the file of a key: the index may know it, or gets it, unless the key's entry is in a segment by now.
    /// False: it is just being written.
    async fn look_at_entry(
        &mut self,
        local: &Local,
        access: &Access<'_>,
        key: &Key,
        now: Seconds,
    ) -> Result<bool, Error> {
        let store = self.store.clone();
        // While it is this one's turn, the key's entry gets no other place.
        let Some(turn) = store.try_turn(*key) else {
            return Ok(false);
        };
        let known = store.0.index.peek(key);
        let known = known.filter(|known| known.state == KeyState::Stored);
        match known {
            Some(known) if has_file(&known) => {}
            None if !store.0.journal.has_left_out() => {
                self.adopt(local, access, key, now).await?;
                drop(turn);
            }
            // No entry's: the index did not know it when that in the segment took its place. Or it counts as purged.
            _ => match store.unlink(local, turn).await {
                Err(error) if self.leaves_out(&error) => {}
                done => done?,
            },
        }
        Ok(true)
    }

    /// Notes that something cannot be read or deleted. False: the error says nothing of it.
    fn leaves_out(&mut self, error: &Error) -> bool {
        let of_process = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
        let is_its = (error.errno()).is_some_and(|errno| !of_process.contains(&errno));
        self.is_partial |= is_its;
        is_its
    }

    fn enter(&mut self, relative: Vec<u8>, is_foreign: bool) {
        self.left.push(WalkDirectory {
            path: [&relative[..], b"/"].concat(),
            is_foreign,
            failures: 0,
        });
    }

    /// The key of an entry that lies at the path of its key.
    fn key_of(&self, relative: &[u8], name: &[u8]) -> Option<Key> {
        let levels = self.store.0.settings.levels;
        Key::from_name(name).filter(|key| key.path(levels).as_bytes() == relative)
    }

    /// Counts a foreign file. A foreign directory is entered, unless another file system is mounted there.
    async fn count_foreign(
        &mut self,
        local: &Local,
        access: &Access<'_>,
        relative: Vec<u8>,
    ) -> Result<(), Error> {
        let meta = match local.stat(&self.path(&relative), access).await {
            Ok(meta) => meta,
            Err(error) if error.errno().is_some() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if Some(meta.dev) == self.dev {
            self.foreign_blocks += self.store.0.space.blocks(meta.len.max(1));
            if meta.kind == FileKind::Directory {
                self.enter(relative, true);
            }
        }
        Ok(())
    }

    /// Deletes a temp file whose writer is gone.
    async fn delete_old_temp(
        &self,
        local: &Local,
        access: &Access<'_>,
        relative: &[u8],
        name: &EntryName,
        now: Seconds,
    ) -> Result<(), Error> {
        let store = &self.store;
        let path = self.path(relative);
        let is_running =
            temp_of(&name.name).is_some_and(|(key, tag)| store.0.journal.is_running(&key, tag));
        // A fill that has just ended is not in the list any more.
        let meta = local.stat(&path, access).await;
        let is_old = meta.is_ok_and(|meta: Meta| meta.mtime < now.saturating_sub(TEMP_AGE));
        if is_old && !is_running {
            let unlink = BatchStep::Unlink(path.into());
            local.change(vec![unlink], &store.0.settings.pool).await?;
        }
        Ok(())
    }

    /// Puts an entry into the index that was not known. An unusable one (an entry of nginx, a damaged one) counts as not
    /// used for half of `inactive`: it goes before what is used here, and until then an nginx that comes back has it.
    async fn adopt(
        &mut self,
        local: &Local,
        access: &Access<'_>,
        key: &Key,
        now: Seconds,
    ) -> Result<(), Error> {
        let (store, mut wanted) = (self.store.clone(), HEAD_BYTES);
        let known = loop {
            let front = local
                .read_front(&store.path(key), wanted, access.pool)
                .await;
            let (head, meta) = match front {
                Ok(front) => front,
                Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(()),
                Err(error) => {
                    let error = Error::from(error);
                    return match self.leaves_out(&error) {
                        true => Ok(()),
                        false => Err(error),
                    };
                }
            };
            match Entry::decode(&head, meta.len) {
                Ok(entry) if entry.key() == *key => break store.known_of(&entry, meta.len, now),
                Err(EntryFault::Needs(more)) if more > wanted && head.len() == wanted => {
                    wanted = more
                }
                _ => break self.unusable(key, &meta, now),
            }
        };
        store.take_in(local, &known).await
    }

    fn unusable(&self, key: &Key, meta: &Meta, now: Seconds) -> KnownKey {
        let used = now.saturating_sub(self.store.0.inactive.load(Relaxed) / 2);
        let blocks = self.store.0.space.blocks(meta.len);
        KnownKey {
            state: KeyState::Stored,
            extent: EntryExtent {
                file: NO_TAG,
                offset: 0,
                blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            },
            uses: 0,
            ..KnownKey::seen(*key, used)
        }
    }
}

impl Store {
    /// Deletes the file of a key that the index does not know, unless another is taking its place just now.
    pub(super) async fn delete_unknown(&self, local: &Local, key: &Key) -> Result<(), Error> {
        match self.try_turn(*key).filter(|_| !self.has(key)) {
            Some(turn) => self.unlink(local, turn).await,
            None => Ok(()),
        }
    }

    /// Deletes the file of the key whose turn it is, and that of no other entry.
    async fn unlink(&self, local: &Local, turn: PublishTurn) -> Result<(), Error> {
        let unlink = BatchStep::Unlink(self.path(turn.key()).into());
        let held = (turn, self.0.journal.hold()?);
        let pool = &self.0.settings.pool;
        Ok(local.change_holding(vec![unlink], pool, held).await?)
    }
}

/// Is it the journal's directory, or that of the segments?
fn is_own_folder(relative: &[u8]) -> bool {
    relative == FOLDER.as_bytes() || relative == SEGMENTS_FOLDER.as_bytes()
}

/// Is it one or two hexadecimal digits?
fn is_level(name: &[u8]) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    matches!(name.len(), 1 | 2) && name.iter().all(is_digit)
}

/// Is it a temp file, ours or nginx's?
pub(crate) fn is_temp(name: &[u8]) -> bool {
    let is_nginx = || {
        let (key, rest) = name.split_at_checked(2 * KEY_BYTES)?;
        let digits = rest.strip_prefix(b".")?;
        let is_number = digits.len() == NGINX_TEMP_DIGITS && digits.iter().all(u8::is_ascii_digit);
        (is_number && Key::from_name(key).is_some()).then_some(())
    };
    temp_of(name).is_some() || is_nginx().is_some()
}
