//! Checking one entry on demand, every byte of it, whatever was verified before.
//!
//! Not here: verifying what is about to be sent ([`super::verify_blocks`]). Invariant: only a damaged entry is deleted.

use super::verify::Checks;
use super::{Hit, LookupOutcome, Store, verify_blocks};
use crate::entry::Entry;
use crate::error::{EntryFault, Error};
use crate::index::KnownKey;
use crate::key::Key;
use disk::{Access, Errno, Local};
use std::rc::Rc;

/// Times that an entry is read before it counts as damaged: it may have been overwritten during the first.
const READ_TIMES: usize = 2;
/// Bytes of a file that the first read of its head asks for.
const HEAD_BYTES: usize = 4096;

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// There is no entry under this key, or a foreign file.
    Absent,
    /// All its checksums are right.
    Whole,
    /// It was damaged, and is deleted.
    Dropped(EntryFault),
}

impl Store {
    /// Reads all of an entry and verifies every block, also those that were verified before. A damaged entry is deleted
    /// and counted, as if a request had found it.
    ///
    /// # Errors
    /// [`Error::Disk`]; [`Error::InUse`] after the directory was given up.
    pub async fn check(&self, local: &Local, key: &Key) -> Result<Checked, Error> {
        let mut last = Checked::Absent;
        for _ in 0..READ_TIMES {
            let known = self.0.index.peek(key);
            let fault = match self.check_once(local, key, known).await {
                Ok(true) => return Ok(Checked::Whole),
                Ok(false) | Err(Error::Fault(EntryFault::Foreign)) => return Ok(Checked::Absent),
                Err(Error::Fault(fault)) => (known, fault),
                Err(error) => return Err(error),
            };
            last = Checked::Dropped(fault.1);
        }
        if let Checked::Dropped(fault) = last.clone() {
            let known = self.0.index.peek(key);
            let dropped = self.drop_damaged(local, key, known, fault).await;
            // It was replaced meanwhile.
            if matches!(dropped, LookupOutcome::Miss(missed) if missed.damage.is_none()) {
                last = Checked::Absent;
            }
        }
        Ok(last)
    }

    /// False: there is no file.
    async fn check_once(
        &self,
        local: &Local,
        key: &Key,
        known: Option<KnownKey>,
    ) -> Result<bool, Error> {
        let (path, pool) = (self.path(key), &self.0.settings.pool);
        let access = Access {
            noatime: true,
            ..Access::new(pool)
        };
        if let Some(known) = known.filter(|known| known.extent.is_in_segment()) {
            return self.check_in_segment(local, &access, known).await;
        }
        let mut wanted = HEAD_BYTES;
        let entry = loop {
            let (front, meta) = match local.read_front(&path, wanted, pool).await {
                Ok(front) => front,
                Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            match Entry::decode(&front, meta.len) {
                Ok(entry) => break entry,
                Err(EntryFault::Needs(more)) if more > wanted && front.len() == wanted => {
                    wanted = more;
                }
                Err(fault) => return Err(fault.into()),
            }
        };
        if entry.key() != *key {
            return Err(EntryFault::Damaged("place").into());
        }
        let file = local.open(&path, &access).await?;
        let mut checks = Checks::anew(&entry);
        let body = 0..entry.body_len();
        let hit = Hit {
            entry: Rc::new(entry),
            file,
            base: 0,
            known: known.unwrap_or(KnownKey::seen(*key, 0)),
            whole: None,
        };
        verify_blocks(local, &access, &hit, &mut checks, &body).await?;
        Ok(true)
    }

    /// False: it is there no more.
    async fn check_in_segment(
        &self,
        local: &Local,
        access: &Access<'_>,
        known: KnownKey,
    ) -> Result<bool, Error> {
        let Some(opened) = self.open_in_segment(local, access, &known).await? else {
            return Ok(false);
        };
        let (mut checks, body) = (Checks::anew(&opened.entry), 0..opened.entry.body_len());
        let hit = Hit {
            entry: opened.entry,
            file: opened.file,
            base: opened.base,
            known,
            whole: None,
        };
        verify_blocks(local, access, &hit, &mut checks, &body).await?;
        Ok(true)
    }
}
