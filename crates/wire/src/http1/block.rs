//! Where the bytes of heads lie. Invariant: a block goes when the last of its heads does.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};

/// Heads of one thread are cut from blocks of so many bytes...
const BLOCK: usize = 4096;
/// ...and longer ones have memory of their own, so that a block holds several.
const CUT_MAX: usize = BLOCK / 4;

thread_local! {
    static HEADS: RefCell<BytesMut> = RefCell::default();
}

/// A copy of a head. Copies share their memory, so that a request costs no allocation for it, nor for each part of it that is kept.
pub(super) fn copied(head: &[u8]) -> Bytes {
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
