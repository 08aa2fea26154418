//! Base64 (RFC 4648), decoded as in nginx: padding is optional, and everything after it is ignored.
//!
//! Decoding is not constant-time. Compare secrets in constant time, as decoded bytes.

use ::base64::Engine;
use ::base64::alphabet::{Alphabet, STANDARD, URL_SAFE};
use ::base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

static PLAIN: GeneralPurpose = engine(&STANDARD);
static URL: GeneralPurpose = engine(&URL_SAFE);

const fn engine(alphabet: &Alphabet) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(alphabet, config)
}

/// Encodes with padding (section 4).
pub fn encode(bytes: &[u8]) -> String {
    PLAIN.encode(bytes)
}

/// Decodes the standard alphabet (section 4).
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    PLAIN.decode(before_padding(text)).ok()
}

/// Decodes the alphabet that is safe for URLs and file names (section 5).
pub fn decode_url(text: &[u8]) -> Option<Vec<u8>> {
    URL.decode(before_padding(text)).ok()
}

/// nginx stops at the first `=`.
fn before_padding(text: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'=', text).unwrap_or(text.len());
    &text[..end]
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
