//! The PROXY protocol, versions 1 and 2: the header in which a proxy tells its client's address before the first
//! request (`listen … proxy_protocol`). nginx-drop-in 50.
//!
//! Its specification is HAProxy's `proxy-protocol.txt`. Not here: how the address is used (`real_ip_header
//! proxy_protocol`, `$proxy_protocol_…`). Invariant: a header is taken whole or the connection ends; it has at most
//! [`HEADER_BYTES_MAX`] bytes.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

/// Maximum size of a header in bytes; a larger one is refused, unless `client_header_buffer_size` is larger.
pub const HEADER_BYTES_MAX: usize = 4096;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of signature, version and command, family and transport, length.
const FIXED_BYTES: usize = 16;
const COMMAND_PROXY: u8 = 1;
const TRANSPORT_STREAM: u8 = 1;
const FAMILY_INET: u8 = 1;
const FAMILY_INET6: u8 = 2;

/// The client as a proxy names it.
#[derive(Debug, PartialEq, Eq)]
pub struct ProxyProtocol {
    /// The client.
    pub source: End,
    /// The address that the client connected to.
    pub destination: End,
    /// The TLVs as they arrived: a type, two bytes of length, a value, and so on.
    tlvs: Bytes,
}

/// One end of the client's connection.
#[derive(Debug, PartialEq, Eq)]
pub struct End {
    /// Its address, as it was written.
    pub address: Bytes,
    /// Its port.
    pub port: u16,
}

/// The result of parsing the start of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A header of this many bytes; it may name no client.
    Header(usize, Option<Box<ProxyProtocol>>),
    /// No valid header, with the text for the log, if any.
    Broken(Option<String>),
    /// Too few bytes to tell.
    More,
}

/// Parses the start of a connection; a header may have `max` bytes.
#[must_use]
pub fn parse(bytes: &[u8], max: usize) -> Parsed {
    if bytes.starts_with(SIGNATURE) || SIGNATURE.starts_with(bytes) {
        parse_binary(bytes, max)
    } else {
        parse_line(bytes, max)
    }
}

fn parse_line(bytes: &[u8], max: usize) -> Parsed {
    const BEGINNING: &[u8] = b"PROXY ";
    let broken = || {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let line = bytes.split(is_end).next().unwrap_or_default();
        let text = String::from_utf8_lossy(line);
        Parsed::Broken(Some(format!("broken header: \"{text}\"")))
    };
    let may_go_on =
        bytes.len() < max && (bytes.starts_with(BEGINNING) || BEGINNING.starts_with(bytes));
    let Some(end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(max)]) else {
        return if may_go_on { Parsed::More } else { broken() };
    };
    let words = bytes[..end]
        .strip_suffix(b"\r")
        .and_then(|line| line.strip_prefix(BEGINNING));
    let Some(words) = words else {
        return broken();
    };
    if words.starts_with(b"UNKNOWN") {
        return Parsed::Header(end + 1, None);
    }
    match ends(words) {
        Some((source, destination)) => {
            let said = ProxyProtocol {
                source,
                destination,
                tlvs: Bytes::new(),
            };
            Parsed::Header(end + 1, Some(Box::new(said)))
        }
        None => broken(),
    }
}

/// `TCP4 192.0.2.1 192.0.2.2 1234 80`: only the form is checked.
fn ends(words: &[u8]) -> Option<(End, End)> {
    let rest = words
        .strip_prefix(b"TCP4 ")
        .or_else(|| words.strip_prefix(b"TCP6 "))?;
    let mut words = rest.splitn(4, |byte| *byte == b' ');
    let is_of_address = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let mut address = || {
        let word = words.next()?;
        let is_one = word.iter().all(is_of_address);
        is_one.then(|| Bytes::copy_from_slice(word))
    };
    let (source, destination) = (address()?, address()?);
    let mut port = || {
        let word = words.next()?;
        let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
        let text = std::str::from_utf8(word).ok().filter(|_| is_number)?;
        text.parse::<u16>().ok()
    };
    let (from, to) = (port()?, port()?);
    Some((
        End {
            address: source,
            port: from,
        },
        End {
            address: destination,
            port: to,
        },
    ))
}

