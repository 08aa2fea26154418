//! Large reads without a copy: the scratch buffer itself is given away with what was read into it, and another takes its place.
//!
//! Not where memory is tight: a buffer that is away is mostly empty, and a copy has the size of what was read.
//!
//! Invariant: a loop has at most `BUFFERS_MAX` buffers beside the one that it reads into; who finds none left copies, so that
//! readers who are slow hold no more memory than that.

use std::cell::{Cell, RefCell};
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::event_loop::SCRATCH;
use disk::memory::level::level;
use disk::memory::{self, Charge, Holder, Level, charge};

/// Buffers that may be away at once.
const BUFFERS_MAX: usize = 16;
/// Fewer bytes are copied: that costs less than to give a buffer away.
pub const LENT_MIN: usize = 16 * 1024;

type Buffers = Mutex<Vec<Box<[u8]>>>;

/// A loop's buffers.
pub struct Lender {
    /// Those that came back, or were never away. Bytes may be dropped by another thread, which wrote them to a disk.
    back: Arc<Buffers>,
    made: Cell<usize>,
    charge: RefCell<Charge>,
}

impl Default for Lender {
    fn default() -> Self {
        Self {
            back: Arc::default(),
            made: Cell::new(0),
            charge: RefCell::new(charge(Holder::Buffers, 0)),
        }
    }
}

/// Buffers that a loop may have now.
fn buffers_max() -> usize {
    if level() >= Level::Buffers || memory::is_tight(memory::budget()) {
        return 0;
    }
    let share = memory::buffers_of_a_loop() / SCRATCH as u64;
    usize::try_from(share)
        .unwrap_or(usize::MAX)
        .min(BUFFERS_MAX)
}

struct Lent {
    bytes: Box<[u8]>,
    home: Arc<Buffers>,
}

impl Lender {
    /// Gives a part of `scratch` away and puts another buffer in its place; `None`: there is no other.
    pub fn lend(&self, scratch: &mut Box<[u8]>, part: Range<usize>) -> Option<Bytes> {
        let other = self.another()?;
        let lent = Lent {
            bytes: mem::replace(scratch, other),
            home: Arc::clone(&self.back),
        };
        Some(Bytes::from_owner(lent).slice(part))
    }

    fn another(&self) -> Option<Box<[u8]>> {
        let back = self.back.lock().pop();
        if back.is_some() || self.made.get() >= buffers_max() {
            return back;
        }
        self.count(self.made.get() + 1);
        Some(vec![0; SCRATCH].into())
    }

    /// Frees those that are not away.
    pub fn give_back(&self) {
        let freed = std::mem::take(&mut *self.back.lock());
        self.count(self.made.get() - freed.len());
    }

    fn count(&self, made: usize) {
        self.made.set(made);
        self.charge.borrow_mut().set(made * SCRATCH);
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.lock().push(mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_are_bounded() {
        let lender = Lender::default();
        let mut scratch: Box<[u8]> = vec![7; SCRATCH].into();
        let first = lender.lend(&mut scratch, 1..3).unwrap();
        assert_eq!((&first[..], scratch[0]), (&[7, 7][..], 0));
        let others: Vec<_> = (1..BUFFERS_MAX)
            .map(|_| lender.lend(&mut scratch, 0..9).unwrap())
            .collect();
        assert!(lender.lend(&mut scratch, 0..9).is_none());
        drop(first);
        assert!(lender.lend(&mut scratch, 0..9).is_some());
        assert_eq!(others.len() + 1, lender.made.get());
    }
}
