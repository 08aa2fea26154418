//! The space of one cache directory, reserved before it is written, so that `max_size` holds at every moment.
//!
//! It counts blocks of the file system, as nginx and `du` do. Not here: the choice of entries to evict (the index makes
//! it) and files. Invariant: used and reserved space together never exceed `max_size`, unless a start found more.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The limits of a cache directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceLimits {
    /// Bytes of a block of the file system (`f_bsize` of statvfs(3)); at least 512.
    pub block_bytes: u32,
    /// `max_size`, in bytes; None: no limit.
    pub max_bytes: Option<u64>,
    /// `min_free`, in bytes: stays free on the file system.
    pub min_free_bytes: u64,
}

/// There is not enough space: so many blocks must be evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room in the cache: {0} blocks too few")]
pub struct NoRoom(pub u64);

/// The account of one cache directory. Cheap to clone; its lock is held for a few additions.
#[derive(Clone, Debug)]
pub struct Space(Arc<SpaceInner>);

#[derive(Debug)]
struct SpaceInner {
    block_bytes: u64,
    max: AtomicU64,
    min_free: AtomicU64,
    count: Mutex<BlockCounts>,
}

/// The counts, in blocks.
#[derive(Clone, Copy, Debug)]
struct BlockCounts {
    /// Held by entries, by files being written, and by files being deleted.
    used: u64,
    /// Those of them that are not on the disk yet.
    pending: u64,
    /// Free blocks of the file system, less `pending`; None before the first [`Space::set_free`].
    free: Option<i64>,
}

impl Space {
    /// An empty account.
    #[must_use]
    pub fn new(limits: &SpaceLimits) -> Self {
        let block_bytes = u64::from(limits.block_bytes.max(512));
        let space = Self(Arc::new(SpaceInner {
            block_bytes,
            max: AtomicU64::new(u64::MAX),
            min_free: AtomicU64::new(0),
            count: Mutex::new(BlockCounts {
                used: 0,
                pending: 0,
                free: None,
            }),
        }));
        space.set_limits(limits.max_bytes, limits.min_free_bytes);
        space
    }

    /// Sets other limits, in bytes. [`Space::excess`] is what exceeds them then.
    pub fn set_limits(&self, max_bytes: Option<u64>, min_free_bytes: u64) {
        self.set_max(max_bytes);
        self.set_min_free(min_free_bytes);
    }

    pub(crate) fn set_max(&self, max_bytes: Option<u64>) {
        let max = max_bytes.map_or(u64::MAX, |bytes| bytes / self.0.block_bytes);
        self.0.max.store(max, Relaxed);
    }

    pub(crate) fn set_min_free(&self, min_free_bytes: u64) {
        let min_free = min_free_bytes.div_ceil(self.0.block_bytes);
        self.0.min_free.store(min_free, Relaxed);
    }

    /// Raises `max_size` by so many bytes, if there is one.
    pub(crate) fn raise_max(&self, bytes: u64) {
        let blocks = bytes / self.0.block_bytes;
        // Without a limit it is the largest number already.
        let raised = |max: u64| Some(max.saturating_add(blocks));
        let _ = self.0.max.fetch_update(Relaxed, Relaxed, raised);
    }

    /// Lowers `max_size` by so many bytes, if `spare` bytes stay free below it. False: it stays as it is.
    pub(crate) fn lower_max(&self, bytes: u64, spare: u64) -> bool {
        // Reservations hold the lock while they compare.
        let count = self.0.count.lock();
        let needed = count.used + self.blocks(bytes) + self.blocks(spare);
        let max = self.0.max.load(Relaxed);
        let may_be = max != u64::MAX && needed <= max;
        if may_be {
            self.0.max.store(max - self.blocks(bytes), Relaxed);
        }
        may_be
    }

    /// Blocks that are missing for `max_size` to be lowered by so many bytes.
    pub(crate) fn lacking_below_max(&self, bytes: u64) -> u64 {
        let needed = self.used().saturating_add(self.blocks(bytes));
        needed.saturating_sub(self.0.max.load(Relaxed))
    }

