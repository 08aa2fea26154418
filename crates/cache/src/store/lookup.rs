//! Finding an entry: the index says whether there is one, the file says what it is.

use super::Store;
use crate::entry::Entry;
use crate::error::{EntryFault, Error};
use crate::index::{EntryExtent, KeyState, KnownKey, VARY_UNKNOWN, Varies};
use crate::key::Key;
use crate::purge::PurgeFilter;
use crate::vary::variant;
use bytes::Bytes;
use disk::{Access, BODY_MAX, Errno, Local, OpenFile, READ_MAX, in_place};
use message::date::Seconds;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// The result of a lookup.
#[derive(Debug)]
pub enum LookupOutcome {
    /// An entry, fresh or not.
    Hit(Hit),
    /// No entry.
    Miss(Miss),
    /// The origin failed, which was noted instead of a response.
    Failed(KnownKey),
}

/// Details of a miss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Miss {
    /// The variant that was looked up, if the key has variants.
    pub variant: Option<Key>,
    /// Why the entry at this key was dropped; to be logged once.
    pub damage: Option<EntryFault>,
}

/// An entry that was found.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The decoded head of the entry.
    pub entry: Rc<Entry>,
    /// The file that holds the body.
    pub file: Rc<OpenFile>,
    /// Where the entry begins in that file, in bytes.
    pub base: u64,
    /// What the index knows of it; its lifetime overrides that of the entry.
    pub known: KnownKey,
    /// All bytes of its file, if the look-up has read them.
    pub whole: Option<Bytes>,
}

impl Hit {
    /// Whether its file is only what was read of a segment, without a place on the disk: a segment begins with its header,
    /// a device with its own.
    pub(super) fn is_piece(&self) -> bool {
        self.known.extent.is_in_segment() && self.base == 0
    }
}

/// Whether a lookup counts a use of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// It does.
    Count,
    /// It goes on with one that did, and found that the disk has to be waited for.
    Counted,
}

/// The result of opening an entry's file.
enum OpenedEntry {
    /// The file, where the entry begins in it, the entry, and all bytes of the file if they were read.
    Entry(Rc<OpenFile>, u64, Rc<Entry>, Option<Bytes>),
    Nothing,
    Bad(EntryFault),
}

