//! Purging by key, by a prefix of the key's text, or by a tag of the response.
//!
//! Not here: the rules and how entries are matched ([`crate::purge`]). Invariant: once a purge has been made, no entry
//! is found that it covers and that was requested before it, even after a restart.

use super::purge_mark::purge_mark;
use super::removal::{EpochGuard, Removed};
use super::{DELETE_MAX, FILE_MODE, Store};
use crate::entry::Entry;
use crate::error::{EntryFault, Error};
use crate::index::{Cursor, KeyState, KnownKey, STEP_MAX};
use crate::journal::{JournalRecord, temp_ending};
use crate::key::Key;
use crate::purge::{
    NumberedRule, PurgeCheck, PurgeRule, RULE_TEXT_MAX, RULES_MANY, RULES_MAX, is_before,
};
use bytes::Bytes;
use disk::{Access, BatchStep, Lane, Local, NewFile};
use std::sync::atomic::Ordering::Relaxed;

/// Comparisons of an entry's filter with a rule's between two yields to the loop's other tasks: about a tenth of a
/// millisecond.
const COMPARISONS_MAX: usize = 1 << 16;
/// Maximum of pending rules with which an unsafe request still adds one.
const INVALIDATIONS_MAX: usize = RULES_MAX / 2;
/// Maximum of keys that one sweep looks at.
const KEYS_OF_SWEEP: usize = 1 << 14;
/// Bytes of a file that the first read of its head asks for.
const HEAD_BYTES: usize = 4096;

/// A pass through the index that compares older entries with some rules.
#[derive(Debug)]
pub(super) struct PurgePass {
    /// The number of the last rule: entries that were compared are clean of all rules up to it.
    end: u32,
    rules: Vec<NumberedRule>,
    cursor: Cursor,
    /// The epoch that ended when the pass was through the index. The pass ends when this epoch and all older ones are
    /// drained.
    ended: Option<u64>,
    /// Could there be entries that the index did not know when the pass began?
    was_cold: bool,
}

impl Store {
    /// Purges a key in all its variants, running fills included ([`Store::moment`]). Its file is deleted at once.
    /// False: there was no entry of that key (there may still have been a variant).
    ///
    /// # Errors
    /// [`Error::TooManyPurges`]: nothing was purged. [`Error::Disk`]: purged, but a restart may not know of it.
    pub async fn purge(&self, local: &Local, key: &Key) -> Result<bool, Error> {
        self.purge_key(local, key, RULES_MAX).await
    }

    /// As [`Store::purge`], for a request that may have changed what is stored. Such requests use half of the rules at
    /// most, so that purges are not refused for them. Beyond that the key's entry is removed, other variants of it stay,
    /// and no response that is being fetched now, of any key, is stored.
    ///
    /// # Errors
    /// [`Error::Disk`]: purged, but a restart may not know of it.
    pub async fn invalidate(&self, local: &Local, key: &Key) -> Result<(), Error> {
        match self.purge_key(local, key, INVALIDATIONS_MAX).await {
            Err(Error::TooManyPurges(_)) => {
                self.0.rules.void_running();
                self.remove_key(local, key).await.map(drop)
            }
            done => done.map(drop),
        }
    }

    async fn purge_key(&self, local: &Local, key: &Key, rules_max: usize) -> Result<bool, Error> {
        let rule = PurgeRule::Key(*key);
        let before = self.0.rules.number_of(&rule);
        self.add_rule(local, rule, rules_max).await?;
        // Only now: a fill that was running at an earlier purge of this key may have ended meanwhile, and is covered by
        // that purge.
        let (known, is_stored) = self.remove_key(local, key).await?;
        let was_purged = before.is_some_and(|number| match known {
            Some(known) => is_before(known.clean_of, number),
            // A file that has its name already, and is not in the index yet.
            None => true,
        });
        Ok(is_stored && !was_purged)
    }

