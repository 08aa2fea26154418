//! Name constraints of authorities (RFC 5280, 4.2.1.10): for DNS names, addresses, mail addresses and directory names.
//!
//! Not here: other kinds; a certificate that has a name of a constrained other kind is refused. Invariant: no common name
//! with two labels that `x509::host` takes for a host's is left out.

use crate::verify::reason::Reason;
use crate::x509::canonical::CanonicalName;
use crate::x509::certificate::{AlternativeName, Certificate};
use crate::x509::der::{self, Reader};
use crate::x509::distinguished;
use std::net::IpAddr;

/// Maximum of subtrees times names that are compared for one authority.
pub(crate) const COMPARISONS_MAX: usize = 65_536;

/// The tags of permitted and excluded subtrees.
const PERMITTED: u8 = der::constructed(0);
const EXCLUDED: u8 = der::constructed(1);

/// Checks a certificate's names against the constraints of an authority above it, with the mail addresses in its
/// subject; those of the peer's own (`is_leaf`) with its common names, if it has no DNS names.
pub(crate) fn check(
    constraints: &[u8],
    certificate: &Certificate<'_>,
    is_leaf: bool,
) -> Result<(), Reason> {
    let mut reader = Reader::new(constraints);
    let permitted = reader.optional(PERMITTED).ok_or(Reason::ConstraintType)?;
    let excluded = reader.optional(EXCLUDED).ok_or(Reason::ConstraintType)?;
    let (permitted, excluded) = (subtrees(permitted)?, subtrees(excluded)?);
    let mut names = certificate.names();
    if certificate.subject.len() > 2 {
        names.push(AlternativeName::Directory(certificate.subject));
    }
    for address in distinguished::mail_addresses(certificate.subject) {
        names.push(AlternativeName::Email(address.ok_or(Reason::NameSyntax)?));
    }
    let has_hosts = names
        .iter()
        .any(|name| matches!(name, AlternativeName::Dns(_)));
    if is_leaf && !has_hosts {
        let common = distinguished::common_names(certificate.subject).into_iter();
        names.extend(
            common
                .filter(|name| is_host(name))
                .map(AlternativeName::Dns),
        );
    }
    if names.len() * (permitted.len() + excluded.len()) > COMPARISONS_MAX {
        return Err(Reason::ConstraintType);
    }
    names
        .iter()
        .try_for_each(|name| check_name(name, &permitted, &excluded))
}

/// Whether a common name looks like a host's, as OpenSSL sees it: two labels at least, which may have `_`. A star before
/// them may stand for a host, too.
fn is_host(name: &[u8]) -> bool {
    let name = name.strip_prefix(b"*.").unwrap_or(name);
    let is_label = |label: &[u8]| {
        let is_end = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
        let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        is_end(label.first()) && is_end(label.last()) && label.iter().all(is_inner)
    };
    name.contains(&b'.') && name.split(|byte| *byte == b'.').all(is_label)
}

