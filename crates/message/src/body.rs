//! Response bodies. A range of a file stays a file range until some step needs its bytes.
//!
//! `F` is the handle of an open file; this crate never looks into it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::headers::Header;

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRange<F> {
    /// The open file.
    pub file: F,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk<F> {
    /// In memory.
    Bytes(Bytes),
    /// In a file.
    File(FileRange<F>),
}

impl<F> Chunk<F> {
    /// The number of bytes in it.
    pub fn len(&self) -> u64 {
        match self {
            Chunk::Bytes(bytes) => bytes.len() as u64,
            Chunk::File(range) => range.len,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes from `start` to before `end`. Panics if they are out of range.
    pub fn slice(&self, start: u64, end: u64) -> Chunk<F>
    where
        F: Clone,
    {
        assert!(
            start <= end && end <= self.len(),
            "slice {start}..{end} of a chunk of {}",
            self.len()
        );
        match self {
            Chunk::Bytes(bytes) => Chunk::Bytes(bytes.slice(start as usize..end as usize)),
            Chunk::File(range) => Chunk::File(FileRange {
                file: range.file.clone(),
                offset: range.offset + start,
                len: end - start,
            }),
        }
    }
}

/// Why a body ended early. The head has been sent, or can no longer be vouched for: the connection must be cut.
#[derive(Debug)]
pub enum BodyError {
    /// The origin ended too early.
    Truncated,
    /// The origin took too long.
    Timeout,
    /// A disk or a socket failed.
    Io(io::Error),
    /// The content is not coded or framed as the head says. The producer of the body has logged it.
    Invalid,
    /// Another error, which the producer of the body has logged.
    Logged,
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BodyError::Truncated => f.write_str("the body ended too early"),
            BodyError::Timeout => f.write_str("the body's origin timed out"),
            BodyError::Io(error) => error.fmt(f),
            BodyError::Invalid => f.write_str("the body is not what its head says"),
            BodyError::Logged => f.write_str("the body broke off"),
        }
    }
}

impl std::error::Error for BodyError {}

impl From<io::Error> for BodyError {
    fn from(error: io::Error) -> BodyError {
        BodyError::Io(error)
    }
}

/// A stream of chunks. It lives on one event loop and need not be `Send`.
pub trait Source<F> {
    /// The next chunk; `None` at the end, after which it is not polled again.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk<F>, BodyError>>>;

    /// Restricts the stream to the bytes from `start` to before `end`, if nothing has been read yet and the source
    /// supports it. Returns false if not; the stream is then unchanged.
    fn cut(&mut self, _start: u64, _end: u64) -> bool {
        false
    }

    /// Whether it can be cut again and again, each time once the bytes of the last part have been returned.
    fn can_be_cut_again(&self) -> bool {
        false
    }

    /// Lets the source fetch ahead, within its own limits, while the reader is busy with the last chunk; the next one
    /// may have been asked for already. Polled whenever the reader is.
    fn poll_ahead(&mut self, _cx: &mut Context<'_>) {}

    /// The file of which it will give a range, among other chunks, where that is known and nothing has been read yet.
    fn ranged_file(&self) -> Option<&F> {
        None
    }

    /// Whether the last chunk has been returned and there are no trailers. The end can then be sent with that chunk.
    fn is_over(&self) -> bool {
        false
    }

    /// Whether trailers may follow, even if the length of the body is known.
    fn may_have_trailers(&self) -> bool {
        false
    }

    /// Whether it takes the body of its request while it is read. A source around another one says what that says.
    fn takes_request(&self) -> bool {
        false
    }

    /// The trailers; asked for once, after the end.
    fn trailers(&mut self) -> Vec<Header> {
        Vec::new()
    }
}

/// The body of a response.
#[derive(Default)]
pub enum Body<F> {
    /// Nothing.
    #[default]
    Empty,
    /// One chunk, available now.
    Once(Chunk<F>),
    /// A stream of chunks.
    Stream(Box<dyn Source<F>>),
    /// No body: from here on bytes pass both ways, through the tunnel that the request holds.
    Tunnel,
}

impl<F> std::fmt::Debug for Body<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Body::Empty => f.write_str("Empty"),
            Body::Once(chunk) => write!(f, "Once({} bytes)", chunk.len()),
            Body::Stream(_) => f.write_str("Stream"),
            Body::Tunnel => f.write_str("Tunnel"),
        }
    }
}

impl<F> Body<F> {
    /// A body of bytes in memory.
    pub fn bytes(bytes: impl Into<Bytes>) -> Body<F> {
        Body::Once(Chunk::Bytes(bytes.into()))
    }

    /// A body that is a range of a file.
    pub fn file(file: F, offset: u64, len: u64) -> Body<F> {
        Body::Once(Chunk::File(FileRange { file, offset, len }))
    }

