//! Reads the response of an upstream to one request: interim heads, the head, the body, and whether the connection can
//! be reused.
//!
//! Knows no socket: it is given the bytes received so far, and returns what they are. Invariant: the end is reported
//! only when the framing says so (RFC 9112, 6.3), and a connection about which there is any doubt is never reused.

use std::sync::Arc;

use message::{Header, ResponseFraming, ResponseHead, Version};

use crate::answer::{AnswerFault, Event};
use crate::fastcgi::RecordReader;
use crate::http1::body_decoder::{BodyFault, Decoder};
use crate::http1::response_parser::{ParsedResponse, ResponseParser};

/// Maximum number of interim heads before a response.
pub const INTERIM_HEADS_MAX: usize = 64;

/// The kind of request, as far as the framing of the response depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Any other request.
    Plain,
    /// HEAD: the response has no body, whatever its head says.
    Head,
    /// With `Upgrade`: a 101 may come, after which the connection is no longer HTTP.
    Upgrade,
    /// Any other, of a client that is told of a 101 as of any response: that is all of the response, and the end of the
    /// connection.
    PlainTold,
}

#[derive(Debug)]
enum AnswerState {
    Head(ResponseParser),
    Body(Decoder),
    /// The response comes in records, from its head to its end (FastCGI).
    Records(Box<RecordReader>),
    /// After a 101: bytes of another protocol, until the connection ends.
    Tunnel,
}

/// The state of a response that is being received.
#[derive(Debug)]
pub struct AnswerReader {
    asked: RequestKind,
    head_bytes_max: usize,
    interim_heads: usize,
    state: AnswerState,
    is_ended: bool,
    is_last: bool,
    /// The log's sentence, nginx's, if anything follows the end.
    excess: Option<&'static str>,
}

impl AnswerReader {
    /// Reads the response to one request; a head has at most `head_bytes_max` bytes (`proxy_buffer_size`).
    pub fn new(asked: RequestKind, head_bytes_max: usize) -> AnswerReader {
        AnswerReader {
            asked,
            head_bytes_max,
            interim_heads: 0,
            state: AnswerState::Head(ResponseParser::new(head_bytes_max)),
            is_ended: false,
            is_last: false,
            excess: None,
        }
    }

    /// Reads the response of a gateway (SCGI, uwsgi): head and body of a CGI program, until the connection ends.
    pub fn of_gateway(asked: RequestKind, head_bytes_max: usize) -> AnswerReader {
        AnswerReader {
            state: AnswerState::Head(ResponseParser::of_gateway(head_bytes_max)),
            ..AnswerReader::new(asked, head_bytes_max)
        }
    }

    /// Reads a response that comes in records.
    pub fn of_records(records: RecordReader) -> AnswerReader {
        AnswerReader {
            state: AnswerState::Records(Box::new(records)),
            ..AnswerReader::new(RequestKind::Plain, 0)
        }
    }