fn parse_binary(bytes: &[u8], max: usize) -> Parsed {
    let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else {
        return Parsed::More;
    };
    let [.., version_and_command, family_and_transport, high, low] = *fixed;
    let version = version_and_command >> 4;
    if version != 2 {
        let text = format!("unknown PROXY protocol version: {version}");
        return Parsed::Broken(Some(text));
    }
    let length = FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if length > max {
        return Parsed::Broken(Some("header is too large".to_owned()));
    }
    let Some(rest) = bytes.get(FIXED_BYTES..length) else {
        return Parsed::More;
    };
    let command = version_and_command & 0x0f;
    let transport = family_and_transport & 0x0f;
    if command != COMMAND_PROXY || transport != TRANSPORT_STREAM {
        return Parsed::Header(length, None);
    }
    let said = match family_and_transport >> 4 {
        FAMILY_INET => binary_ends::<4>(rest),
        FAMILY_INET6 => binary_ends::<16>(rest),
        _ => return Parsed::Header(length, None),
    };
    match said {
        Some(said) => Parsed::Header(length, Some(Box::new(said))),
        None => Parsed::Broken(None),
    }
}

/// Two addresses of `N` bytes, two ports, and the TLVs after them.
fn binary_ends<const N: usize>(bytes: &[u8]) -> Option<ProxyProtocol>
where
    IpAddr: From<[u8; N]>,
{
    let (source, rest) = bytes.split_first_chunk::<N>()?;
    let (destination, rest) = rest.split_first_chunk::<N>()?;
    let (from, rest) = rest.split_first_chunk::<2>()?;
    let (to, tlvs) = rest.split_first_chunk::<2>()?;
    let end = |address: [u8; N], port: [u8; 2]| {
        let text = IpAddr::from(address).to_string();
        End {
            address: text.into(),
            port: u16::from_be_bytes(port),
        }
    };
    Some(ProxyProtocol {
        source: end(*source, *from),
        destination: end(*destination, *to),
        tlvs: Bytes::copy_from_slice(tlvs),
    })
}

impl ProxyProtocol {
    /// The client's address and port, where it is an IP address.
    #[must_use]
    pub fn client(&self) -> Option<SocketAddr> {
        let ip = config::parse_ip(&self.source.address)?;
        Some(SocketAddr::new(ip, self.source.port))
    }

    /// The value of the TLV named `alpn`, `authority`, `unique_id`, `ssl`, `netns`, `0x…`, `ssl_verify`, `ssl_version`,
    /// `ssl_cn`, `ssl_cipher`, `ssl_sig_alg`, `ssl_key_alg` or `ssl_0x…`; `None`: the header has none.
    ///
    /// # Errors
    /// The text for the log: there is no such name, or the TLVs are malformed.
    pub fn tlv(&self, name: &[u8]) -> Result<Option<Bytes>, String> {
        let Some(inner) = name.strip_prefix(b"ssl_") else {
            return look_up(&self.tlvs, type_of(name, TYPES)?);
        };
        let Some(ssl) = look_up(&self.tlvs, SSL)? else {
            return Ok(None);
        };
        // The client flags, and the result of verifying its certificate, precede the values.
        let Some((fixed, _)) = ssl.split_first_chunk::<5>() else {
            return Err(BROKEN_TLV.to_owned());
        };
        if inner == b"verify" {
            let [_, verify @ ..] = *fixed;
            let number = u32::from_be_bytes(verify).to_string();
            return Ok(Some(number.into()));
        }
        let wanted = type_of(inner, SSL_TYPES).map_err(|_| unknown_tlv(name))?;
        look_up(&ssl.slice(fixed.len()..), wanted)
    }
}

const SSL: u64 = 0x20;
const TYPES: &[(&[u8], u64)] = &[
    (b"alpn", 0x01),
    (b"authority", 0x02),
    (b"unique_id", 0x05),
    (b"ssl", SSL),
    (b"netns", 0x30),
];
const SSL_TYPES: &[(&[u8], u64)] = &[
    (b"version", 0x21),
    (b"cn", 0x22),
    (b"cipher", 0x23),
    (b"sig_alg", 0x24),
    (b"key_alg", 0x25),
];
const BROKEN_TLV: &str = "broken PROXY protocol TLV";