fn check_name(
    name: &AlternativeName<'_>,
    permitted: &[der::Value<'_>],
    excluded: &[der::Value<'_>],
) -> Result<(), Reason> {
    let mut same_kind = permitted
        .iter()
        .filter(|base| is_kind(name, base.tag))
        .peekable();
    if same_kind.peek().is_some() {
        let results = same_kind.map(|base| is_within(name, base));
        let is_permitted = results.collect::<Result<Vec<_>, _>>()?.contains(&true);
        if !is_permitted {
            return Err(Reason::NotPermitted);
        }
    }
    for base in excluded.iter().filter(|base| is_kind(name, base.tag)) {
        if is_within(name, base)? {
            return Err(Reason::Excluded);
        }
    }
    Ok(())
}

/// The bases of subtrees. A minimum or maximum is refused, as RFC 5280 has none.
fn subtrees(list: Option<&[u8]>) -> Result<Vec<der::Value<'_>>, Reason> {
    let mut list = Reader::new(list.unwrap_or_default());
    let mut bases = Vec::new();
    while !list.is_empty() {
        let mut subtree = list.enter(der::SEQUENCE).ok_or(Reason::ConstraintType)?;
        bases.push(subtree.next().ok_or(Reason::ConstraintType)?);
        if !subtree.is_empty() {
            return Err(Reason::ConstraintType);
        }
    }
    Ok(bases)
}

fn is_kind(name: &AlternativeName<'_>, tag: u8) -> bool {
    let own = match name {
        AlternativeName::Email(_) => 0x81,
        AlternativeName::Dns(_) => 0x82,
        AlternativeName::Directory(_) => 0xa4,
        AlternativeName::Address(_) => 0x87,
        AlternativeName::Other(tag) => *tag,
    };
    own == tag
}

fn is_within(name: &AlternativeName<'_>, base: &der::Value<'_>) -> Result<bool, Reason> {
    match name {
        AlternativeName::Dns(name) => Ok(is_subdomain(name, base.contents)),
        AlternativeName::Email(name) => Ok(is_mailbox(name, base.contents)),
        AlternativeName::Directory(name) => {
            Ok(CanonicalName::of(name).is_below(&CanonicalName::of(base.contents)))
        }
        AlternativeName::Address(address) => is_in_network(*address, base.contents),
        AlternativeName::Other(_) => Err(Reason::ConstraintType),
    }
}

/// `example.org` and `.example.org` hold `a.example.org`; the first holds itself, too. An empty base holds all.
fn is_subdomain(name: &[u8], base: &[u8]) -> bool {
    let Some(at) = name.len().checked_sub(base.len()) else {
        return false;
    };
    let is_boundary = at == 0 || base.is_empty() || base[0] == b'.' || name[at - 1] == b'.';
    is_boundary && name[at..].eq_ignore_ascii_case(base)
}

/// A whole mailbox, a host, or a domain behind a dot.
fn is_mailbox(name: &[u8], base: &[u8]) -> bool {
    let split = |text: &[u8]| text.iter().rposition(|byte| *byte == b'@');
    let Some(at) = split(name) else {
        return false;
    };
    let host = &name[at + 1..];
    match split(base) {
        Some(in_base) => {
            name[..at] == base[..in_base] && host.eq_ignore_ascii_case(&base[in_base + 1..])
        }
        None if base.first() == Some(&b'.') => is_subdomain(host, base),
        None => base.is_empty() || host.eq_ignore_ascii_case(base),
    }
}

fn is_in_network(address: IpAddr, base: &[u8]) -> Result<bool, Reason> {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    if ![8, 32].contains(&base.len()) {
        return Err(Reason::ConstraintType);
    }
    let (network, mask) = base.split_at(base.len() / 2);
    let is_equal = |((byte, network), mask): ((&u8, &u8), &u8)| byte & mask == network & mask;
    Ok(bytes.len() == network.len() && bytes.iter().zip(network).zip(mask).all(is_equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_hold_what_is_below() {
        for (name, base, is_within) in [
            ("a.example.org", "example.org", true),
            ("example.org", "EXAMPLE.org", true),
            ("aexample.org", "example.org", false),
            ("a.example.org", ".example.org", true),
            ("example.org", ".example.org", false),
            ("x", "", true),
        ] {
            assert_eq!(
                is_subdomain(name.as_bytes(), base.as_bytes()),
                is_within,
                "{name} {base}"
            );
        }
    }

    #[test]
    fn common_names_that_look_like_hosts() {
        for (name, looks) in [
            ("bank.com", true),
            ("a_b.example-1.org", true),
            ("*.bank.com", true),
            ("bank", false),
            ("*", false),
            ("*.com", false),
            ("John Q. Public", false),
            ("bank.com.", false),
            (".bank.com", false),
            ("a..b", false),
            ("-a.b", false),
            ("a-.b", false),
            ("a.b-", false),
            ("", false),
        ] {
            assert_eq!(is_host(name.as_bytes()), looks, "{name}");
        }
    }

    #[test]
    fn mailboxes_hosts_and_domains() {
        for (name, base, is_within) in [
            ("a@b.org", "a@B.org", true),
            ("A@b.org", "a@b.org", false),
            ("a@b.org", "b.org", true),
            ("a@c.b.org", "b.org", false),
            ("a@c.b.org", ".b.org", true),
            ("b.org", "b.org", false),
        ] {
            assert_eq!(
                is_mailbox(name.as_bytes(), base.as_bytes()),
                is_within,
                "{name} {base}"
            );
        }
    }

    #[test]
    fn addresses_are_in_networks() {
        let network = [10, 0, 0, 0, 255, 0, 0, 0];
        assert_eq!(is_in_network([10, 1, 2, 3].into(), &network), Ok(true));
        assert_eq!(is_in_network([11, 1, 2, 3].into(), &network), Ok(false));
        assert_eq!(is_in_network([0; 16].into(), &network), Ok(false));
        assert!(is_in_network([0; 16].into(), &network[..7]).is_err());
    }
}
