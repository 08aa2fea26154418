//! The body of an answer in slices: one after the other, each requested when the one before it was sent.

use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll};

use disk::OpenFile;
use logs::Level;
use message::{Body, BodyError, Chunk, Source};

use httpcore::request::Request;
use httpcore::subrequest;

use super::{Mismatch, RequestedSlice, Whole, check};

type Piece = Chunk<Rc<OpenFile>>;

/// The rest of an answer in slices.
pub(super) struct Slices {
    /// Each later slice is requested by a copy of this request.
    twin: Box<Request>,
    whole: Whole,
    /// The range that is still to be sent.
    left: Range<u64>,
    current: Option<Slice>,
}

/// A slice in transfer.
struct Slice {
    /// The request that asked for it; `None` for the first slice, which the client's own request asked for.
    request: Option<Box<Request>>,
    body: Body<Rc<OpenFile>>,
    /// The range of it that is still to come.
    left: Range<u64>,
}

impl Slices {
    /// The body with the range `part` of the whole.
    pub(super) fn new(twin: Box<Request>, mut whole: Whole, part: Range<u64>) -> Self {
        let current = Slice {
            request: None,
            body: std::mem::take(&mut whole.body),
            left: whole.slice.clone(),
        };
        Self {
            twin,
            whole,
            left: part,
            current: Some(current),
        }
    }

    /// All that is to be sent.
    pub(super) fn body(self) -> Body<Rc<OpenFile>> {
        let first = self.current.as_ref().map(|slice| &slice.body);
        let file = first.and_then(Body::ranged_file).map(Rc::clone);
        let slices = Body::unfold_ahead(self, Slices::step, Slices::poll_ahead);
        Body::Stream(Box::new(SlicedBody { file, slices }))
    }

    /// The next piece, for [`Body::unfold_ahead`].
    async fn step(mut self) -> Result<Option<(Piece, Self)>, BodyError> {
        loop {
            if self.left.is_empty() {
                self.leave().await;
                return Ok(None);
            }
            match &mut self.current {
                Some(slice) if slice.left.contains(&self.left.start) => {
                    let piece = slice.next(&mut self.left, &self.twin).await?;
                    if let Some(piece) = piece {
                        return Ok(Some((piece, self)));
                    }
                }
                _ => {
                    self.leave().await;
                    self.current = Some(self.ask().await?);
                }
            }
        }
    }

    /// Lets the current slice be fetched while the client is slow.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        if let Some(slice) = &mut self.current {
            slice.body.poll_ahead(cx);
        }
    }

    /// Requests the slice that contains the next byte.
    async fn ask(&self) -> Result<Slice, BodyError> {
        let size = self.whole.size;
        let start = self.left.start / size * size;
        let child = self.twin.twin();
        let whole = (self.whole.length, self.whole.etag.clone());
        let of = Some(whole.clone());
        super::ask_for(&child, RequestedSlice { start, size, of });
        let (mut request, response) = subrequest::ask_for_content(child, &super::SUBREQUESTS).await;
        let Some(mut response) = response else {
            return Err(missing(&request));
        };
        let asked = RequestedSlice {
            start,
            size,
            of: Some(whole),
        };
        let checked = check(&request, &response, &asked);
        let (left, _) = checked.map_err(|Mismatch| BodyError::Logged)?;
        let body = std::mem::take(&mut response.body);
        request.response = Some(response);
        Ok(Slice {
            request: Some(request),
            body,
            left,
        })
    }

    /// Ends the current slice.
    async fn leave(&mut self) {
        let slice = self.current.take();
        if let Some(request) = slice.and_then(|slice| slice.request) {
            subrequest::log(&request).await;
        }
    }
}

impl Slice {
    /// The next piece of the slice within `wanted`, which is advanced; `None`: no byte that came is within it.
    async fn next(
        &mut self,
        wanted: &mut Range<u64>,
        about: &Request,
    ) -> Result<Option<Piece>, BodyError> {
        let request = self.request.as_deref().unwrap_or(about);
        let Some(piece) = self.body.next().await else {
            return Err(missing(request));
        };
        let piece = piece?;
        let came = self.left.start..self.left.start + piece.len();
        if came.end > self.left.end {
            return Err(missing(request));
        }
        self.left.start = came.end;
        let from = wanted.start.max(came.start);
        let to = wanted.end.min(came.end);
        if from >= to {
            return Ok(None);
        }
        wanted.start = to;
        Ok(Some(piece.slice(from - came.start, to - came.start)))
    }
}

/// The body, which knows the file that its first slice is in.
struct SlicedBody {
    file: Option<Rc<OpenFile>>,
    slices: Body<Rc<OpenFile>>,
}

impl Source<Rc<OpenFile>> for SlicedBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, BodyError>>> {
        self.slices.poll_next(cx)
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        self.slices.poll_ahead(cx);
    }

    fn ranged_file(&self) -> Option<&Rc<OpenFile>> {
        self.file.as_ref()
    }
}

/// Logs that a slice is missing, or not as long as its head said.
fn missing(request: &Request) -> BodyError {
    request.log(Level::Error, &|out| {
        out.extend_from_slice(b"missing slice response");
    });
    BodyError::Logged
}
