//! A certificate for a first look at HTTPS (`--tls`): made at each start, self-signed, for this machine's own names.
//!
//! Not here: certificates that others trust. Invariant: neither it nor its key is written to a disk.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, KeyPair};

/// The names that it is for.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// How long it is valid.
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long before its making it is valid, for clients whose clock is behind.
const EARLIER: Duration = Duration::from_secs(24 * 3600);

/// The directives of a server with a certificate that has just been made.
///
/// # Errors
/// The library cannot make it.
pub(super) fn directives() -> Result<String, String> {
    let (certificate, key) = make().map_err(|error| format!("no certificate: {error}"))?;
    Ok(format!(
        "        ssl_certificate \"data:{certificate}\";
        ssl_certificate_key \"data:{key}\";
        http2 on;
"
    ))
}

/// A certificate and its key, in PEM.
fn make() -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(NAMES.map(str::to_owned))?;
    params
        .distinguished_name
        .push(DnType::CommonName, "Freewheel, for a first look");
    let now = SystemTime::now();
    params.not_before = (now - EARLIER).into();
    params.not_after = (now + LIFETIME).into();
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_directives_are_of_the_language_and_each_is_another_one() {
        let text = directives().unwrap();
        let tree = config::parse_bytes(text.as_bytes()).unwrap();
        let names: Vec<_> = tree
            .directives
            .iter()
            .map(|line| line.name.display().into_owned())
            .collect();
        assert_eq!(names, ["ssl_certificate", "ssl_certificate_key", "http2"]);
        assert_ne!(text, directives().unwrap());
    }
}
