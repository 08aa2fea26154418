//! Verifying the blocks of an entry before their bytes are sent, once per block since the process started.

use super::{Hit, Store};
use crate::entry::{ChecksumTable, Entry};
use crate::error::{EntryFault, Error};
use disk::{Access, Local, READ_MAX};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// The blocks of a hit that have been verified.
#[derive(Debug)]
pub struct Checks {
    table: Option<ChecksumTable>,
    done: Vec<bool>,
    left: u32,
}

impl Checks {
    /// For a hit: nothing is left to do if the index knows that all of it was verified, or written by this process.
    #[must_use]
    pub fn of(hit: &Hit) -> Self {
        let blocks = if hit.known.is_verified {
            0
        } else {
            hit.entry.blocks()
        };
        Self {
            table: None,
            done: vec![false; blocks as usize],
            left: blocks,
        }
    }

    /// For an entry none of whose blocks counts as verified.
    pub(super) fn anew(entry: &Entry) -> Self {
        Self {
            table: None,
            done: vec![false; entry.blocks() as usize],
            left: entry.blocks(),
        }
    }

    /// Have all blocks been verified?
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left == 0
    }
}

impl Store {
    /// Verifies the blocks that a range of a hit's body touches and that were not verified yet. Once all are, the index
    /// notes it.
    ///
    /// # Errors
    /// [`Error::Fault`]: a block is damaged, and the entry has been dropped; no byte of the range may be sent.
    /// [`Error::Disk`].
    pub async fn verify(
        &self,
        local: &Local,
        access: &Access<'_>,
        hit: &Hit,
        checks: &mut Checks,
        range: &Range<u64>,
    ) -> Result<(), Error> {
        if checks.is_done() {
            return Ok(());
        }
        let source = match self.was_distrusted() && !hit.is_piece() {
            true => Source::Disk,
            false => Source::Any,
        };
        let done = verify_from(source, local, access, hit, checks, range).await;
        if let Err(error) = &done {
            self.note_unread(&hit.known, error);
        }
        if let Err(Error::Fault(_)) = done {
            self.drop_hit(local, hit).await?;
        } else if checks.is_done() && (source == Source::Disk || !self.was_distrusted()) {
            self.index()
                .set_verified(&hit.known.key, hit.known.extent.file);
        }
        done
    }

    /// Whether memory proves nothing of what the disk has.
    pub(super) fn was_distrusted(&self) -> bool {
        self.0.was_distrusted.load(Relaxed)
    }
}

/// Verifies the blocks that a range of a body touches and that were not verified yet. Nothing follows from that: for
/// entries of another process.
///
/// # Errors
/// [`Error::Fault`]: a block is damaged, no byte of the range may be sent. [`Error::Disk`].
pub async fn verify_blocks(
    local: &Local,
    access: &Access<'_>,
    hit: &Hit,
    checks: &mut Checks,
    range: &Range<u64>,
) -> Result<(), Error> {
    verify_from(Source::Any, local, access, hit, checks, range).await
}

/// Where the bytes of an entry are read that are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The kernel's memory, or the disk.
    Any,
    /// The disk: it was failing, and may not have what the kernel's memory has.
    Disk,
}

async fn verify_from(
    source: Source,
    local: &Local,
    access: &Access<'_>,
    hit: &Hit,
    checks: &mut Checks,
    range: &Range<u64>,
) -> Result<(), Error> {
    let entry = &hit.entry;
    if checks.table.is_none() {
        let bytes = read_from(source, local, access, hit, entry.table()).await?;
        checks.table = Some(ChecksumTable::decode(&bytes, entry)?);
    }
    for index in entry.blocks_of(range) {
        if checks.done.get(index as usize) != Some(&false) {
            continue;
        }
        let block = read_from(source, local, access, hit, entry.block(index)).await?;
        let table = checks.table.as_ref();
        table.map_or(Err(EntryFault::Damaged("table")), |table| {
            table.verify(index, &block)
        })?;
        checks.done[index as usize] = true;
        checks.left -= 1;
    }
    Ok(())
}

/// Reads a range of the entry; fewer bytes if the file was truncated since it was opened.
pub(super) async fn read(
    local: &Local,
    access: &Access<'_>,
    hit: &Hit,
    range: Range<u64>,
) -> Result<bytes::Bytes, Error> {
    read_from(Source::Any, local, access, hit, range).await
}

async fn read_from(
    source: Source,
    local: &Local,
    access: &Access<'_>,
    hit: &Hit,
    range: Range<u64>,
) -> Result<bytes::Bytes, Error> {
    let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let start = hit.base + range.start;
    let part = async |at, len| match source {
        Source::Any => local.read(&hit.file, at, len, access).await,
        Source::Disk => local.read_anew(&hit.file, at, len, access).await,
    };
    if len <= READ_MAX {
        return Ok(part(start, len).await?);
    }
    let mut all = bytes::BytesMut::with_capacity(len);
    while all.len() < len {
        let at = start + all.len() as u64;
        let more = part(at, len - all.len()).await?;
        if more.is_empty() {
            break;
        }
        all.extend_from_slice(&more);
    }
    Ok(all.freeze())
}