    /// Is there a `min_free`, so that the free blocks of the file system matter?
    #[must_use]
    pub(crate) fn has_min_free(&self) -> bool {
        self.0.min_free.load(Relaxed) > 0
    }

    /// Does `min_free` hold with so many blocks less that are free?
    #[must_use]
    pub(crate) fn has_free(&self, blocks: u64) -> bool {
        let count = self.0.count.lock();
        let min_free = signed(self.0.min_free.load(Relaxed));
        let left = |free: i64| free.saturating_sub(signed(blocks));
        min_free == 0 || count.free.is_none_or(|free| left(free) >= min_free)
    }

    /// Notes that blocks were taken beside what is counted here.
    pub(crate) fn take_free(&self, blocks: u64) {
        let mut count = self.0.count.lock();
        count.free = count.free.map(|free| free.saturating_sub(signed(blocks)));
    }

    /// The blocks that `bytes` take.
    #[must_use]
    pub fn blocks(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.0.block_bytes)
    }

    /// Reserves space for a file that is about to be written. It is given back when the reservation is dropped.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, NoRoom> {
        let mut reservation = Reservation {
            space: self.clone(),
            blocks: 0,
            pending: 0,
            is_pending: true,
        };
        reservation.grow_to(bytes)?;
        Ok(reservation)
    }

    /// Counts blocks that are on the disk already (found at start, or written beside the entries: directories, the
    /// journal), whether they fit or not.
    pub fn charge(&self, blocks: u64) {
        self.0.count.lock().used += blocks;
    }

    /// A reservation of the blocks of an entry that was removed from the index. They count until it is dropped, which
    /// should be when the file is gone.
    #[must_use = "the room is free when this is dropped"]
    pub fn adopt(&self, blocks: u64) -> Reservation {
        Reservation {
            space: self.clone(),
            blocks,
            pending: 0,
            is_pending: false,
        }
    }

    /// Sets the free blocks as statvfs(3) reports them (`f_bavail`). To be called regularly if there is a `min_free`.
    pub(crate) fn set_free(&self, blocks: u64) {
        let mut count = self.0.count.lock();
        let pending = signed(count.pending);
        count.free = Some(signed(blocks) - pending);
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.0.block_bytes
    }

    /// The maximum of blocks; `None`: no limit.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        let max = self.0.max.load(Relaxed);
        (max != u64::MAX).then_some(max)
    }

    /// Blocks in use, reserved ones included.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.count.lock().used
    }

    /// Blocks to evict for the limits to hold again: after a start, or after other programs have filled the file
    /// system.
    #[must_use]
    pub fn excess(&self) -> u64 {
        self.lacking(&self.0.count.lock(), 0)
    }

    /// Whether a file of so many bytes could have room if nothing else were there, and `given` bytes more were for files.
    pub(crate) fn could_hold(&self, bytes: u64, given: u64) -> bool {
        let blocks = self
            .blocks(bytes)
            .saturating_sub(given / self.0.block_bytes);
        let mut count = *self.0.count.lock();
        let used = signed(std::mem::take(&mut count.used));
        count.free = count.free.map(|free| free.saturating_add(used));
        self.lacking(&count, blocks) == 0
    }

    /// Blocks that are missing for `blocks` more.
    fn lacking(&self, count: &BlockCounts, blocks: u64) -> u64 {
        let max = self.0.max.load(Relaxed);
        let over = count.used.saturating_add(blocks).saturating_sub(max);
        let min_free = self.0.min_free.load(Relaxed);
        if min_free == 0 {
            return over;
        }
        let left = count
            .free
            .map_or(i64::MAX, |free| free.saturating_sub(signed(blocks)));
        let short = signed(min_free).saturating_sub(left).max(0);
        over.max(short.unsigned_abs())
    }
}

/// Reserved space; given back on drop.
#[derive(Debug)]
#[must_use = "the room is given back when this is dropped"]
pub struct Reservation {
    space: Space,
    blocks: u64,
    /// Those of them that are not on the disk yet.
    pending: u64,
    /// Is it for a file that is to be written?
    is_pending: bool,
}

