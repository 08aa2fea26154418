//! `ssl_protocols`: names of versions, and which of them are offered here.

use crate::Error;
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

/// Versions that nginx knows, and does not find here.
const OLD: [&str; 4] = ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1"];

/// The versions that a configuration offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// Whether TLS 1.2 is.
    pub has_tls12: bool,
    /// Whether TLS 1.3 is.
    pub has_tls13: bool,
}

/// A choice, and what was asked for and is not offered: named in one warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer<T> {
    /// What is offered.
    pub chosen: T,
    /// Names of what is not.
    pub left_out: Vec<String>,
}

impl Default for Protocols {
    fn default() -> Self {
        Self {
            has_tls12: true,
            has_tls13: true,
        }
    }
}

impl Protocols {
    /// The versions with these names, which are nginx's.
    ///
    /// # Errors
    /// None of them is offered.
    pub fn read<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Offer<Self>, Error> {
        let mut chosen = Self {
            has_tls12: false,
            has_tls13: false,
        };
        let mut left_out = Vec::new();
        for name in names {
            match name {
                "TLSv1.2" => chosen.has_tls12 = true,
                "TLSv1.3" => chosen.has_tls13 = true,
                other => left_out.push(other.to_owned()),
            }
        }
        if chosen.versions().is_empty() {
            return Err(Error::NoProtocol(left_out.join(" ")));
        }
        Ok(Offer { chosen, left_out })
    }

    /// The names of versions that nginx knows.
    pub const NAMES: [&str; 6] = ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];

    /// nginx's name of a version, of a word that may have other cases; `None` for a word that is none.
    #[must_use]
    pub fn name(word: &[u8]) -> Option<&'static str> {
        let is_it = |name: &&str| name.as_bytes().eq_ignore_ascii_case(word);
        Self::NAMES.into_iter().find(is_it)
    }

    /// What stays between two versions of `MinProtocol` and `MaxProtocol`; `None` for a name that is none.
    pub(crate) fn at_least(self, name: &str) -> Option<Self> {
        let (has_tls12, has_tls13) = match name {
            "TLSv1.3" => (false, true),
            "TLSv1.2" | "None" => (true, true),
            other if OLD.contains(&other) => (true, true),
            _ => return None,
        };
        Some(self.and(has_tls12, has_tls13))
    }

    pub(crate) fn at_most(self, name: &str) -> Option<Self> {
        let (has_tls12, has_tls13) = match name {
            "TLSv1.3" | "None" => (true, true),
            "TLSv1.2" => (true, false),
            other if OLD.contains(&other) => (false, false),
            _ => return None,
        };
        Some(self.and(has_tls12, has_tls13))
    }

    fn and(self, has_tls12: bool, has_tls13: bool) -> Self {
        Self {
            has_tls12: self.has_tls12 && has_tls12,
            has_tls13: self.has_tls13 && has_tls13,
        }
    }

    pub(crate) fn versions(self) -> Vec<&'static SupportedProtocolVersion> {
        let tls13 = self.has_tls13.then_some(&TLS13);
        let tls12 = self.has_tls12.then_some(&TLS12);
        tls13.into_iter().chain(tls12).collect()
    }
}

/// A version's name: `TLSv1.3`.
#[must_use]
pub fn version_name(version: u16) -> Option<&'static str> {
    match version {
        0x304 => Some("TLSv1.3"),
        0x303 => Some("TLSv1.2"),
        0x302 => Some("TLSv1.1"),
        0x301 => Some("TLSv1"),
        0x300 => Some("SSLv3"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_are_left_out() {
        let offer = Protocols::read(["TLSv1", "TLSv1.1", "TLSv1.2"]).unwrap();
        assert_eq!(
            (offer.chosen.has_tls12, offer.chosen.has_tls13),
            (true, false)
        );
        assert_eq!(offer.left_out, ["TLSv1", "TLSv1.1"]);
        let error = Protocols::read(["SSLv3", "TLSv1"]).unwrap_err();
        assert!(error.to_string().contains("ssl_protocols SSLv3 TLSv1"));
        assert_eq!(Protocols::name(b"sslV2"), Some("SSLv2"));
        assert_eq!(Protocols::name(b"TLSv2"), None);
    }

    #[test]
    fn bounds_narrow() {
        let all = Protocols::default();
        let newest = all.at_least("TLSv1.3").unwrap();
        assert_eq!((newest.has_tls12, newest.has_tls13), (false, true));
        assert!(all.at_most("TLSv1.1").unwrap().versions().is_empty());
        assert_eq!(all.at_most("TLS"), None);
    }
}
