//! The ClientHello (RFC 8446, 4.1.2; RFC 5246, 7.4.1.2) out of the first bytes of a connection: what a client offers.
//!
//! Read once here: for choosing a configuration, for variables, and for `ssl_preread`, which has no TLS behind it.
//! Not here: deciding anything. Invariants: never more than [`HELLO_BYTES_MAX`] are asked for; what is read does not
//! depend on how the bytes are cut into records or reads.

/// Maximum size of a ClientHello in bytes, without the headers of records.
pub const HELLO_BYTES_MAX: usize = 65_536;
/// Maximum of records that a ClientHello may be spread over.
pub const RECORDS_MAX: usize = 64;
/// Maximum of extensions.
pub const EXTENSIONS_MAX: usize = 256;
/// Maximum of bytes of all that a connection sends before its ClientHello is whole.
pub const BUFFER_BYTES_MAX: usize = HELLO_BYTES_MAX + RECORDS_MAX * RECORD_HEADER_BYTES;

const RECORD_HEADER_BYTES: usize = 5;
/// Maximum size of a record's contents in clear (RFC 8446, 5.1).
const RECORD_BYTES_MAX: usize = 16_384;
const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const HANDSHAKE_HEADER_BYTES: usize = 4;
const RANDOM_BYTES: usize = 32;
const SESSION_ID_BYTES_MAX: usize = 32;

const SERVER_NAME: u16 = 0;
const GROUPS: u16 = 10;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const EARLY_DATA: u16 = 42;
const VERSIONS: u16 = 43;

/// What a client offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The name that it asks for, as it came (RFC 6066, 3).
    pub server_name: Option<Vec<u8>>,
    /// Protocols above TLS (RFC 7301), the one that it likes best first.
    pub alpn: Vec<Vec<u8>>,
    /// Versions: of the extension, or else the one of the message itself.
    pub versions: Vec<u16>,
    /// Cipher suites.
    pub ciphers: Vec<u16>,
    /// Groups for the key exchange.
    pub groups: Vec<u16>,
    /// Signature schemes.
    pub signature_schemes: Vec<u16>,
    /// Whether it sends data behind its ClientHello before it has an answer.
    pub has_early_data: bool,
}

/// How far the reading came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    Incomplete,
    /// The hello.
    Whole(Box<Hello>),
}

/// Why bytes are no ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A request of HTTP in clear.
    HttpRequest,
    /// A CONNECT request to a proxy.
    ProxyRequest,
    /// Neither a record of TLS nor something else that is known.
    NotTls,
    /// A record of another type, or another message.
    Unexpected,
    /// A record that is longer than may be.
    RecordTooLong,
    /// A ClientHello that is longer, or in more pieces, than may be.
    TooLong,
    /// Lengths that do not fit into each other.
    Malformed,
}

/// What the first byte of a connection says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstByte {
    /// A handshake record of TLS, or an SSLv2 hello.
    Tls,
    /// Something in clear: on a port for TLS the answer is 497.
    Plain,
}

impl FirstByte {
    /// Of a connection's first byte.
    #[must_use]
    pub fn of(byte: u8) -> Self {
        if byte & 0x80 != 0 || byte == HANDSHAKE_RECORD {
            Self::Tls
        } else {
            Self::Plain
        }
    }
}

/// Reads what has come of a connection so far, from its first byte on.
///
/// # Errors
/// The bytes cannot become a ClientHello.
pub fn read(bytes: &[u8]) -> Result<Progress, Fault> {
    let mut message = Vec::new();
    let mut rest = bytes;
    for _ in 0..RECORDS_MAX {
        match record(rest, bytes)? {
            None => return Ok(Progress::Incomplete),
            Some(contents) => {
                message.extend_from_slice(contents);
                rest = &rest[RECORD_HEADER_BYTES + contents.len()..];
            }
        }
        if let Some(body) = body(&message)? {
            let hello = Hello::read(body).ok_or(Fault::Malformed)?;
            return Ok(Progress::Whole(Box::new(hello)));
        }
    }
    Err(Fault::TooLong)
}

/// The contents of the record that `bytes` begin with; `None` if it is not whole.
fn record<'a>(bytes: &'a [u8], all: &[u8]) -> Result<Option<&'a [u8]>, Fault> {
    let Some(kind) = bytes.first() else {
        return Ok(None);
    };
    if *kind != HANDSHAKE_RECORD {
        let is_first = bytes.len() == all.len();
        return Err(if is_first {
            foreign(bytes)
        } else {
            Fault::Unexpected
        });
    }
    let is_tls = bytes.get(1).is_none_or(|major| *major == 3);
    if !is_tls {
        return Err(Fault::NotTls);
    }
    let Some(length) = bytes.get(3..RECORD_HEADER_BYTES) else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    match length {
        0 => Err(Fault::Malformed),
        1..=RECORD_BYTES_MAX => Ok(bytes.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + length)),
        _ => Err(Fault::RecordTooLong),
    }
}

