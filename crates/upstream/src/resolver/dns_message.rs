//! DNS messages (RFC 1035): queries for addresses and services, and their answers.
//!
//! Our own 150 lines, since the crate for it brings forty more (Unicode tables for names that are never asked for
//! here). Not here: sockets. Invariant: every index is checked, every loop ends: an answer may contain anything.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum bytes of a UDP message that is read: without EDNS no server sends more than 512.
pub const MESSAGE_MAX: usize = 4096;
/// Maximum bytes of a label, and below (`NAME_MAX`) of a name with its dots.
const LABEL_MAX: usize = 63;
const NAME_MAX: usize = 253;
/// Maximum number of pointers that one name may follow.
const POINTERS_MAX: usize = 64;
const HEAD_LEN: usize = 12;
const CLASS_IN: u16 = 1;

/// The record type that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    /// Addresses of IPv4.
    A,
    /// Addresses of IPv6.
    Aaaa,
    /// Servers of a service (RFC 2782).
    Srv,
}

impl RecordType {
    fn number(self) -> u16 {
        match self {
            RecordType::A => 1,
            RecordType::Aaaa => 28,
            RecordType::Srv => 33,
        }
    }
}

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecordType::A => "A",
            RecordType::Aaaa => "AAAA",
            RecordType::Srv => "SRV",
        })
    }
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordData {
    /// An address of IPv4.
    A(Ipv4Addr),
    /// An address of IPv6.
    Aaaa(Ipv6Addr),
    /// Another name to ask for (CNAME).
    Alias(String),
    /// A server of a service.
    Srv {
        /// Servers with the lowest priority come first.
        priority: u16,
        /// The weight among servers of one priority.
        weight: u16,
        /// Its port.
        port: u16,
        /// Its name.
        name: String,
    },
    /// Anything else.
    Other,
}

impl RecordData {
    /// The type whose query it answers; `None`: an alias, or a record of another type.
    #[must_use]
    pub fn kind(&self) -> Option<RecordType> {
        match self {
            RecordData::A(_) => Some(RecordType::A),
            RecordData::Aaaa(_) => Some(RecordType::Aaaa),
            RecordData::Srv { .. } => Some(RecordType::Srv),
            RecordData::Alias(_) | RecordData::Other => None,
        }
    }
}

/// A record of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsRecord {
    /// Seconds for which it holds (TTL).
    pub ttl: u32,
    /// The content.
    pub data: RecordData,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// The query's id.
    pub id: u16,
    /// Whether the answer did not fit: it is then asked for over TCP.
    pub is_truncated: bool,
    /// The response code. 0: no error; 3: no such name; …
    pub code: u8,
    /// The name that was asked for, in lower case.
    pub name: String,
    /// The number of the record type that was asked for.
    kind: u16,
    /// The answers.
    pub records: Vec<DnsRecord>,
}

impl DnsAnswer {
    /// Whether it is the answer to this question.
    #[must_use]
    pub fn is_to(&self, id: u16, name: &str, kind: RecordType) -> bool {
        self.id == id && self.kind == kind.number() && self.name == name
    }
}

/// Builds a query; `name` is in lower case and without a dot at its end. `None`: the name is not valid in DNS.
#[must_use]
pub fn question(id: u16, name: &str, kind: RecordType) -> Option<Vec<u8>> {
    if name.len() > NAME_MAX {
        return None;
    }
    let mut out = Vec::with_capacity(HEAD_LEN + name.len() + 6);
    out.extend_from_slice(&id.to_be_bytes());
    // Recursion is desired; one question.
    out.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        if label.is_empty() || label.len() > LABEL_MAX {
            return None;
        }
        out.push(u8::try_from(label.len()).ok()?);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out.extend_from_slice(&kind.number().to_be_bytes());
    out.extend_from_slice(&CLASS_IN.to_be_bytes());
    Some(out)
}

/// Reads an answer.
///
/// # Errors
/// The reason why it is not an answer, in nginx's words.
pub fn answer(message: &[u8]) -> Result<DnsAnswer, &'static str> {
    const SHORT: &str = "short DNS response";
    let mut reader = MessageReader { message, at: 0 };
    let id = reader.number().ok_or(SHORT)?;
    let flags = reader.number().ok_or(SHORT)?;
    // A response to a standard query; the bits that must be zero are.
    if flags & 0xf870 != 0x8000 {
        return Err("invalid DNS response");
    }
    let mut answer = DnsAnswer {
        id,
        is_truncated: flags & 0x0200 != 0,
        code: u8::try_from(flags & 15).unwrap_or(0),
        name: String::new(),
        kind: 0,
        records: Vec::new(),
    };
    let questions = reader.number().ok_or(SHORT)?;
    let count = reader.number().ok_or(SHORT)?;
    reader.skip(4).ok_or(SHORT)?;
    if questions != 1 {
        return Err("invalid number of questions in DNS response");
    }
    answer.name = reader.name().ok_or(SHORT)?;
    answer.kind = reader.number().ok_or(SHORT)?;
    reader.skip(2).ok_or(SHORT)?;
    if answer.is_truncated {
        return Ok(answer); // what there is of it may be cut anywhere
    }
    for _ in 0..count {
        answer.records.push(reader.record().ok_or(SHORT)?);
    }
    Ok(answer)
}

