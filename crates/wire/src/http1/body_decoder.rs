//! Finds the end of a body: by its length, by chunks (strictly: RFC 9112, 7.1, and nginx since 1.29.4), or by the end
//! of the connection.
//!
//! Knows no socket: it is given the bytes received so far, and returns which of them are data. Invariant: whatever a
//! peer sends, the end is reported only when the framing says so; extensions and trailers are bounded.

use std::ops::Range;

use message::{Framing, Header, ResponseFraming, ResponseHead, status};

use super::trailer_lines::TrailerLines;
use crate::turn;

/// Maximum length of a chunk's size line in bytes, including its extensions.
pub const SIZE_LINE_MAX: u32 = 4096;

/// A framing error in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// Not chunked as announced. Answered with 400.
    #[error("client sent invalid chunked body")]
    Framing,
    /// Not as its head announced it (HTTP/2). Answered with 400.
    #[error("client sent a body that is not as announced")]
    Malformed,
    /// More than the limit. Answered with 413.
    #[error("client intended to send too large chunked body: {received}+{size} bytes")]
    TooLarge {
        /// Bytes received so far.
        received: u64,
        /// Size of the chunk that exceeds the limit.
        size: u64,
    },
}

/// The result of decoding some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Number of bytes consumed.
    pub used: usize,
    /// The range of them that is data; may be empty.
    pub data: Range<usize>,
    /// Whether the body has ended.
    pub is_end: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecoderState {
    /// The remaining bytes of a body of known length.
    Length(u64),
    UntilClose,
    ChunkStart,
    ChunkSize,
    /// Whitespace after the size: an extension or the end of the line may follow.
    SizeBlank,
    Extension,
    SizeLineFeed,
    ChunkData,
    DataReturn,
    DataFeed,
    TrailerStart,
    Trailer,
    TrailerFeed,
    LastFeed,
    End,
}

/// The state of a body that is being received.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: DecoderState,
    /// Bytes left of the current chunk, or its size as far as it has been read.
    size: u64,
    size_line: u32,
    received: u64,
    used: u64,
    limit: u64,
    /// Boxed: few bodies have any, and every request has a decoder.
    trailers: Option<Box<TrailerLines>>,
    /// Whether an invalid trailer line is dropped instead of refused.
    is_lenient: bool,
}

impl Decoder {
    /// Decodes a request body. Chunks that add up to more than `limit` bytes are refused (`client_max_body_size`; 0: no
    /// limit). A body of known length is not checked: the caller has already compared its length.
    pub fn new(framing: Framing, limit: u64) -> Decoder {
        let state = match framing {
            Framing::None | Framing::Length(0) => DecoderState::End,
            Framing::Length(length) => DecoderState::Length(length),
            Framing::Chunked => DecoderState::ChunkStart,
        };
        Decoder::at(state, limit)
    }

    /// Decodes the body after a response head; a response to HEAD has none, whatever the head says.
    pub fn of_response(head: &ResponseHead, answers_head: bool) -> Decoder {
        if answers_head || status::is_bodiless(head.status) {
            return Decoder::new(Framing::None, 0);
        }
        match head.framing {
            ResponseFraming::UntilClose => Decoder::until_close(),
            ResponseFraming::Length(length) => Decoder::new(Framing::Length(length), 0),
            // After its last chunk the body is complete: an error in the trailers cannot change it.
            ResponseFraming::Chunked => Decoder {
                is_lenient: true,
                ..Decoder::new(Framing::Chunked, 0)
            },
        }
    }

    /// Decodes a response body that ends with the connection.
    pub fn until_close() -> Decoder {
        Decoder::at(DecoderState::UntilClose, 0)
    }

    fn at(state: DecoderState, limit: u64) -> Decoder {
        Decoder {
            state,
            size: 0,
            size_line: 0,
            received: 0,
            used: 0,
            limit,
            trailers: None,
            is_lenient: false,
        }
    }

    /// Changes the limit of [`Decoder::new`] for the rest of the body.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Whether the end has been seen.
    pub fn is_end(&self) -> bool {
        self.state == DecoderState::End
    }

    /// Whether the connection may end here without loss.
    pub fn may_close(&self) -> bool {
        matches!(self.state, DecoderState::End | DecoderState::UntilClose)
    }

    /// Bytes that follow and are all data, without any framing; [`u64::MAX`]: as many as come.
    pub fn plain_bytes(&self) -> u64 {
        match self.state {
            DecoderState::Length(left) => left,
            DecoderState::UntilClose => u64::MAX,
            _ => 0,
        }
    }

