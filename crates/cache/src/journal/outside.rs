//! The journal of a directory that another process may own: what it says is read, and a purge is written only while
//! nothing owns the directory.
//!
//! Not here: the owner's journal ([`super::Journal`]). Invariant: reading writes nothing and takes no lock.

use super::files::{JournalFiles, boot_id, recover};
use super::{FOLDER, Journal, JournalRecord, Recovered};
use crate::entry::Entry;
use crate::error::Error;
use crate::index::{Cursor, Index, KeyState, KnownKey, STEP_MAX};
use crate::key::{Key, Levels};
use crate::purge::{PurgeRule, PurgeRules, RULES_MAX, is_before};
use disk::{Errno, Local, Pool};
use std::sync::Arc;

/// Maximum of times that the files are listed anew, because the owner has replaced them while they were read.
const LISTED_MAX: usize = 5;

/// What the journal of a directory says. The owner may be a few records ahead of it.
#[derive(Debug)]
pub struct JournalView {
    index: Arc<Index>,
    recovered: Recovered,
}

impl JournalView {
    /// Reads the journal of a cache directory (an absolute path without a slash at its end): of all keys, which takes
    /// less than 100 bytes of memory each, or `only` of some.
    ///
    /// # Errors
    /// [`Error::JournalVersion`]; [`Error::Disk`], with ENOENT if the directory has no journal.
    pub async fn read(
        local: &Local,
        directory: &[u8],
        pool: &Pool,
        only: Option<&[Key]>,
    ) -> Result<Self, Error> {
        let folder = folder_of(directory);
        let mut listed = 0;
        loop {
            listed += 1;
            match Self::read_once(local, &folder, pool, only).await {
                Err(Error::Disk(error))
                    if error.errno() == Some(Errno::NOENT) && listed < LISTED_MAX => {}
                done => return done,
            }
        }
    }

    async fn read_once(
        local: &Local,
        folder: &[u8],
        pool: &Pool,
        only: Option<&[Key]>,
    ) -> Result<Self, Error> {
        let files = JournalFiles::list(local, folder, pool).await?;
        files.check_version(local, folder, pool).await?;
        let keys_max = only.map_or_else(|| files.entries_max(), <[Key]>::len);
        let index = Arc::new(Index::new(keys_max));
        let boot = boot_id(local, pool).await;
        let (recovered, _) = recover(local, folder, &files, pool, &index, boot, only).await?;
        Ok(Self { index, recovered })
    }

    /// What it says of the entry that is stored under a key.
    #[must_use]
    pub fn known(&self, key: &Key) -> Option<KnownKey> {
        let known = self.index.peek(key);
        known.filter(|known| known.state == KeyState::Stored)
    }

    /// The stored entries that it knows.
    pub(crate) fn stored(&self) -> Vec<KnownKey> {
        let (mut found, mut cursor) = (Vec::new(), Cursor::default());
        loop {
            let step = self.index.scan(&mut cursor, STEP_MAX);
            if step.is_empty() {
                return found;
            }
            let is_stored = |known: &KnownKey| known.state == KeyState::Stored;
            found.extend(step.into_iter().filter(is_stored));
        }
    }

    /// Whether it names every entry. If not, a walk goes through the directory after the next start, or goes on now.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.recovered.is_complete
    }

    /// The purges that were not compared with every entry yet, the oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &PurgeRule> {
        self.recovered.purges.pending().map(|purge| &purge.rule)
    }

    /// The pending purge that makes this entry invalid.
    #[must_use]
    pub fn covering(&self, entry: &Entry) -> Option<&PurgeRule> {
        let known = self.known(&entry.key());
        let known = known.filter(|known| known.extent.file == entry.tag());
        let floor = self.recovered.purges.floor();
        let since = known.map_or(floor, |known| known.clean_of);
        let mut pending = self.recovered.purges.pending();
        let it =
            pending.find(|purge| is_before(since, purge.number) && purge.rule.covers(entry))?;
        Some(&it.rule)
    }
}

/// Writes purges into the journal of a directory that no process owns; the next owner obeys them.
///
/// # Errors
/// [`Error::InUse`]: a process owns it, and nothing was written. [`Error::TooManyPurges`], [`Error::JournalVersion`],
/// [`Error::Disk`].
pub(crate) async fn purge(
    local: &Local,
    directory: &[u8],
    pool: &Pool,
    rules: &[PurgeRule],
) -> Result<(), Error> {
    let folder = folder_of(directory);
    let files = JournalFiles::list(local, &folder, pool).await?;
    files.check_version(local, &folder, pool).await?;
    // No entry is asked for: the index stays empty.
    let index = Arc::new(Index::new(0));
    let (journal, recovered) =
        Journal::open_for(local, directory, Levels::default(), pool, &index, Some(&[])).await?;
    let purges = PurgeRules::new(recovered.purges);
    let mut done = Ok(());
    for rule in rules {
        done = match purges.add(rule, RULES_MAX) {
            Ok(number) => {
                let rule = rule.clone();
                journal
                    .write(local, &[JournalRecord::Purge { number, rule }])
                    .await
            }
            Err(error) => Err(error.into()),
        };
        if done.is_err() {
            break;
        }
    }
    let synced = journal.sync(local).await;
    let given_up = journal.give_up(local).await;
    done.and(synced).and(given_up)
}

fn folder_of(directory: &[u8]) -> Vec<u8> {
    [directory, b"/", FOLDER.as_bytes(), b"/"].concat()
}
