//! Where the bytes of heads and of small bodies lie. Invariant: a block goes when the last of what lies in it does.

use std::cell::{Cell, RefCell};

use bytes::{Bytes, BytesMut};

/// Heads of one thread are cut from blocks of so many bytes...
const BLOCK: usize = 4096;
/// ...and longer ones have memory of their own, so that a block holds several.
const CUT_MAX: usize = BLOCK / 4;

/// What a thread keeps of the memory that a head was written into.
const WRITTEN_KEPT: usize = 16 * 1024;

thread_local! {
    static HEADS: RefCell<BytesMut> = RefCell::default();
    static WRITTEN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What `write` appends, copied as by [`copied`].
///
/// # Errors
/// What `write` fails with.
pub fn written<T, E>(write: impl FnOnce(&mut Vec<u8>) -> Result<T, E>) -> Result<(Bytes, T), E> {
    // Whoever writes another meanwhile finds an empty place.
    let mut out = WRITTEN.take();
    out.clear();
    let outcome = write(&mut out);
    let outcome = outcome.map(|found| (copied(&out), found));
    out.shrink_to(WRITTEN_KEPT);
    WRITTEN.set(out);
    outcome
}

/// A copy of a head. Copies share their memory, so that a request costs no allocation for it, nor for each part of it that is kept.
pub fn copied(head: &[u8]) -> Bytes {
    if head.len() > CUT_MAX {
        return Bytes::copy_from_slice(head);
    }
    HEADS.with_borrow_mut(|block| {
        if block.capacity() < head.len() {
            block.reserve(BLOCK);
        }
        block.extend_from_slice(head);
        block.split().freeze()
    })
}
