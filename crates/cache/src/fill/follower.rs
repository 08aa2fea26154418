//! A reader of a fill.

use super::{Fill, FillProgress, FillState, Filler, FollowerKind, Sharing, Unwanted, wake};
use bytes::Bytes;
use message::ResponseHead;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

/// The next event for a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextPiece {
    /// Bytes of the body.
    Bytes(Bytes),
    /// A range of the body that is in the file only: read it there, then call [`Follower::advance`].
    Written(Range<u64>),
    /// For the writer only: the origin waits for room, so write what has come and report it ([`Follower::written`]).
    Flush,
    /// The body is complete.
    End,
    /// The origin was lost: the body so far is incomplete.
    Broken,
    /// Nothing more for this follower: the response is private to another request (ask the origin), or the file was
    /// given up.
    Alone,
}

impl Filler {
    /// Notes that the body does not match its head. To be called before the filler is dropped.
    pub fn spoil(&self) {
        self.fill.0.is_spoilt.store(true, Relaxed);
    }

    /// Waits until the rest is not needed: no follower is left, and the response is not being stored.
    pub async fn unwanted(&self) -> Unwanted {
        poll_fn(|context| {
            let mut state = self.fill.0.state.lock();
            if state.is_unwanted() {
                return Poll::Ready(Unwanted);
            }
            state.watch = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// A reader of a fill, with its own position. Dropping it leaves the fill.
#[derive(Debug)]
pub struct Follower {
    fill: Fill,
    number: usize,
}

impl Follower {
    pub(super) fn new(fill: Fill, number: usize) -> Self {
        Self { fill, number }
    }

    /// The fill that it follows.
    #[must_use]
    pub fn fill(&self) -> &Fill {
        &self.fill
    }

    /// Did it break because the body does not match its head?
    #[must_use]
    pub fn is_spoilt(&self) -> bool {
        self.fill.0.is_spoilt.load(Relaxed)
    }

    /// Waits for the head. None: this follower will get none ([`Follower::next`] says why).
    pub async fn head(&self) -> Option<Arc<ResponseHead>> {
        poll_fn(|context| {
            let mut state = self.fill.0.state.lock();
            if self.is_sent_away(&state) {
                return Poll::Ready(None);
            }
            match &state.head {
                Some(head) => Poll::Ready(Some(head.clone())),
                None if state.progress == FillProgress::Running => self.wait(&mut state, context),
                None => Poll::Ready(None),
            }
        })
        .await
    }

    /// Waits for the next event.
    pub async fn next(&self) -> NextPiece {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The next event, if there is one.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<NextPiece> {
        let mut state = self.fill.0.state.lock();
        if self.is_sent_away(&state) {
            return Poll::Ready(NextPiece::Alone);
        }
        let Some(at) = state.followers[self.number]
            .as_ref()
            .map(|follower| follower.at)
        else {
            return Poll::Ready(NextPiece::Broken);
        };
        if at < state.start {
            let end = state.start.min(state.written);
            return Poll::Ready(if at < end {
                NextPiece::Written(at..end)
            } else {
                NextPiece::Broken
            });
        }
        if let Some(bytes) = state.piece_at(at) {
            self.move_on(&mut state, bytes.len() as u64);
            return Poll::Ready(NextPiece::Bytes(bytes));
        }
        match state.progress {
            FillProgress::Running if self.is_to_flush(&state) => Poll::Ready(NextPiece::Flush),
            FillProgress::Running => self.wait(&mut state, context),
            FillProgress::Complete => Poll::Ready(NextPiece::End),
            FillProgress::Broken => Poll::Ready(NextPiece::Broken),
        }
    }

    /// Moves on by `bytes` of the last [`NextPiece::Written`] that have been read.
    pub fn advance(&self, bytes: u64) {
        let mut state = self.fill.0.state.lock();
        self.move_on(&mut state, bytes);
    }

    /// Reports that the first `bytes` of the body are in the file (by the writer).
    pub fn written(&self, bytes: u64) {
        let mut state = self.fill.0.state.lock();
        state.written = state.written.max(bytes).min(state.end);
        state.drop_left();
        let filler = state.filler.take();
        drop(state);
        wake(filler);
    }

    /// Its position in the body.
    #[must_use]
    pub fn at(&self) -> u64 {
        let state = self.fill.0.state.lock();
        state.followers[self.number]
            .as_ref()
            .map_or(0, |follower| follower.at)
    }

    fn is_to_flush(&self, state: &FillState) -> bool {
        let kind = state.followers[self.number]
            .as_ref()
            .map(|follower| follower.kind);
        kind == Some(FollowerKind::Writer) && state.filler.is_some() && state.written < state.end
    }

    fn is_sent_away(&self, state: &FillState) -> bool {
        let kind = state.followers[self.number]
            .as_ref()
            .map(|follower| follower.kind);
        match kind {
            Some(FollowerKind::Requester) => false,
            Some(FollowerKind::Writer) => !state.is_storing,
            Some(FollowerKind::Joined) | None => state.sharing == Sharing::Private,
        }
    }

    fn move_on(&self, state: &mut FillState, bytes: u64) {
        let end = state.end;
        if let Some(follower) = &mut state.followers[self.number] {
            follower.at = follower.at.saturating_add(bytes).min(end);
        }
        wake(state.filler.take());
    }

    fn wait<T>(&self, state: &mut FillState, context: &Context<'_>) -> Poll<T> {
        if let Some(follower) = &mut state.followers[self.number] {
            follower.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut state = self.fill.0.state.lock();
        let left = state.followers[self.number].take();
        state.free.push(self.number);
        let was_storing = left.is_some_and(|follower| follower.kind == FollowerKind::Writer);
        state.is_storing &= !was_storing;
        let is_over = was_storing && state.progress != FillProgress::Running;
        let (filler, watch) = (state.filler.take(), state.watch.take());
        drop(state);
        if is_over {
            self.fill.leave_registry();
        }
        wake(filler.into_iter().chain(watch));
    }
}
