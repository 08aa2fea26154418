//! The files of a journal: their names, the start of a log, and what a start reads.
//!
//! Not here: the format of frames and records (`frame`, `record`), and their replay (`replay`).

use super::frame::{
    FILE_HEADER_BYTES, FILE_VERSION, FRAME_BYTES_MAX, FRAME_HEADER_BYTES, FileHeader, JournalFrame,
    Scanner,
};
use super::parts::{PartsFound, parts_for, replay_parts};
use super::record::{JournalRecord, PUT_BYTES_MIN};
use super::replay::{Recovered, Replay};
use super::{FILE_MODE, snapshot};
use crate::error::Error;
use crate::index::{Index, KnownKey};
use crate::key::Key;
use disk::{
    Access, BatchStep, Create, Errno, Lane, Local, Lock, Output, Pool, READ_MAX, remove_waiting,
};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Entries that are deleted for a log if its file system is full.
const FREED_MAX: usize = 16;
const _: () = assert!(FREED_MAX <= disk::STEPS_MAX);

/// The files in the journal's folder.
#[derive(Debug, Default)]
pub(super) struct JournalFiles {
    /// Generations and lengths.
    pub logs: Vec<(u64, u64)>,
    snapshots: Vec<u64>,
    /// Snapshots that were not finished.
    temps: Vec<u64>,
    pub log_bytes: u64,
    pub snapshot_bytes: u64,
    /// When the last snapshot was written.
    pub snapshot_at: Option<SystemTime>,
}

impl JournalFiles {
    pub(super) async fn list(local: &Local, folder: &[u8], pool: &Pool) -> Result<Self, Error> {
        let mut files = Self::default();
        let listing = local.readdir(folder, &Access::new(pool)).await?;
        for entry in listing.entries {
            let name = str::from_utf8(&entry.name).unwrap_or_default();
            let Some((kind, number)) = name.split_once('.') else {
                continue;
            };
            match (kind, number.parse::<u64>()) {
                ("log", Ok(number)) => {
                    files.logs.push((number, entry.meta.len));
                    files.log_bytes += entry.meta.len;
                }
                ("snapshot", Ok(number)) => {
                    files.snapshots.push(number);
                    let since = u64::try_from(entry.meta.mtime).unwrap_or(0);
                    let written = SystemTime::UNIX_EPOCH + Duration::from_secs(since);
                    files.snapshot_at = files.snapshot_at.max(Some(written));
                    files.snapshot_bytes += entry.meta.len;
                }
                ("temp", Ok(number)) => {
                    files.temps.push(number);
                    files.snapshot_bytes += entry.meta.len;
                }
                _ => {}
            }
        }
        files.logs.sort_unstable();
        files.snapshots.sort_unstable();
        Ok(files)
    }

    /// The newest file of each kind, which has the version of the program that wrote last.
    pub(super) async fn check_version(
        &self,
        local: &Local,
        folder: &[u8],
        pool: &Pool,
    ) -> Result<(), Error> {
        let log = self.logs.last().map(|log| log_name(folder, log.0));
        let snapshot = self.snapshots.last();
        let snapshot = snapshot.map(|number| snapshot::name(folder, *number));
        for name in log.into_iter().chain(snapshot) {
            let (front, _) = local.read_front(&name, FILE_HEADER_BYTES, pool).await?;
            match FileHeader::version(&front) {
                Some(version) if version != FILE_VERSION => {
                    return Err(Error::JournalVersion(version, FILE_VERSION));
                }
                // A damaged header is found, and survived, by the replay.
                _ => {}
            }
        }
        Ok(())
    }

    /// Maximum number of entries that the files can name.
    pub(super) fn entries_max(&self) -> usize {
        let bytes = self.log_bytes + self.snapshot_bytes;
        usize::try_from(bytes / PUT_BYTES_MIN).unwrap_or(usize::MAX)
    }

    pub(super) fn last(&self) -> u64 {
        let last = self.logs.last().map(|log| log.0);
        let last = last.max(self.snapshots.last().copied());
        last.unwrap_or_default()
    }