/// What else a connection begins with.
fn foreign(bytes: &[u8]) -> Fault {
    let begins = |method: &str| bytes.starts_with(method.as_bytes());
    if ["GET ", "POST ", "HEAD ", "PUT "].into_iter().any(begins) {
        Fault::HttpRequest
    } else if begins("CONNE") {
        Fault::ProxyRequest
    } else if (20..24).contains(&bytes[0]) {
        Fault::Unexpected
    } else {
        Fault::NotTls
    }
}

/// The body of the message; `None` if it is not whole.
fn body(message: &[u8]) -> Result<Option<&[u8]>, Fault> {
    let Some(header) = message.get(..HANDSHAKE_HEADER_BYTES) else {
        return match message.first() {
            Some(&CLIENT_HELLO) | None => Ok(None),
            Some(_) => Err(Fault::Unexpected),
        };
    };
    if header[0] != CLIENT_HELLO {
        return Err(Fault::Unexpected);
    }
    let length =
        usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]);
    if length + HANDSHAKE_HEADER_BYTES > HELLO_BYTES_MAX {
        return Err(Fault::TooLong);
    }
    Ok(message.get(HANDSHAKE_HEADER_BYTES..HANDSHAKE_HEADER_BYTES + length))
}

/// Reads values one behind the other.
#[derive(Clone, Copy)]
struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn short(&mut self) -> Option<u16> {
        self.take(2)
            .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A list behind its length of one byte.
    fn short_list(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.take(usize::from(length))
    }

    /// A list behind its length of two bytes.
    fn list(&mut self) -> Option<&'a [u8]> {
        let length = self.short()?;
        self.take(usize::from(length))
    }
}

impl Hello {
    fn read(body: &[u8]) -> Option<Self> {
        let mut values = Values(body);
        let mut hello = Self {
            versions: vec![values.short()?],
            ..Self::default()
        };
        values.take(RANDOM_BYTES)?;
        let session_id = values.short_list()?;
        if session_id.len() > SESSION_ID_BYTES_MAX {
            return None;
        }
        hello.ciphers = numbers(values.list()?)?;
        if values.short_list()?.is_empty() {
            return None;
        }
        if values.0.is_empty() {
            return Some(hello);
        }
        let mut extensions = Values(values.list()?);
        for _ in 0..EXTENSIONS_MAX {
            if extensions.0.is_empty() {
                return values.0.is_empty().then_some(hello);
            }
            let kind = extensions.short()?;
            hello.extend(kind, extensions.list()?)?;
        }
        None
    }

    /// Takes what an extension says.
    fn extend(&mut self, kind: u16, contents: &[u8]) -> Option<()> {
        let mut values = Values(contents);
        match kind {
            SERVER_NAME => self.server_name = Some(server_name(&mut values)?),
            GROUPS => self.groups = numbers(values.list()?)?,
            SIGNATURE_ALGORITHMS => self.signature_schemes = numbers(values.list()?)?,
            ALPN => self.alpn = protocols(values.list()?)?,
            VERSIONS => self.versions = numbers(values.short_list()?)?,
            EARLY_DATA => self.has_early_data = true,
            _ => return Some(()),
        }
        values.0.is_empty().then_some(())
    }
}

/// The one host name of a list of names.
fn server_name(values: &mut Values<'_>) -> Option<Vec<u8>> {
    let mut list = Values(values.list()?);
    let is_host = list.byte()? == 0;
    let name = list.list()?;
    let is_name = is_host && !name.is_empty() && list.0.is_empty() && !name.contains(&0);
    is_name.then(|| name.to_vec())
}

fn protocols(list: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut list = Values(list);
    let mut protocols = Vec::new();
    while !list.0.is_empty() {
        let protocol = list.short_list()?;
        (!protocol.is_empty()).then_some(())?;
        protocols.push(protocol.to_vec());
    }
    (!protocols.is_empty()).then_some(protocols)
}