impl Reservation {
    /// Blocks that it holds.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Grows to the space of a file of `bytes` in all; never shrinks.
    ///
    /// # Errors
    /// [`NoRoom`]; it keeps what it had.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), NoRoom> {
        let more = self.space.blocks(bytes).saturating_sub(self.blocks);
        if more == 0 {
            return Ok(());
        }
        let mut count = self.space.0.count.lock();
        let lacking = self.space.lacking(&count, more);
        if lacking > 0 {
            return Err(NoRoom(lacking));
        }
        count.used += more;
        count.free = count.free.map(|free| free.saturating_sub(signed(more)));
        if self.is_pending {
            count.pending += more;
            self.pending += more;
        }
        self.blocks += more;
        Ok(())
    }

    /// Takes over the blocks of an entry that was removed from the index. Its file must be deleted before more is
    /// written than fits beside it.
    pub(crate) fn absorb(&mut self, blocks: u64) {
        self.blocks += blocks;
    }

    /// Takes over the blocks of another one, whose files are gone: they are free on the disk.
    pub(crate) fn take_over(&mut self, mut freed: Reservation) {
        let blocks = std::mem::take(&mut freed.blocks);
        self.blocks += blocks;
        if self.is_pending {
            self.space.0.count.lock().pending += blocks;
            self.pending += blocks;
        }
    }

    /// Notes that this many bytes of the file are written: the free blocks of the file system are less by them.
    pub(crate) fn written(&mut self, bytes: u64) {
        let unwritten = self.blocks.saturating_sub(self.space.blocks(bytes));
        let pending = self.pending.min(unwritten);
        self.space.0.count.lock().pending -= self.pending - pending;
        self.pending = pending;
    }

    /// Parts with blocks that are on the disk, as many as there are: they count for what is returned.
    pub(crate) fn split_off(&mut self, blocks: u64) -> Reservation {
        let blocks = blocks.min(self.blocks);
        self.blocks -= blocks;
        self.space.adopt(blocks)
    }

    /// Changes the reservation to `blocks`, whether they fit or not: what is on the disk already turned out to be more,
    /// or less.
    pub(crate) fn recount(&mut self, blocks: u64) {
        let mut count = self.space.0.count.lock();
        count.used = count.used.saturating_sub(self.blocks) + blocks;
        self.blocks = blocks;
    }

    /// Gives back what a file of `bytes` does not need.
    pub fn shrink_to(&mut self, bytes: u64) {
        let blocks = self.space.blocks(bytes).min(self.blocks);
        self.give_back(self.blocks - blocks);
    }

    /// Passes the blocks to the index, which knows the written file now: they count until [`Space::adopt`] takes them
    /// back. Returns their number.
    pub fn keep(mut self) -> u64 {
        let pending = std::mem::take(&mut self.pending);
        self.space.0.count.lock().pending -= pending;
        std::mem::take(&mut self.blocks)
    }

    fn give_back(&mut self, blocks: u64) {
        if blocks == 0 {
            return;
        }
        let mut count = self.space.0.count.lock();
        count.used = count.used.saturating_sub(blocks);
        count.free = count.free.map(|free| free.saturating_add(signed(blocks)));
        let pending = blocks.min(self.pending);
        count.pending -= pending;
        self.pending -= pending;
        self.blocks -= blocks;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.give_back(self.blocks);
    }
}