    /// Takes a key out of the index, and deletes its file. Returns what the index knew, and whether there was an entry.
    async fn remove_key(
        &self,
        local: &Local,
        key: &Key,
    ) -> Result<(Option<KnownKey>, bool), Error> {
        let epoch = self.0.epochs.begin();
        let known = self.0.index.remove(key);
        let is_known = known.is_some_and(|known| known.state == KeyState::Stored);
        let may_be_unknown = self.is_cold() || self.0.may_leave_out.load(Relaxed);
        let is_stored = is_known || may_be_unknown && self.is_there(local, key).await?;
        self.0.purged.fetch_add(u64::from(is_stored), Relaxed);
        if is_stored {
            let gone = Removed {
                known: vec![known.unwrap_or(KnownKey::seen(*key, 0))],
                epoch: Some(epoch),
            };
            self.delete(local, gone).await?;
        }
        Ok((known, is_stored))
    }

    /// Purges all keys whose text begins with `prefix` (`proxy_cache_purge` of a key that ends with `*`), running fills
    /// included. The next sweeps delete their files.
    ///
    /// # Errors
    /// As [`Store::purge`]; [`Error::Fault`] if the prefix is longer than `RULE_TEXT_MAX` bytes.
    pub async fn purge_prefix(&self, local: &Local, prefix: &[u8]) -> Result<(), Error> {
        let prefix = rule_text(prefix)?;
        self.add_rule(local, PurgeRule::Prefix(prefix), RULES_MAX)
            .await
    }

    /// Purges all responses with a tag (a member of `Surrogate-Key` or `Cache-Tag`), running fills included. The next
    /// sweeps delete their files.
    ///
    /// # Errors
    /// As [`Store::purge_prefix`].
    pub async fn purge_tag(&self, local: &Local, tag: &[u8]) -> Result<(), Error> {
        let tag = rule_text(tag)?;
        self.add_rule(local, PurgeRule::Tag(tag), RULES_MAX).await
    }

    /// Purges that no sweep has compared with every entry yet; at most `purge::RULES_MAX`.
    #[must_use]
    pub(crate) fn purges_pending(&self) -> usize {
        self.0.rules.len()
    }

