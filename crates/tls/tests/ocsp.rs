//! An answer made by OpenSSL (`openssl ocsp`) about the certificate of `fixtures/ca.crt`, signed by itself.
#![allow(clippy::unwrap_used, reason = "tests")]

use tls::keys;
use tls::ocsp::{Fault, Stapling, Status, Verification, check, request};
use tls::x509::certificate::Certificate;

const ANSWER: &[u8] = include_bytes!("fixtures/ocsp-good.der");
const PEM: &str = include_str!("fixtures/ca.crt");
const YEAR: i64 = 365 * 86_400;

#[test]
fn openssls_answer_is_taken() {
    let chain = keys::chain(&format!("data:{PEM}"), &|_| unreachable!()).unwrap();
    let certificate = Certificate::read(&chain[0]).unwrap();
    let now = certificate.not_before + YEAR;
    let answer = check(ANSWER, &certificate, &certificate, now).unwrap();
    assert_eq!((answer.status, answer.next_update), (Status::Good, None));
    let early = check(ANSWER, &certificate, &certificate, now - 2 * YEAR);
    assert_eq!(early, Err(Fault::Time));
    for at in (0..ANSWER.len()).step_by(3) {
        let mut changed = ANSWER.to_vec();
        changed[at] ^= 0x40;
        let said = check(&changed, &certificate, &certificate, now);
        // Certificates that come along are not signed; a change in them changes nothing.
        assert!(said.is_err() || said == Ok(answer), "{at}");
    }
    let mut stapling = Stapling::default();
    let pair = (&certificate, &certificate);
    let by = Verification::Signature(Vec::new());
    assert_eq!(
        stapling.take(ANSWER.to_vec(), pair, &by, now),
        Ok(Status::Good)
    );
    assert_eq!(stapling.response(now), Some(ANSWER));
    assert!(stapling.take(vec![1], pair, &by, now).is_err());
    assert_eq!(stapling.response(now), Some(ANSWER));
    assert_eq!(request(&certificate, &certificate)[0], 0x30);
}
