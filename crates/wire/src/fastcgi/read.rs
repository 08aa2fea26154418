//! Reads the records of a response: its head, its body, the output on the error stream, and its end.
//!
//! Knows no socket: it is given the bytes received so far, and returns what they are, as far as the task's turn allows.
//! Invariant: whatever comes, the end is reported only when a record says so and the body is not shorter than its head
//! said.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use message::{ResponseFraming, ResponseHead, status};

use super::{RECORD_HEAD, REQUEST, STDERR_PIECE_MAX, VERSION, kind};
use crate::answer::{AnswerFault, Event};
use crate::http1::response_parser::{ParsedResponse, ResponseParser};
use crate::turn;

/// Size in bytes of the content of FCGI_END_REQUEST.
const END_REQUEST_BODY: usize = 8;
const CLOSED_STDOUT: &str = "upstream prematurely closed FastCGI stdout";
const CLOSED_REQUEST: &str = "upstream prematurely closed FastCGI request";

/// A message to report while a response is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StderrNotice<'a> {
    /// Output of the server on its error stream, before the head of the response was read.
    Stderr(&'a [u8]),
    /// The same after the head.
    LateStderr(&'a [u8]),
    /// The body is longer than its head said; the excess is dropped.
    TooLong,
}

/// Receives the messages. The response is refused if it returns `false` for [`StderrNotice::Stderr`].
pub type NoticeSink = Box<dyn FnMut(StderrNotice<'_>) -> bool>;

/// The position in the stream of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    /// This number of bytes of a record's header has been received.
    Head(usize),
    Content,
    Padding,
}

/// The rest of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Everything that follows.
    Unknown,
    /// This number of bytes.
    Bytes(u64),
    /// Everything that follows, to be dropped: the response is to HEAD, or has no body.
    Unwanted,
}

/// The state of a response in records that is being received.
pub struct RecordReader {
    state: RecordState,
    record_head: [u8; RECORD_HEAD],
    kind: u8,
    /// Bytes of the record's content that are still to come.
    left: usize,
    /// Bytes of padding after it.
    padding: usize,
    /// The head of the response, until it is complete.
    head: Option<PartialHead>,
    rest: Rest,
    /// Output on the error stream that has not been reported yet.
    stderr: Vec<u8>,
    /// The content of FCGI_END_REQUEST.
    end: [u8; END_REQUEST_BODY],
    end_len: usize,
    answers_head: bool,
    /// Bytes before the end of the response head that are not part of it.
    beside_head: u64,
    keeps_connection: bool,
    /// Whether FCGI_STDOUT has ended.
    is_closed: bool,
    /// Whether FCGI_END_REQUEST was received completely, including its padding.
    is_complete: bool,
    tell: NoticeSink,
}

/// The state of a response head that is being received.
#[derive(Debug)]
struct PartialHead {
    parser: ResponseParser,
    /// The bytes of the head, without the records around them.
    text: Vec<u8>,
}

impl fmt::Debug for RecordReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            state,
            kind,
            left,
            rest,
            ..
        } = self;
        write!(f, "{state:?} of {kind}, {left} to come, {rest:?}")
    }
}