impl Store {
    /// Finds the entry of a key for a request with these header lines. `key_text` is the text that the key `main` is made
    /// of.
    ///
    /// # Errors
    /// [`Error::Disk`]: the disk fails or its pool is full; the origin has the response.
    pub async fn find<'a, I>(
        &self,
        local: &Local,
        access: &Access<'_>,
        (main, key_text): (Key, &[u8]),
        fields: I,
        now: Seconds,
        uses: Uses,
    ) -> Result<LookupOutcome, Error>
    where
        I: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        if let Some(segments) = &self.0.segments {
            segments.note_now(now);
        }
        let known = match uses {
            Uses::Count => self.0.index.look_up(&main, now),
            Uses::Counted => self.0.index.peek(&main),
        };
        if known.is_none() && !self.is_cold() {
            return Ok(missed(None));
        }
        // Boxed: a miss needs no room for it.
        in_place::boxed(|| self.find_known(local, access, known, (main, key_text), fields, now))
            .await
    }

    /// Finds the entry of a key of which the index knows this, or that a walk may come to yet.
    async fn find_known<'a, I>(
        &self,
        local: &Local,
        access: &Access<'_>,
        known: Option<KnownKey>,
        (main, key_text): (Key, &[u8]),
        fields: I,
        now: Seconds,
    ) -> Result<LookupOutcome, Error>
    where
        I: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let wanted = known.and_then(|known| self.variant_of(&known, &main, fields.clone()));
        // According to the index the main entry is another variant: its file need not be opened.
        let is_other = known
            .zip(wanted)
            .is_some_and(|(known, wanted)| Varies::of(known.varies.names, &wanted) != known.varies);
        if !is_other {
            match self
                .find_one(local, access, &main, known, key_text, now)
                .await?
            {
                LookupOutcome::Hit(hit) => match hit.entry.variant() {
                    None => return Ok(LookupOutcome::Hit(hit)),
                    Some(own) => {
                        let wanted = variant(main, hit.entry.vary(), fields);
                        if wanted == own {
                            return Ok(LookupOutcome::Hit(hit));
                        }
                        return self
                            .find_variant(local, access, wanted, key_text, now)
                            .await;
                    }
                },
                other => return Ok(other),
            }
        }
        match wanted {
            Some(wanted) => {
                self.find_variant(local, access, wanted, key_text, now)
                    .await
            }
            None => Ok(missed(None)),
        }
    }

    /// What the index knows now of an entry that was found before, if a lookup would find the same entry and all of it
    /// was verified. Counts as a use; nothing is opened.
    #[must_use]
    pub fn recall(&self, entry: &Entry, now: Seconds) -> Option<KnownKey> {
        let known = self.0.index.look_up(&entry.key(), now)?;
        let is_same = known.state == KeyState::Stored && known.extent.file == entry.tag();
        (is_same && known.is_verified && !self.is_purged(entry, &known)).then_some(known)
    }

    /// The key of the variant that the request asks for, if the index knows the names in `Vary`.
    fn variant_of<'a, I>(&self, known: &KnownKey, main: &Key, fields: I) -> Option<Key>
    where
        I: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        if known.varies.names == VARY_UNKNOWN {
            return None;
        }
        let names = self.0.index.vary_names(known.varies.names)?;
        Some(variant(*main, &names, fields))
    }

    async fn find_variant(
        &self,
        local: &Local,
        access: &Access<'_>,
        wanted: Key,
        key_text: &[u8],
        now: Seconds,
    ) -> Result<LookupOutcome, Error> {
        let known = self.0.index.peek(&wanted);
        let found = self
            .find_one(local, access, &wanted, known, key_text, now)
            .await?;
        // Counted once, however often the disk had to be asked.
        let _ = self.0.index.look_up(&wanted, now);
        Ok(match found {
            LookupOutcome::Hit(hit) if hit.entry.variant() == Some(wanted) => {
                LookupOutcome::Hit(hit)
            }
            LookupOutcome::Miss(missed) => LookupOutcome::Miss(Miss {
                variant: Some(wanted),
                ..missed
            }),
            LookupOutcome::Failed(known) => LookupOutcome::Failed(known),
            LookupOutcome::Hit(_) => missed(Some(wanted)),
        })
    }

    async fn find_one(
        &self,
        local: &Local,
        access: &Access<'_>,
        key: &Key,
        known: Option<KnownKey>,
        key_text: &[u8],
        now: Seconds,
    ) -> Result<LookupOutcome, Error> {
        match known {
            Some(known) if known.state == KeyState::Failed => {
                return Ok(LookupOutcome::Failed(known));
            }
            Some(known) if known.state == KeyState::Stored => {}
            _ if self.is_cold() => {}
            _ => return Ok(missed(None)),
        }
        let known = known.filter(|known| known.state == KeyState::Stored);
        let (opened, known) = self.open_again(local, access, key, known).await?;
        match opened {
            // The file was moved here.
            OpenedEntry::Entry(_, _, entry, _) if entry.key() != *key => {
                let fault = EntryFault::Damaged("place");
                Ok(self.drop_damaged(local, key, known, fault).await)
            }
            // Two texts with the same MD5: as in nginx, the last one stored stays.
            OpenedEntry::Entry(_, _, entry, _) if entry.key_text() != key_text => Ok(missed(None)),
            OpenedEntry::Entry(file, base, entry, whole) => {
                let known = match known.filter(|known| known.extent.file == entry.tag()) {
                    Some(known) => known,
                    None if known.is_none() && self.0.journal.has_left_out() => {
                        // Where it cannot be deleted now, the walk tries again.
                        let _ = self.delete_unknown(local, key).await;
                        return Ok(missed(None));
                    }
                    None => {
                        let len = file.meta().len;
                        self.learn(local, &entry, len, known, now).await?
                    }
                };
                if self.is_purged(&entry, &known) {
                    // A file that cannot be deleted now is left to a sweep.
                    let _ = self.drop_purged(local, &known).await;
                    return Ok(missed(None));
                }
                Ok(LookupOutcome::Hit(Hit {
                    entry,
                    file,
                    base,
                    known,
                    whole,
                }))
            }
            OpenedEntry::Nothing => {
                if let Some(known) = known {
                    self.forget(&known);
                }
                Ok(missed(None))
            }
            // An entry of nginx, which used the directory before (a walk indexes it without a status): to be
            // overwritten.
            OpenedEntry::Bad(EntryFault::Foreign)
                if known.is_none_or(|known| known.status == 0) =>
            {
                Ok(missed(None))
            }
            OpenedEntry::Bad(fault) => Ok(self.drop_damaged(local, key, known, fault).await),
        }
    }

    /// Opens the entry of a key; once more if what was read is not as it should be. Also returns what the index knew of
    /// it then.
    async fn open_again(
        &self,
        local: &Local,
        access: &Access<'_>,
        key: &Key,
        known: Option<KnownKey>,
    ) -> Result<(OpenedEntry, Option<KnownKey>), Error> {
        let opened = self.open_known(local, access, key, known).await?;
        let is_in_segment = known.is_some_and(|known| known.extent.is_in_segment());
        match opened {
            // Its segment was emptied during the read: it may be in another one now.
            OpenedEntry::Bad(EntryFault::Damaged(_)) | OpenedEntry::Nothing if is_in_segment => {
                let present = self.0.index.peek(key);
                let present = present.filter(|present| present.state == KeyState::Stored);
                match present {
                    None => Ok((OpenedEntry::Nothing, None)),
                    Some(_) => Ok((self.open_known(local, access, key, present).await?, present)),
                }
            }
            // Its head may have been overwritten during the read.
            OpenedEntry::Bad(EntryFault::Damaged(_)) => {
                Ok((self.open_entry(local, access, key).await?, known))
            }
            opened => Ok((opened, known)),
        }
    }

    /// Opens the entry of a key, where the index says that it is.
    async fn open_known(
        &self,
        local: &Local,
        access: &Access<'_>,
        key: &Key,
        known: Option<KnownKey>,
    ) -> Result<OpenedEntry, Error> {
        let Some(known) = known.filter(|known| known.extent.is_in_segment()) else {
            return self.open_entry(local, access, key).await;
        };
        match self.open_in_segment(local, access, &known).await {
            Ok(Some(found)) => {
                let (file, entry) = (found.file, found.entry);
                Ok(OpenedEntry::Entry(file, found.base, entry, None))
            }
            Ok(None) => Ok(OpenedEntry::Nothing),
            Err(Error::Fault(fault)) => Ok(OpenedEntry::Bad(fault)),
            Err(error) => Err(error),
        }
    }

    /// Opens a key's file and reads its head. The decoded entry is kept with the open file.
    async fn open_entry(
        &self,
        local: &Local,
        access: &Access<'_>,
        key: &Key,
    ) -> Result<OpenedEntry, Error> {
        let file = match local.open(&self.path(key), access).await {
            Ok(file) => file,
            Err(error) if matches!(error.errno(), Some(Errno::NOENT | Errno::NOTDIR)) => {
                return Ok(OpenedEntry::Nothing);
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(kept) = file.slot().get()
            && let Ok(entry) = kept.clone().downcast::<Entry>()
        {
            local.keep_whole(&file);
            return Ok(OpenedEntry::Entry(file, 0, entry, None));
        }
        let len = usize::try_from(file.meta().len).unwrap_or(usize::MAX);
        // Its body is asked for next.
        let mut wanted = if len <= BODY_MAX { len } else { HEAD_BYTES };
        loop {
            let head = read_up_to(local, &file, 0, wanted, access).await?;
            match Entry::decode(&head, file.meta().len) {
                Ok(entry) => {
                    let entry = Rc::new(entry);
                    // If another task was faster, it has read the same.
                    let _ = file.slot().set(entry.clone());
                    let whole = (head.len() == len).then_some(head);
                    return Ok(OpenedEntry::Entry(file, 0, entry, whole));
                }
                Err(EntryFault::Needs(more)) if more > head.len() && head.len() == wanted => {
                    wanted = more;
                }
                Err(fault) => return Ok(OpenedEntry::Bad(fault)),
            }
        }
    }

    /// Indexes an entry that was found on the disk, in place of what the index knew under its key.
    pub(super) async fn learn(
        &self,
        local: &Local,
        entry: &Entry,
        len: u64,
        was: Option<KnownKey>,
        now: Seconds,
    ) -> Result<KnownKey, Error> {
        let was = was.and_then(|was| self.0.index.remove_at(&was.key, &was.extent));
        if let Some(was) = &was {
            self.leave_segment(was);
        }
        drop(was.and_then(|was| super::blocks_of(&self.0.space, &was)));
        let known = self.known_of(entry, len, now);
        self.take_in(local, &known).await?;
        let vary = entry.vary().clone();
        self.0.journal.found(known, vary);
        Ok(known)
    }

    /// The index's record of an entry that was found on the disk.
    pub(super) fn known_of(&self, entry: &Entry, len: u64, now: Seconds) -> KnownKey {
        let names = self.0.index.vary_number(entry.vary());
        let blocks = self.0.space.blocks(len);
        KnownKey {
            state: KeyState::Stored,
            status: entry.head().status,
            lifetime: *entry.lifetime(),
            extent: EntryExtent {
                file: entry.tag(),
                offset: 0,
                blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            },
            varies: entry
                .variant()
                .map_or(Varies::default(), |own| Varies::of(names, &own)),
            clean_of: self.0.rules.floor(),
            purge_filter: purge_filter_of(entry),
            ..KnownKey::seen(entry.key(), now)
        }
    }

    /// Puts an entry with an existing file into the index, and counts its blocks.
    pub(super) async fn take_in(&self, local: &Local, known: &KnownKey) -> Result<(), Error> {
        self.0.space.charge(u64::from(known.extent.blocks));
        self.count_directories(&known.key, self.0.space.adopt(0));
        let epoch = self.0.epochs.begin();
        self.settle(local, self.0.index.put(known), epoch).await
    }

    /// Forgets an entry whose file is missing (the process that wrote it was killed before the file was made), or whose
    /// place in a segment another entry has, which stays. Not what is in segments that another process has now.
    pub(super) fn forget(&self, known: &KnownKey) {
        let segments = self.0.segments.as_ref();
        if known.extent.is_in_segment() && segments.is_some_and(|one| one.set.is_closed()) {
            return;
        }
        if let Some(known) = self.0.index.remove_at(&known.key, &known.extent) {
            self.0.journal.gone(known.key, known.extent.file);
            self.leave_place(&known);
            drop(super::blocks_of(&self.0.space, &known));
        }
    }

    /// Deletes a damaged entry; if it cannot be deleted now, that is left to a sweep. If it has left the index
    /// meanwhile, or a walk that would have found it has finished, the bytes read may be those of an entry that is just
    /// being written in its place: that one stays.
    pub(super) async fn drop_damaged(
        &self,
        local: &Local,
        key: &Key,
        known: Option<KnownKey>,
        fault: EntryFault,
    ) -> LookupOutcome {
        let gone = self.take_out(|index| match known {
            Some(known) => index.remove_entry(key, known.extent.file),
            None => self.is_cold().then_some(KnownKey::seen(*key, 0)),
        });
        if gone.known.is_empty() {
            return missed(None);
        }
        self.0.damaged.fetch_add(1, Relaxed);
        let _ = self.delete(local, gone).await;
        damaged(fault)
    }

    /// Deletes the entry of a hit that turned out to be damaged while it was read.
    ///
    /// # Errors
    /// None at present: a file that cannot be deleted now is left to a sweep.
    pub(crate) async fn drop_hit(&self, local: &Local, hit: &Hit) -> Result<(), Error> {
        let (key, known) = (&hit.known.key, Some(hit.known));
        let fault = EntryFault::Damaged("body");
        self.drop_damaged(local, key, known, fault).await;
        Ok(())
    }
}

/// Bytes of a file that the first read of its head asks for; an open has read as many anyway.
pub(super) const HEAD_BYTES: usize = 4096;

fn purge_filter_of(entry: &Entry) -> PurgeFilter {
    let purge_filter = PurgeFilter::of_key(entry.main(), entry.key_text());
    let lines = entry.head().iter();
    lines.fold(purge_filter, |purge_filter, (name, value, _)| {
        purge_filter.and_line(name, value)
    })
}

fn missed(variant: Option<Key>) -> LookupOutcome {
    LookupOutcome::Miss(Miss {
        variant,
        damage: None,
    })
}

fn damaged(fault: EntryFault) -> LookupOutcome {
    LookupOutcome::Miss(Miss {
        variant: None,
        damage: Some(fault),
    })
}

/// The first bytes of an entry that begins at `base`; fewer only at its file's end.
pub(super) async fn read_up_to(
    local: &Local,
    file: &Rc<OpenFile>,
    base: u64,
    wanted: usize,
    access: &Access<'_>,
) -> Result<Bytes, Error> {
    let first = local.read(file, base, wanted, access).await?;
    if wanted <= READ_MAX || first.len() < READ_MAX {
        return Ok(first);
    }
    let mut all = bytes::BytesMut::from(&first[..]);
    while all.len() < wanted {
        let more = local
            .read(file, base + all.len() as u64, wanted - all.len(), access)
            .await?;
        if more.is_empty() {
            break;
        }
        all.extend_from_slice(&more);
    }
    Ok(all.freeze())
}
