//! Large bodies that are made in a pool: sent in pieces, counted as memory, and freed in the pool.
//!
//! Invariant: neither sending nor freeing one keeps a loop.

use std::rc::Rc;

use bytes::Bytes;
use disk::memory::{Charge, Holder, charge};
use disk::{OpenFile, Pool};
use message::Chunk;

/// Maximum number of bytes of a piece; the pieces are sent one by one.
pub(super) const PIECE: usize = 64 << 10;

/// The memory behind the pieces. To free megabytes takes the kernel milliseconds.
struct Pooled {
    bytes: Vec<u8>,
    pool: Pool,
    _charge: Charge,
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if self.bytes.len() > PIECE {
            self.pool.release(std::mem::take(&mut self.bytes));
        }
    }
}

/// The pieces of a body that was made in this pool.
pub(super) fn in_pieces(bytes: Vec<u8>, pool: &Pool) -> Vec<Chunk<Rc<OpenFile>>> {
    let mut rest = Bytes::from_owner(Pooled {
        _charge: charge(Holder::Buffers, bytes.capacity()),
        bytes,
        pool: pool.clone(),
    });
    let mut pieces = Vec::with_capacity(rest.len() / PIECE + 2);
    while !rest.is_empty() {
        pieces.push(Chunk::Bytes(rest.split_to(rest.len().min(PIECE))));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::Disk;
    use disk::memory::accounts::held;

    #[test]
    fn pieces_are_small_and_counted_until_the_last_is_gone() {
        let pool = Disk::new(Disk::prepare()).default_pool();
        let counted = || held()[Holder::Buffers as usize];
        let before = counted();
        let body: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        let mut pieces: Vec<Bytes> = in_pieces(body.clone(), &pool)
            .into_iter()
            .map(|piece| match piece {
                Chunk::Bytes(bytes) => bytes,
                Chunk::File(_) => panic!("it is in memory"),
            })
            .collect();
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE));
        assert_eq!(pieces.concat(), body);
        pieces.truncate(1);
        assert!(counted() >= before + 200_000);
        drop(pieces);
        assert!(counted() < before + 200_000);
    }
}
