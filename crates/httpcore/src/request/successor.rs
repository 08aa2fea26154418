//! The rest of a response whose file cannot be read to its end, from elsewhere.
//!
//! A module whose files are copies of what another server has says so by its state ([`State::successor`]). Not here:
//! when a file is given up (`connection`, `body_filter`), and where the rest comes from (the module). Invariant: what
//! does not fail costs nothing of this.
//!
//! [`State::successor`]: super::state::State::successor

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use disk::OpenFile;
use message::{Body, BodyError, Chunk, FileRange};

use super::Request;

/// The rest of a range of a file, if it can be had; why not is logged by it. Takes a stand-in of the request, the part
/// of the file that was not sent, and the reason for a log.
pub type Successor =
    fn(Box<Request>, FileRange<Rc<OpenFile>>, String) -> Pin<Box<dyn Future<Output = Rest>>>;

/// A body of exactly the bytes that were asked for, or an error in their midst.
pub type Rest = Option<Body<Rc<OpenFile>>>;

impl Request {
    /// What has the rest of this file, if there is something.
    #[must_use]
    pub fn successor(&self, file: &Rc<OpenFile>) -> Option<Successor> {
        self.states.find(|state| state.successor(file))
    }
}

/// What asks for the rest, once.
type Ask<M> = Box<dyn FnOnce(M, String) -> Pin<Box<dyn Future<Output = Rest>>>>;

/// The rest of a body from elsewhere, in the place of a source that may fail. `M` says what of it is missing.
pub enum Takeover<M> {
    /// There is no such place, or it cannot give it.
    No,
    /// It may be asked.
    May(Ask<M>),
    /// It is asked.
    Asked(Pin<Box<dyn Future<Output = Rest>>>),
    /// It gives it.
    Comes(Body<Rc<OpenFile>>),
}

/// The next piece of a body, or its end.
pub type NextChunk = Option<Result<Chunk<Rc<OpenFile>>, BodyError>>;

impl<M> Takeover<M> {
    /// A place that may be asked.
    pub fn by(
        ask: impl FnOnce(M, String) -> Pin<Box<dyn Future<Output = Rest>>> + 'static,
    ) -> Self {
        Self::May(Box::new(ask))
    }

    /// Whether it may be asked.
    #[must_use]
    pub fn may_be_asked(&self) -> bool {
        matches!(self, Self::May(_))
    }

    /// Asks for what is missing, for this reason. False: there is nothing to ask, or it was asked before.
    pub fn ask(&mut self, missing: M, why: String) -> bool {
        match std::mem::replace(self, Self::No) {
            Self::May(ask) => {
                *self = Self::Asked(ask(missing, why));
                true
            }
            _ => false,
        }
    }

    /// The next piece from elsewhere. None: nothing comes from there, since it was not asked, has refused, or is at its
    /// end, which it has told.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<NextChunk>> {
        if let Self::Asked(asked) = self {
            *self = match ready!(asked.as_mut().poll(cx)) {
                Some(body) => Self::Comes(body),
                None => Self::No,
            };
        }
        let Self::Comes(body) = self else {
            return Poll::Ready(None);
        };
        let next = ready!(body.poll_next(cx));
        if next.is_none() {
            *self = Self::No;
        }
        Poll::Ready(Some(next))
    }
}
