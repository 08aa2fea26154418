//! The pipe of a body that is passed on as it comes: one piece at a time, from the socket to its reader.
//!
//! The socket's end runs only inside [`alongside`](crate::request_body::alongside), the other end belongs to the reader:
//! neither holds anything of the other. Invariant: a pipe holds one piece.

use std::cell::RefCell;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use disk::memory::{Charge, Holder, charge};
use message::Framing;

/// The buffer between the two ends.
#[derive(Debug)]
pub struct Pipe {
    framing: Framing,
    slot: RefCell<Slot>,
}

#[derive(Debug)]
struct Slot {
    piece: Option<Bytes>,
    /// Memory charged for the piece.
    charge: Charge,
    is_end: bool,
    /// Whether a reader has taken anything.
    is_touched: bool,
    /// The reader that waits for a piece.
    taker: Option<Waker>,
    /// The writer that waits for room.
    giver: Option<Waker>,
}

impl Pipe {
    /// A pipe that contains the part that has arrived.
    pub(crate) fn new(framing: Framing, begun: Bytes) -> Self {
        let slot = Slot {
            charge: charge(Holder::RequestBodies, begun.len()),
            piece: Some(begun).filter(|begun| !begun.is_empty()),
            is_end: false,
            is_touched: false,
            taker: None,
            giver: None,
        };
        Self {
            framing,
            slot: RefCell::new(slot),
        }
    }

    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }

    pub(crate) fn is_touched(&self) -> bool {
        self.slot.borrow().is_touched
    }

    /// The part that has arrived, if nothing of it was taken; the pipe must not be used afterwards.
    pub(crate) fn reclaim(&self) -> Option<Bytes> {
        let slot = &mut *self.slot.borrow_mut();
        (!slot.is_touched).then(|| slot.piece.take().unwrap_or_default())
    }

    /// The next piece; `None` at the end.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let slot = &mut *self.slot.borrow_mut();
        match slot.piece.take() {
            Some(piece) => {
                slot.charge.set(0);
                slot.is_touched = true;
                if let Some(giver) = slot.giver.take() {
                    giver.wake();
                }
                Poll::Ready(Some(piece))
            }
            None if slot.is_end => Poll::Ready(None),
            None => {
                slot.taker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Ready when there is room for a piece.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let slot = &mut *self.slot.borrow_mut();
        if slot.piece.is_none() {
            return Poll::Ready(());
        }
        slot.giver = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether there is a piece, or the end.
    pub(crate) fn is_ready(&self) -> bool {
        let slot = self.slot.borrow();
        slot.piece.is_some() || slot.is_end
    }

    /// Whether the end has come, with nothing before it that was not taken.
    pub(crate) fn is_over(&self) -> bool {
        let slot = self.slot.borrow();
        slot.piece.is_none() && slot.is_end
    }

    /// Whether the last piece was given.
    pub(crate) fn has_end(&self) -> bool {
        self.slot.borrow().is_end
    }

    /// Adds a piece, which may be empty; `is_end`: it is the last one.
    pub(crate) fn give(&self, piece: Vec<u8>, is_end: bool) {
        let slot = &mut *self.slot.borrow_mut();
        slot.is_end = is_end;
        slot.charge.set(piece.capacity());
        slot.piece = (!piece.is_empty()).then(|| piece.into());
        if let Some(taker) = slot.taker.take() {
            taker.wake();
        }
    }
}
