//! Reads the records of an answer: what of them is its head, what its body, what the server wrote to its error stream, and where it ends.
//!
//! Knows no socket: gets the bytes that have come, says what they are, as far as the task's turn may go. Invariant: whatever comes, the end
//! is reported only where a record says so and the body is not shorter than its head said.

use std::fmt;
use std::ops::Range;

use message::{ResponseFraming, ResponseHead, status};

use super::{RECORD_HEAD, REQUEST, STDERR_PIECE_MAX, VERSION, kind};
use crate::http1::answer_reader::{AnswerFault, Event};
use crate::http1::response_parser::{ParsedResponse, ResponseParser};
use crate::turn;

/// Bytes of what FCGI_END_REQUEST says.
const END_REQUEST_BODY: usize = 8;
const CLOSED_STDOUT: &str = "upstream prematurely closed FastCGI stdout";
const CLOSED_REQUEST: &str = "upstream prematurely closed FastCGI request";

/// What is to be told while an answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// The server wrote this to its error stream, before the answer's head was read.
    Stderr(&'a [u8]),
    /// The same behind the head.
    LateStderr(&'a [u8]),
    /// More of a body came than its head said, which is left out.
    TooLong,
}

/// Who is told. The answer is refused where this gives `false` for [`Told::Stderr`].
pub type Tell = Box<dyn FnMut(Told<'_>) -> bool>;

/// Where in the stream of records it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// So many bytes of a record's head have come.
    Head(usize),
    Content,
    Padding,
}

/// How much of a body is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// All that there is.
    Unknown,
    /// So many bytes.
    Bytes(u64),
    /// All that there is, and nobody wants it: the answer is to HEAD, or has none.
    Unwanted,
}

/// The records of an answer on their way.
pub struct RecordReader {
    place: Place,
    record_head: [u8; RECORD_HEAD],
    kind: u8,
    /// Bytes of the record's content that are to come.
    left: usize,
    /// Bytes behind it.
    padding: usize,
    /// Until the answer's head has come.
    head: Option<Head>,
    rest: Rest,
    /// Of the error stream, not told yet.
    stderr: Vec<u8>,
    /// Of FCGI_END_REQUEST.
    end: [u8; END_REQUEST_BODY],
    end_len: usize,
    answers_head: bool,
    /// Bytes that came up to the end of the answer's head and are none of it.
    beside_head: u64,
    keeps_connection: bool,
    /// FCGI_STDOUT has ended.
    is_closed: bool,
    /// FCGI_END_REQUEST has come as a whole, padding included.
    is_complete: bool,
    tell: Tell,
}

/// An answer's head on its way.
#[derive(Debug)]
struct Head {
    parser: ResponseParser,
    /// What came of it, without the records around it.
    text: Vec<u8>,
}

impl fmt::Debug for RecordReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            kind,
            left,
            rest,
            ..
        } = self;
        write!(f, "{place:?} of {kind}, {left} to come, {rest:?}")
    }
}

impl RecordReader {
    /// For the answer to one request; its head has at most `head_bytes_max` bytes.
    pub fn new(
        answers_head: bool,
        head_bytes_max: usize,
        keeps_connection: bool,
        tell: Tell,
    ) -> RecordReader {
        RecordReader {
            place: Place::Head(0),
            record_head: [0; RECORD_HEAD],
            kind: 0,
            left: 0,
            padding: 0,
            head: Some(Head {
                parser: ResponseParser::of_cgi(head_bytes_max),
                text: Vec::new(),
            }),
            rest: Rest::Unknown,
            stderr: Vec::new(),
            end: [0; END_REQUEST_BODY],
            end_len: 0,
            answers_head,
            beside_head: 0,
            keeps_connection,
            is_closed: false,
            is_complete: false,
            tell,
        }
    }

    /// Has the head come?
    pub fn has_head(&self) -> bool {
        self.head.is_none()
    }

    /// See [`crate::http1::answer_reader::AnswerReader::beside_head`].
    pub fn beside_head(&self) -> u64 {
        self.beside_head
    }

    /// Has FCGI_END_REQUEST come as a whole, so that another request may follow?
    pub fn is_complete(&self) -> bool {
        self.is_complete && self.keeps_connection
    }