    /// Bytes of data received so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes received so far, data and framing.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of data still to come, if known.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            DecoderState::Length(left) => Some(left),
            DecoderState::End => Some(0),
            _ => None,
        }
    }

    /// The trailers, once the end has been seen. Lines with an invalid name were dropped, as in a head.
    pub fn trailers(&self) -> Vec<Header> {
        let lines = self.trailers.as_ref();
        lines.map_or_else(Vec::new, |lines| lines.headers())
    }

    /// Decodes `input` up to the end of one run of data. Call again while bytes are left and the body has not ended.
    ///
    /// # Errors
    /// An invalid chunk, size or trailer line, or one that exceeds a limit of this module.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, BodyFault> {
        let decoded = self.decode_next(input)?;
        self.used += decoded.used as u64;
        Ok(decoded)
    }

    fn decode_next(&mut self, input: &[u8]) -> Result<Decoded, BodyFault> {
        match self.state {
            DecoderState::Length(left) => {
                let len = left.min(input.len() as u64);
                self.received += len;
                self.state = if len == left {
                    DecoderState::End
                } else {
                    DecoderState::Length(left - len)
                };
                Ok(Decoded {
                    used: len as usize,
                    data: 0..len as usize,
                    is_end: self.is_end(),
                })
            }
            DecoderState::UntilClose => {
                self.received += input.len() as u64;
                Ok(Decoded {
                    used: input.len(),
                    data: 0..input.len(),
                    is_end: false,
                })
            }
            _ => self.decode_chunked(input),
        }
    }

    fn decode_chunked(&mut self, input: &[u8]) -> Result<Decoded, BodyFault> {
        let mut at = 0;
        while at < input.len() && self.state != DecoderState::End {
            if self.state == DecoderState::ChunkData {
                let len = self.size.min((input.len() - at) as u64);
                self.size -= len;
                self.received += len;
                if self.size == 0 {
                    self.state = DecoderState::DataReturn;
                }
                let end = at + len as usize;
                return Ok(Decoded {
                    used: end,
                    data: at..end,
                    is_end: false,
                });
            }
            self.step(input[at])?;
            at += 1;
        }
        Ok(Decoded {
            used: at,
            data: at..at,
            is_end: self.is_end(),
        })
    }

    fn step(&mut self, byte: u8) -> Result<(), BodyFault> {
        self.state = match (self.state, byte) {
            (DecoderState::ChunkStart, _) => {
                self.size = hex(byte)?;
                self.size_line = 1;
                DecoderState::ChunkSize
            }
            (DecoderState::ChunkSize | DecoderState::SizeBlank | DecoderState::Extension, _) => {
                self.size_line(byte)?
            }
            (DecoderState::SizeLineFeed, b'\n') if self.size == 0 => DecoderState::TrailerStart,
            (DecoderState::SizeLineFeed, b'\n') => self.begin_chunk()?,
            (DecoderState::DataReturn, b'\r') => DecoderState::DataFeed,
            (DecoderState::DataFeed, b'\n') => DecoderState::ChunkStart,
            (DecoderState::TrailerStart, b'\r') => DecoderState::LastFeed,
            (DecoderState::LastFeed, b'\n') => DecoderState::End,
            (DecoderState::TrailerStart | DecoderState::Trailer, _) => self.trailer(byte)?,
            (DecoderState::TrailerFeed, b'\n') => self.end_trailer()?,
            _ => return Err(BodyFault::Framing),
        };
        Ok(())
    }

    fn size_line(&mut self, byte: u8) -> Result<DecoderState, BodyFault> {
        self.size_line += 1;
        if self.size_line > SIZE_LINE_MAX {
            return Err(BodyFault::Framing);
        }
        match (self.state, byte) {
            (_, b'\r') => Ok(DecoderState::SizeLineFeed),
            (DecoderState::ChunkSize | DecoderState::SizeBlank, b';') => {
                Ok(DecoderState::Extension)
            }
            (DecoderState::ChunkSize | DecoderState::SizeBlank, b' ' | b'\t') => {
                Ok(DecoderState::SizeBlank)
            }
            // Another server might read what follows the whitespace as more digits.
            (DecoderState::SizeBlank, _) => Err(BodyFault::Framing),
            (DecoderState::Extension, b'\t') => Ok(DecoderState::Extension),
            (DecoderState::Extension, control) if control.is_ascii_control() => {
                Err(BodyFault::Framing)
            }
            (DecoderState::Extension, _) => Ok(DecoderState::Extension),
            _ => {
                if self.size > i64::MAX as u64 / 16 {
                    return Err(BodyFault::Framing);
                }
                self.size = self.size * 16 + hex(byte)?;
                Ok(DecoderState::ChunkSize)
            }
        }
    }

    fn begin_chunk(&self) -> Result<DecoderState, BodyFault> {
        let (received, size) = (self.received, self.size);
        if self.limit != 0 && received.saturating_add(size) > self.limit {
            return Err(BodyFault::TooLarge { received, size });
        }
        Ok(DecoderState::ChunkData)
    }

    fn trailer(&mut self, byte: u8) -> Result<DecoderState, BodyFault> {
        match byte {
            b'\r' => return Ok(DecoderState::TrailerFeed),
            b'\n' => return Err(BodyFault::Framing),
            _ => {}
        }
        self.trailers.get_or_insert_default().push(byte)?;
        Ok(DecoderState::Trailer)
    }

    fn end_trailer(&mut self) -> Result<DecoderState, BodyFault> {
        if let Some(lines) = &mut self.trailers {
            lines.end_line(self.is_lenient)?;
        }
        Ok(DecoderState::TrailerStart)
    }
}

