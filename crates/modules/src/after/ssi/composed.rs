//! The body of a page: its own text, and the answers to its sub-requests, each where it belongs.
//!
//! The page is read on while its sub-requests run, until something of it must be waited for. Invariant: the output that
//! waits to be shown is bounded: [`AHEAD_MAX`] bytes of the page and of each sub-request, [`PARTS_MAX`] places, and
//! [`RUNNING_MAX`] sub-requests of all pages of an answer at once (besides the one that is shown, without which nothing
//! would move on).

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use disk::OpenFile;
use message::{BodyError, Chunk, Header, Source};
use wire::turn;

use httpcore::request::Request;
use httpcore::subrequest::include::{self, Whole};

use super::page::{CommandOutput, Page, Part, Purpose};
use super::parser::{Event, Parser};
use httpcore::body_filter::{AnswerBody, Inside};

/// Maximum bytes that are kept of the page, and of each sub-request, until everything before them is shown.
pub(super) const AHEAD_MAX: u64 = 64 << 10;
/// Maximum texts and sub-requests of a page that wait to be shown.
const PARTS_MAX: usize = 256;
/// Maximum sub-requests of all pages of one answer that run at once.
const RUNNING_MAX: usize = 64;
/// Maximum bytes of texts that are joined.
const JOINED_MAX: usize = 16 << 10;
/// Maximum pieces that are kept of each sub-request.
const PIECES_MAX: usize = 64;

type Piece = Chunk<Rc<OpenFile>>;

/// The output at one place.
enum Place {
    /// Short texts, joined.
    Text(Vec<u8>),
    /// A text that is too long to be joined.
    Long(Bytes),
    /// The answer to a sub-request.
    Asked(IncludedAnswer),
}

/// The reason why the page is not read on.
enum Waiting {
    /// None: it is read on.
    No,
    /// The sub-request at the last place has not ended.
    ForLast,
    /// This variable has not got its value.
    ForValue(
        Vec<u8>,
        Pin<Box<dyn Future<Output = Result<Option<Bytes>, BodyError>>>>,
    ),
}

/// The body of an SSI page.
pub(super) struct Composed {
    page: Page,
    parser: Parser,
    inside: Inside,
    /// The part of the current piece that has not been parsed.
    piece: Bytes,
    is_over: bool,
    /// The end of the body, behind what came before it.
    failure: Option<BodyError>,
    places: VecDeque<Place>,
    waiting: Waiting,
    trailers: Vec<Header>,
}

impl Composed {
    /// The body of a page.
    #[must_use]
    pub(super) fn new(request: &Request, page: Page, body: AnswerBody, value_max: usize) -> Self {
        Self {
            page,
            parser: Parser::new(value_max),
            inside: Inside::new(request, body),
            piece: Bytes::new(),
            is_over: false,
            failure: None,
            places: VecDeque::new(),
            waiting: Waiting::No,
            trailers: Vec::new(),
        }
    }

