//! A fill and its followers: one request to the origin, whose bytes each follower takes at its own speed.
//!
//! The bytes lie in a window in memory, bounded in bytes. A byte leaves the window when every follower has it, or when
//! it is in the entry's file; followers that are further behind read the file. Where neither is possible the origin
//! waits: nothing grows, and nothing polls. Bytes that have left the window are kept as long as the writer of the file
//! holds them in memory all the same, so that a request can join at any time. The follower that writes the file is one
//! of them ([`Filler::writer`]), so a slow disk shows in its position in the window. The caller decides what to do
//! about it ([`Filler::is_held_by_disk`], [`Filler::stop_storing`]).
//!
//! Not here: connections, files and clocks. Invariant: all bytes from a follower's position on are in the window, or in
//! the file up to the start of the window.

mod complete;
mod follower;
mod metadata;
mod registry;
#[cfg(test)]
mod tests;
mod window;

pub use complete::Unindexed;
pub use follower::{Follower, NextPiece};
pub use metadata::{Ending, Metadata};
use registry::BeginStamp;
pub use registry::{Fills, Role};
use window::WindowCharge;
pub use window::{WINDOW_BYTES, window_now};

use crate::key::Key;
use crate::store::WrittenBody;
use bytes::Bytes;
use message::{Header, ResponseHead};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};

/// Maximum of followers of one fill; requests beyond it ask the origin themselves.
pub const FOLLOWERS_MAX: usize = 1 << 16;
/// The requester and the writer of the file.
const FOLLOWERS_TYPICAL: usize = 2;
/// Cost of a piece in addition to its bytes, so that many small pieces are bounded too.
const PIECE_COST: usize = 64;

/// The key that a fill is found by, with what a purge compares.
#[derive(Clone, Debug)]
pub struct FillKey {
    /// The key, or that of the variant that was looked up.
    pub key: Key,
    /// The key without what `Vary` adds.
    pub main: Key,
    /// The text that the main key is made of.
    pub text: Bytes,
}

/// Whether other requests may have the origin's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// It may be stored, so all followers get it.
    Shared,
    /// It is for the requester alone; all others are sent away ([`NextPiece::Alone`]).
    Private,
}

/// The rest is not needed: no follower is left, and the response is not being stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody follows the fill")]
pub struct Unwanted;

/// A fill, as its followers see it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fill(Arc<FillInner>);

#[derive(Debug)]
struct FillInner {
    key: FillKey,
    window_bytes: usize,
    registry: Weak<registry::FillRegistry>,
    number: BeginStamp,
    is_alone: bool,
    begun: OnceLock<u64>,
    metadata: OnceLock<Metadata>,
    ending: OnceLock<Ending>,
    trailers: OnceLock<Vec<Header>>,
    written_body: OnceLock<WrittenBody>,
    is_spoilt: AtomicBool,
    state: Mutex<FillState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FillProgress {
    Running,
    Complete,
    Broken,
}

#[derive(Debug)]
struct FillState {
    head: Option<Arc<ResponseHead>>,
    sharing: Sharing,
    progress: FillProgress,
    /// Pieces in memory, each with the position in the body behind its last byte.
    pieces: VecDeque<(u64, Bytes)>,
    /// That of the pieces of the window. (Those before it are the writer's.)
    cost: WindowCharge,
    /// Positions in the body: of the first byte in memory, of the window's first byte, and behind its last.
    start: u64,
    left: u64,
    end: u64,
    /// Bytes of the body that are in the file.
    written: u64,
    is_storing: bool,
    /// Does [`Fills::has_complete`] count it?
    is_counted: bool,
    followers: SmallVec<[Option<FollowerState>; FOLLOWERS_TYPICAL]>,
    free: SmallVec<[usize; FOLLOWERS_TYPICAL]>,
    /// Wakes the filler, which waits for room.
    filler: Option<Waker>,
    /// Wakes the filler, which waits for followers to leave.
    watch: Option<Waker>,
}

/// A follower's position in the body.
#[derive(Debug)]
struct FollowerState {
    at: u64,
    kind: FollowerKind,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowerKind {
    /// The follower of the request that began the fill.
    Requester,
    Joined,
    /// The follower that writes the file.
    Writer,
}

/// The origin's side of a fill. If it is dropped before [`Filler::finish`], followers learn that the rest is lost.
#[derive(Debug)]
#[must_use = "whoever follows waits for it"]
pub struct Filler {
    fill: Fill,
}

impl Filler {
    /// A fill that no registry lists, with a window of `window_bytes`.
    pub fn alone(key: FillKey, window_bytes: usize) -> Self {
        Self::new(key, window_bytes, Weak::new(), BeginStamp::default(), true)
    }

