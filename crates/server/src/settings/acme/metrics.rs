//! What becomes of certificates by ACME, as metrics: orders, failures, the next attempt.
//!
//! The master counts, and tells its workers. Not here: how long certificates are valid, which all certificates have
//! ([`httpcore::tls::certificate_metrics`]). Limit: at most [`CERTIFICATES_SHOWN_MAX`] are shown, those that fail most.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use httpcore::handler::metrics::ModuleMetrics;
use parking_lot::RwLock;
use runtime::families;

/// Maximum number of certificates in the metrics.
const CERTIFICATES_SHOWN_MAX: usize = 1000;

families! {
    /// The families of certificates by ACME.
    FAMILIES;
    ORDERS Counter "freewheel_acme_orders" "" ["issuer", "certificate"] "Orders of a certificate that were begun, by its first name, since the master process started.";
    FAILURES Counter "freewheel_acme_failures" "" ["issuer", "certificate"] "Attempts that failed: orders, and questions to the issuer about renewal.";
    NEXT Gauge "freewheel_acme_next_attempt_seconds" "seconds" ["issuer", "certificate"] "Time at which the issuer is asked next, in seconds since 1970.";
}

/// How they are shown.
pub(crate) static METRICS: ModuleMetrics = ModuleMetrics {
    families: FAMILIES,
    show: |_, page| {
        let mut all = by_names();
        all.sort_by_key(|(_, figures)| std::cmp::Reverse(figures.failures));
        for ((issuer, name), figures) in all.into_iter().take(CERTIFICATES_SHOWN_MAX) {
            let labels = [issuer.as_str(), name.as_str()];
            page.whole(&ORDERS, &labels, figures.orders);
            page.whole(&FAILURES, &labels, figures.failures);
            page.whole(&NEXT, &labels, figures.next_attempt.max(0).unsigned_abs());
        }
    },
};

/// The numbers of all certificates; of several with the same first name their sums, and the earliest attempt.
fn by_names() -> Vec<((String, String), acme::Figures)> {
    let mut all: BTreeMap<_, acme::Figures> = BTreeMap::new();
    for (issuer, figures) in KNOWN.read().iter() {
        for one in figures {
            let known = all
                .entry((issuer.clone(), one.name.clone()))
                .or_insert_with(|| acme::Figures {
                    next_attempt: i64::MAX,
                    ..acme::Figures::default()
                });
            known.orders += one.orders;
            known.failures += one.failures;
            known.next_attempt = known.next_attempt.min(one.next_attempt);
        }
    }
    all.into_iter().collect()
}

static KNOWN: LazyLock<RwLock<BTreeMap<String, Vec<acme::Figures>>>> =
    LazyLock::new(RwLock::default);

/// Takes an issuer's numbers; none: it is gone.
pub(crate) fn take(issuer: &str, figures: Vec<acme::Figures>) {
    let mut known = KNOWN.write();
    match figures.is_empty() {
        true => known.remove(issuer),
        false => known.insert(issuer.to_owned(), figures),
    };
}
