//! What variables and `-t` say of a certificate: its PEM text, its serial number, its fingerprint, its days.
//!
//! Not here: the names of variables. Invariant: a certificate is read once for each question; nothing is kept.

use crate::x509::certificate::Certificate;
use crate::x509::distinguished::hexadecimal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

const PEM_LINE_CHARACTERS: usize = 64;

/// The text that OpenSSL's `PEM_write_bio_X509` gives: `$ssl_client_raw_cert`.
#[must_use]
pub fn pem(der: &[u8]) -> String {
    pem_of("CERTIFICATE", der)
}

/// PEM with another label.
#[must_use]
pub fn pem_of(label: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, behind) = rest.split_at(rest.len().min(PEM_LINE_CHARACTERS));
        text.push_str(line);
        text.push('\n');
        rest = behind;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

/// PEM as a header field's old folded lines: every line but the first begins with a tab (`$ssl_client_cert`).
#[must_use]
pub fn folded_pem(der: &[u8]) -> String {
    pem(der).trim_end_matches('\n').replace('\n', "\n\t")
}

/// PEM with everything but unreserved characters escaped: `$ssl_client_escaped_cert`.
#[must_use]
pub fn escaped_pem(der: &[u8]) -> String {
    let mut text = String::new();
    for byte in pem(der).bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

/// The SHA-1 of the whole certificate, in small digits: `$ssl_client_fingerprint`.
#[must_use]
pub fn fingerprint(der: &[u8]) -> String {
    hexadecimal(&Sha1::digest(der)).to_ascii_lowercase()
}

/// The serial number in digits, with a minus where it is negative: `$ssl_client_serial`.
#[must_use]
pub fn serial(certificate: &Certificate<'_>) -> String {
    let is_negative = certificate
        .serial
        .first()
        .is_some_and(|byte| byte & 0x80 != 0);
    let mut magnitude = certificate.serial.to_vec();
    if is_negative {
        negate(&mut magnitude);
    }
    let zeros = magnitude.iter().take_while(|byte| **byte == 0).count();
    let digits = match &magnitude[zeros..] {
        [] => "00".to_owned(),
        bytes => hexadecimal(bytes),
    };
    if is_negative {
        format!("-{digits}")
    } else {
        digits
    }
}

/// The two's complement.
fn negate(bytes: &mut [u8]) {
    let mut carry = true;
    for byte in bytes.iter_mut().rev() {
        (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_in_three_forms() {
        let der = [0xff; 50];
        let text = pem(&der);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "-----BEGIN CERTIFICATE-----");
        assert_eq!(lines[1].len(), 64);
        assert_eq!(lines[2], "/".repeat(2) + "8=");
        assert!(text.ends_with("-----END CERTIFICATE-----\n"));
        assert!(folded_pem(&der).contains("-----\n\t////"));
        assert!(!folded_pem(&der).ends_with('\n'));
        assert!(escaped_pem(&der).starts_with("-----BEGIN%20CERTIFICATE-----%0A%2F%2F"));
    }

    #[test]
    fn numbers_are_negated() {
        let mut bytes = [0xff, 0x80, 0];
        negate(&mut bytes);
        assert_eq!(bytes, [0, 0x80, 0]);
    }
}
