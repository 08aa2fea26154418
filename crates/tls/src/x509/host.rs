//! Whether a certificate is for a host: its DNS names, and its common name where it has none (as `X509_check_host`).
//!
//! Not here: addresses; nginx compares a name with names only. A star stands for one whole leftmost label; OpenSSL's
//! partial ones (`a*.example.org`) match nothing.

use crate::x509::certificate::{AlternativeName, Certificate};
use crate::x509::distinguished;

/// Whether the certificate is for `host`.
#[must_use]
pub fn matches(certificate: &Certificate<'_>, host: &[u8]) -> bool {
    let host = host.strip_suffix(b".").unwrap_or(host);
    if host.is_empty() {
        return false;
    }
    let names = certificate.names();
    let mut dns = names
        .iter()
        .filter_map(|name| match name {
            AlternativeName::Dns(name) => Some(*name),
            _ => None,
        })
        .peekable();
    if dns.peek().is_some() {
        return dns.any(|name| matches_name(name, host));
    }
    distinguished::common_names(certificate.subject)
        .into_iter()
        .any(|name| matches_name(name, host))
}

/// Whether a name of a certificate, perhaps with a star, is this host's.
fn matches_name(pattern: &[u8], host: &[u8]) -> bool {
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    let Some(domain) = pattern.strip_prefix(b"*") else {
        return false;
    };
    // Two labels at least behind the star.
    let is_pattern = domain.first() == Some(&b'.')
        && domain[1..].contains(&b'.')
        && !domain.ends_with(b".")
        && !domain.contains(&b'*');
    let dot = host.iter().position(|byte| *byte == b'.');
    is_pattern && dot.is_some_and(|at| at > 0 && host[at..].eq_ignore_ascii_case(domain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_label() {
        for (pattern, host, is_match) in [
            ("example.org", "EXAMPLE.org", true),
            ("*.example.org", "a.example.org", true),
            ("*.example.org", "a.b.example.org", false),
            ("*.example.org", "example.org", false),
            ("*.example.org", ".example.org", false),
            ("*.org", "example.org", false),
            ("*", "example", false),
            ("a*.example.org", "ab.example.org", false),
            ("*.*.org", "a.b.org", false),
            ("*.example.org.", "a.example.org", false),
        ] {
            let found = matches_name(pattern.as_bytes(), host.as_bytes());
            assert_eq!(found, is_match, "{pattern} {host}");
        }
    }
}
