//! Names and addresses that a certificate is for, and an order: these with a kind of key.
//!
//! Not here: what of a `server_name` is one (the server's directives).

use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use crate::keys::KeyKind;
use crate::messages::NamedIdentifier;

/// Maximum number of names of a certificate: that of Let's Encrypt.
pub const IDENTIFIERS_MAX: usize = 100;
/// Maximum length of a name in bytes (RFC 1035, 2.3.4).
const NAME_BYTES_MAX: usize = 253;

/// A name or an address. The order of its values is part of the names of files ([`Order::id`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identifier {
    /// A name, in small letters.
    Dns(String),
    /// An address, as text.
    Ip(String),
}

/// Why a word is neither. `Display` is nginx-acme's sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// A byte that is not of printable ASCII.
    #[error("invalid server name: invalid character {0:x} at position {1}")]
    Invalid(u8, usize),
    /// A byte that may not stand there.
    #[error("invalid server name: unexpected character '{0}' at position {1}")]
    Unexpected(char, usize),
    /// It ends with no label.
    #[error("invalid server name: does not end with a label")]
    NoLabel,
    /// It is longer than a name may be.
    #[error("invalid server name: it is longer than {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// Its first label is a star, which no challenge here can prove.
    #[error("invalid server name: a wildcard needs the challenge dns-01, which is not built")]
    Wildcard,
}

impl Identifier {
    /// Those that a word means: a name, an address, or with a dot in front the name with `www.` and without.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(word: &[u8]) -> Result<Vec<Self>, NameFault> {
        let text = std::str::from_utf8(word).ok();
        let bare = text.map(|text| text.trim_start_matches('[').trim_end_matches(']'));
        if let Some(address) = bare.and_then(|text| text.parse::<IpAddr>().ok()) {
            return Ok(vec![Self::Ip(address.to_string())]);
        }
        check(word)?;
        let name = String::from_utf8_lossy(word).to_ascii_lowercase();
        match name.strip_prefix('.') {
            Some(host) => Ok(vec![
                Self::Dns(format!("www.{host}")),
                Self::Dns(host.to_owned()),
            ]),
            None => Ok(vec![Self::Dns(name)]),
        }
    }

    /// The name or the address.
    #[must_use]
    pub fn value(&self) -> &str {
        match self {
            Self::Dns(value) | Self::Ip(value) => value,
        }
    }

    pub(crate) fn named(&self) -> NamedIdentifier {
        let (kind, value) = match self {
            Self::Dns(value) => ("dns", value),
            Self::Ip(value) => ("ip", value),
        };
        NamedIdentifier {
            kind: kind.to_owned(),
            value: value.clone(),
        }
    }

    pub(crate) fn of(named: &NamedIdentifier) -> Option<Self> {
        match named.kind.as_str() {
            "dns" => Some(Self::Dns(named.value.clone())),
            "ip" => Some(Self::Ip(named.value.clone())),
            _ => None,
        }
    }
}

/// Checks a name's form: labels of what nginx takes in a `Host`, perhaps with a dot in front.
fn check(name: &[u8]) -> Result<(), NameFault> {
    let mut before = None;
    for (at, byte) in name.iter().copied().enumerate() {
        let is_fit = byte.is_ascii_alphanumeric() || b"-_~%!$&'()+,;=".contains(&byte);
        match byte {
            0..=0x20 | 0x7f.. => return Err(NameFault::Invalid(byte, at)),
            b'*' if at == 0 => {}
            b'.' if before != Some(b'.') => {}
            _ if before == Some(b'*') || !is_fit => {
                return Err(NameFault::Unexpected(byte.into(), at));
            }
            _ => {}
        }
        before = Some(byte);
    }
    match before {
        None | Some(b'.' | b'*') => Err(NameFault::NoLabel),
        _ if name.len() > NAME_BYTES_MAX => Err(NameFault::TooLong),
        _ if name[0] == b'*' => Err(NameFault::Wildcard),
        _ => Ok(()),
    }
}

/// A certificate that is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    /// What it is for; at least one, at most [`IDENTIFIERS_MAX`].
    pub identifiers: Vec<Identifier>,
    /// The kind of its key.
    pub key: KeyKind,
}

impl Order {
    /// Its name in logs, and that of its files: the first name, and a digest of all of it.
    #[must_use]
    pub fn id(&self) -> String {
        #[expect(
            deprecated,
            reason = "names of files have to stay the same: SipHash 2-4, without a key"
        )]
        let mut hasher = std::hash::SipHasher::new();
        self.identifiers.hash(&mut hasher);
        self.key.hash(&mut hasher);
        let name = self
            .identifiers
            .iter()
            .find(|one| matches!(one, Identifier::Dns(_)));
        let name = name
            .or(self.identifiers.first())
            .map_or("", Identifier::value);
        // A name may have a `%`, but no slash.
        format!("{name}-{:x}", hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dns(name: &str) -> Identifier {
        Identifier::Dns(name.to_owned())
    }

    #[test]
    fn words_are_names_or_addresses() {
        assert_eq!(
            Identifier::parse(b"Example.test"),
            Ok(vec![dns("example.test")])
        );
        assert_eq!(
            Identifier::parse(b".example.test"),
            Ok(vec![dns("www.example.test"), dns("example.test")])
        );
        let six = Identifier::Ip("2001:db8::1".to_owned());
        assert_eq!(Identifier::parse(b"[2001:0db8::1]"), Ok(vec![six.clone()]));
        assert_eq!(Identifier::parse(b"2001:db8:0::1"), Ok(vec![six]));
        for (name, fault) in [
            (&b""[..], NameFault::NoLabel),
            (b"example.", NameFault::NoLabel),
            (b"*", NameFault::NoLabel),
            (b"www.example..test", NameFault::Unexpected('.', 12)),
            (b"www.example.*", NameFault::Unexpected('*', 12)),
            (b"*ww.example.test", NameFault::Unexpected('w', 1)),
            (b"E\x10ample", NameFault::Invalid(0x10, 1)),
            (b"a/b.test", NameFault::Unexpected('/', 1)),
            (b"*.example.test", NameFault::Wildcard),
            (&[b'a'; 254], NameFault::TooLong),
        ] {
            assert_eq!(Identifier::parse(name), Err(fault));
        }
    }

    #[test]
    fn an_order_has_one_name_and_others_have_other_ones() {
        let order = |names: &[&str], key| Order {
            identifiers: names.iter().map(|name| dns(name)).collect(),
            key,
        };
        let one = order(&["a.test", "b.test"], KeyKind::Ecdsa(256));
        assert_eq!(one.id(), one.clone().id());
        assert!(one.id().starts_with("a.test-"));
        assert_ne!(one.id(), order(&["a.test"], KeyKind::Ecdsa(256)).id());
        assert_ne!(
            one.id(),
            order(&["a.test", "b.test"], KeyKind::Rsa(2048)).id()
        );
    }
}
