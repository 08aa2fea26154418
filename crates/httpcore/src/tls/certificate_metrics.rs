//! How long the certificates of servers are valid, as metrics.
//!
//! Not here: certificates whose names have variables other than those of ACME, which are known in a handshake only. Limit: at most
//! `CERTIFICATES_SHOWN_MAX` are shown, those that end first.

use std::collections::BTreeMap;

use runtime::families;
use tls::x509::certificate::{AlternativeName, Certificate};
use tls::x509::distinguished::rfc2253;

use crate::handler::metrics::ModuleMetrics;
use crate::settings::Settings;

/// Maximum number of certificates in the metrics.
const CERTIFICATES_SHOWN_MAX: usize = 1000;

families! {
    /// The families of certificates.
    FAMILIES;
    ENDS Gauge "freewheel_tls_certificate_end_seconds" "seconds" ["certificate"] "Time at which a certificate ends, in seconds since 1970, by its first name; of several certificates with that name, the first to end.";
}

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: FAMILIES,
    show: |shown, page| {
        let Some(settings) = shown.settings else {
            return;
        };
        let mut ends: Vec<_> = ends(settings).into_iter().collect();
        ends.sort_by_key(|(_, end)| *end);
        for (name, end) in ends.into_iter().take(CERTIFICATES_SHOWN_MAX) {
            page.whole(&ENDS, &[&name], end);
        }
    },
};

/// The names of the certificates, and when they end (seconds since 1970).
fn ends(settings: &Settings) -> BTreeMap<String, u64> {
    let mut ends = BTreeMap::new();
    for server in &settings.servers {
        let Some(tls) = &server.tls else {
            continue;
        };
        let fixed = tls
            .handshakes
            .iter()
            .flat_map(|tls| tls.certificates().pairs());
        let issued = tls.named.iter().flat_map(|named| named.issued());
        for pair in fixed.chain(issued) {
            let Some((name, end)) = pair.cert.first().and_then(|der| named_end(der)) else {
                continue;
            };
            let known = ends.entry(name).or_insert(end);
            *known = end.min(*known);
        }
    }
    ends
}

fn named_end(der: &[u8]) -> Option<(String, u64)> {
    let certificate = Certificate::read(der)?;
    let end = u64::try_from(certificate.not_after).unwrap_or(0);
    Some((first_name(&certificate), end))
}

/// The name that a certificate is known by: its first name of a host or address, else its subject.
#[must_use]
pub fn first_name(certificate: &Certificate<'_>) -> String {
    let names = certificate.names();
    let host = names.iter().find_map(|name| match name {
        AlternativeName::Dns(name) => Some(String::from_utf8_lossy(name).into_owned()),
        AlternativeName::Address(address) => Some(address.to_string()),
        _ => None,
    });
    host.unwrap_or_else(|| rfc2253(certificate.subject))
}