    /// Goes on with `bytes`; see [`crate::http1::answer_reader::AnswerReader::advance`].
    ///
    /// # Errors
    /// What is no record, no record of an answer, or no head.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<(usize, Event), AnswerFault> {
        let has_head = self.has_head();
        let outcome = self.go_on(bytes);
        if let (false, Ok((used, event))) = (has_head, &outcome) {
            let head = match event {
                Event::Head(head) => head.bytes.len() as u64,
                _ => 0,
            };
            // Parts of the head are counted when they come, and taken off when it is whole.
            self.beside_head = (self.beside_head + *used as u64).saturating_sub(head);
        }
        outcome
    }

    fn go_on(&mut self, bytes: &[u8]) -> Result<(usize, Event), AnswerFault> {
        let mut at = 0;
        while at < bytes.len() && !self.is_ended() && turn::may_go_on() {
            let before = at;
            match self.place {
                Place::Head(len) => at += self.record_head(len, &bytes[at..])?,
                Place::Padding => {
                    let len = self.padding.min(bytes.len() - at);
                    self.padding -= len;
                    at += len;
                    self.end_padding();
                }
                Place::Content => {
                    let len = self.left.min(bytes.len() - at);
                    let (used, event) = self.content(&bytes[at..at + len])?;
                    let found = at..at + used;
                    at = found.end;
                    self.end_content()?;
                    match event {
                        Found::Nothing => {}
                        Found::Head(head) => return Ok((at, Event::Head(head))),
                        Found::Data(len) if len > 0 => {
                            return Ok((at, Event::Data(data(&found, len))));
                        }
                        Found::Data(_) => {}
                        Found::TooLong => return Ok((at, Event::End)),
                    }
                }
            }
            turn::spend_part(at - before);
        }
        match self.is_ended() {
            true => Ok((at, Event::End)),
            false => Ok((at, Event::Partial)),
        }
    }

    /// The connection has ended. That is an end of the answer too, where all that its head announced has come.
    ///
    /// # Errors
    /// The answer had none.
    pub fn close(&mut self) -> Result<(), AnswerFault> {
        self.tell_stderr();
        let is_whole = self.is_closed || matches!(self.rest, Rest::Bytes(0) | Rest::Unwanted);
        match self.has_head() && is_whole {
            true => Ok(()),
            false => Err(AnswerFault::Closed),
        }
    }

    /// Where the server does not keep the connection, nobody waits for its last word.
    fn is_ended(&self) -> bool {
        self.is_complete || (self.is_closed && !self.keeps_connection)
    }

    /// Goes on with a record's head; gives how many bytes are of it.
    fn record_head(&mut self, len: usize, bytes: &[u8]) -> Result<usize, AnswerFault> {
        let more = (RECORD_HEAD - len).min(bytes.len());
        self.record_head[len..len + more].copy_from_slice(&bytes[..more]);
        self.place = Place::Head(len + more);
        if len + more < RECORD_HEAD {
            return Ok(more);
        }
        let [
            version,
            kind,
            request_high,
            request_low,
            high,
            low,
            padding,
            _,
        ] = self.record_head;
        if version != VERSION {
            let why = format!("upstream sent unsupported FastCGI protocol version: {version}");
            return Err(self.broken(why));
        }
        if !matches!(kind, kind::STDOUT | kind::STDERR | kind::END_REQUEST) {
            return Err(self.broken(format!("upstream sent invalid FastCGI record type: {kind}")));
        }
        if [request_high, request_low] != REQUEST {
            let number = u16::from_be_bytes([request_high, request_low]);
            return Err(self.broken(format!(
                "upstream sent unexpected FastCGI request id: {number}"
            )));
        }
        self.kind = kind;
        self.left = usize::from(u16::from_be_bytes([high, low]));
        self.padding = usize::from(padding);
        self.place = Place::Content;
        if self.left == 0 {
            self.empty_record()?;
            self.end_content()?;
        }
        Ok(more)
    }

    /// A stream has ended.
    fn empty_record(&mut self) -> Result<(), AnswerFault> {
        if self.kind == kind::STDOUT {
            if !self.has_head() || matches!(self.rest, Rest::Bytes(1..)) {
                return Err(self.fault(CLOSED_STDOUT.to_owned()));
            }
            self.is_closed = true;
        }
        Ok(())
    }

    /// All of a record's content that has come; gives how much of it is done with.
    fn content(&mut self, bytes: &[u8]) -> Result<(usize, Found), AnswerFault> {
        let (used, found) = match self.kind {
            kind::STDERR => (self.stderr(bytes)?, Found::Nothing),
            kind::END_REQUEST => (self.end(bytes), Found::Nothing),
            _ if self.is_closed => (bytes.len(), Found::Nothing),
            _ => match self.head.take() {
                Some(head) => self.head(head, bytes)?,
                None => self.body(bytes),
            },
        };
        self.left -= used;
        Ok((used, found))
    }

    fn end_content(&mut self) -> Result<(), AnswerFault> {
        if self.left == 0 && self.place == Place::Content {
            self.place = Place::Padding;
            match self.kind {
                kind::STDERR => self.end_stderr()?,
                kind::END_REQUEST => self.judge_end()?,
                _ => {}
            }
            self.end_padding();
        }
        Ok(())
    }

    fn end_padding(&mut self) {
        if self.padding == 0 {
            self.place = Place::Head(0);
            self.is_complete = self.kind == kind::END_REQUEST;
        }
    }

    fn head(&mut self, mut head: Head, bytes: &[u8]) -> Result<(usize, Found), AnswerFault> {
        let before = head.text.len();
        if before > 0 {
            head.text.extend_from_slice(bytes);
        }
        let outcome = match before {
            // Most heads come in one piece: nothing is copied.
            0 => head.parser.advance(bytes),
            _ => head.parser.advance(&head.text),
        };
        match outcome {
            ParsedResponse::Complete(found, _) if found.status == 101 => {
                self.head = Some(head);
                let why = "upstream sent unexpected status \"101\"";
                Err(AnswerFault::Head(why.to_owned())) // no bytes of another protocol go in records
            }
            ParsedResponse::Complete(found, len) => {
                self.rest = self.rest_behind(&found);
                Ok((len - before, Found::Head(found)))
            }
            ParsedResponse::Refused(why) => {
                self.head = Some(head);
                Err(AnswerFault::Head(why))
            }
            ParsedResponse::Partial | ParsedResponse::NotHttp => {
                if before == 0 {
                    head.text.extend_from_slice(bytes);
                }
                self.head = Some(head);
                Ok((bytes.len(), Found::Nothing))
            }
        }
    }

    fn rest_behind(&self, head: &ResponseHead) -> Rest {
        match head.framing {
            _ if self.answers_head || status::is_bodiless(head.status) => Rest::Unwanted,
            ResponseFraming::Length(length) => Rest::Bytes(length),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => Rest::Unknown,
        }
    }

    fn body(&mut self, bytes: &[u8]) -> (usize, Found) {
        match &mut self.rest {
            Rest::Unknown => (bytes.len(), Found::Data(bytes.len())),
            Rest::Unwanted => (bytes.len(), Found::Nothing),
            Rest::Bytes(rest) => {
                let len = usize::try_from(*rest).map_or(bytes.len(), |rest| rest.min(bytes.len()));
                *rest -= len as u64;
                if len > 0 {
                    return (len, Found::Data(len));
                }
                (self.tell)(Told::TooLong);
                // Nothing is waited for behind it, and the connection is not used again.
                self.keeps_connection = false;
                self.is_closed = true;
                (bytes.len(), Found::TooLong)
            }
        }
    }

    fn stderr(&mut self, bytes: &[u8]) -> Result<usize, AnswerFault> {
        let len = bytes.len().min(STDERR_PIECE_MAX - self.stderr.len());
        self.stderr.extend_from_slice(&bytes[..len]);
        if self.stderr.len() == STDERR_PIECE_MAX {
            self.end_stderr()?;
        }
        Ok(len)
    }

    fn end_stderr(&mut self) -> Result<(), AnswerFault> {
        match self.tell_stderr() {
            true => Ok(()),
            false => {
                Err(self.fault("upstream sent what \"fastcgi_catch_stderr\" names".to_owned()))
            }
        }
    }

    /// Tells what has come of the error stream; is the answer still wanted?
    fn tell_stderr(&mut self) -> bool {
        let text = std::mem::take(&mut self.stderr);
        if text.is_empty() {
            return true;
        }
        turn::spend(turn::TOLD_BYTES + text.len());
        match self.has_head() {
            false => (self.tell)(Told::Stderr(&text)),
            true => {
                (self.tell)(Told::LateStderr(&text));
                true
            }
        }
    }

    fn end(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(END_REQUEST_BODY - self.end_len);
        self.end[self.end_len..self.end_len + len].copy_from_slice(&bytes[..len]);
        self.end_len += len;
        bytes.len()
    }

    /// FCGI_END_REQUEST has come: is the answer whole?
    fn judge_end(&mut self) -> Result<(), AnswerFault> {
        let why = match (self.has_head(), self.rest) {
            (true, Rest::Bytes(1..)) => CLOSED_REQUEST.to_owned(),
            (true, _) => {
                self.is_closed = true;
                return Ok(());
            }
            // Protocol status (FastCGI 1.0, 5.5).
            (false, _) => match self.end[4] {
                1 => "upstream FastCGI server takes no second request on a connection".to_owned(),
                2 => "upstream FastCGI server is overloaded".to_owned(),
                3 => "upstream FastCGI server knows no responder".to_owned(),
                _ => CLOSED_REQUEST.to_owned(),
            },
        };
        Err(self.fault(why))
    }

    /// A record that cannot be.
    fn broken(&self, why: String) -> AnswerFault {
        match self.has_head() {
            false => AnswerFault::Head(why),
            true => AnswerFault::Record(why),
        }
    }

    /// Records that say what cannot be: before the head that is as bad as a head that cannot be read.
    fn fault(&self, why: String) -> AnswerFault {
        match self.has_head() {
            false => AnswerFault::Head(why),
            true => AnswerFault::Body(why),
        }
    }
}

/// What was found in a record's content.
enum Found {
    Nothing,
    Head(Box<ResponseHead>),
    /// So many bytes of the body.
    Data(usize),
    /// The body is whole, and yet more came.
    TooLong,
}

/// Where data lies that begins where something was found.
fn data(found: &Range<usize>, len: usize) -> Range<usize> {
    found.start..found.start + len
}
