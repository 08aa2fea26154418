//! Frames (RFC 9113, 4 and 6; RFC 9218, 7.1): headers, the rules of each type, payloads, and writing them.
//!
//! Not here: what a frame does to a stream. Invariant: a payload that [`Frame::parse`] accepts has the length, flags and
//! stream that its type demands; nothing is read beyond it.

use super::fault::{Fault, Reason};

/// Length in bytes of a frame header.
pub const HEADER_LEN: usize = 9;
/// Maximum length in bytes of DATA that we send, and of a payload that we accept of a server: the value every endpoint
/// starts with (RFC 9113, 6.5.2).
pub const PAYLOAD_MAX: usize = 16_384;
/// Maximum length in bytes of a payload that we accept of a client, whatever the configuration lets it send at once
/// (`SessionConfig::frame_max`). It costs no memory: DATA is limited by its windows, a header block by its own limit.
pub const CLIENT_PAYLOAD_MAX: usize = 1 << 20;
/// Maximum number of bytes beside the fragment in HEADERS: the length of the padding, a priority, the padding.
pub const BESIDE_FRAGMENT_MAX: usize = 1 + 5 + 255;
/// Maximum value of a 31-bit field: stream identifiers, windows.
pub const MAX_31: u32 = 0x7fff_ffff;

/// A frame type. Types that are not named here are ignored (RFC 9113, 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameType(pub u8);

#[rustfmt::skip]
#[expect(missing_docs, reason = "the names of RFC 9113, 6 and RFC 9218, 7.1")]
impl FrameType {
    pub const DATA: FrameType = FrameType(0);
    pub const HEADERS: FrameType = FrameType(1);
    pub const PRIORITY: FrameType = FrameType(2);
    pub const RST_STREAM: FrameType = FrameType(3);
    pub const SETTINGS: FrameType = FrameType(4);
    pub const PUSH_PROMISE: FrameType = FrameType(5);
    pub const PING: FrameType = FrameType(6);
    pub const GOAWAY: FrameType = FrameType(7);
    pub const WINDOW_UPDATE: FrameType = FrameType(8);
    pub const CONTINUATION: FrameType = FrameType(9);
    pub const PRIORITY_UPDATE: FrameType = FrameType(16);
}

/// The flags of frames; the same bit has one meaning in all types that define it, but for `ACK`.
#[expect(missing_docs, reason = "the names of RFC 9113, 6")]
pub mod flags {
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// The stream that a frame of a type is sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Stream,
    Connection,
    Either,
}

/// The length of a type's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Any,
    Exactly(usize),
    AtLeast(usize),
    Multiple(usize),
}

/// The rules of one frame type.
struct Rule {
    kind: FrameType,
    on: On,
    length: Length,
    /// Whether a wrong length is an error of the stream alone.
    is_length_of_stream: bool,
}

const fn rule(kind: FrameType, on: On, length: Length) -> Rule {
    Rule {
        kind,
        on,
        length,
        is_length_of_stream: false,
    }
}

