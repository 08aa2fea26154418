//! `secure_link`: links that can be made only with a secret, and that can expire.
//!
//! Not here: refusing requests without a valid link, which the configuration does (`if ($secure_link = "") { return
//! 403; }`). Invariant: hashes are compared in constant time.

use bytes::Bytes;
use config::{DirectiveSlot, Placed, Scope, Section, Template, directives};
use md5::{Digest, Md5};
use message::base64;
use subtle::ConstantTimeEq;

use httpcore::request::Request;

/// Maximum length of an MD5 in base64, with padding.
const HASH_MAX: usize = 24;
const MD5_BYTES: usize = 16;

directives! {
    /// Secure links.
    pub struct Links in Location {
        /// Sets where a request has its hash (MD5 in base64url) and, after a comma, its expiry time in seconds.
        secure_link: Option<Template> = none, [HTTP | SERVER | LOCATION] 1, syntax "expression";
        /// Sets the text that the hash must be the MD5 of: secret, URI, time. `$secure_link` is `1` if it is valid, `0`
        /// if the link has expired, otherwise empty.
        secure_link_md5: Option<Template> = none, [HTTP | SERVER | LOCATION] 1, syntax "expression";
        /// The older form, for URIs like `/prefix/hash/link`: sets the secret; the hash is the MD5, in hexadecimal
        /// digits, of the link with the secret appended. `$secure_link` is the link if it is valid, otherwise empty.
        secure_link_secret: Option<Placed<Bytes>> = none, [HTTP | SERVER | LOCATION] 1, syntax "word";
    }
}

/// The settings in effect at a location.
#[derive(Debug, Clone)]
pub struct SecureLink {
    links: Links,
}

config::own!(SecureLink);

/// By hand, since a secret takes the place of the two others of the levels around it, and they take its.
impl Section for SecureLink {
    type Raw = <Links as Section>::Raw;

    fn tables() -> Vec<&'static config::DirectiveTable> {
        Links::tables()
    }

    fn set(
        raw: &mut Self::Raw,
        directive: &config::Directive,
        scope: &mut Scope,
    ) -> Result<bool, config::Error> {
        Links::set(raw, directive, scope)
    }

    fn merge(parent: &Self::Raw, child: Self::Raw) -> Self::Raw {
        if is_set(&child.secure_link_secret) {
            return child;
        }
        let mut merged = Links::merge(parent, child);
        if is_set(&merged.secure_link) || is_set(&merged.secure_link_md5) {
            merged.secure_link_secret = DirectiveSlot::default();
        }
        merged
    }

    fn fill(_: &mut Self::Raw, _: &mut Scope) -> Result<(), config::Error> {
        Ok(())
    }

    fn finish(raw: Self::Raw, scope: &mut Scope) -> Result<Self, config::Error> {
        let links = Links::finish(raw, scope)?;
        match &links.secure_link_secret {
            Some(secret) if links.secure_link.is_some() || links.secure_link_md5.is_some() => {
                Err(secret.error(
                    "\"secure_link_secret\" cannot be mixed with \"secure_link\" and \"secure_link_md5\"",
                ))
            }
            _ => Ok(Self { links }),
        }
    }
}

fn is_set<T>(slot: &DirectiveSlot<Option<T>>) -> bool {
    matches!(slot.value, Some(Some(_)))
}

httpcore::variables! {
    /// The result of checking a link: see `secure_link`.
    "secure_link" => memo(value).made_by(MADE_BY);
    /// The expiry time of a link in seconds, as given in the request.
    "secure_link_expires" => memo(expires).made_by(MADE_BY);
}

/// The directives that decide the values.
const MADE_BY: &[&str] = &["secure_link", "secure_link_md5", "secure_link_secret"];

