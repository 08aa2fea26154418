//! What an origin reads and writes that is no HTTP: requests of FastCGI, uwsgi and SCGI as text, and answers in FastCGI's records.
//!
//! Not here: connections, and what is answered (`origin`). Invariant: names and values are told in the order in which they came.

use super::origin::BODY_MAX;
use std::io::{Error, ErrorKind, Read, Result};

/// Bytes of an answer in one record.
const RECORD_BYTES: usize = 8000;
/// Records of one request.
const RECORDS_MAX: usize = 10_000;

/// What an origin speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speech {
    /// HTTP.
    #[default]
    Http,
    /// FastCGI.
    Fastcgi,
    /// uwsgi.
    Uwsgi,
    /// SCGI.
    Scgi,
}

/// A request as it came.
pub struct Call {
    /// Names and values.
    params: Vec<(String, String)>,
    body: Vec<u8>,
    /// What is said beside them.
    beside: String,
    /// Is the connection to be kept behind the answer?
    pub keeps: bool,
}

impl Speech {
    /// The families of nginx's directives that are not `proxy_…`, and what they speak.
    pub const GATEWAYS: [(&str, Speech); 3] = [
        ("fastcgi", Speech::Fastcgi),
        ("uwsgi", Speech::Uwsgi),
        ("scgi", Speech::Scgi),
    ];

    /// What a family speaks.
    pub fn of(family: &str) -> Option<Speech> {
        let mut all = Speech::GATEWAYS.iter();
        let found = all.find(|(name, _)| *name == family);
        found.map(|(_, speech)| *speech)
    }