    pub(super) fn names(&self, folder: &[u8]) -> Vec<Vec<u8>> {
        let logs = self.logs.iter().map(|log| log_name(folder, log.0));
        let snapshots = self.snapshots.iter();
        let snapshots = snapshots.map(|number| snapshot::name(folder, *number));
        let temps = self.temps.iter();
        let temps = temps.map(|number| [folder, format!("temp.{number}").as_bytes()].concat());
        logs.chain(snapshots).chain(temps).collect()
    }
}

pub(super) fn log_name(folder: &[u8], generation: u64) -> Vec<u8> {
    [folder, format!("log.{generation}").as_bytes()].concat()
}

/// Deletes the oldest entries from a file system that is too full for a log. The journal still lists them; lookups will
/// find no file.
async fn free_some(
    local: &Local,
    index: &Index,
    pool: &Pool,
    place: impl Fn(&Key) -> Vec<u8>,
) -> Result<(), Error> {
    let oldest = std::iter::from_fn(|| index.evict()).take(FREED_MAX);
    let unlink = |known: KnownKey| BatchStep::Unlink(place(&known.key).into());
    Ok(local.change(oldest.map(unlink).collect(), pool).await?)
}

/// Creates the file of a log.
pub(super) async fn begin_log(
    local: &Local,
    folder: &[u8],
    generation: u64,
    pool: &Pool,
) -> Result<Output, Error> {
    let name = log_name(folder, generation);
    // If it exists, a start began it that came no further.
    let log = local
        .create(&name, Create::Truncate, FILE_MODE, pool)
        .await?;
    let header = FileHeader {
        generation,
        is_snapshot: false,
    };
    local.append(&log, vec![header.encode()], pool).await?;
    Ok(log)
}

/// As [`begin_log`]; where the file system is too full for it, the oldest entries are deleted.
pub(super) async fn begin_log_in(
    local: &Local,
    folder: &[u8],
    generation: u64,
    pool: &Pool,
    index: &Index,
    place: impl Fn(&Key) -> Vec<u8>,
) -> Result<Output, Error> {
    match begin_log(local, folder, generation, pool).await {
        Err(Error::Disk(error)) if error.errno() == Some(Errno::NOSPC) => {
            free_some(local, index, pool, place).await?;
            begin_log(local, folder, generation, pool).await
        }
        log => log,
    }
}

/// Removes a log that says nothing, and then lets the directory go.
pub(super) async fn remove_log(name: Vec<u8>, lock: Lock, pool: &Pool) {
    let job = move || {
        // One that stays is read by the next start, and goes with the next snapshot.
        let _ = remove_waiting(&name);
        drop(lock);
    };
    // Where there is no room for the job, the lock is let go all the same.
    let _ = pool.run(Lane::Write, job).await;
}

/// Reads the last snapshot and the logs since, for all keys or `only` for some. Also returns the number of the next frame.
pub(super) async fn recover(
    local: &Local,
    folder: &[u8],
    files: &JournalFiles,
    pool: &Pool,
    index: &Arc<Index>,
    boot: [u8; 16],
    only: Option<&[Key]>,
) -> Result<(Recovered, u64), Error> {
    let mut replay = Replay::of(index, only);
    let snapshot = files.snapshots.last().copied();
    if let Some(generation) = snapshot {
        let name = snapshot::name(folder, generation);
        let expected = match only {
            Some(_) => 0,
            None => entries_of(local, &name, pool).await?,
        };
        let expected = expected.min(files.entries_max());
        // Which keys give way where there is no room depends on the order of all of them.
        let has_room = expected > 0 && index.len().saturating_add(expected) <= index.keys_max();
        let parts = parts_for(expected, pool);
        let found = match has_room {
            true => read_parts(local, &name, pool, index, (expected, parts)).await?,
            false => None,
        };
        match found {
            Some(found) => replay.adopt(found),
            None => read_snapshot(local, &name, pool, &mut replay, expected).await?,
        }
    }
    // A directory without a journal begins with log 1.
    let needed = snapshot.unwrap_or(1);
    let logs: Vec<(u64, u64)> = files
        .logs
        .iter()
        .copied()
        .filter(|log| log.0 >= needed)
        .collect();
    for (generation, _) in &logs {
        let name = log_name(folder, *generation);
        if !read(local, &name, pool, |frame| replay.log(frame)).await? {
            replay.set_damaged();
        }
    }
    Ok(replay.finish(needed, &logs, snapshot.is_some(), boot))
}

