//! Large reads without a copy: the scratch buffer is lent out with the bytes read into it, and another takes its place.
//!
//! Not used where memory is tight: a lent buffer is mostly empty, while a copy has the size of the bytes read.
//!
//! Invariant: a loop has at most `BUFFERS_MAX` buffers beside the one that it reads into; when none is left the bytes
//! are copied, so that slow readers hold at most this much memory.

use std::cell::{Cell, RefCell};
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use disk::memory::level::level;
use disk::memory::{self, Charge, Holder, MemoryLevel, charge};

/// Size in bytes of the scratch buffer that all connections of a loop read into. Each read and the write behind it wake the
/// peers, which costs as much as moving 100 KB; two buffers stay in the processor's second cache. A page more than a power
/// of two: a body of that size comes with its head.
pub(crate) const SCRATCH: usize = (256 + 4) * 1024;
/// Maximum number of buffers lent out at a time.
const BUFFERS_MAX: usize = 16;
/// Minimum number of bytes to lend a buffer for; copying fewer costs less.
pub(crate) const LENT_MIN: usize = 16 * 1024;

type Buffers = Mutex<Vec<Box<[u8]>>>;

/// The read buffers of a loop.
pub(crate) struct ReadBuffers {
    /// The buffers that are not lent out. Locked, because another thread, which wrote the bytes to a disk, may drop
    /// them.
    free: Arc<Buffers>,
    made: Cell<usize>,
    charge: RefCell<Charge>,
}

impl Default for ReadBuffers {
    fn default() -> Self {
        Self {
            free: Arc::default(),
            made: Cell::new(0),
            charge: RefCell::new(charge(Holder::Buffers, 0)),
        }
    }
}

/// The number of buffers that a loop may have now.
fn buffers_max() -> usize {
    if level() >= MemoryLevel::Buffers || memory::is_tight(memory::budget()) {
        return 0;
    }
    let share = memory::buffers_of_a_loop() / SCRATCH as u64;
    usize::try_from(share)
        .unwrap_or(usize::MAX)
        .min(BUFFERS_MAX)
}

struct LentBuffer {
    bytes: Box<[u8]>,
    home: Arc<Buffers>,
}

impl ReadBuffers {
    /// Lends out `scratch` as the bytes of `part`, and puts another buffer in its place; `None`: there is no other.
    pub(crate) fn lend(&self, scratch: &mut Box<[u8]>, part: Range<usize>) -> Option<Bytes> {
        let other = self.another()?;
        let lent = LentBuffer {
            bytes: mem::replace(scratch, other),
            home: Arc::clone(&self.free),
        };
        Some(Bytes::from_owner(lent).slice(part))
    }

    /// Is there another buffer, for the bytes of a read to be lent out with theirs?
    pub(crate) fn has_another(&self) -> bool {
        self.made.get() < buffers_max() || !self.free.lock().is_empty()
    }

    fn another(&self) -> Option<Box<[u8]>> {
        let free = self.free.lock().pop();
        if free.is_some() || self.made.get() >= buffers_max() {
            return free;
        }
        self.count(self.made.get() + 1);
        Some(vec![0; SCRATCH].into())
    }

    /// Frees the buffers that are not lent out.
    pub(crate) fn give_back(&self) {
        let freed = std::mem::take(&mut *self.free.lock());
        self.count(self.made.get() - freed.len());
    }

    fn count(&self, made: usize) {
        self.made.set(made);
        self.charge.borrow_mut().set(made * SCRATCH);
    }
}

impl AsRef<[u8]> for LentBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        self.home.lock().push(mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_returned_and_bounded() {
        let buffers = ReadBuffers::default();
        let mut scratch: Box<[u8]> = vec![7; SCRATCH].into();
        let first = buffers.lend(&mut scratch, 1..3).unwrap();
        assert_eq!((&first[..], scratch[0]), (&[7, 7][..], 0));
        let others: Vec<_> = (1..BUFFERS_MAX)
            .map(|_| buffers.lend(&mut scratch, 0..9).unwrap())
            .collect();
        assert!(buffers.lend(&mut scratch, 0..9).is_none());
        drop(first);
        assert!(buffers.lend(&mut scratch, 0..9).is_some());
        assert_eq!(others.len() + 1, buffers.made.get());
    }
}
