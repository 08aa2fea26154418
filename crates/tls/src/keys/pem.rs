//! PEM (RFC 1421, RFC 7468): blocks of a text, read as OpenSSL reads them.
//!
//! Not here: what a block holds. Invariant: text between blocks is passed over; a block that is begun and broken is an
//! error, never passed over.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Maximum of blocks in a text.
pub const BLOCKS_MAX: usize = 16_384;
/// Maximum of header lines of a block.
const HEADERS_MAX: usize = 16;

/// A PEM block.
pub(crate) struct Block<'a> {
    pub(crate) label: &'a str,
    /// Header lines: name and value.
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) contents: Zeroizing<Vec<u8>>,
}

/// Why a text's blocks cannot be read: OpenSSL's number and text.
pub(crate) const BAD_END_LINE: &str = "04800066:PEM routines::bad end line";
pub(crate) const BAD_BASE64: &str = "04800064:PEM routines::bad base64 decode";
const TOO_MANY: &str = "0480006D:PEM routines::too many blocks";

impl<'a> Block<'a> {
    /// The value of a header line.
    pub(crate) fn header(&self, name: &str) -> Option<&'a str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }
}

/// All blocks of a text, in order.
pub(crate) fn blocks(text: &[u8]) -> Result<Vec<Block<'_>>, &'static str> {
    let mut lines = text
        .split(|byte| *byte == b'\n')
        .map(|line| std::str::from_utf8(line).unwrap_or("\u{fffd}").trim_end());
    let mut blocks = Vec::new();
    while let Some(line) = lines.next() {
        let Some(label) = boundary(line, "-----BEGIN ") else {
            continue;
        };
        if blocks.len() == BLOCKS_MAX {
            return Err(TOO_MANY);
        }
        blocks.push(block(label, &mut lines)?);
    }
    Ok(blocks)
}

fn boundary<'a>(line: &'a str, begin: &str) -> Option<&'a str> {
    line.strip_prefix(begin)?.strip_suffix("-----")
}

fn block<'a>(
    label: &'a str,
    lines: &mut impl Iterator<Item = &'a str>,
) -> Result<Block<'a>, &'static str> {
    let (mut headers, mut encoded) = (Vec::new(), Zeroizing::new(String::new()));
    for line in lines {
        if let Some(end) = boundary(line, "-----END ") {
            if end != label {
                return Err(BAD_END_LINE);
            }
            let contents = STANDARD.decode(encoded.as_bytes());
            return Ok(Block {
                label,
                headers,
                contents: Zeroizing::new(contents.map_err(|_| BAD_BASE64)?),
            });
        }
        match line.split_once(':') {
            Some((name, value)) if encoded.is_empty() && headers.len() < HEADERS_MAX => {
                headers.push((name.trim(), value.trim()));
            }
            _ => encoded.push_str(line.trim()),
        }
    }
    Err(BAD_END_LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_between_text() {
        let text =
            b"x\n-----BEGIN A-----\r\nDEK-Info: AES-128-CBC,00\n\nAAEC\nAw==\n-----END A-----\ny\n\
                     -----BEGIN B-----\n-----END B-----";
        let blocks = blocks(text).unwrap();
        assert_eq!(blocks.len(), 2);
        assert_eq!(
            (blocks[0].label, &blocks[0].contents[..]),
            ("A", &[0, 1, 2, 3][..])
        );
        assert_eq!(blocks[0].header("DEK-Info"), Some("AES-128-CBC,00"));
        assert_eq!((blocks[1].label, blocks[1].contents.len()), ("B", 0));
    }

    #[test]
    fn broken_blocks_are_errors() {
        let fault = |text: &[u8]| blocks(text).err();
        assert_eq!(fault(b"-----BEGIN A-----\nAAEC\n"), Some(BAD_END_LINE));
        assert_eq!(
            fault(b"-----BEGIN A-----\nAAEC\n-----END B-----\n"),
            Some(BAD_END_LINE)
        );
        assert_eq!(
            fault(b"-----BEGIN A-----\nAA*C\n-----END A-----\n"),
            Some(BAD_BASE64)
        );
        assert_eq!(fault(b""), None);
    }
}