/// The table of all types: the ten of RFC 9113, 6.1 to 6.10, and that of RFC 9218.
#[rustfmt::skip]
static RULES: [Rule; 11] = [
    rule(FrameType::DATA, On::Stream, Length::Any),
    rule(FrameType::HEADERS, On::Stream, Length::Any),
    Rule { is_length_of_stream: true, ..rule(FrameType::PRIORITY, On::Stream, Length::Exactly(5)) },
    rule(FrameType::RST_STREAM, On::Stream, Length::Exactly(4)),
    rule(FrameType::SETTINGS, On::Connection, Length::Multiple(6)),
    rule(FrameType::PUSH_PROMISE, On::Stream, Length::AtLeast(4)),
    rule(FrameType::PING, On::Connection, Length::Exactly(8)),
    rule(FrameType::GOAWAY, On::Connection, Length::AtLeast(8)),
    rule(FrameType::WINDOW_UPDATE, On::Either, Length::Exactly(4)),
    rule(FrameType::CONTINUATION, On::Stream, Length::Any),
    rule(FrameType::PRIORITY_UPDATE, On::Connection, Length::AtLeast(4)),
];

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload in bytes.
    pub len: usize,
    /// The type.
    pub kind: FrameType,
    /// The flags.
    pub flags: u8,
    /// The stream; 0 is the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads a header; the reserved bit is ignored.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> FrameHeader {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        FrameHeader {
            len: u32::from_be_bytes([0, a, b, c]) as usize,
            kind: FrameType(kind),
            flags,
            stream: u32::from_be_bytes(stream) & MAX_31,
        }
    }

    /// Whether all of these flags are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Whether a long payload may be taken in pieces: data, header blocks, and what is ignored. All others are short.
    fn may_be_long(&self) -> bool {
        let fragments = [FrameType::DATA, FrameType::HEADERS, FrameType::CONTINUATION];
        fragments.contains(&self.kind) || self.rule().is_none()
    }

    /// Checks length and stream by the rules of the type, before the payload is there.
    ///
    /// # Errors
    /// A longer payload than `payload_max`, or, but for DATA and header blocks, than [`PAYLOAD_MAX`]; a rule that is
    /// broken.
    pub fn check(&self, payload_max: usize) -> Result<(), Fault> {
        if self.len > payload_max || (self.len > PAYLOAD_MAX && !self.may_be_long()) {
            return Err(Fault::Connection(Reason::FrameTooLarge));
        }
        let Some(rule) = self.rule() else {
            return Ok(());
        };
        match rule.on {
            On::Stream if self.stream == 0 => {
                return Err(Fault::Connection(Reason::FrameOnConnection));
            }
            On::Connection if self.stream != 0 => {
                return Err(Fault::Connection(Reason::FrameOnStream));
            }
            _ => {}
        }
        let fits = match rule.length {
            Length::Any => true,
            Length::Exactly(len) => self.len == len,
            Length::AtLeast(len) => self.len >= len,
            Length::Multiple(len) => self.len.is_multiple_of(len),
        };
        match (fits, rule.is_length_of_stream) {
            (true, _) => Ok(()),
            (false, true) => Err(Fault::Stream(self.stream, Reason::FrameLength)),
            (false, false) => Err(Fault::Connection(Reason::FrameLength)),
        }
    }

    fn rule(&self) -> Option<&'static Rule> {
        let index = match self.kind {
            FrameType::PRIORITY_UPDATE => 10,
            FrameType(kind) => usize::from(kind),
        };
        RULES.get(index).filter(|rule| rule.kind == self.kind)
    }

    /// Number of bytes that precede the data of a DATA frame, and its padding; `first` is its first byte.
    ///
    /// # Errors
    /// The padding is as long as the payload, or longer (RFC 9113, 6.1).
    pub fn padding(&self, first: Option<u8>) -> Result<(usize, usize), Fault> {
        if !self.has(flags::PADDED) {
            return Ok((0, 0));
        }
        let Some(padding) = first.filter(|_| self.len > 0) else {
            return Err(Fault::Connection(Reason::FrameLength));
        };
        let padding = usize::from(padding);
        if padding >= self.len {
            return Err(Fault::Connection(Reason::PaddingLength));
        }
        Ok((1, padding))
    }
}