    /// Reads on in the page as far as allowed; returns whether there was any progress.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, BodyError> {
        let mut went_on = false;
        while turn::may_go_on() && self.may_read(cx)? {
            if self.piece.is_empty() {
                match self.inside.poll_bytes(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Some(bytes)) => self.piece = bytes?,
                    Poll::Ready(None) => {
                        self.end();
                        return Ok(true);
                    }
                }
            }
            let before = self.piece.len();
            if let Some(event) = self.parser.next(&mut self.piece) {
                self.obey(event);
            }
            turn::spend(before - self.piece.len());
            went_on = true;
        }
        Ok(went_on)
    }

    /// Whether the first of the page has been read.
    fn is_begun(&self) -> bool {
        self.page.whole().is_read.get()
    }

    fn obey(&mut self, event: Event) {
        let effect = match event {
            Event::Text(text) => {
                if let Some(text) = self.page.text(text) {
                    self.show(text);
                }
                return;
            }
            Event::Fault(sentence) => return self.page.complain(&sentence),
            Event::Broken => self.page.error(),
            Event::Command(command) => {
                turn::spend_time();
                self.page.obey(command)
            }
        };
        match effect {
            CommandOutput::Nothing => {}
            CommandOutput::Text(text) => self.show(text),
            CommandOutput::Part(Part { child, purpose }) => match purpose {
                Purpose::Value(name) => {
                    self.waiting = Waiting::ForValue(
                        name,
                        Box::pin(include::value(child, &super::SUBREQUESTS)),
                    );
                }
                Purpose::Shown => self
                    .places
                    .push_back(Place::Asked(IncludedAnswer::new(child))),
                Purpose::Awaited => {
                    self.places
                        .push_back(Place::Asked(IncludedAnswer::new(child)));
                    self.waiting = Waiting::ForLast;
                }
            },
        }
    }

    /// Whether the page may be read on.
    fn may_read(&mut self, cx: &mut Context<'_>) -> Result<bool, BodyError> {
        match &mut self.waiting {
            Waiting::No => {}
            Waiting::ForLast => match self.places.back() {
                Some(Place::Asked(asked)) if !asked.is_over => return Ok(false),
                _ => self.waiting = Waiting::No,
            },
            Waiting::ForValue(name, value) => {
                let Poll::Ready(value) = value.as_mut().poll(cx) else {
                    return Ok(false);
                };
                let set = value.map(|value| {
                    if let Some(value) = value {
                        self.page.set(name, &value);
                    }
                });
                self.waiting = Waiting::No;
                set?;
            }
        }
        Ok(!self.is_over && self.places.len() < PARTS_MAX && self.waiting_bytes() < AHEAD_MAX)
    }

    /// Bytes of the page itself that wait to be shown.
    fn waiting_bytes(&self) -> u64 {
        let bytes = |place: &Place| match place {
            Place::Text(text) => text.len() as u64,
            Place::Long(text) => text.len() as u64,
            Place::Asked(_) => 0,
        };
        self.places.iter().map(bytes).sum()
    }

    fn end(&mut self) {
        self.is_over = true;
        self.trailers = self.inside.trailers();
        let last = self.parser.end();
        if let Some(text) = last.and_then(|text| self.page.text(text)) {
            self.show(text);
        }
    }

    fn show(&mut self, text: Bytes) {
        match self.places.back_mut() {
            Some(Place::Text(last)) if last.len() + text.len() <= JOINED_MAX => {
                last.extend_from_slice(&text);
            }
            _ if text.len() > JOINED_MAX / 4 => self.places.push_back(Place::Long(text)),
            _ => self.places.push_back(Place::Text(text.to_vec())),
        }
    }

    /// Polls every sub-request: the one that is shown always, the others up to the maximum. Returns whether one made
    /// progress.
    fn go_on(&mut self, cx: &mut Context<'_>) -> bool {
        let whole = Rc::clone(self.page.whole());
        let mut went_on = false;
        self.each(|asked| went_on |= asked.go_on(&whole, cx));
        went_on
    }

    /// Has every sub-request polled, and says of each whether it stands behind what is shown: only the first one of a
    /// page that is shown itself does not.
    fn each(&mut self, mut poll: impl FnMut(&mut IncludedAnswer)) {
        let is_behind = &self.page.whole().is_behind;
        let is_page_behind = is_behind.get();
        for (number, place) in self.places.iter_mut().enumerate() {
            if let Place::Asked(asked) = place {
                is_behind.set(is_page_behind || number > 0);
                poll(asked);
            }
        }
        is_behind.set(is_page_behind);
    }

    /// Takes the next output; `None`: it is not there yet, or there is no more.
    fn take(&mut self) -> Option<Result<Piece, BodyError>> {
        loop {
            let piece = match self.places.front_mut()? {
                Place::Asked(asked) => match asked.take() {
                    Some(piece) => return Some(piece),
                    None if asked.is_over => None,
                    None => return None,
                },
                Place::Text(text) => Some(Bytes::from(std::mem::take(text))),
                Place::Long(text) => Some(std::mem::take(text)),
            };
            self.places.pop_front();
            if let Some(text) = piece {
                return Some(Ok(Chunk::Bytes(text)));
            }
        }
    }
}