struct MessageReader<'a> {
    message: &'a [u8],
    at: usize,
}

impl MessageReader<'_> {
    fn skip(&mut self, len: usize) -> Option<&[u8]> {
        let bytes = self.message.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u16> {
        let bytes = self.skip(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A name, in lower case, with dots between its labels.
    fn name(&mut self) -> Option<String> {
        let mut name = Vec::new();
        let mut pointers = 0;
        let mut behind = None;
        loop {
            let len = usize::from(*self.skip(1)?.first()?);
            if len == 0 {
                break;
            }
            if len & 0xc0 == 0xc0 {
                let low = usize::from(*self.skip(1)?.first()?);
                behind = behind.or(Some(self.at));
                pointers += 1;
                if pointers > POINTERS_MAX {
                    return None;
                }
                self.at = (len & 0x3f) << 8 | low;
                continue;
            }
            if len > LABEL_MAX || name.len() + len > NAME_MAX {
                return None;
            }
            if !name.is_empty() {
                name.push(b'.');
            }
            name.extend(self.skip(len)?.to_ascii_lowercase());
        }
        if let Some(behind) = behind {
            self.at = behind;
        }
        Some(String::from_utf8_lossy(&name).into_owned())
    }

    fn record(&mut self) -> Option<DnsRecord> {
        self.name()?;
        let kind = self.number()?;
        let class = self.number()?;
        let ttl = self.skip(4)?;
        let ttl = u32::from_be_bytes([ttl[0], ttl[1], ttl[2], ttl[3]]);
        let len = usize::from(self.number()?);
        let end = self.at.checked_add(len)?;
        let data = match (class, kind, len) {
            (CLASS_IN, 1, 4) => RecordData::A(<[u8; 4]>::try_from(self.skip(4)?).ok()?.into()),
            (CLASS_IN, 28, 16) => {
                RecordData::Aaaa(<[u8; 16]>::try_from(self.skip(16)?).ok()?.into())
            }
            (CLASS_IN, 5, _) => RecordData::Alias(self.name()?),
            (CLASS_IN, 33, 7..) => RecordData::Srv {
                priority: self.number()?,
                weight: self.number()?,
                port: self.number()?,
                name: self.name()?,
            },
            _ => RecordData::Other,
        };
        self.message.get(..end)?;
        self.at = end;
        // With the highest bit set it means 0 (RFC 2181, section 8).
        let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
        Some(DnsRecord { ttl, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut message = question(7, "www.example.test", RecordType::A).unwrap();
        message[2] = 0x81; // a response
        message[7] = 3;
        let record = |message: &mut Vec<u8>, pointer: u8, kind: u8, ttl: u32, data: &[u8]| {
            message.extend([0xc0, pointer, 0, kind, 0, 1]);
            message.extend(ttl.to_be_bytes());
            message.extend([0, u8::try_from(data.len()).unwrap()]);
            message.extend(data);
        };
        record(&mut message, 12, 5, 9, &[1, b'W', 0xc0, 16]);
        record(&mut message, 12, 1, 300, &[127, 0, 0, 1]);
        record(
            &mut message,
            12,
            33,
            u32::MAX,
            &[0, 1, 0, 2, 0, 80, 1, b'x', 0],
        );
        message
    }

    #[test]
    fn what_is_asked_is_answered() {
        let answer = answer(&sample()).unwrap();
        assert!(answer.is_to(7, "www.example.test", RecordType::A));
        assert!(!answer.is_to(7, "www.example.test", RecordType::Aaaa));
        assert_eq!((answer.code, answer.is_truncated), (0, false));
        let said: Vec<_> = answer.records.iter().map(|r| (r.ttl, &r.data)).collect();
        let service = RecordData::Srv {
            priority: 1,
            weight: 2,
            port: 80,
            name: "x".into(),
        };
        assert_eq!(
            said,
            [
                (9, &RecordData::Alias("w.example.test".into())),
                (300, &RecordData::A(Ipv4Addr::LOCALHOST)),
                (0, &service),
            ]
        );
    }

    #[test]
    fn no_answer_breaks_the_reader() {
        let whole = sample();
        for len in 0..whole.len() {
            assert!(answer(&whole[..len]).is_err(), "{len} bytes");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 12, 0x3f, 0x40, 0xc0, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = answer(&changed);
            }
        }
        let mut looping = question(7, "a", RecordType::A).unwrap();
        looping[2] = 0x81;
        looping[12] = 0xc0;
        looping[13] = 12;
        assert_eq!(answer(&looping), Err("short DNS response"));
    }

    #[test]
    fn names_that_cannot_be_are_not_asked_for() {
        for name in ["", "a..b", ".a", &"a".repeat(64), &"a.".repeat(127)] {
            assert_eq!(question(1, name, RecordType::A), None, "{name}");
        }
        assert!(question(1, "a-b_c.d", RecordType::Srv).is_some());
    }
}