fn hex(digit: u8) -> Result<u64, BodyFault> {
    (digit as char)
        .to_digit(16)
        .map(u64::from)
        .ok_or(BodyFault::Framing)
}

/// Decodes `input` as far as the task's turn allows, or to the end of the body; returns the number of bytes consumed.
pub(crate) fn decode(
    decoder: &mut Decoder,
    input: &[u8],
    mut keep: impl FnMut(&[u8]),
) -> Result<usize, BodyFault> {
    let mut used = 0;
    while used < input.len() && !decoder.is_end() && turn::may_go_on() {
        let decoded = decoder.decode(&input[used..])?;
        let data = used + decoded.data.start..used + decoded.data.end;
        if !data.is_empty() {
            keep(&input[data]);
        }
        used += decoded.used;
        turn::spend_part(decoded.used);
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::trailer_lines::{TRAILERS_MAX, TRAILERS_READ_MAX};
    use super::*;

    /// Decodes `input` in pieces of `step` bytes; returns the data, the bytes consumed, and whether the body ended.
    fn run(
        decoder: &mut Decoder,
        input: &[u8],
        step: usize,
    ) -> Result<(Vec<u8>, usize, bool), BodyFault> {
        let (mut data, mut used) = (Vec::new(), 0);
        for piece in input.chunks(step) {
            let mut piece = piece;
            while !piece.is_empty() && !decoder.is_end() {
                let decoded = decoder.decode(piece)?;
                assert!(decoded.used > 0 || decoded.is_end);
                data.extend_from_slice(&piece[decoded.data.clone()]);
                used += decoded.used;
                piece = &piece[decoded.used..];
            }
        }
        Ok((data, used, decoder.is_end()))
    }

    fn chunked(input: &[u8]) -> Result<(Vec<u8>, usize, bool), BodyFault> {
        let whole = run(&mut Decoder::new(Framing::Chunked, 0), input, usize::MAX);
        let bytewise = run(&mut Decoder::new(Framing::Chunked, 0), input, 1);
        assert_eq!(whole, bytewise, "{:?}", input.escape_ascii().to_string());
        whole
    }

    #[test]
    fn chunks() {
        for (input, data, rest) in [
            ("0\r\n\r\n", "", ""),
            ("5\r\nhello\r\n0\r\n\r\nGET", "hello", "GET"),
            ("5;a=b\r\nhello\r\n0;x\r\n\r\n", "hello", ""),
            ("5 \r\nhello\r\n3\r\n a\n\r\n000\r\n\r\n", "hello a\n", ""),
            (
                "A\r\n0123456789\r\n0\r\nX: y\r\nZ.: y\r\n\r\n",
                "0123456789",
                "",
            ),
        ] {
            let (found, used, is_end) = chunked(input.as_bytes()).unwrap();
            assert_eq!(
                (&found[..], &input[used..], is_end),
                (data.as_bytes(), rest, true),
                "{input:?}"
            );
        }
    }

    #[test]
    fn invalid_chunks_are_refused() {
        for input in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "0x5\r\n",
            " 5\r\n",
            "5\nhello",
            "5\r\r\n",
            "5;a\nhello",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello!\r\n",
            "5\r\nhellox0\r\n\r\n",
            "0\n\r\n",
            "0\r\n\n",
            "0\r\nX: y\n\r\n",
            "0\r\n X: y\r\n\r\n",
            "0\r\n: y\r\n\r\n",
            "0\r\nX: \0\r\n\r\n",
            "8000000000000000\r\n",
            "10000000000000005\r\n",
            "5;\0\r\nhello",
            "5\u{b}\r\n",
            "5,5\r\n",
            "0\r\nX: y\rz\r\n\r\n",
        ] {
            assert_eq!(
                chunked(input.as_bytes()),
                Err(BodyFault::Framing),
                "{input:?}"
            );
        }
        let long = format!("5;{}\r\n", "a".repeat(SIZE_LINE_MAX as usize));
        assert_eq!(chunked(long.as_bytes()), Err(BodyFault::Framing));
        let long = format!("0\r\nX: {}\r\n\r\n", "a".repeat(TRAILERS_MAX));
        assert_eq!(chunked(long.as_bytes()), Err(BodyFault::Framing));
    }

    #[test]
    fn dropped_trailers_are_bounded() {
        let lenient = || Decoder {
            is_lenient: true,
            ..Decoder::new(Framing::Chunked, 0)
        };
        let lines = |count| format!("0\r\n{}\r\n", "no trailer\r\n".repeat(count));
        let max = TRAILERS_READ_MAX as usize / "no trailer".len();
        let (_, _, is_end) = run(&mut lenient(), lines(max).as_bytes(), usize::MAX).unwrap();
        assert!(is_end);
        let endless = run(&mut lenient(), lines(max + 1).as_bytes(), usize::MAX);
        assert_eq!(endless, Err(BodyFault::Framing));
    }

    #[test]
    fn an_unfinished_body_has_no_end() {
        for input in [
            "",
            "5",
            "5\r\n",
            "5\r\nhell",
            "5\r\nhello",
            "5\r\nhello\r\n",
            "0",
            "0\r\n",
            "0\r\n\r",
            "0\r\nX: y\r\n\r",
        ] {
            assert!(!chunked(input.as_bytes()).unwrap().2, "{input:?}");
        }
    }

    #[test]
    fn limits_and_trailers() {
        let mut decoder = Decoder::new(Framing::Chunked, 9);
        assert_eq!(
            run(&mut decoder, b"5\r\nhello\r\n5\r\nhello", 3),
            Err(BodyFault::TooLarge {
                received: 5,
                size: 5
            })
        );
        let mut decoder = Decoder::new(Framing::Chunked, 10);
        run(&mut decoder, b"0\r\nX:  y \r\nBad_: z\r\nZ:\r\n\r\n", 2).unwrap();
        assert_eq!(
            decoder.trailers(),
            [Header::new("X", "y"), Header::new("Z", "")]
        );
    }

    #[test]
    fn lengths() {
        assert!(
            Decoder::new(Framing::None, 0).is_end() && Decoder::new(Framing::Length(0), 0).is_end()
        );
        let mut decoder = Decoder::new(Framing::Length(5), 0);
        assert_eq!(
            run(&mut decoder, b"hel", 1),
            Ok((b"hel".to_vec(), 3, false))
        );
        assert_eq!((decoder.remaining(), decoder.may_close()), (Some(2), false));
        assert_eq!(
            run(&mut decoder, b"loGET", 5),
            Ok((b"lo".to_vec(), 2, true))
        );
        let mut decoder = Decoder::until_close();
        assert_eq!(
            run(&mut decoder, b"abc", 2),
            Ok((b"abc".to_vec(), 3, false))
        );
        assert!(decoder.may_close());
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same(input in "([0-9a-c]{1,3}(;x)?\r?\n?[a-c]{0,12}\r?\n?){0,5}(0\r\n(A: b\r\n)?\r\n)?", step in 1usize..9) {
            let whole = run(&mut Decoder::new(Framing::Chunked, 0), input.as_bytes(), usize::MAX);
            let cut = run(&mut Decoder::new(Framing::Chunked, 0), input.as_bytes(), step);
            prop_assert_eq!(whole, cut);
        }

        #[test]
        fn written_values_are_parsed(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..6), step in 1usize..200) {
            let mut text = Vec::new();
            for piece in &pieces {
                super::super::response_writer::chunk(&mut text, piece);
            }
            super::super::response_writer::last_chunk(&mut text, &[]);
            let length = text.len();
            text.extend_from_slice(b"next");
            let (data, used, is_end) = run(&mut Decoder::new(Framing::Chunked, 0), &text, step).unwrap();
            prop_assert_eq!((data, used, is_end), (pieces.concat(), length, true));
        }

        #[test]
        fn any_bytes_do_not_panic(input in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = chunked(&input);
        }
    }
}