/// `$secure_link`; `None`: the link was not made with the secret.
fn value(request: &Request) -> Option<Bytes> {
    let links = &request.location().own::<SecureLink>().links;
    if let Some(secret) = &links.secure_link_secret {
        return link_of(request.head.target(), &secret.value).map(Bytes::copy_from_slice);
    }
    let said = request.evaluate(links.secure_link.as_ref()?);
    let made_of = links.secure_link_md5.as_ref()?;
    let (hash, until) = split(&said)?;
    let hash = Some(hash).filter(|hash| hash.len() <= HASH_MAX)?;
    let hash = base64::decode_url(hash)?;
    let wanted = Md5::digest(request.evaluate(made_of));
    if hash.len() != MD5_BYTES || !bool::from(hash.ct_eq(&wanted)) {
        return None;
    }
    let now = request.client.loop_.feed.clock().now().second();
    let has_run_out = until.is_some_and(|(second, _)| second < now);
    Some(Bytes::from_static(if has_run_out { b"0" } else { b"1" }))
}

/// `$secure_link_expires`: the time as the request said it.
fn expires(request: &Request) -> Option<Bytes> {
    let links = &request.location().own::<SecureLink>().links;
    if links.secure_link_secret.is_some() || links.secure_link_md5.is_none() {
        return None;
    }
    let said = request.evaluate(links.secure_link.as_ref()?);
    let (_, text) = split(&said)?.1?;
    Some(said.slice_ref(text))
}

/// A time in seconds, and its text.
type Until<'a> = (i64, &'a [u8]);

/// The hash, and the time where there is one; `None`: what should be a time is none.
fn split(said: &[u8]) -> Option<(&[u8], Option<Until<'_>>)> {
    let Some(comma) = memchr::memchr(b',', said) else {
        return Some((said, None));
    };
    let text = &said[comma + 1..];
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let second = Some(text).filter(|_| is_number)?;
    let second: i64 = std::str::from_utf8(second).ok()?.parse().ok()?;
    (second > 0).then_some((&said[..comma], Some((second, text))))
}

/// The link of `/prefix/hash/link`, if the hash is that of the link with the secret behind it.
fn link_of<'a>(target: &'a [u8], secret: &[u8]) -> Option<&'a [u8]> {
    let path = target.get(1..)?;
    let path = &path[memchr::memchr(b'/', path)? + 1..];
    let (hash, link) = path.split_at(memchr::memchr(b'/', path)?);
    let link = &link[1..];
    if hash.len() != 2 * MD5_BYTES || link.is_empty() {
        return None;
    }
    let mut given = [0; MD5_BYTES];
    for (byte, digits) in given.iter_mut().zip(hash.as_chunks::<2>().0) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = (digit(digits[0])? << 4 | digit(digits[1])?) as u8;
    }
    let wanted = Md5::new()
        .chain_update(link)
        .chain_update(secret)
        .finalize();
    bool::from(given.ct_eq(&wanted)).then_some(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_with_the_secret_behind_it() {
        // md5("linksegredo")
        let link = |target: &str| {
            link_of(target.as_bytes(), b"segredo")
                .map(|link| String::from_utf8_lossy(link).into_owned())
        };
        assert_eq!(
            link("/p/fb43feefb3c0a5825a5ec7e1240d604a/link").as_deref(),
            Some("link"),
        );
        assert_eq!(
            link("/p/FB43FEEFB3C0A5825A5EC7E1240D604A/link").as_deref(),
            Some("link"),
        );
        for wrong in [
            "",
            "/",
            "/p",
            "/p/",
            "/p/fb43feefb3c0a5825a5ec7e1240d604a",
            "/p/fb43feefb3c0a5825a5ec7e1240d604a/",
            "/p/fb43feefb3c0a5825a5ec7e1240d604a/other",
            "/p/fb43feefb3c0a5825a5ec7e1240d604x/link",
            "/p/5e81/link",
        ] {
            assert_eq!(link(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_stand_behind_a_comma() {
        assert_eq!(split(b"abc"), Some((&b"abc"[..], None)));
        assert_eq!(
            split(b"abc,12"),
            Some((&b"abc"[..], Some((12, &b"12"[..]))))
        );
        for wrong in [
            "abc,",
            "abc,0",
            "abc,-1",
            "abc,1x",
            "abc,99999999999999999999",
        ] {
            assert_eq!(split(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