    fn new(
        key: FillKey,
        window_bytes: usize,
        registry: Weak<registry::FillRegistry>,
        number: BeginStamp,
        is_alone: bool,
    ) -> Self {
        let state = FillState {
            head: None,
            sharing: Sharing::Shared,
            progress: FillProgress::Running,
            pieces: VecDeque::new(),
            cost: window::empty(),
            start: 0,
            left: 0,
            end: 0,
            written: 0,
            is_storing: false,
            is_counted: false,
            followers: SmallVec::new(),
            free: SmallVec::new(),
            filler: None,
            watch: None,
        };
        Self {
            // `new_cyclic` has the memory first: it is built in place.
            fill: Fill(Arc::new_cyclic(|_| FillInner {
                key,
                window_bytes,
                registry,
                number,
                is_alone,
                begun: OnceLock::new(),
                metadata: OnceLock::new(),
                ending: OnceLock::new(),
                trailers: OnceLock::new(),
                written_body: OnceLock::new(),
                is_spoilt: AtomicBool::new(false),
                state: Mutex::new(state),
            })),
        }
    }

    /// The fill, for its followers.
    #[must_use]
    pub fn fill(&self) -> &Fill {
        &self.fill
    }

    /// Is it unlisted while it runs, so that only its requester follows it?
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.fill.0.is_alone
    }

    /// The follower of the request that began the fill: it gets private responses too. None beyond [`FOLLOWERS_MAX`].
    #[must_use]
    pub fn requester(&self) -> Option<Follower> {
        self.fill.join(FollowerKind::Requester)
    }

    /// The follower that writes the file. To be called before the first byte; it reports with [`Follower::written`].
    #[must_use]
    pub fn writer(&self) -> Option<Follower> {
        let writer = self.fill.join(FollowerKind::Writer)?;
        self.fill.0.state.lock().is_storing = true;
        Some(writer)
    }

    /// Sets what followers need to know of the response beside its head. To be called before [`Filler::set_head`].
    pub fn set_metadata(&self, metadata: Metadata) {
        let _ = self.fill.0.metadata.set(metadata);
    }

    /// Sets the trailers of the response, which are not stored. To be called before the end of its body.
    pub fn set_trailers(&self, trailers: Vec<Header>) {
        if !trailers.is_empty() {
            let _ = self.fill.0.trailers.set(trailers);
        }
    }

    /// Ends the fill without a response to follow, and says why.
    pub fn end_without(self, ending: Ending) {
        let _ = self.fill.0.ending.set(ending);
    }

    /// Passes on the origin's head. With [`Sharing::Private`], all followers but the requester are sent away.
    pub fn set_head(&self, head: impl Into<Arc<ResponseHead>>, sharing: Sharing) {
        let head = head.into();
        let mut state = self.fill.0.state.lock();
        state.head = Some(head);
        state.sharing = sharing;
        let wakers = state.wakers();
        drop(state);
        if sharing == Sharing::Private {
            self.fill.leave_registry();
        }
        wake(wakers);
    }

    /// Adds the next bytes of the body, after waiting for room for them.
    ///
    /// # Errors
    /// [`Unwanted`]: the rest need not be fetched.
    pub async fn push(&self, bytes: Bytes) -> Result<(), Unwanted> {
        if bytes.is_empty() {
            return Ok(());
        }
        poll_fn(|context| self.poll_room(context, bytes.len())).await?;
        let mut state = self.fill.0.state.lock();
        state.end += bytes.len() as u64;
        state.charge_more(bytes.len() + PIECE_COST);
        let end = state.end;
        state.pieces.push_back((end, bytes));
        let wakers = state.wakers();
        drop(state);
        wake(wakers);
        Ok(())
    }

    fn poll_room(&self, context: &mut Context<'_>, len: usize) -> Poll<Result<(), Unwanted>> {
        let mut state = self.fill.0.state.lock();
        if state.is_unwanted() {
            return Poll::Ready(Err(Unwanted));
        }
        let max = window_now(self.fill.0.window_bytes);
        state.trim(max, len);
        if state.has_room(max, len) {
            return Poll::Ready(Ok(()));
        }
        state.filler = Some(context.waker().clone());
        // The writer may hold bytes that it has not written yet.
        let followers = state.followers.iter_mut().flatten();
        let writers = followers.filter(|follower| follower.kind == FollowerKind::Writer);
        let writers: Vec<Waker> = writers
            .filter_map(|follower| follower.waker.take())
            .collect();
        drop(state);
        wake(writers);
        Poll::Pending
    }