    /// A stream of these chunks, in order.
    pub fn chunks(chunks: Vec<Chunk<F>>) -> Body<F>
    where
        F: 'static,
    {
        Body::Stream(Box::new(Chunks(chunks.into_iter())))
    }

    /// A stream made by `step`, which takes the state and returns a chunk and the next state, or `None` at the end.
    pub fn unfold<S, Step, Next>(state: S, step: Step) -> Body<F>
    where
        F: 'static,
        S: 'static,
        Step: FnMut(S) -> Next + 'static,
        Next: Future<Output = Result<Option<(Chunk<F>, S)>, BodyError>> + 'static,
    {
        Body::unfold_ahead(state, step, |_, _| {})
    }

    /// As [`Body::unfold`], for a producer that can fetch ahead: `ahead` gets the state while no chunk is asked for.
    pub fn unfold_ahead<S, Step, Next>(
        state: S,
        step: Step,
        ahead: fn(&mut S, &mut Context<'_>),
    ) -> Body<F>
    where
        F: 'static,
        S: 'static,
        Step: FnMut(S) -> Next + 'static,
        Next: Future<Output = Result<Option<(Chunk<F>, S)>, BodyError>> + 'static,
    {
        Body::Stream(Box::new(Unfold {
            state: Some(state),
            step,
            next: None,
            ahead,
            kept: None,
        }))
    }

    /// Restricts the body to the bytes from `start` to before `end`, which must be within it.
    #[must_use]
    pub fn cut(self, start: u64, end: u64) -> Body<F>
    where
        F: Clone + 'static,
    {
        match self {
            Body::Once(whole) => Body::Once(whole.slice(start, end)),
            Body::Stream(mut source) => match source.cut(start, end) {
                true => Body::Stream(source),
                false => Body::Stream(Box::new(Cut {
                    source,
                    skipped: start,
                    left: end - start,
                })),
            },
            other => other,
        }
    }

    /// The length, where it is known before the body is sent.
    pub fn len(&self) -> Option<u64> {
        match self {
            Body::Empty => Some(0),
            Body::Once(chunk) => Some(chunk.len()),
            Body::Stream(_) | Body::Tunnel => None,
        }
    }

    /// Whether the body is known to be empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The file of which it is a range, or as [`Source::ranged_file`].
    pub fn ranged_file(&self) -> Option<&F> {
        match self {
            Body::Once(Chunk::File(range)) => Some(&range.file),
            Body::Stream(source) => source.ranged_file(),
            Body::Once(Chunk::Bytes(_)) | Body::Empty | Body::Tunnel => None,
        }
    }

    /// Whether the last chunk has been returned and there are no trailers.
    pub fn is_over(&self) -> bool {
        match self {
            Body::Empty => true,
            Body::Stream(source) => source.is_over(),
            Body::Once(_) | Body::Tunnel => false,
        }
    }

    /// The next chunk, whatever the kind of body; `None` at the end. A tunnel has none.
    pub async fn next(&mut self) -> Option<Result<Chunk<F>, BodyError>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`Body::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk<F>, BodyError>>> {
        match self {
            Body::Empty | Body::Tunnel => Poll::Ready(None),
            Body::Once(_) => match std::mem::take(self) {
                Body::Once(chunk) => Poll::Ready(Some(Ok(chunk))),
                _ => Poll::Ready(None),
            },
            Body::Stream(source) => source.poll_next(cx),
        }
    }

    /// As [`Source::may_have_trailers`].
    pub fn may_have_trailers(&self) -> bool {
        matches!(self, Body::Stream(source) if source.may_have_trailers())
    }

    /// As [`Source::poll_ahead`].
    pub fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        if let Body::Stream(source) = self {
            source.poll_ahead(cx);
        }
    }

    /// As [`Source::takes_request`].
    #[must_use]
    pub fn takes_request(&self) -> bool {
        matches!(self, Body::Stream(source) if source.takes_request())
    }
}

/// A range of the bytes of a source.
struct Cut<F> {
    source: Box<dyn Source<F>>,
    /// Bytes that are still to be skipped.
    skipped: u64,
    /// Bytes that are still to be returned.
    left: u64,
}

impl<F: Clone> Source<F> for Cut<F> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk<F>, BodyError>>> {
        while self.left > 0 {
            let chunk = match std::task::ready!(self.source.poll_next(cx)) {
                Some(Ok(chunk)) => chunk,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(Some(Err(BodyError::Truncated))),
            };
            let start = self.skipped.min(chunk.len());
            let end = chunk.len().min(start.saturating_add(self.left));
            self.skipped -= start;
            self.left -= end - start;
            if end > start {
                return Poll::Ready(Some(Ok(chunk.slice(start, end))));
            }
        }
        Poll::Ready(None)
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        if self.left > 0 {
            self.source.poll_ahead(cx);
        }
    }

    fn takes_request(&self) -> bool {
        self.source.takes_request()
    }
}

struct Chunks<F>(std::vec::IntoIter<Chunk<F>>);

impl<F> Source<F> for Chunks<F> {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk<F>, BodyError>>> {
        Poll::Ready(self.0.next().map(Ok))
    }
}

struct Unfold<F, S, Step, Next> {
    /// There between two steps.
    state: Option<S>,
    step: Step,
    next: Option<Pin<Box<Next>>>,
    ahead: fn(&mut S, &mut Context<'_>),
    /// The result of a step that ended while the reader was busy.
    kept: Option<Option<Result<Chunk<F>, BodyError>>>,
}

impl<F, S, Step, Next> Unfold<F, S, Step, Next>
where
    Step: FnMut(S) -> Next,
    Next: Future<Output = Result<Option<(Chunk<F>, S)>, BodyError>>,
{
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk<F>, BodyError>>> {
        if let Some(state) = self.state.take() {
            let next = (self.step)(state);
            match &mut self.next {
                Some(place) => place.set(next),
                empty => *empty = Some(Box::pin(next)),
            }
        }
        let Some(next) = &mut self.next else {
            return Poll::Ready(None);
        };
        let outcome = std::task::ready!(next.as_mut().poll(cx));
        Poll::Ready(match outcome {
            Ok(Some((chunk, state))) => {
                self.state = Some(state);
                Some(Ok(chunk))
            }
            Ok(None) => {
                self.next = None;
                None
            }
            Err(error) => {
                self.next = None;
                Some(Err(error))
            }
        })
    }
}

impl<F, S, Step, Next> Source<F> for Unfold<F, S, Step, Next>
where
    Step: FnMut(S) -> Next,
    Next: Future<Output = Result<Option<(Chunk<F>, S)>, BodyError>>,
{
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk<F>, BodyError>>> {
        match self.kept.take() {
            Some(kept) => Poll::Ready(kept),
            None => self.poll_step(cx),
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        let is_within_step = self.state.is_none() && self.next.is_some();
        if is_within_step
            && self.kept.is_none()
            && let Poll::Ready(next) = self.poll_step(cx)
        {
            self.kept = Some(next);
        }
        if let Some(state) = &mut self.state {
            (self.ahead)(state, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn drain(mut body: Body<()>) -> Vec<u8> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut all = Vec::new();
        while let Poll::Ready(Some(chunk)) = body.poll_next(&mut cx) {
            match chunk.unwrap() {
                Chunk::Bytes(bytes) => all.extend_from_slice(&bytes),
                Chunk::File(_) => unreachable!(),
            }
        }
        all
    }

    #[test]
    fn bodies_give_their_chunks_once() {
        assert_eq!(drain(Body::Empty), b"");
        assert_eq!(drain(Body::bytes("abc")), b"abc");
        let pieces = vec![Chunk::Bytes("a".into()), Chunk::Bytes("b".into())];
        assert_eq!(drain(Body::chunks(pieces)), b"ab");
        let counted = Body::unfold(0u8, async |n| {
            Ok((n < 3).then(|| (Chunk::Bytes(Bytes::copy_from_slice(&[b'0' + n])), n + 1)))
        });
        assert_eq!(drain(counted), b"012");
    }

    #[test]
    fn a_step_goes_on_while_the_reader_is_busy() {
        let mut cx = Context::from_waker(Waker::noop());
        let step = async |n: u8| {
            let mut is_ready = false;
            std::future::poll_fn(|_| match std::mem::replace(&mut is_ready, true) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
            Ok((n < 1).then(|| (Chunk::Bytes(Bytes::from_static(b"a")), n + 1)))
        };
        let mut body: Body<()> = Body::unfold_ahead(0, step, |n, _| *n += 10);
        assert!(body.poll_next(&mut cx).is_pending());
        // The step ends, and its state fetches ahead.
        body.poll_ahead(&mut cx);
        assert!(matches!(body.poll_next(&mut cx), Poll::Ready(Some(Ok(_)))));
        assert!(body.poll_next(&mut cx).is_pending());
        body.poll_ahead(&mut cx);
        assert!(matches!(body.poll_next(&mut cx), Poll::Ready(None)));
        assert!(matches!(body.poll_next(&mut cx), Poll::Ready(None)));
    }

    #[test]
    fn a_slice_of_a_file_is_a_file() {
        let chunk = Chunk::File(FileRange {
            file: 7,
            offset: 100,
            len: 50,
        });
        assert_eq!(
            chunk.slice(10, 20),
            Chunk::File(FileRange {
                file: 7,
                offset: 110,
                len: 10
            })
        );
    }
}
