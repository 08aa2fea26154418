//! Finding what the journal does not know: one directory at a time, at a pace that the caller sets.

use super::Store;
use crate::entry::Entry;
use crate::error::{Error, Fault};
use crate::index::{Known, Place, State};
use crate::journal::{FOLDER, temp_of};
use crate::key::Key;
use disk::{Access, Entry as Name, Local, Step};
use message::date::Seconds;
use std::sync::atomic::Ordering::Relaxed;

/// Temp files that were written to in the last so many seconds are left for the next walk.
const TEMP_AGE: Seconds = 60;

/// A walk through a cache directory.
#[derive(Debug)]
pub struct Walk {
    store: Store,
    /// Directories that are still to be looked at, relative, with a slash at their ends.
    left: Vec<Vec<u8>>,
    /// Files of others: blocks that nobody else can have.
    foreign_blocks: u64,
}

impl Walk {
    /// From the beginning.
    #[must_use]
    pub fn new(store: &Store) -> Self {
        Self {
            store: store.clone(),
            left: vec![Vec::new()],
            foreign_blocks: 0,
        }
    }

    /// Looks at one more directory. True: that was the last one, the index knows every entry, and the journal says so.
    ///
    /// # Errors
    /// [`Error::Disk`]: the directory is to be looked at again.
    pub async fn step(
        &mut self,
        local: &Local,
        access: &Access<'_>,
        now: Seconds,
    ) -> Result<bool, Error> {
        if let Some(directory) = self.left.pop() {
            if let Err(error) = self.look(local, access, &directory, now).await {
                self.left.push(directory);
                return Err(error);
            }
            if !self.left.is_empty() {
                return Ok(false);
            }
        }
        let inner = &self.store.0;
        inner.is_cold.store(false, Relaxed);
        inner.journal.walked(local).await?;
        self.store.compact(local).await?;
        Ok(true)
    }

    /// Bytes' worth of blocks that files of others take; they are left alone.
    #[must_use]
    pub fn foreign_blocks(&self) -> u64 {
        self.foreign_blocks
    }

    async fn look(
        &mut self,
        local: &Local,
        access: &Access<'_>,
        directory: &[u8],
        now: Seconds,
    ) -> Result<(), Error> {
        let root = &self.store.0.settings.directory;
        let path = [&root[..], b"/", directory].concat();
        for name in local.readdir(&path, access).await? {
            let relative = [directory, &name.name].concat();
            if name.is_dir() {
                if is_level(&name.name) {
                    self.left.push([&relative[..], b"/"].concat());
                } else if &*name.name != FOLDER.as_bytes() {
                    self.foreign_blocks += 1;
                }
            } else {
                self.look_at(local, access, &relative, &name, now).await?;
            }
        }
        Ok(())
    }

    async fn look_at(
        &mut self,
        local: &Local,
        access: &Access<'_>,
        relative: &[u8],
        name: &Name,
        now: Seconds,
    ) -> Result<(), Error> {
        let store = &self.store;
        if let Some((key, tag)) = temp_of(&name.name) {
            // A fill that ends just now is in no list any more.
            let is_old = name.meta.mtime < now.saturating_sub(TEMP_AGE);
            if is_old && !store.0.journal.is_running(&key, tag) {
                let path = [&store.0.settings.directory[..], b"/", relative].concat();
                let unlink = Step::Unlink(path.into());
                local.change(vec![unlink], &store.0.settings.pool).await?;
            }
            return Ok(());
        }
        let key = Key::from_name(&name.name);
        let key = key.filter(|key| key.path(store.0.settings.levels).as_bytes() == relative);
        let Some(key) = key else {
            let blocks = store.0.space.blocks(name.meta.len);
            store.0.space.charge(blocks);
            self.foreign_blocks += blocks;
            return Ok(());
        };
        let known = store.0.index.peek(&key);
        if known.is_some_and(|known| known.state == State::Stored) {
            return Ok(());
        }
        self.adopt(local, access, &key, name, now).await
    }

    /// Takes in an entry that nobody knew. What cannot be used (an entry of nginx, a damaged one) is taken in as the first that is
    /// to be evicted.
    async fn adopt(
        &self,
        local: &Local,
        access: &Access<'_>,
        key: &Key,
        name: &Name,
        now: Seconds,
    ) -> Result<(), Error> {
        let store = &self.store;
        let file = match local.open(&store.path(key), access).await {
            Ok(file) => file,
            Err(error) if error.errno().is_some() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut head = local.read(&file, 0, disk::READ_MAX, access).await?;
        let len = file.meta().len;
        let known = match Entry::decode(&head.split_to(head.len()), len) {
            Ok(entry) if entry.key() == *key => store.known_of(&entry, len, now),
            // A head of more than 128 KiB: found when it is asked for.
            Err(Fault::Needs(_)) if name.meta.len > disk::READ_MAX as u64 => return Ok(()),
            _ => {
                let blocks = store.0.space.blocks(len);
                Known {
                    state: State::Stored,
                    place: Place {
                        file: store.tag(),
                        offset: 0,
                        blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
                    },
                    uses: 0,
                    ..Known::seen(*key, 0)
                }
            }
        };
        store.take_in(local, &known).await
    }
}

/// One or two hexadecimal digits.
fn is_level(name: &[u8]) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    matches!(name.len(), 1 | 2) && name.iter().all(is_digit)
}