impl RecordReader {
    /// Reads the response to one request; its head has at most `head_bytes_max` bytes.
    pub fn new(
        answers_head: bool,
        head_bytes_max: usize,
        keeps_connection: bool,
        tell: NoticeSink,
    ) -> RecordReader {
        RecordReader {
            state: RecordState::Head(0),
            record_head: [0; RECORD_HEAD],
            kind: 0,
            left: 0,
            padding: 0,
            head: Some(PartialHead {
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

    /// Whether the head has been read.
    pub fn has_head(&self) -> bool {
        self.head.is_none()
    }

    /// See [`crate::exchange::AnswerReader::beside_head`].
    pub fn beside_head(&self) -> u64 {
        self.beside_head
    }

    /// Whether FCGI_END_REQUEST was received completely, so that another request may follow.
    pub fn is_complete(&self) -> bool {
        self.is_complete && self.keeps_connection
    }

    /// Continues with `bytes`; see [`crate::exchange::AnswerReader::advance`].
    ///
    /// # Errors
    /// The bytes are not a record, not a record of a response, or not a head.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<(usize, Event), AnswerFault> {
        let has_head = self.has_head();
        let outcome = self.go_on(bytes);
        if let (false, Ok((used, event))) = (has_head, &outcome) {
            let head = match event {
                Event::Head(head) => head.bytes.len() as u64,
                _ => 0,
            };
            // Parts of the head are counted when they arrive, and subtracted when it is complete.
            self.beside_head = (self.beside_head + *used as u64).saturating_sub(head);
        }
        outcome
    }

    fn go_on(&mut self, bytes: &[u8]) -> Result<(usize, Event), AnswerFault> {
        let mut at = 0;
        while at < bytes.len() && !self.is_ended() && turn::may_go_on() {
            let before = at;
            match self.state {
                RecordState::Head(len) => at += self.record_head(len, &bytes[at..])?,
                RecordState::Padding => {
                    let len = self.padding.min(bytes.len() - at);
                    self.padding -= len;
                    at += len;
                    self.end_padding();
                }
                RecordState::Content => {
                    let len = self.left.min(bytes.len() - at);
                    let (used, event) = self.content(&bytes[at..at + len])?;
                    let found = at..at + used;
                    at = found.end;
                    self.end_content()?;
                    match event {
                        FoundInRecord::Nothing => {}
                        FoundInRecord::Head(head) => return Ok((at, Event::Head(head))),
                        FoundInRecord::Data(len) if len > 0 => {
                            return Ok((at, Event::Data(data(&found, len))));
                        }
                        FoundInRecord::Data(_) => {}
                        FoundInRecord::TooLong => return Ok((at, Event::End)),
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

    /// Call when the connection has ended. That also ends the response, if everything that its head announced was
    /// received.
    ///
    /// # Errors
    /// The response had not ended.
    pub fn close(&mut self) -> Result<(), AnswerFault> {
        self.tell_stderr();
        let is_whole = self.is_closed || matches!(self.rest, Rest::Bytes(0) | Rest::Unwanted);
        match self.has_head() && is_whole {
            true => Ok(()),
            false => Err(AnswerFault::Closed),
        }
    }

    /// Whether the response has ended. If the server does not keep the connection, its last record need not be awaited.
    fn is_ended(&self) -> bool {
        self.is_complete || (self.is_closed && !self.keeps_connection)
    }

    /// Continues with the header of a record; returns the number of bytes consumed.
    fn record_head(&mut self, len: usize, bytes: &[u8]) -> Result<usize, AnswerFault> {
        let more = (RECORD_HEAD - len).min(bytes.len());
        self.record_head[len..len + more].copy_from_slice(&bytes[..more]);
        self.state = RecordState::Head(len + more);
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
        self.state = RecordState::Content;
        if self.left == 0 {
            self.empty_record()?;
            self.end_content()?;
        }
        Ok(more)
    }

    /// Handles the end of a stream.
    fn empty_record(&mut self) -> Result<(), AnswerFault> {
        if self.kind == kind::STDOUT {
            if !self.has_head() || matches!(self.rest, Rest::Bytes(1..)) {
                return Err(self.fault(CLOSED_STDOUT.to_owned()));
            }
            self.is_closed = true;
        }
        Ok(())
    }

    /// Reads the content of a record received so far; returns the number of bytes consumed.
    fn content(&mut self, bytes: &[u8]) -> Result<(usize, FoundInRecord), AnswerFault> {
        let (used, found) = match self.kind {
            kind::STDERR => (self.stderr(bytes)?, FoundInRecord::Nothing),
            kind::END_REQUEST => (self.end(bytes), FoundInRecord::Nothing),
            _ if self.is_closed => (bytes.len(), FoundInRecord::Nothing),
            _ => match self.head.take() {
                Some(head) => self.head(head, bytes)?,
                None => self.body(bytes),
            },
        };
        self.left -= used;
        Ok((used, found))
    }

    fn end_content(&mut self) -> Result<(), AnswerFault> {
        if self.left == 0 && self.state == RecordState::Content {
            self.state = RecordState::Padding;
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
            self.state = RecordState::Head(0);
            self.is_complete = self.kind == kind::END_REQUEST;
        }
    }

    fn head(
        &mut self,
        mut head: PartialHead,
        bytes: &[u8],
    ) -> Result<(usize, FoundInRecord), AnswerFault> {
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
                Ok((len - before, FoundInRecord::Head(found)))
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
                Ok((bytes.len(), FoundInRecord::Nothing))
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

    fn body(&mut self, bytes: &[u8]) -> (usize, FoundInRecord) {
        match &mut self.rest {
            Rest::Unknown => (bytes.len(), FoundInRecord::Data(bytes.len())),
            Rest::Unwanted => (bytes.len(), FoundInRecord::Nothing),
            Rest::Bytes(rest) => {
                let len = usize::try_from(*rest).map_or(bytes.len(), |rest| rest.min(bytes.len()));
                *rest -= len as u64;
                if len > 0 {
                    return (len, FoundInRecord::Data(len));
                }
                (self.tell)(StderrNotice::TooLong);
                // The rest is not awaited, and the connection is not reused.
                self.keeps_connection = false;
                self.is_closed = true;
                (bytes.len(), FoundInRecord::TooLong)
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

    /// Reports the output on the error stream so far; returns whether the response is still wanted.
    fn tell_stderr(&mut self) -> bool {
        let text = std::mem::take(&mut self.stderr);
        if text.is_empty() {
            return true;
        }
        turn::spend(turn::TOLD_BYTES + text.len());
        match self.has_head() {
            false => (self.tell)(StderrNotice::Stderr(&text)),
            true => {
                (self.tell)(StderrNotice::LateStderr(&text));
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

    /// Checks at FCGI_END_REQUEST that the response is complete.
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

    /// The error for an invalid record.
    fn broken(&self, why: String) -> AnswerFault {
        match self.has_head() {
            false => AnswerFault::Head(why),
            true => AnswerFault::Record(why),
        }
    }

    /// The error for impossible content of records: before the head it counts as an unreadable head.
    fn fault(&self, why: String) -> AnswerFault {
        match self.has_head() {
            false => AnswerFault::Head(why),
            true => AnswerFault::Body(why),
        }
    }
}

/// The result of reading the content of a record.
enum FoundInRecord {
    Nothing,
    Head(Arc<ResponseHead>),
    /// This number of bytes of the body.
    Data(usize),
    /// The body is complete, but more bytes follow.
    TooLong,
}

/// The range of data that begins at the start of `found`.
fn data(found: &Range<usize>, len: usize) -> Range<usize> {
    found.start..found.start + len
}
