//! Base64 (RFC 4648), decoded as in nginx: padding is optional, and everything after it is ignored.
//!
//! Decoding is not constant-time. Compare secrets in constant time, as decoded bytes.

const PLAIN: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes with padding (section 4).
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group
            .iter()
            .chain([&0, &0])
            .take(3)
            .fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        for at in 0..4 {
            let digit = PLAIN[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= group.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    out
}

/// Decodes the standard alphabet (section 4).
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    decode_by(text, |byte| match byte {
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    })
}

/// Decodes the alphabet that is safe for URLs and file names (section 5).
pub fn decode_url(text: &[u8]) -> Option<Vec<u8>> {
    decode_by(text, |byte| match byte {
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    })
}

fn decode_by(text: &[u8], last_two: impl Fn(u8) -> Option<u8>) -> Option<Vec<u8>> {
    let end = memchr::memchr(b'=', text).unwrap_or(text.len());
    if end % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(end / 4 * 3 + 2);
    let (mut bits, mut count) = (0u32, 0);
    for byte in &text[..end] {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            other => last_two(*other)?,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()), encoded);
            assert_eq!(
                decode(encoded.as_bytes()).as_deref(),
                Some(plain.as_bytes())
            );
        }
    }

    #[test]
    fn padding_is_optional_and_the_alphabets_differ() {
        assert_eq!(decode(b"Zm8").as_deref(), Some(&b"fo"[..]));
        assert_eq!(decode(b"Zm8=anything").as_deref(), Some(&b"fo"[..]));
        assert_eq!(decode(b"Zm9vY"), None);
        assert_eq!(decode(b"+/+/").as_deref(), Some(&[0xfb, 0xff, 0xbf][..]));
        assert_eq!(
            decode_url(b"-_-_").as_deref(),
            Some(&[0xfb, 0xff, 0xbf][..])
        );
        assert_eq!(decode_url(b"+/+/"), None);
        assert_eq!(decode(b"-_-_"), None);
    }
}