    /// Continues with `bytes`: everything received and not yet consumed. Returns the number of bytes consumed, and what
    /// was found in them. Call again, with the rest, until `Partial` or `End`. When the task's turn is over
    /// ([`crate::turn`]), `Partial` may leave bytes that have not been examined; they are for the next turn.
    ///
    /// # Errors
    /// The response cannot be passed on, or not any further.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<(usize, Event), AnswerFault> {
        if self.is_ended {
            return Ok((0, Event::End));
        }
        match &mut self.state {
            AnswerState::Head(parser) => match parser.advance(bytes) {
                ParsedResponse::Partial => Ok((0, Event::Partial)),
                ParsedResponse::Complete(head, used) => Ok((used, self.take_head(head)?)),
                ParsedResponse::NotHttp => Ok((0, self.without_head())),
                ParsedResponse::Refused(why) => Err(AnswerFault::Head(why)),
            },
            AnswerState::Body(decoder) => body(decoder, bytes, &mut self.is_ended),
            AnswerState::Records(records) => {
                let (used, event) = records.advance(bytes)?;
                self.is_ended = matches!(event, Event::End);
                Ok((used, event))
            }
            AnswerState::Tunnel if bytes.is_empty() => Ok((0, Event::Partial)),
            AnswerState::Tunnel => Ok((bytes.len(), Event::Data(0..bytes.len()))),
        }
    }

    /// Call when the connection has ended and `advance` has seen all bytes.
    ///
    /// # Errors
    /// The response had not ended.
    pub fn close(&mut self) -> Result<(), AnswerFault> {
        self.is_last = true;
        let may_end = match &mut self.state {
            AnswerState::Head(_) => false,
            AnswerState::Body(decoder) => decoder.may_close(),
            AnswerState::Records(records) => records.close().is_ok(),
            AnswerState::Tunnel => true,
        };
        if !may_end {
            return Err(AnswerFault::Closed);
        }
        self.is_ended = true;
        Ok(())
    }

    /// Whether the head has been read.
    pub fn has_head(&self) -> bool {
        match &self.state {
            AnswerState::Head(_) => false,
            AnswerState::Records(records) => records.has_head(),
            AnswerState::Body(_) | AnswerState::Tunnel => true,
        }
    }

    /// Bytes before and between the parts of the head that are not part of it: the framing of records (FastCGI).
    pub fn beside_head(&self) -> u64 {
        match &self.state {
            AnswerState::Records(records) => records.beside_head(),
            _ => 0,
        }
    }

    /// Whether the connection is no longer HTTP.
    pub(crate) fn is_tunnel(&self) -> bool {
        matches!(self.state, AnswerState::Tunnel)
    }

    /// Whether the response comes in records (FastCGI).
    pub(crate) fn is_in_records(&self) -> bool {
        matches!(self.state, AnswerState::Records(_))
    }

    /// Whether the response has ended.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether the connection may be used for another request. Not if bytes are `unused`, because they are unsolicited.
    /// (Nor if the request was not sent completely, which is not known here.)
    pub fn is_reusable(&self, unused: usize) -> bool {
        let may_be = match &self.state {
            AnswerState::Records(records) => records.is_complete(),
            _ => true,
        };
        may_be && self.is_ended && !self.is_last && unused == 0
    }

    /// The log's sentence about `unused` bytes behind the response, which are unsolicited; `None`: there are none, or its
    /// framing does not tell.
    pub fn excess(&self, unused: usize) -> Option<&'static str> {
        self.excess.filter(|_| self.is_ended && unused > 0)
    }

    /// Bytes that follow and are all data; [`u64::MAX`]: as many as come.
    pub fn plain_bytes(&self) -> u64 {
        match &self.state {
            AnswerState::Body(decoder) => decoder.plain_bytes(),
            _ => 0,
        }
    }

    /// The trailers, once the response has ended.
    pub fn trailers(&self) -> Vec<Header> {
        match &self.state {
            AnswerState::Body(decoder) if self.is_ended => decoder.trailers(),
            _ => Vec::new(),
        }
    }

    fn take_head(&mut self, head: Arc<ResponseHead>) -> Result<Event, AnswerFault> {
        if head.is_interim() {
            self.interim_heads += 1;
            if self.interim_heads > INTERIM_HEADS_MAX {
                let why = "upstream sent too many interim responses";
                return Err(AnswerFault::Head(why.into()));
            }
            self.state = AnswerState::Head(ResponseParser::new(self.head_bytes_max));
            return Ok(Event::Interim(head));
        }
        self.is_last = head.is_last;
        if head.status == 101 {
            self.is_last = true;
            match self.asked {
                RequestKind::Upgrade => self.state = AnswerState::Tunnel,
                RequestKind::PlainTold => {
                    self.state = AnswerState::Body(Decoder::of_response(&head, true));
                    self.is_ended = true;
                }
                RequestKind::Plain | RequestKind::Head => {
                    let why = "upstream sent 101 that was not asked for"; // RFC 9110, 15.2.2
                    return Err(AnswerFault::Head(why.into()));
                }
            }
        } else {
            let is_head = self.asked == RequestKind::Head;
            let decoder = Decoder::of_response(&head, is_head);
            self.excess = match head.framing {
                _ if is_head || matches!(head.status, 204 | 304) => None,
                ResponseFraming::Chunked => Some("upstream sent data after final chunk"),
                ResponseFraming::Length(_) => {
                    Some("upstream sent more data than specified in \"Content-Length\" header")
                }
                ResponseFraming::UntilClose => None,
            };
            self.is_ended = decoder.is_end();
            self.state = AnswerState::Body(decoder);
        }
        Ok(Event::Head(head))
    }

    fn without_head(&mut self) -> Event {
        let mut head = ResponseHead::new(bytes::Bytes::new());
        debug_assert_eq!(head.version, Version::HTTP_09);
        head.status = 200;
        head.is_last = true;
        self.is_last = true;
        self.state = AnswerState::Body(Decoder::until_close());
        Event::Head(Arc::new(head))
    }
}

/// Reads up to the next run of data, or the end.
fn body(
    decoder: &mut Decoder,
    bytes: &[u8],
    is_ended: &mut bool,
) -> Result<(usize, Event), AnswerFault> {
    if bytes.is_empty() {
        return Ok((0, Event::Partial));
    }
    let found = decoder
        .decode(bytes)
        .map_err(|_: BodyFault| AnswerFault::Chunks)?;
    *is_ended = found.is_end;
    let event = match found {
        _ if !found.data.is_empty() => Event::Data(found.data),
        _ if found.is_end => Event::End,
        _ => Event::Partial,
    };
    Ok((found.used, event))
}
