//! Certificates, keys and lists out of PEM and DER, their names as text, a verdict on them: never a panic, and texts
//! that fit into a header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tls::verify::{Purpose, Trust};
use tls::x509::canonical::CanonicalName;
use tls::x509::certificate::Certificate;
use tls::x509::revocations::RevocationList;
use tls::x509::{distinguished, facts, host, time};
use tls::{keys, ocsp};

fuzz_target!(|input: &[u8]| {
    let file = |_: &str| Ok(input.to_vec());
    let password = keys::passwords::read("p", b"secret").unwrap_or_default();
    let _ = keys::private_key("key", &password, &file);
    let _ = keys::revocations("crl", &file);
    if let Ok(chain) = keys::chain("chain", &file) {
        let trust = Trust::new(chain.clone(), Vec::new(), 9);
        let _ = trust.verify(&chain, Purpose::Client, 0).is_err();
    }
    let _ = RevocationList::read(input.to_vec());
    let Some(certificate) = Certificate::read(input) else {
        return;
    };
    for name in [certificate.subject, certificate.issuer] {
        let (form, empty) = (CanonicalName::of(name), CanonicalName::of(&[0x30, 0]));
        assert!(form.is_below(&CanonicalName::of(name)) && form.is_below(&empty));
        for text in [distinguished::rfc2253(name), distinguished::legacy(name)] {
            assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }
    }
    let _ = (facts::serial(&certificate), time::text(certificate.not_after));
    let _ = (host::matches(&certificate, b"example.org"), certificate.names());
    let request = ocsp::request(&certificate, &certificate);
    let _ = ocsp::check(&request, &certificate, &certificate, 0);
});