    /// Reads a request; `None` at the end of the connection.
    pub fn read(self, stream: &mut impl Read) -> Result<Option<Call>> {
        let outcome = match self {
            Speech::Http | Speech::Fastcgi => fastcgi(stream),
            Speech::Uwsgi => uwsgi(stream),
            Speech::Scgi => scgi(stream),
        };
        match outcome {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// An answer as it is sent.
    pub fn packed(self, answer: &[u8]) -> Vec<u8> {
        if self != Speech::Fastcgi {
            return answer.to_vec();
        }
        let mut out = Vec::new();
        for piece in answer.chunks(RECORD_BYTES) {
            // Filled up or not, as it comes.
            record(&mut out, 6, piece, (piece.len() % 8) as u8);
        }
        record(&mut out, 6, b"", 0);
        record(&mut out, 3, &[0; 8], 0);
        out
    }
}

impl Call {
    /// A parameter's value; empty: none.
    pub fn param(&self, name: &str) -> &str {
        let mut all = self.params.iter();
        all.find(|(known, _)| known == name)
            .map_or("", |(_, value)| value)
    }

    /// The request as text.
    pub fn told(&self) -> Vec<u8> {
        let mut text = format!("{}\n", self.beside);
        for (name, value) in &self.params {
            text.push_str(&format!("{name}: {value}\n"));
        }
        [text.as_bytes(), b"\n", &self.body].concat()
    }
}

fn record(out: &mut Vec<u8>, kind: u8, content: &[u8], padding: u8) {
    let [high, low] = (content.len() as u16).to_be_bytes();
    out.extend([1, kind, 0, 1, high, low, padding, 0]);
    out.extend(content);
    out.extend(vec![0; padding.into()]);
}

fn take(stream: &mut impl Read, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn broken(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn fastcgi(stream: &mut impl Read) -> Result<Call> {
    let (mut flags, mut names, mut body) = (0, Vec::new(), Vec::new());
    for _ in 0..RECORDS_MAX {
        let head = take(stream, 8)?;
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        let content = take(stream, length)?;
        take(stream, head[6].into())?;
        match (head[1], length) {
            (1, 8) => flags = content[2],
            (4, _) => names.extend(content),
            (5, 0) => {
                return Ok(Call {
                    params: pairs(&names)?,
                    body,
                    beside: format!("FastCGI, flags {flags}"),
                    keeps: flags & 1 == 1,
                });
            }
            (5, _) => body.extend(content),
            _ => return Err(broken("a record of a strange type")),
        }
    }
    Err(broken("too many records"))
}

/// Names and values with their lengths in front: one byte, or four.
fn pairs(mut bytes: &[u8]) -> Result<Vec<(String, String)>> {
    let length = |bytes: &mut &[u8]| -> Result<usize> {
        let is_short = bytes.first().is_some_and(|first| *first < 128);
        let digits = take(bytes, if is_short { 1 } else { 4 })?;
        let sum = digits
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        Ok(if is_short { sum } else { sum & 0x7fff_ffff })
    };
    let mut pairs = Vec::new();
    while !bytes.is_empty() {
        let (name, value) = (length(&mut bytes)?, length(&mut bytes)?);
        let name = shown(&take(&mut bytes, name)?);
        pairs.push((name, shown(&take(&mut bytes, value)?)));
    }
    Ok(pairs)
}

fn uwsgi(stream: &mut impl Read) -> Result<Call> {
    let head = take(stream, 4)?;
    let vars = take(stream, u16::from_le_bytes([head[1], head[2]]).into())?;
    let mut rest = &vars[..];
    let text = |rest: &mut &[u8]| -> Result<String> {
        let length = take(rest, 2)?;
        let length = u16::from_le_bytes([length[0], length[1]]);
        Ok(shown(&take(rest, length.into())?))
    };
    let mut params = Vec::new();
    while !rest.is_empty() {
        let name = text(&mut rest)?;
        params.push((name, text(&mut rest)?));
    }
    let beside = format!("uwsgi, modifiers {} and {}", head[0], head[3]);
    with_body(stream, params, beside)
}

fn scgi(stream: &mut impl Read) -> Result<Call> {
    let mut length = 0;
    loop {
        match take(stream, 1)?[0] {
            b':' => break,
            digit @ b'0'..=b'9' if length < BODY_MAX as usize => {
                length = length * 10 + usize::from(digit - b'0');
            }
            _ => return Err(broken("no length")),
        }
    }
    let vars = take(stream, length)?;
    if take(stream, 1)? != b"," {
        return Err(broken("no comma behind the names"));
    }
    let texts: Vec<String> = vars.split(|byte| *byte == 0).map(shown).collect();
    let params = texts
        .chunks_exact(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()));
    with_body(stream, params.collect(), "SCGI".to_owned())
}

fn with_body(
    stream: &mut impl Read,
    params: Vec<(String, String)>,
    beside: String,
) -> Result<Call> {
    let mut call = Call {
        params,
        body: Vec::new(),
        beside,
        keeps: false,
    };
    let length = call.param("CONTENT_LENGTH").parse().unwrap_or(0);
    stream
        .take(BODY_MAX.min(length))
        .read_to_end(&mut call.body)?;
    Ok(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(speech: Speech, mut bytes: &[u8]) -> String {
        let call = speech.read(&mut bytes).unwrap().unwrap();
        shown(&call.told())
    }

    #[test]
    fn requests_are_told_in_their_order() {
        let mut bytes = Vec::new();
        record(&mut bytes, 1, &[0, 1, 1, 0, 0, 0, 0, 0], 0);
        record(&mut bytes, 4, b"\x01\x02Bcd\x01\x00A", 3);
        record(&mut bytes, 4, b"", 0);
        record(&mut bytes, 5, b"body", 4);
        record(&mut bytes, 5, b"", 0);
        let text = "FastCGI, flags 1\nB: cd\nA: \n\nbody";
        assert_eq!(told(Speech::Fastcgi, &bytes), text);
        let bytes = b"\x05\x07\x00\x07\x01\x00B\x02\x00cd";
        assert_eq!(
            told(Speech::Uwsgi, bytes),
            "uwsgi, modifiers 5 and 7\nB: cd\n\n"
        );
        let bytes = b"22:CONTENT_LENGTH\x002\x00B\x00cd\x00,xyz";
        assert_eq!(
            told(Speech::Scgi, bytes),
            "SCGI\nCONTENT_LENGTH: 2\nB: cd\n\nxy"
        );
        assert!(Speech::Scgi.read(&mut &b""[..]).unwrap().is_none());
    }
}
