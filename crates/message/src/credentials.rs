//! Who a request says it is from: the user of `Authorization: Basic` (RFC 7617).
//!
//! Reads, and believes nothing. Invariant: as nginx, it takes no user without a colon behind it and no empty one.

/// Bytes of a header that are looked at; longer ones have no user.
const BASIC_BYTES_MAX: usize = 8192;

/// The user named in an `Authorization` header.
pub fn basic_user(header: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = header.split_at_checked(b"Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") || rest.len() > BASIC_BYTES_MAX {
        return None;
    }
    let text = rest.trim_ascii_start();
    let mut said = decode(text)?;
    let colon = memchr::memchr(b':', &said).filter(|at| *at > 0)?;
    said.truncate(colon);
    Some(said)
}

/// Base64 (RFC 4648, 4), its padding optional.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let end = memchr::memchr(b'=', text).unwrap_or(text.len());
    if end % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(end / 4 * 3 + 2);
    let (mut bits, mut count) = (0u32, 0);
    for byte in &text[..end] {
        bits = bits << 6 | u32::from(digit(*byte)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

fn digit(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users() {
        for (header, user) in [
            ("Basic dTpw", Some("u")),
            ("basic   dTpw", Some("u")),
            ("Basic dTpwOnE=", Some("u")),
            ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", Some("Aladdin")),
            ("Basic dTp", Some("u")),
            ("Basic dQ==", None),
            ("Basic OnA=", None),
            ("Basic d", None),
            ("Basic !!", None),
            ("Basic", None),
            ("Bearer dTpw", None),
        ] {
            let found = basic_user(header.as_bytes());
            assert_eq!(found.as_deref(), user.map(str::as_bytes), "{header}");
        }
    }
}