fn unknown_tlv(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    format!("unknown PROXY protocol TLV \"{name}\"")
}

fn type_of(name: &[u8], types: &[(&[u8], u64)]) -> Result<u64, String> {
    if let Some(digits) = name.strip_prefix(b"0x") {
        let text = std::str::from_utf8(digits).unwrap_or_default();
        let is_number = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok().filter(|_| is_number);
        return number.ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            format!("invalid PROXY protocol TLV \"{name}\"")
        });
    }
    let found = types.iter().find(|(known, _)| *known == name);
    found
        .map(|(_, number)| *number)
        .ok_or_else(|| unknown_tlv(name))
}

fn look_up(tlvs: &Bytes, wanted: u64) -> Result<Option<Bytes>, String> {
    let mut rest = &tlvs[..];
    while !rest.is_empty() {
        let broken = || BROKEN_TLV.to_owned();
        let ([kind, high, low], behind) = rest.split_first_chunk::<3>().ok_or_else(broken)?;
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, behind) = behind.split_at_checked(length).ok_or_else(broken)?;
        if u64::from(*kind) == wanted {
            return Ok(Some(tlvs.slice_ref(value)));
        }
        rest = behind;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Parsed {
        parse(text.as_bytes(), HEADER_BYTES_MAX)
    }

    fn said(parsed: Parsed) -> (usize, Option<Box<ProxyProtocol>>) {
        match parsed {
            Parsed::Header(length, said) => (length, said),
            other => panic!("{other:?}"),
        }
    }

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        let length = u16::try_from(rest.len())
            .expect("it is short")
            .to_be_bytes();
        bytes.extend_from_slice(&[0x20 | command, family, length[0], length[1]]);
        bytes.extend_from_slice(rest);
        bytes
    }

    #[test]
    fn version_1() {
        let text = "PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r\nGET";
        let (length, header) = said(line(text));
        let header = header.expect("it names a client");
        assert_eq!(&text[length..], "GET");
        assert_eq!(header.client(), "192.0.2.1:1234".parse().ok());
        assert_eq!(
            (&header.destination.address[..], header.destination.port),
            (&b"192.0.2.2"[..], 80)
        );
        let (_, six) = said(line("PROXY TCP6 2001:db8::1 2001:db8::2 1234 80\r\n"));
        let six = six.expect("it names a client");
        assert_eq!(six.client(), "[2001:db8::1]:1234".parse().ok());
        assert_eq!(said(line("PROXY UNKNOWN whatever 1 2\r\nGET")), (28, None));
        for more in [
            "",
            "P",
            "PROXY ",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r",
        ] {
            assert_eq!(line(more), Parsed::More, "{more}");
        }
        for broken in [
            "GET / HTTP/1.1",
            "PROXY\r\n",
            "PROXY TCP5 192.0.2.1 192.0.2.2 1234 80\r\n",
            "PROXY TCP4 192.0.2.x 192.0.2.2 1234 80\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1234\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1234 65536\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1234 80 \r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\n",
        ] {
            let first = broken.trim_end_matches(['\r', '\n']);
            let why = format!("broken header: \"{first}\"");
            assert_eq!(line(broken), Parsed::Broken(Some(why)), "{broken}");
        }
        let endless = format!("PROXY TCP4 {}", "1".repeat(HEADER_BYTES_MAX));
        assert!(matches!(line(&endless), Parsed::Broken(Some(_))));
        let late = format!("PROXY UNKNOWN {}\r\n", "1".repeat(HEADER_BYTES_MAX));
        assert!(matches!(line(&late), Parsed::Broken(Some(_))));
    }

    #[test]
    fn version_2() {
        let inet = [192, 0, 2, 1, 192, 0, 2, 2, 0x04, 0xd2, 0, 80];
        let bytes = binary(1, 0x11, &inet);
        let (length, header) = said(parse(&bytes, HEADER_BYTES_MAX));
        assert_eq!(length, bytes.len());
        assert_eq!(
            header.expect("it names a client").client(),
            "192.0.2.1:1234".parse().ok()
        );
        for cut in 0..bytes.len() {
            assert_eq!(
                parse(&bytes[..cut], HEADER_BYTES_MAX),
                Parsed::More,
                "{cut}"
            );
        }
        let mut inet6 = [0; 36];
        inet6[15] = 1;
        inet6[33] = 7;
        let (_, six) = said(parse(&binary(1, 0x21, &inet6), HEADER_BYTES_MAX));
        assert_eq!(
            six.expect("it names a client").client(),
            "[::1]:7".parse().ok()
        );
        // A health check by the proxy itself, datagrams, unix sockets: the header names no client.
        for (command, family) in [(0, 0x11), (1, 0x12), (1, 0x31), (1, 0)] {
            let bytes = binary(command, family, &inet);
            assert_eq!(said(parse(&bytes, HEADER_BYTES_MAX)), (bytes.len(), None));
        }
        assert_eq!(
            parse(&binary(1, 0x11, &inet[1..]), HEADER_BYTES_MAX),
            Parsed::Broken(None)
        );
        let large = binary(1, 0x11, &[0; 100]);
        let why = Some("header is too large".to_owned());
        assert_eq!(parse(&large[..16], 100), Parsed::Broken(why));
        let mut old = bytes;
        old[12] = 0x11;
        let why = Some("unknown PROXY protocol version: 1".to_owned());
        assert_eq!(parse(&old, HEADER_BYTES_MAX), Parsed::Broken(why));
    }

    #[test]
    fn no_byte_that_is_another_one_makes_more_of_a_header_than_there_is() {
        let rest = [&[0; 12][..], b"\x20\x00\x08\x01\0\0\0\0\x22\0\0"].concat();
        let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r\n".to_vec();
        for header in [binary(1, 0x11, &rest), line] {
            for at in 0..header.len() {
                for byte in 0..=u8::MAX {
                    let mut changed = header.clone();
                    changed[at] = byte;
                    if let Parsed::Header(length, said) = parse(&changed, HEADER_BYTES_MAX) {
                        assert!(length <= changed.len());
                        let _ = said.map(|said| said.tlv(b"ssl_cn"));
                    }
                }
            }
        }
    }

    #[test]
    fn what_more_is_said() {
        let with = |tlvs: &[u8]| ProxyProtocol {
            source: End {
                address: Bytes::new(),
                port: 0,
            },
            destination: End {
                address: Bytes::new(),
                port: 0,
            },
            tlvs: Bytes::copy_from_slice(tlvs),
        };
        let ssl = b"\x20\x00\x10\x01\x00\x00\x00\x2a\x21\x00\x02v3\x22\x00\x03one";
        let tlvs = [&b"\x02\x00\x04a.de\xe0\x00\x00"[..], ssl].concat();
        let header = with(&tlvs);
        let tlv = |name: &str| match header.tlv(name.as_bytes()) {
            Ok(value) => value.map(|value| String::from_utf8_lossy(&value).into_owned()),
            Err(why) => Some(why),
        };
        assert_eq!(tlv("authority").as_deref(), Some("a.de"));
        assert_eq!(tlv("0x02").as_deref(), Some("a.de"));
        assert_eq!(tlv("0xE0").as_deref(), Some(""));
        assert_eq!(tlv("alpn"), None);
        assert_eq!(tlv("ssl_verify").as_deref(), Some("42"));
        assert_eq!(tlv("ssl_version").as_deref(), Some("v3"));
        assert_eq!(tlv("ssl_cn").as_deref(), Some("one"));
        assert_eq!(tlv("ssl_0x22").as_deref(), Some("one"));
        assert_eq!(tlv("ssl_cipher"), None);
        assert_eq!(
            tlv("nosuch").as_deref(),
            Some("unknown PROXY protocol TLV \"nosuch\"")
        );
        assert_eq!(
            tlv("ssl_nosuch").as_deref(),
            Some("unknown PROXY protocol TLV \"ssl_nosuch\"")
        );
        assert_eq!(
            tlv("0xg").as_deref(),
            Some("invalid PROXY protocol TLV \"0xg\"")
        );
        assert_eq!(with(b"\x02\x00\x09a").tlv(b"alpn").unwrap_err(), BROKEN_TLV);
        assert_eq!(
            with(b"\x20\x00\x01a").tlv(b"ssl_cn").unwrap_err(),
            BROKEN_TLV
        );
        assert_eq!(with(b"").tlv(b"ssl_cn"), Ok(None));
    }
}