    async fn is_there(&self, local: &Local, key: &Key) -> Result<bool, Error> {
        let access = Access::new(&self.0.settings.pool);
        match local.stat(&self.path(key), &access).await {
            Ok(_) => Ok(true),
            Err(error) if error.errno().is_some() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the file or deletes it, if that has to be.
    pub(super) async fn set_purge_mark(&self, local: &Local) -> Result<(), Error> {
        let mut is_marked = self.0.is_purge_marked.lock().await;
        // Asked under the lock: who adds a rule comes here behind it.
        let is_due = self.purges_pending() > 0 || self.0.journal.has_left_out();
        if *is_marked == is_due {
            return Ok(());
        }
        let settings = &self.0.settings;
        let path = purge_mark(&settings.directory).into();
        let step = match is_due {
            true => BatchStep::Create(NewFile {
                path,
                ending: temp_ending(0),
                is_watched: false,
                from: None,
                mode: FILE_MODE,
                contents: Vec::new(),
            }),
            false => BatchStep::Unlink(path),
        };
        // The directory is not given up before the job has ended.
        let held = self.0.journal.hold()?;
        local
            .change_holding(vec![step], &settings.pool, held)
            .await?;
        *is_marked = is_due;
        Ok(())
    }

    async fn add_rule(
        &self,
        local: &Local,
        rule: PurgeRule,
        rules_max: usize,
    ) -> Result<(), Error> {
        let number = self.0.rules.add(&rule, rules_max)?;
        let marked = self.set_purge_mark(local).await;
        let journal = &self.0.journal;
        journal
            .write(local, &[JournalRecord::Purge { number, rule }])
            .await?;
        marked
    }

    /// Is an entry that was just opened covered by a purge that it was not compared with yet? If not, the index notes
    /// that.
    pub(super) fn is_purged(&self, entry: &Entry, known: &KnownKey) -> bool {
        match self
            .0
            .rules
            .check(entry, known.purge_filter, known.clean_of)
        {
            PurgeCheck::Purged => true,
            PurgeCheck::Clean(number) => {
                if number != known.clean_of {
                    self.0
                        .index
                        .set_clean(&known.key, known.extent.file, number);
                }
                false
            }
        }
    }

    /// Deletes an entry that a purge covers.
    pub(super) async fn drop_purged(&self, local: &Local, known: &KnownKey) -> Result<(), Error> {
        let gone = self.take_out(|index| index.remove_entry(&known.key, known.extent.file));
        self.0.purged.fetch_add(gone.known.len() as u64, Relaxed);
        self.delete(local, gone).await
    }

    /// Continues the comparison of entries with pending rules until about `files_max` files have been read or deleted.
    /// Returns their number, or `files_max` if there is more to do.
    pub(super) async fn sweep_purged(
        &self,
        local: &Local,
        files_max: usize,
    ) -> Result<usize, Error> {
        self.set_purge_mark(local).await?;
        self.0.journal.sync(local).await?;
        let pass = self.0.pass.lock().take();
        let Some(mut pass) = pass.or_else(|| self.begin_pass()) else {
            return Ok(0);
        };
        let outcome = self.go_on(local, &mut pass, files_max).await;
        match outcome {
            Ok((done, true)) => {
                let epochs = &self.0.epochs;
                let ended = *pass.ended.get_or_insert_with(|| epochs.end_epoch());
                if !epochs.is_drained(ended) {
                    *self.0.pass.lock() = Some(pass);
                    return Ok(done);
                }
                self.end_pass(local, &pass).await?;
                // Purges come fast: the next pass begins soon.
                let are_many = pass.rules.len() >= RULES_MANY / 2 && !pass.was_cold;
                Ok(if are_many { files_max } else { done })
            }
            Ok((_, false)) => {
                *self.0.pass.lock() = Some(pass);
                Ok(files_max)
            }
            Err(error) => {
                *self.0.pass.lock() = Some(pass);
                Err(error)
            }
        }
    }

    fn begin_pass(&self) -> Option<PurgePass> {
        let was_cold = self.is_cold();
        let (end, rules) = self.0.rules.settled()?;
        Some(PurgePass {
            end,
            rules,
            cursor: Cursor::default(),
            ended: None,
            was_cold,
        })
    }

    /// Returns the number of files read or deleted, and whether the pass is at the end of the index.
    async fn go_on(
        &self,
        local: &Local,
        pass: &mut PurgePass,
        files_max: usize,
    ) -> Result<(usize, bool), Error> {
        let (mut files, mut keys) = (0, 0);
        let step_max = (COMPARISONS_MAX / pass.rules.len().max(1)).clamp(1, STEP_MAX);
        while files < files_max && keys < KEYS_OF_SWEEP {
            let before = pass.cursor;
            let step = self.0.index.scan(&mut pass.cursor, step_max);
            if step.is_empty() {
                return Ok((files, true));
            }
            keys += step.len();
            match self.compare(local, pass, &step).await {
                Ok(more) => files += more,
                Err(error) => {
                    pass.cursor = before;
                    return Err(error);
                }
            }
            tokio::task::yield_now().await;
        }
        Ok((files, false))
    }

    /// Compares stored entries of these keys with the rules and deletes those that are covered. Returns the number of
    /// files that took.
    async fn compare(
        &self,
        local: &Local,
        pass: &PurgePass,
        step: &[KnownKey],
    ) -> Result<usize, Error> {
        let epoch = self.0.epochs.begin();
        let mut covered = Vec::new();
        let compared = self
            .compare_each(local, pass, step, &epoch, &mut covered)
            .await;
        // Also after an error.
        self.delete_covered(local, &mut covered, &epoch).await?;
        compared
    }

    async fn compare_each(
        &self,
        local: &Local,
        pass: &PurgePass,
        step: &[KnownKey],
        epoch: &EpochGuard,
        covered: &mut Vec<(Key, u32)>,
    ) -> Result<usize, Error> {
        let is_older = |known: &&KnownKey| {
            known.state == KeyState::Stored && is_before(known.clean_of, pass.end)
        };
        let mut files = 0;
        for known in step.iter().filter(is_older) {
            let fits = |rule: &&NumberedRule| rule.may_cover(known.purge_filter, known.clean_of);
            let rules: Vec<_> = pass.rules.iter().filter(fits).collect();
            let is_named = |rule: &&NumberedRule| rule.rule == PurgeRule::Key(known.key);
            let is_covered = if rules.is_empty() {
                false
            } else {
                files += 1;
                rules.iter().any(is_named) || self.is_covered(local, known, &rules).await?
            };
            let (key, tag) = (known.key, known.extent.file);
            if is_covered {
                covered.push((key, tag));
            } else {
                self.0.index.set_clean(&key, tag, pass.end);
            }
            if covered.len() == DELETE_MAX {
                self.delete_covered(local, covered, epoch).await?;
            }
        }
        Ok(files)
    }

    /// Deletes entries, which leave the index only now: in a segment, a place is free at once, before the segment can
    /// be emptied and filled anew.
    async fn delete_covered(
        &self,
        local: &Local,
        covered: &mut Vec<(Key, u32)>,
        epoch: &EpochGuard,
    ) -> Result<(), Error> {
        let covered = std::mem::take(covered).into_iter();
        let known: Vec<_> = covered
            .filter_map(|(key, tag)| self.0.index.remove_entry(&key, tag))
            .collect();
        self.0.purged.fetch_add(known.len() as u64, Relaxed);
        let epoch = Some(epoch.clone());
        self.delete(local, Removed { known, epoch }).await
    }

    /// Reads an entry's head to compare it with rules that may cover it. An entry that cannot be read counts as
    /// covered.
    async fn is_covered(
        &self,
        local: &Local,
        known: &KnownKey,
        rules: &[&NumberedRule],
    ) -> Result<bool, Error> {
        let pool = &self.0.settings.pool;
        if known.extent.is_in_segment() {
            let (store, it) = (self.clone(), *known);
            let read = move || store.0.segments.as_ref()?.read_head(&it);
            let head = pool
                .run(Lane::Read, read)
                .await
                .map_err(disk::Error::from)?;
            // One that was emptied meanwhile needs no purge.
            return Ok(
                head.is_none_or(|(entry, _)| rules.iter().any(|rule| rule.rule.covers(&entry)))
            );
        }
        let path = self.path(&known.key);
        let mut wanted = HEAD_BYTES;
        loop {
            let (bytes, meta) = match local.read_front(&path, wanted, pool).await {
                Ok(front) => front,
                // The file was deleted meanwhile, or its disk fails.
                Err(error) if error.errno().is_some() => return Ok(true),
                Err(error) => return Err(error.into()),
            };
            match Entry::decode(&bytes, meta.len) {
                Ok(entry) => return Ok(rules.iter().any(|rule| rule.rule.covers(&entry))),
                Err(EntryFault::Needs(more)) if more > wanted && bytes.len() == wanted => {
                    wanted = more
                }
                Err(_) => return Ok(true),
            }
        }
    }

    /// Forgets the rules that were compared with every entry. The deletions are on the disk before that is recorded.
    async fn end_pass(&self, local: &Local, pass: &PurgePass) -> Result<(), Error> {
        if pass.was_cold {
            return Ok(());
        }
        let number = pass.end;
        self.0.journal.write_rest(local).await?;
        self.write_dead_maps(true).await?;
        if self.0.may_leave_out.load(Relaxed) {
            self.0.journal.leave_out(local).await?;
        }
        self.0.rules.forget(number);
        self.0.journal.purged(local, number).await?;
        self.set_purge_mark(local).await
    }
}

fn rule_text(text: &[u8]) -> Result<Bytes, EntryFault> {
    if text.len() > RULE_TEXT_MAX {
        return Err(EntryFault::Unstorable("too long a text to purge by"));
    }
    Ok(Bytes::copy_from_slice(text))
}
