//! The memory of what is read of upstream servers. Large reads need no copy: the scratch buffer is lent out with the bytes
//! read into it, and another takes its place. When none is left, pieces get memory of their own, as large as they are.
//!
//! Nothing is lent where memory is tight: a lent buffer is mostly empty, while a copy has the size of the bytes read.
//!
//! Invariants: a loop has at most `BUFFERS_MAX` buffers beside the one that it reads into. Pieces with memory of their own
//! are large only as long as all of them together are within the loop's share of the budget: slow readers hold no more
//! than that, and `OWN_LEAST` each.

use std::cell::{Cell, RefCell};
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use disk::memory::level::level;
use disk::memory::{self, BoundedCharge, Charge, Holder, MemoryLevel, Total, charge};

/// Size in bytes of the scratch buffer that all connections of a loop read into. Each read and the write behind it wake the
/// peers, which costs as much as moving 100 KB; two buffers stay in the processor's second cache. A page more than a power
/// of two: a body of that size comes with its head.
pub(crate) const SCRATCH: usize = (256 + 4) * 1024;
/// Maximum number of buffers lent out at a time.
const BUFFERS_MAX: usize = 16;
/// Minimum number of bytes to lend a buffer for; copying fewer costs less.
pub(crate) const LENT_MIN: usize = 16 * 1024;

/// Bytes of a read for a piece with memory of its own, where there is little of it.
const OWN_LEAST: usize = 8 * 1024;
/// The same where memory is tight and there is some: small pieces that live long lie between large ones, so that the
/// allocator gets back less than was freed.
const OWN_TIGHT: usize = 32 * 1024;
/// Minimum bytes of such a piece to be counted: that costs an allocation.
const COUNTED_MIN: usize = 2 * 1024;

type Buffers = Mutex<Vec<Box<[u8]>>>;

/// The read buffers of a loop.
pub(crate) struct ReadBuffers {
    /// The buffers that are not lent out. Locked, because another thread, which wrote the bytes to a disk, may drop
    /// them.
    free: Arc<Buffers>,
    made: Cell<usize>,
    charge: RefCell<Charge>,
    /// Bytes of the pieces that have memory of their own.
    owned: Arc<Total>,
}

impl Default for ReadBuffers {
    fn default() -> Self {
        Self {
            free: Arc::default(),
            made: Cell::new(0),
            charge: RefCell::new(charge(Holder::Buffers, 0)),
            owned: Arc::default(),
        }
    }
}

/// The number of buffers that a loop may have now.
fn buffers_max() -> usize {
    if level() >= MemoryLevel::Buffers || memory::is_tight(memory::budget()) {
        return 0;
    }
    (share() / SCRATCH).min(BUFFERS_MAX)
}

/// Bytes that the buffers of a loop may take, and the pieces with memory of their own.
fn share() -> usize {
    usize::try_from(memory::buffers_of_a_loop()).unwrap_or(usize::MAX)
}

struct LentBuffer {
    bytes: Box<[u8]>,
    home: Arc<Buffers>,
}

/// A piece with memory of its own.
struct OwnPiece {
    bytes: Vec<u8>,
    _charge: BoundedCharge<Arc<Total>>,
}

impl ReadBuffers {
    /// Maximum bytes of the next read for a piece with memory of its own.
    pub(crate) fn own_max(&self) -> usize {
        let is_free = level() < MemoryLevel::Windows && self.owned.bytes() < share();
        match is_free {
            false => OWN_LEAST,
            true if memory::is_tight(memory::budget()) => OWN_TIGHT,
            true => SCRATCH,
        }
    }

    /// Makes it a piece that is counted while it lives.
    pub(crate) fn own(&self, bytes: Vec<u8>) -> Bytes {
        if bytes.len() < COUNTED_MIN {
            return bytes.into();
        }
        let (all, len) = (Arc::clone(&self.owned), bytes.capacity());
        Bytes::from_owner(OwnPiece {
            bytes,
            _charge: BoundedCharge::new(Holder::Buffers, all, len),
        })
    }

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

impl AsRef<[u8]> for OwnPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
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

    #[test]
    fn pieces_with_memory_of_their_own_are_counted() {
        let buffers = ReadBuffers::default();
        let pieces = [buffers.own(vec![1; 5000]), buffers.own(vec![1; 100])];
        let part = pieces[0].slice(1..2);
        assert_eq!(buffers.owned.bytes(), 5000);
        drop(pieces);
        assert_eq!(buffers.owned.bytes(), 5000);
        drop(part);
        assert_eq!(buffers.owned.bytes(), 0);
        assert_eq!(buffers.own_max(), SCRATCH, "there is no budget");
    }
}