/// A frame with its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// DATA without its padding.
    Data(&'a [u8]),
    /// HEADERS: a fragment of a header block. The priority of RFC 7540 was checked and dropped.
    Headers(&'a [u8]),
    /// PRIORITY, checked; its content is obsolete.
    Priority,
    /// RST_STREAM.
    RstStream(super::ErrorCode),
    /// SETTINGS: parameters of six bytes each.
    Settings(&'a [u8]),
    /// The acknowledgement of SETTINGS.
    SettingsAck,
    /// PUSH_PROMISE.
    PushPromise,
    /// PING.
    Ping([u8; 8]),
    /// The answer to PING.
    Pong([u8; 8]),
    /// GOAWAY: the last stream, and the code.
    GoAway(u32, super::ErrorCode),
    /// WINDOW_UPDATE: the increment.
    WindowUpdate(u32),
    /// CONTINUATION: a fragment of a header block.
    Continuation(&'a [u8]),
    /// PRIORITY_UPDATE: the stream, and its priority field value.
    PriorityUpdate(u32, &'a [u8]),
    /// Any other type: to be ignored.
    Unknown,
}

impl<'a> Frame<'a> {
    /// Parses a whole payload. The header must have been checked.
    ///
    /// # Errors
    /// Padding or priority that do not fit; a stream that depends on itself; an increment of 0.
    pub fn parse(header: &FrameHeader, payload: &'a [u8]) -> Result<Frame<'a>, Fault> {
        let word = |at: usize| match payload.get(at..at + 4) {
            Some(&[a, b, c, d]) => Ok(u32::from_be_bytes([a, b, c, d])),
            _ => Err(Fault::Connection(Reason::FrameLength)),
        };
        Ok(match header.kind {
            FrameType::DATA => Frame::Data(unpadded(header, payload)?),
            FrameType::HEADERS => Frame::Headers(headers_fragment(header, payload)?),
            FrameType::PRIORITY => {
                check_dependency(header.stream, word(0)?)?;
                Frame::Priority
            }
            FrameType::RST_STREAM => Frame::RstStream(super::ErrorCode(word(0)?)),
            FrameType::SETTINGS if header.has(flags::ACK) && !payload.is_empty() => {
                return Err(Fault::Connection(Reason::SettingsAckLength));
            }
            FrameType::SETTINGS if header.has(flags::ACK) => Frame::SettingsAck,
            FrameType::SETTINGS => Frame::Settings(payload),
            FrameType::PUSH_PROMISE => Frame::PushPromise,
            FrameType::PING => {
                let Ok(opaque) = payload.try_into() else {
                    return Err(Fault::Connection(Reason::FrameLength));
                };
                if header.has(flags::ACK) {
                    Frame::Pong(opaque)
                } else {
                    Frame::Ping(opaque)
                }
            }
            FrameType::GOAWAY => Frame::GoAway(word(0)? & MAX_31, super::ErrorCode(word(4)?)),
            FrameType::WINDOW_UPDATE => match (word(0)? & MAX_31, header.stream) {
                (0, 0) => return Err(Fault::Connection(Reason::IncrementZero)),
                (0, stream) => return Err(Fault::Stream(stream, Reason::IncrementZero)),
                (increment, _) => Frame::WindowUpdate(increment),
            },
            FrameType::CONTINUATION => Frame::Continuation(payload),
            FrameType::PRIORITY_UPDATE => Frame::PriorityUpdate(word(0)? & MAX_31, &payload[4..]),
            _ => Frame::Unknown,
        })
    }
}

/// The payload without pad length and padding.
fn unpadded<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<&'a [u8], Fault> {
    let (before, padding) = header.padding(payload.first().copied())?;
    let end = payload.len().saturating_sub(padding);
    payload
        .get(before..end)
        .ok_or(Fault::Connection(Reason::PaddingLength))
}

/// The fragment in HEADERS, behind the priority of RFC 7540 (RFC 9113, 6.2).
fn headers_fragment<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<&'a [u8], Fault> {
    let rest = unpadded(header, payload)?;
    if !header.has(flags::PRIORITY) {
        return Ok(rest);
    }
    let [a, b, c, d, _weight, fragment @ ..] = rest else {
        return Err(Fault::Connection(match header.has(flags::PADDED) {
            true => Reason::PaddingLength,
            false => Reason::FrameLength,
        }));
    };
    check_dependency(header.stream, u32::from_be_bytes([*a, *b, *c, *d]))?;
    Ok(fragment)
}

/// RFC 7540, 5.3.1 had this as an error of the stream; a header block must not be skipped, so that it ends the
/// connection here, as in nginx.
fn check_dependency(stream: u32, dependency: u32) -> Result<(), Fault> {
    if dependency & MAX_31 == stream {
        return Err(Fault::Connection(Reason::Dependency));
    }
    Ok(())
}

/// Appends a frame header.
pub fn write_header(out: &mut Vec<u8>, header: &FrameHeader) {
    let [_, a, b, c] = (header.len as u32).to_be_bytes();
    let [d, e, f, g] = header.stream.to_be_bytes();
    out.extend_from_slice(&[a, b, c, header.kind.0, header.flags, d, e, f, g]);
}

/// Sets length and flags of the header at offset `at`.
pub fn patch_header(out: &mut [u8], at: usize, len: usize, flags: u8) {
    let [_, a, b, c] = (len as u32).to_be_bytes();
    out[at..at + 3].copy_from_slice(&[a, b, c]);
    out[at + 4] = flags;
}

fn write_words(out: &mut Vec<u8>, kind: FrameType, stream: u32, words: &[u32]) {
    let header = FrameHeader {
        len: 4 * words.len(),
        kind,
        flags: 0,
        stream,
    };
    write_header(out, &header);
    words
        .iter()
        .for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
}

/// Appends RST_STREAM.
pub fn write_reset(out: &mut Vec<u8>, stream: u32, code: super::ErrorCode) {
    write_words(out, FrameType::RST_STREAM, stream, &[code.0]);
}

/// Appends WINDOW_UPDATE; stream 0 is the connection.
pub fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write_words(out, FrameType::WINDOW_UPDATE, stream, &[increment]);
}

/// Appends GOAWAY without debug data.
pub fn write_goaway(out: &mut Vec<u8>, last_stream: u32, code: super::ErrorCode) {
    write_words(out, FrameType::GOAWAY, 0, &[last_stream, code.0]);
}

/// Appends PING, or its answer.
pub fn write_ping(out: &mut Vec<u8>, opaque: [u8; 8], is_ack: bool) {
    let header = FrameHeader {
        len: 8,
        kind: FrameType::PING,
        flags: if is_ack { flags::ACK } else { 0 },
        stream: 0,
    };
    write_header(out, &header);
    out.extend_from_slice(&opaque);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::ErrorCode;

    fn header(len: usize, kind: FrameType, flags: u8, stream: u32) -> FrameHeader {
        FrameHeader {
            len,
            kind,
            flags,
            stream,
        }
    }

    #[test]
    fn headers_are_read_as_they_are_written() {
        let wanted = header(0x01_02_03, FrameType::PING, 0x25, MAX_31);
        let mut out = Vec::new();
        write_header(&mut out, &wanted);
        assert_eq!(out, [1, 2, 3, 6, 0x25, 0x7f, 0xff, 0xff, 0xff]);
        out[5] |= 0x80;
        let bytes = out.first_chunk().unwrap();
        assert_eq!(
            FrameHeader::parse(bytes),
            wanted,
            "the reserved bit is ignored"
        );
        patch_header(&mut out, 0, 5, 1);
        assert_eq!(out[..5], [0, 0, 5, 6, 1]);
    }

    #[test]
    fn every_type_has_its_rules() {
        use FrameType as T;
        let connection = Err(Fault::Connection(Reason::FrameOnConnection));
        let stream = Err(Fault::Connection(Reason::FrameOnStream));
        let length = Err(Fault::Connection(Reason::FrameLength));
        let cases = [
            (header(0, T::DATA, 0, 0), connection),
            (header(1, T::HEADERS, 0, 0), connection),
            (header(5, T::PRIORITY, 0, 0), connection),
            (
                header(4, T::PRIORITY, 0, 1),
                Err(Fault::Stream(1, Reason::FrameLength)),
            ),
            (header(4, T::RST_STREAM, 0, 0), connection),
            (header(5, T::RST_STREAM, 0, 1), length),
            (header(6, T::SETTINGS, 0, 1), stream),
            (header(7, T::SETTINGS, 0, 0), length),
            (header(4, T::PUSH_PROMISE, 0, 0), connection),
            (header(3, T::PUSH_PROMISE, 0, 2), length),
            (header(8, T::PING, 0, 1), stream),
            (header(9, T::PING, 0, 0), length),
            (header(8, T::GOAWAY, 0, 1), stream),
            (header(7, T::GOAWAY, 0, 0), length),
            (header(3, T::WINDOW_UPDATE, 0, 0), length),
            (header(0, T::CONTINUATION, 0, 0), connection),
            (header(4, T::PRIORITY_UPDATE, 0, 1), stream),
            (header(3, T::PRIORITY_UPDATE, 0, 0), length),
            (header(0, T(0xa), 0xff, 0), Ok(())),
            (header(PAYLOAD_MAX, T(0xff), 0, 1), Ok(())),
            (
                header(PAYLOAD_MAX + 1, T(0xff), 0, 1),
                Err(Fault::Connection(Reason::FrameTooLarge)),
            ),
            (header(PAYLOAD_MAX, T::DATA, 0, 1), Ok(())),
            (header(12, T::SETTINGS, 0, 0), Ok(())),
            (header(20, T::GOAWAY, 0, 0), Ok(())),
        ];
        for (header, outcome) in cases {
            assert_eq!(header.check(PAYLOAD_MAX), outcome, "{header:?}");
        }
    }

    #[test]
    fn payloads() {
        use FrameType as T;
        let reason = |reason| Err(Fault::Connection(reason));
        #[rustfmt::skip]
        let cases: [(FrameType, u8, u32, &[u8], _); 20] = [
            (T::DATA, 0, 1, b"abc", Ok(Frame::Data(b"abc"))),
            (T::DATA, 8, 1, b"\x01ab", Ok(Frame::Data(b"a"))),
            (T::DATA, 8, 1, b"\x02ab", Ok(Frame::Data(b""))),
            (T::DATA, 8, 1, b"\x03ab", reason(Reason::PaddingLength)),
            (T::DATA, 8, 1, b"", reason(Reason::FrameLength)),
            (T::HEADERS, 0x28, 1, b"\x01\x80\0\0\x03\x0fab", Ok(Frame::Headers(b"a"))),
            (T::HEADERS, 0x20, 3, b"\0\0\0\x03\x0fa", reason(Reason::Dependency)),
            (T::HEADERS, 0x20, 3, b"\0\0\0\x03", reason(Reason::FrameLength)),
            (T::HEADERS, 0x28, 3, b"\x02\0\0\0\x01\x0f", reason(Reason::PaddingLength)),
            (T::PRIORITY, 0, 3, b"\0\0\0\x05\0", Ok(Frame::Priority)),
            (T::PRIORITY, 0, 3, b"\x80\0\0\x03\0", reason(Reason::Dependency)),
            (T::RST_STREAM, 0, 1, b"\0\0\0\x08", Ok(Frame::RstStream(ErrorCode::CANCEL))),
            (T::SETTINGS, 1, 0, b"", Ok(Frame::SettingsAck)),
            (T::SETTINGS, 1, 0, b"\0\x01\0\0\0\0", reason(Reason::SettingsAckLength)),
            (T::PING, 0, 0, b"12345678", Ok(Frame::Ping(*b"12345678"))),
            (T::PING, 1, 0, b"12345678", Ok(Frame::Pong(*b"12345678"))),
            (T::GOAWAY, 0, 0, b"\x80\0\0\x05\0\0\0\x0bdebug", Ok(Frame::GoAway(5, ErrorCode::ENHANCE_YOUR_CALM))),
            (T::WINDOW_UPDATE, 0, 0, b"\x80\0\0\0", reason(Reason::IncrementZero)),
            (T::WINDOW_UPDATE, 0, 7, b"\0\0\0\0", Err(Fault::Stream(7, Reason::IncrementZero))),
            (T::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x07u=0", Ok(Frame::PriorityUpdate(7, b"u=0"))),
        ];
        for (kind, flags, stream, payload, outcome) in cases {
            let header = header(payload.len(), kind, flags, stream);
            assert_eq!(Frame::parse(&header, payload), outcome, "{header:?}");
        }
    }

    #[test]
    fn written_frames_are_read_back() {
        let mut out = Vec::new();
        write_reset(&mut out, 3, ErrorCode::CANCEL);
        write_window_update(&mut out, 0, MAX_31);
        write_goaway(&mut out, 9, ErrorCode::NO_ERROR);
        write_ping(&mut out, [7; 8], true);
        let mut rest = &out[..];
        let mut seen = Vec::new();
        while let Some((head, behind)) = rest.split_first_chunk() {
            let header = FrameHeader::parse(head);
            header.check(PAYLOAD_MAX).unwrap();
            seen.push(Frame::parse(&header, &behind[..header.len]).unwrap());
            rest = &behind[header.len..];
        }
        let wanted = [
            Frame::RstStream(ErrorCode::CANCEL),
            Frame::WindowUpdate(MAX_31),
            Frame::GoAway(9, ErrorCode::NO_ERROR),
            Frame::Pong([7; 8]),
        ];
        assert_eq!(seen, wanted);
    }
}
