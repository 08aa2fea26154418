//! An authority that issues certificates, and answers for them as an OCSP responder (RFC 6960).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, SigningKey,
};

use crate::origin::{Answer, Received};
use crate::tls::Certificate;

const SEQUENCE: u8 = 0x30;
const OID: u8 = 6;
const AUTHORITY_ACCESS: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 1, 1];
const OCSP: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1];
const BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
/// How long an answer holds, in seconds.
const HOLDS: i64 = 3600;

/// What an answer says of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// It is good.
    Good,
    /// It is good, says a responder that the authority has named.
    GoodByDelegate,
    /// It is good, signed by a key that nobody has named.
    GoodByStranger,
    /// It was good, until an hour ago.
    GoodBefore,
    /// It is revoked.
    Revoked,
    /// The responder does not know it.
    Unknown,
}

/// An authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    delegate: KeyPair,
    delegated: Vec<u8>,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

impl Authority {
    /// Of this name.
    ///
    /// # Panics
    /// The name is none.
    pub fn new(name: &str) -> Authority {
        let mut own = params(name);
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(own, key()).expect("a certificate");
        let delegate = key();
        let mut named = params("responder.example");
        named.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
        let delegated = named.signed_by(&delegate, &issuer).expect("a certificate");
        Authority {
            delegated: delegated.der().to_vec(),
            issuer,
            delegate,
        }
    }

    /// Its own certificate, as PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate that names a responder.
    ///
    /// # Panics
    /// The name is none.
    pub fn issue(&self, name: &str, responder: &str) -> Certificate {
        let mut params = params(name);
        let access = der(
            SEQUENCE,
            &[&der(OID, &[OCSP]), &der(0x86, &[responder.as_bytes()])],
        );
        let content = der(SEQUENCE, &[&access]);
        let extension = CustomExtension::from_oid_content(AUTHORITY_ACCESS, content);
        params.custom_extensions.push(extension);
        let key = key();
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Certificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// The answer to a question that came as a GET.
    ///
    /// # Panics
    /// The question is none.
    pub fn answer(&self, asked: &Received, says: Says) -> Answer {
        let (_, base) = asked.target().rsplit_once('/').expect("a path");
        let base = base.replace("%2F", "/").replace("%2B", "+");
        let request = STANDARD.decode(base.replace("%3D", "=")).expect("base64");
        // OCSPRequest, TBSRequest, requestList, Request: what is within names the certificate.
        let id = &request[8..];
        let body = self.response(id, says);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/ocsp-response\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        Answer::Keep([head.as_bytes(), &body].concat())
    }

    fn response(&self, id: &[u8], says: Says) -> Vec<u8> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or(Duration::ZERO).as_secs() as i64;
        let now = if says == Says::GoodBefore {
            now - 3 * HOLDS
        } else {
            now
        };
        let this = stamp(now - HOLDS);
        let next = der(0xa0, &[&stamp(now + HOLDS)]);
        let status = match says {
            Says::Revoked => der(0xa1, &[&this]),
            Says::Unknown => der(0x82, &[]),
            _ => der(0x80, &[]),
        };
        let single = der(SEQUENCE, &[id, &status, &this, &next]);
        let responder = der(0xa2, &[&der(4, &[&[1; 20]])]);
        let list = der(SEQUENCE, &[&single]);
        let data = der(SEQUENCE, &[&responder, &this, &list]);
        let stranger = key();
        let (signer, certificates) = match says {
            Says::GoodByDelegate => (&self.delegate, &self.delegated[..]),
            Says::GoodByStranger => (&stranger, &[][..]),
            _ => (self.issuer.key(), &[][..]),
        };
        let signature = signer.sign(&data).expect("it signs");
        let algorithm = der(SEQUENCE, &[&der(OID, &[ECDSA_SHA256])]);
        let signature = der(3, &[&[0], &signature]);
        let certificates = der(0xa0, &[&der(SEQUENCE, &[certificates])]);
        let basic = der(SEQUENCE, &[&data, &algorithm, &signature, &certificates]);
        let bytes = der(SEQUENCE, &[&der(OID, &[BASIC]), &der(4, &[&basic])]);
        der(SEQUENCE, &[&der(10, &[&[0]]), &der(0xa0, &[&bytes])])
    }
}

/// A value of DER, of parts.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let contents = parts.concat();
    let length = contents.len().to_be_bytes();
    let length = match contents.len() {
        0..128 => &length[7..],
        128..256 => &[&[0x81], &length[7..]].concat(),
        _ => &[&[0x82], &length[6..]].concat(),
    };
    [&[tag], length, &contents].concat()
}

/// A GeneralizedTime of seconds since 1970.
fn stamp(seconds: i64) -> Vec<u8> {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01, in years that begin in March.
    let day = days + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let number = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(number <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let text = format!("{year:04}{number:02}{date:02}{hour:02}{minute:02}{second:02}Z");
    der(24, &[text.as_bytes()])
}