fn signed(blocks: u64) -> i64 {
    i64::try_from(blocks).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn space(max_blocks: u64, min_free_blocks: u64) -> Space {
        Space::new(&SpaceLimits {
            block_bytes: 4096,
            max_bytes: Some(max_blocks * 4096),
            min_free_bytes: min_free_blocks * 4096,
        })
    }

    #[test]
    fn a_reservation_that_does_not_fit_is_refused_with_the_missing_blocks() {
        let space = space(10, 0);
        let one = space.reserve(9 * 4096 + 1).unwrap();
        assert_eq!((one.blocks(), space.used()), (10, 10));
        assert_eq!(space.reserve(2 * 4096).unwrap_err(), NoRoom(2));
        drop(one);
        assert_eq!(space.used(), 0);
    }

    #[test]
    fn a_body_of_unknown_length_grows_and_shrinks() {
        let space = space(10, 0);
        let mut one = space.reserve(1).unwrap();
        one.grow_to(8 * 4096).unwrap();
        assert_eq!(one.grow_to(11 * 4096), Err(NoRoom(1)));
        assert_eq!(one.blocks(), 8);
        one.shrink_to(3 * 4096);
        assert_eq!(space.used(), 3);
        assert_eq!(one.keep(), 3);
        assert_eq!(space.used(), 3);
        drop(space.adopt(3));
        assert_eq!(space.used(), 0);
    }

    #[test]
    fn min_free_counts_unwritten_blocks() {
        let space = space(1_000, 100);
        let early = space.reserve(4096).unwrap();
        space.set_free(110);
        let late = space.reserve(9 * 4096).unwrap();
        assert_eq!(space.reserve(4096).unwrap_err(), NoRoom(1));
        drop(early);
        let one = space.reserve(4096).unwrap();
        one.keep();
        late.keep();
        space.set_free(100);
        assert_eq!(space.reserve(1).unwrap_err(), NoRoom(1));
        space.set_free(90);
        assert_eq!(space.excess(), 10);
    }

    #[test]
    fn written_blocks_are_missing_from_the_file_system_only() {
        let space = space(1_000, 100);
        space.set_free(120);
        let mut one = space.reserve(10 * 4096).unwrap();
        one.written(5 * 4096);
        space.set_free(115);
        assert_eq!(space.reserve(11 * 4096).unwrap_err(), NoRoom(1));
        // Another program takes the rest.
        space.set_free(105);
        assert_eq!(space.excess(), 0);
        // What is not written yet is given back, too.
        drop(one);
        assert!(space.reserve(10 * 4096).is_ok());
    }

    #[test]
    fn what_gave_way_has_one_owner() {
        let space = space(10, 100);
        space.charge(10);
        let mut one = space.reserve(0).unwrap();
        one.take_over(space.adopt(4));
        assert_eq!((one.blocks(), space.used()), (4, 10));
        // Its files are gone, and what takes their place is not written yet.
        space.set_free(104);
        assert_eq!(space.excess(), 0);
        one.written(4 * 4096);
        space.set_free(100);
        assert_eq!((space.excess(), one.keep()), (0, 4));
    }

    #[test]
    fn what_could_have_room_is_told() {
        let space = space(1_000, 100);
        let _other = space.reserve(990 * 4096).unwrap();
        assert!(space.could_hold(1_000 * 4096, 0));
        assert!(!space.could_hold(1_001 * 4096, 0));
        assert!(space.could_hold(1_001 * 4096, 4096));
        space.set_free(1_200);
        // 1200 less the 990 that are not written yet, 990 that others have, less 100.
        assert!(space.could_hold(1_000 * 4096, 0));
        space.set_free(1_050);
        assert!(space.could_hold(950 * 4096, 0));
        assert!(!space.could_hold(951 * 4096, 0));
    }

    #[test]
    fn recounted_blocks_count_once() {
        let space = space(10, 0);
        let mut found = space.adopt(0);
        for blocks in [6, 12, 7] {
            found.recount(blocks);
            assert_eq!((found.blocks(), space.used()), (blocks, blocks));
        }
        drop(found);
        assert_eq!(space.used(), 0);
    }

    #[test]
    fn a_start_may_find_too_much() {
        let space = space(10, 0);
        space.charge(14);
        assert_eq!(space.excess(), 4);
        drop(space.adopt(5));
        assert_eq!((space.used(), space.excess()), (9, 0));
    }

    proptest! {
        #[test]
        fn never_more_than_max(steps in proptest::collection::vec((0u8..4, 0u64..40_000), 0..200)) {
            let space = space(20, 0);
            let (mut held, mut kept) = (Vec::new(), Vec::new());
            for (step, bytes) in steps {
                match step {
                    0 => held.extend(space.reserve(bytes).ok()),
                    1 => drop(held.pop()),
                    2 => kept.extend(held.pop().map(Reservation::keep)),
                    _ => drop(kept.pop().map(|blocks| space.adopt(blocks))),
                }
                let sum: u64 = held.iter().map(Reservation::blocks).sum::<u64>() + kept.iter().sum::<u64>();
                prop_assert_eq!(space.used(), sum);
                prop_assert!(sum <= 20);
            }
        }
    }
}