    /// Is it still being stored?
    #[must_use]
    pub fn is_storing(&self) -> bool {
        self.fill.0.state.lock().is_storing
    }

    /// Is the disk the only reason that there is no room? After as much patience as it has, the caller calls
    /// [`Filler::stop_storing`].
    #[must_use]
    pub fn is_held_by_disk(&self) -> bool {
        let state = self.fill.0.state.lock();
        let followers = || state.followers.iter().flatten();
        let others = followers().filter(|follower| follower.kind != FollowerKind::Writer);
        let slowest = others
            .map(|follower| follower.at)
            .min()
            .unwrap_or(state.end);
        state.filler.is_some() && state.is_storing && state.written < slowest
    }

    /// Gives up the file: the writer is told ([`NextPiece::Alone`]), the other followers go on. The bytes written so
    /// far must stay readable until [`Fill::is_file_needed`] is false.
    pub fn stop_storing(&self) {
        let mut state = self.fill.0.state.lock();
        state.is_storing = false;
        let wakers = state.wakers();
        let (filler, watch) = (state.filler.take(), state.watch.take());
        drop(state);
        wake(wakers.into_iter().chain(filler).chain(watch));
    }

    /// Ends the fill: the body is complete. If it is being stored, requests may join (even where it was alone) until
    /// the writer is dropped, which should be when the index knows the entry.
    pub fn finish(self) {
        self.end(FillProgress::Complete);
    }

    fn end(&self, progress: FillProgress) {
        let state = self.fill.0.state.lock();
        if state.progress != FillProgress::Running {
            return;
        }
        self.end_now(state, progress);
    }

    /// Ends it under the lock that the caller holds, so that followers see what the caller set together with the end.
    fn end_now(&self, mut state: MutexGuard<'_, FillState>, progress: FillProgress) {
        state.progress = progress;
        let stays = state.is_storing && progress == FillProgress::Complete;
        if stays && let Some(registry) = self.fill.0.registry.upgrade() {
            state.is_counted = true;
            registry.count_complete(1);
        }
        let wakers = state.wakers();
        drop(state);
        if stays && self.fill.0.is_alone {
            self.fill.enter_registry();
        }
        if !stays {
            self.fill.leave_registry();
        }
        wake(wakers);
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.end(FillProgress::Broken);
    }
}

impl Fill {
    /// The key that is being filled.
    #[must_use]
    pub fn key(&self) -> Key {
        self.0.key.key
    }

    /// Follows the fill from the body's first byte on. None: those bytes are gone, the response is private to another
    /// request, or there are [`FOLLOWERS_MAX`] followers.
    #[must_use]
    pub fn follow(&self) -> Option<Follower> {
        self.join(FollowerKind::Joined)
    }

    fn join(&self, kind: FollowerKind) -> Option<Follower> {
        let mut state = self.0.state.lock();
        let is_there = state.has_all();
        let is_open = kind != FollowerKind::Joined || state.sharing == Sharing::Shared;
        let is_below_max = state.followers.len() - state.free.len() < FOLLOWERS_MAX;
        if !is_there || !is_open || !is_below_max || state.progress == FillProgress::Broken {
            return None;
        }
        let follower = FollowerState {
            at: 0,
            kind,
            waker: None,
        };
        let number = match state.free.pop() {
            Some(number) => number,
            None => {
                state.followers.push(None);
                state.followers.len() - 1
            }
        };
        state.followers[number] = Some(follower);
        Some(Follower::new(self.clone(), number))
    }

    /// Can all of the body be read, from its first byte on?
    pub(super) fn has_all(&self) -> bool {
        self.0.state.lock().has_all()
    }

    /// When it began. The first caller's `now` is kept and returned to all, whatever clock it is of.
    pub fn begun(&self, now: u64) -> u64 {
        *self.0.begun.get_or_init(|| now)
    }

    /// The metadata of the response beside its head, once it is there.
    #[must_use]
    pub fn metadata(&self) -> Option<&Metadata> {
        self.0.metadata.get()
    }

    /// The head of the response, once it has arrived; of one that is for the requester alone, too.
    #[must_use]
    pub fn head(&self) -> Option<Arc<ResponseHead>> {
        self.0.state.lock().head.clone()
    }