impl Source<Rc<OpenFile>> for Composed {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, BodyError>>> {
        loop {
            let was_begun = self.is_begun();
            let went_on = was_begun && self.go_on(cx);
            let was_read = self.read(cx).unwrap_or_else(|error| {
                self.end();
                self.failure = Some(error);
                true
            });
            // All that is there of the page is read before anything else, up to what must be waited for.
            let is_first_read = match self.piece.is_empty() {
                true => was_read,
                false => turn::may_go_on(),
            };
            if is_first_read {
                self.page.whole().is_read.set(true);
            }
            let places = self.places.len();
            if self.is_begun()
                && let Some(piece) = self.take()
            {
                return Poll::Ready(Some(piece));
            }
            // Another place is the one that is shown, and may begin.
            let was_shown = self.places.len() < places;
            if self.is_over && self.places.is_empty() {
                return Poll::Ready(self.failure.take().map(Err));
            }
            // The rest of this turn's work is done in the next one.
            ready!(turn::poll_go_on(cx));
            // What stands before the page is requested before its parts.
            if self.is_begun() && !was_begun {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !went_on && !was_read && !was_shown {
                return Poll::Pending;
            }
        }
    }

    /// Polls ahead in both the page and its sub-requests, beyond the bytes that their limits let them give.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        self.inside.poll_ahead(cx);
        self.go_on(cx);
        self.each(|asked| {
            if asked.is_begun && !asked.is_over {
                asked.body.poll_ahead(cx);
            }
        });
    }

    fn takes_request(&self) -> bool {
        self.inside.takes_request()
    }

    fn trailers(&mut self) -> Vec<Header> {
        std::mem::take(&mut self.trailers)
    }
}

/// A sub-request, and the part of its answer that has arrived.
struct IncludedAnswer {
    body: AnswerBody,
    /// The shared state in whose number of sub-requests it is counted while it runs.
    counted: Option<Rc<Whole>>,
    is_begun: bool,
    is_over: bool,
    pieces: VecDeque<Result<Piece, BodyError>>,
    /// Bytes of these in memory.
    bytes: u64,
}

impl IncludedAnswer {
    fn new(child: Box<Request>) -> Self {
        Self {
            body: include::body(child, &super::SUBREQUESTS),
            counted: None,
            is_begun: false,
            is_over: false,
            pieces: VecDeque::new(),
            bytes: 0,
        }
    }

    fn go_on(&mut self, whole: &Rc<Whole>, cx: &mut Context<'_>) -> bool {
        if self.is_over {
            return false;
        }
        if !self.is_begun {
            let running = whole.running.get();
            if running >= RUNNING_MAX && whole.is_behind.get() {
                return false;
            }
            whole.running.set(running + 1);
            self.counted = Some(Rc::clone(whole));
            self.is_begun = true;
        }
        let before = self.pieces.len();
        while self.bytes < AHEAD_MAX && self.pieces.len() < PIECES_MAX {
            let Poll::Ready(next) = self.body.poll_next(cx) else {
                break;
            };
            self.is_over = !matches!(next, Some(Ok(_)));
            if let Some(piece) = next {
                self.bytes += piece.as_ref().map_or(0, bytes_of);
                self.pieces.push_back(piece);
            }
            if self.is_over {
                self.leave();
                return true;
            }
        }
        self.pieces.len() > before
    }

    fn take(&mut self) -> Option<Result<Piece, BodyError>> {
        let piece = self.pieces.pop_front()?;
        self.bytes -= piece.as_ref().map_or(0, bytes_of);
        Some(piece)
    }

    /// Stops counting it as running.
    fn leave(&mut self) {
        if let Some(whole) = self.counted.take() {
            whole.running.set(whole.running.get() - 1);
        }
    }
}

impl Drop for IncludedAnswer {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Bytes of a piece that are in memory.
fn bytes_of(piece: &Piece) -> u64 {
    match piece {
        Chunk::Bytes(bytes) => bytes.len() as u64,
        Chunk::File(_) => 0,
    }
}
