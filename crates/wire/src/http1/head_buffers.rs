//! Memory for heads and small bodies, cut from shared blocks. Invariant: a block is freed with the last piece cut from
//! it.

use std::cell::{Cell, RefCell};

use bytes::{Bytes, BytesMut};

/// Size in bytes of the blocks that the heads of a thread are cut from.
const BLOCK: usize = 4096;
/// Maximum length in bytes of a head that is cut from a block. Longer ones get memory of their own, so that a block
/// holds several heads.
const CUT_MAX: usize = BLOCK / 4;

/// Capacity in bytes that a thread keeps of the buffer that heads are written into.
const WRITTEN_KEPT: usize = 16 * 1024;

thread_local! {
    static HEADS: RefCell<BytesMut> = RefCell::default();
    static WRITTEN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The bytes that `write` appends, copied by [`copied`].
///
/// # Errors
/// The error of `write`.
pub fn written<T, E>(write: impl FnOnce(&mut Vec<u8>) -> Result<T, E>) -> Result<(Bytes, T), E> {
    // A nested call finds an empty buffer here.
    let mut out = WRITTEN.take();
    out.clear();
    let outcome = write(&mut out);
    let outcome = outcome.map(|found| (copied(&out), found));
    out.shrink_to(WRITTEN_KEPT);
    WRITTEN.set(out);
    outcome
}

/// A copy of a head. Copies share blocks of memory, so that a request needs no allocation for its head, nor for the
/// parts of it that are kept.
#[inline]
pub fn copied(head: &[u8]) -> Bytes {
    joined(&[head])
}

/// As [`copied`], of several parts in order.
#[inline]
pub(crate) fn joined(parts: &[&[u8]]) -> Bytes {
    let len = parts.iter().map(|part| part.len()).sum();
    if len > CUT_MAX {
        return parts.concat().into();
    }
    HEADS.with_borrow_mut(|block| {
        if block.capacity() < len {
            block.reserve(BLOCK);
        }
        parts.iter().for_each(|part| block.extend_from_slice(part));
        block.split().freeze()
    })
}