    /// The trailers, once the body has arrived completely.
    #[must_use]
    pub fn trailers(&self) -> &[Header] {
        self.0.trailers.get().map_or(&[], Vec::as_slice)
    }

    /// Why there is no response to follow, if the fill ended so.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.0.ending.get().copied()
    }

    /// Sets where the written bytes of the body can be read. To be called before [`Follower::written`].
    pub fn set_written_body(&self, written_body: WrittenBody) {
        let _ = self.0.written_body.set(written_body);
    }

    /// Where the written bytes of the body can be read.
    #[must_use]
    pub fn written_body(&self) -> Option<&WrittenBody> {
        self.0.written_body.get()
    }

    /// Does a follower still have to read bytes from the file that have left the window?
    #[must_use]
    pub fn is_file_needed(&self) -> bool {
        let state = self.0.state.lock();
        let mut followers = state.followers.iter().flatten();
        followers.any(|follower| follower.kind != FollowerKind::Writer && follower.at < state.start)
    }

    /// Is the body complete?
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.state.lock().progress == FillProgress::Complete
    }

    /// Opens a fill that was alone to requests.
    fn enter_registry(&self) {
        let Some(registry) = self.0.registry.upgrade() else {
            return;
        };
        registry.list(self);
        // The writer may have left meanwhile.
        if !self.0.state.lock().is_storing {
            self.leave_registry();
        }
    }

    fn leave_registry(&self) {
        if let Some(registry) = self.0.registry.upgrade() {
            registry.remove(self);
            let was_counted = std::mem::take(&mut self.0.state.lock().is_counted);
            registry.count_complete(-isize::from(was_counted));
        }
    }

    /// Is it the same fill?
    #[must_use]
    pub fn is(&self, other: &Fill) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl FillState {
    fn wakers(&mut self) -> SmallVec<[Waker; FOLLOWERS_TYPICAL]> {
        let followers = self.followers.iter_mut().flatten();
        followers
            .filter_map(|follower| follower.waker.take())
            .collect()
    }

    fn charge_more(&mut self, bytes: usize) {
        let cost = self.cost.bytes() + bytes;
        self.cost.set(cost);
    }

    fn has_all(&self) -> bool {
        self.start == 0 || self.is_storing && self.written >= self.start
    }

    fn is_unwanted(&self) -> bool {
        let mut followers = self.followers.iter().flatten();
        !self.is_storing && !followers.any(|follower| follower.kind != FollowerKind::Writer)
    }

    fn has_room(&self, max: usize, len: usize) -> bool {
        self.left == self.end || self.cost.bytes() + len + PIECE_COST <= max
    }

    /// The position up to which the bytes are in the file, or every follower has them.
    fn unneeded(&self) -> u64 {
        let followers = self.followers.iter().flatten();
        let counting =
            followers.filter(|follower| self.is_storing || follower.kind != FollowerKind::Writer);
        let slowest = counting.map(|follower| follower.at).min();
        // The writer's position is never behind what is written.
        slowest.unwrap_or(self.end).max(self.written)
    }

    /// Takes pieces out of the front of the window, as many as necessary and as no follower needs.
    fn trim(&mut self, max: usize, len: usize) {
        if self.has_room(max, len) {
            return;
        }
        let unneeded = self.unneeded();
        let first = self.pieces.partition_point(|(end, _)| *end <= self.left);
        let (mut left, mut cost) = (self.left, self.cost.bytes());
        for (end, piece) in self.pieces.range(first..) {
            let has_room = cost + len + PIECE_COST <= max;
            if has_room || *end > unneeded {
                break;
            }
            left = *end;
            cost -= piece.len() + PIECE_COST;
        }
        self.left = left;
        self.cost.set(cost);
        self.drop_left();
    }

    /// Drops the pieces before the window, but for those that the writer has not written: without them no request could
    /// join.
    fn drop_left(&mut self) {
        let most = match self.is_storing {
            true => self.written,
            false => self.unneeded(),
        };
        let most = most.min(self.left);
        while let Some((end, _)) = self.pieces.front()
            && *end <= most
        {
            self.start = *end;
            self.pieces.pop_front();
        }
    }

    /// The bytes from a position in memory on, up to the end of their piece.
    fn piece_at(&self, at: u64) -> Option<Bytes> {
        let index = self.pieces.partition_point(|(end, _)| *end <= at);
        let (end, piece) = self.pieces.get(index)?;
        Some(piece.slice(piece.len() - (end - at) as usize..))
    }
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