/// A list of numbers of two bytes, at least one.
fn numbers(list: &[u8]) -> Option<Vec<u16>> {
    let pairs = list.chunks_exact(2);
    let is_list = !list.is_empty() && pairs.remainder().is_empty();
    is_list.then(|| {
        pairs
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(contents: &[u8]) -> Vec<u8> {
        let mut bytes = (contents.len() as u16).to_be_bytes().to_vec();
        bytes.extend_from_slice(contents);
        bytes
    }

    fn extension(kind: u16, contents: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &listed(contents)].concat()
    }

    fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[0],
            &listed(&[0x13, 1, 0xc0, 0x2b]),
            &[1, 0],
            &listed(&extensions.concat()),
        ]
        .concat();
        let length = (body.len() as u32).to_be_bytes();
        [&[1], &length[1..], &body].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[22, 3, 1][..], &listed(part)].concat();
        message.chunks(size).flat_map(record).collect()
    }

    fn full() -> Vec<u8> {
        let name = [&[0][..], &listed(b"example.org")].concat();
        message(&[
            extension(SERVER_NAME, &listed(&name)),
            extension(ALPN, &listed(b"\x02h2\x08http/1.1")),
            extension(GROUPS, &listed(&[0, 29, 0, 23])),
            extension(SIGNATURE_ALGORITHMS, &listed(&[4, 3])),
            extension(VERSIONS, &[4, 3, 4, 3, 3]),
            extension(EARLY_DATA, &[]),
            extension(0xfafa, &[1, 2, 3]),
        ])
    }

    fn whole(bytes: &[u8]) -> Hello {
        match read(bytes) {
            Ok(Progress::Whole(hello)) => *hello,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_cut_gives_the_same() {
        let expected = whole(&records(&full(), 16_384));
        assert_eq!(expected.server_name.as_deref(), Some(&b"example.org"[..]));
        assert_eq!(expected.alpn, [&b"h2"[..], b"http/1.1"]);
        assert_eq!(
            (expected.groups.as_slice(), expected.has_early_data),
            (&[29, 23][..], true)
        );
        assert_eq!((expected.versions[0], expected.ciphers[1]), (0x304, 0xc02b));
        assert_eq!(expected.signature_schemes, [0x403]);
        for size in [3, 5, 64, 100] {
            let bytes = records(&full(), size);
            assert_eq!(whole(&bytes), expected);
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), Ok(Progress::Incomplete), "{end}");
            }
        }
    }

    #[test]
    fn a_hello_without_extensions_is_one() {
        let mut bytes = message(&[]);
        bytes.truncate(bytes.len() - 2);
        let length = (bytes.len() - 4) as u32;
        bytes[1..4].copy_from_slice(&length.to_be_bytes()[1..]);
        let hello = whole(&records(&bytes, 100));
        assert_eq!((hello.versions, hello.server_name), (vec![0x303], None));
    }

    #[test]
    fn what_is_none_is_told_apart() {
        for (bytes, fault) in [
            (&b"GET / HTTP/1.1\r\n"[..], Fault::HttpRequest),
            (b"CONNECT a:1", Fault::ProxyRequest),
            (b"SSH-2.0", Fault::NotTls),
            (b"\x80\x2e\x01", Fault::NotTls),
            (b"\x17\x03\x03", Fault::Unexpected),
            (b"\x16\x02", Fault::NotTls),
            (b"\x16\x03\x01\x40\x01", Fault::RecordTooLong),
            (b"\x16\x03\x01\x00\x00", Fault::Malformed),
            (b"\x16\x03\x01\x00\x01\x02", Fault::Unexpected),
            (b"\x16\x03\x01\x00\x04\x01\x01\x00\x00", Fault::TooLong),
            (
                b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03",
                Fault::Malformed,
            ),
        ] {
            assert_eq!(read(bytes), Err(fault), "{bytes:?}");
        }
        let many = records(&full(), 1);
        assert_eq!(read(&many), Err(Fault::TooLong));
    }

    #[test]
    fn broken_extensions_are_refused() {
        for broken in [
            extension(SERVER_NAME, &[]),
            extension(SERVER_NAME, &listed(&[0, 0, 0])),
            extension(SERVER_NAME, &listed(&[0, 0, 3, b'a', 0, b'b'])),
            extension(ALPN, &listed(&[0])),
            extension(ALPN, &listed(&[])),
            extension(GROUPS, &listed(&[0, 29, 0])),
            extension(VERSIONS, &[2, 3, 4, 0]),
        ] {
            let bytes = records(&message(std::slice::from_ref(&broken)), 1000);
            assert_eq!(read(&bytes), Err(Fault::Malformed), "{broken:?}");
        }
    }

    #[test]
    fn the_first_byte_tells_clear_from_tls() {
        assert_eq!(FirstByte::of(22), FirstByte::Tls);
        assert_eq!(FirstByte::of(0x80), FirstByte::Tls);
        assert_eq!(FirstByte::of(b'G'), FirstByte::Plain);
    }
}