/// Replays a snapshot by one reader. So many entries are expected; 0: it is not known how many.
pub(super) async fn read_snapshot(
    local: &Local,
    name: &[u8],
    pool: &Pool,
    replay: &mut Replay<'_>,
    mut expected: usize,
) -> Result<(), Error> {
    let index = replay.index();
    let each = |frame: JournalFrame| {
        let entries = std::mem::take(&mut expected);
        if entries > 0 {
            index.expect(entries, begins_with_file(&frame));
        }
        replay.snapshot(&frame);
    };
    let is_intact = read(local, name, pool, each).await?;
    replay.end_snapshot(is_intact);
    Ok(())
}

/// Replays a snapshot in so many parts.
pub(super) async fn read_parts(
    local: &Local,
    name: &[u8],
    pool: &Pool,
    index: &Arc<Index>,
    expected_and_parts: (usize, usize),
) -> Result<Option<PartsFound>, Error> {
    let access = Access {
        noatime: true,
        ..Access::new(pool)
    };
    let file = local.open(name, &access).await?;
    let header = local.read(&file, 0, FILE_HEADER_BYTES, &access).await?;
    let from = header.len() as u64;
    let found = replay_parts(local, &file, &access, index, expected_and_parts, from).await?;
    Ok(found.map(|found| PartsFound {
        is_damaged: found.is_damaged || FileHeader::decode(&header).is_none(),
        ..found
    }))
}

/// The kernel's boot id; zeros if it is not known.
pub(super) async fn boot_id(local: &Local, pool: &Pool) -> [u8; 16] {
    let path = b"/proc/sys/kernel/random/boot_id";
    let text = match local.read_front(path, 64, pool).await {
        Ok((text, _)) => text,
        Err(_) => return [0; 16],
    };
    let digits: Vec<u8> = text.iter().copied().filter(u8::is_ascii_hexdigit).collect();
    Key::from_name(&digits).map_or([0; 16], |key| key.0)
}

/// The number of entries that a snapshot has, by what its last frame says; 0: nothing is known of it.
async fn entries_of(local: &Local, name: &[u8], pool: &Pool) -> Result<usize, Error> {
    const FRAME_MAX: usize = FRAME_HEADER_BYTES + FRAME_BYTES_MAX;
    let access = Access::new(pool);
    let file = local.open(name, &access).await?;
    let from = file.meta().len.saturating_sub(FRAME_MAX as u64);
    let bytes = local.read(&file, from, FRAME_MAX, &access).await?;
    let mut scanner = Scanner::default();
    scanner.push(&bytes);
    let last = std::iter::from_fn(|| scanner.next(true)).last();
    let record = last.and_then(|frame| frame.records().last().flatten());
    Ok(match record {
        Some(JournalRecord::Complete { entries, .. }) => entries as usize,
        _ => 0,
    })
}

/// Is the first entry of a frame one with a file of its own?
fn begins_with_file(frame: &JournalFrame) -> bool {
    let first = frame.records().next().flatten();
    matches!(first, Some(JournalRecord::Put { known, .. }) if !known.extent.is_in_segment())
}

/// Passes every intact frame of a file to `each`. False: a part of the file was damaged.
async fn read(
    local: &Local,
    name: &[u8],
    pool: &Pool,
    mut each: impl FnMut(JournalFrame),
) -> Result<bool, Error> {
    let access = Access {
        noatime: true,
        ..Access::new(pool)
    };
    let file = local.open(name, &access).await?;
    let header = local.read(&file, 0, FILE_HEADER_BYTES, &access).await?;
    // An empty file was begun, and no more.
    let mut is_complete = header.is_empty() || FileHeader::decode(&header).is_some();
    let mut scanner = Scanner::default();
    let mut offset = header.len() as u64;
    loop {
        let bytes = local.read(&file, offset, READ_MAX, &access).await?;
        offset += bytes.len() as u64;
        scanner.push(&bytes);
        while let Some(frame) = scanner.next(bytes.is_empty()) {
            each(frame);
        }
        if bytes.is_empty() {
            break;
        }
    }
    is_complete &= !scanner.is_damaged();
    Ok(is_complete)
}
