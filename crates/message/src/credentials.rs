//! The user name and password in `Authorization: Basic` (RFC 7617).
//!
//! Only parses; nothing is verified. Invariant: as in nginx, a user name must not be empty and must be followed by a
//! colon.

use crate::base64;

/// The user name in an `Authorization` header.
pub fn basic_user(header: &[u8]) -> Option<Vec<u8>> {
    basic(header).map(|(user, _)| user)
}

/// The user name and password in an `Authorization` header.
pub fn basic(header: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, rest) = header.split_at_checked(b"Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let text = rest.trim_ascii_start();
    let mut said = base64::decode(text)?;
    let colon = memchr::memchr(b':', &said).filter(|at| *at > 0)?;
    let password = said.split_off(colon + 1);
    said.truncate(colon);
    Some((said, password))
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

    #[test]
    fn passwords() {
        let (user, password) = basic(b"Basic dTpwOnE=").expect("credentials");
        assert_eq!((&user[..], &password[..]), (&b"u"[..], &b"p:q"[..]));
        assert_eq!(basic(b"Basic dTo=").expect("credentials").1, b"");
        let long = format!("u:{}", "p".repeat(20_000));
        let header = format!("Basic {}", base64::encode(long.as_bytes()));
        let (_, password) = basic(header.as_bytes()).expect("a head may be as long");
        assert_eq!(password.len(), 20_000);
    }
}
