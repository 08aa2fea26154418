//! The cryptographic library: aws-lc-rs through rustls, with all that it has.
//!
//! Not here: what of it a configuration offers (`suites`).

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use std::sync::LazyLock;

/// Everything that the library has: all suites, all groups.
static PROVIDER: LazyLock<CryptoProvider> = LazyLock::new(|| {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = aws_lc_rs::ALL_KX_GROUPS.to_vec();
    provider.cipher_suites = aws_lc_rs::ALL_CIPHER_SUITES.to_vec();
    provider
});

/// The library.
pub(crate) fn provider() -> &'static CryptoProvider {
    &PROVIDER
}
