//! An answer of an OCSP responder about a fixed certificate: never a panic, and never believed without a signature.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tls::x509::certificate::Certificate;
use tls::{keys, ocsp};

const PEM: &str = include_str!("../../crates/tls/tests/fixtures/ca.crt");

fuzz_target!(|input: &[u8]| {
    let chain = keys::chain(&format!("data:{PEM}"), &|_| Ok(Vec::new())).unwrap_or_default();
    let Some(certificate) = chain.first().and_then(|der| Certificate::read(der)) else {
        return;
    };
    let now = 1_767_225_600;
    assert!(ocsp::check(input, &certificate, &certificate, now).is_err());
});
