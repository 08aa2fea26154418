//! Signature schemes: their names in variables and in `SignatureAlgorithms`.

use rustls::SignatureScheme;

/// Maximum of schemes in a list.
pub(crate) const SCHEMES_MAX: usize = 64;

const NAMES: [(u16, &str); 18] = [
    (0x0403, "ecdsa_secp256r1_sha256"),
    (0x0503, "ecdsa_secp384r1_sha384"),
    (0x0603, "ecdsa_secp521r1_sha512"),
    (0x0807, "ed25519"),
    (0x0808, "ed448"),
    (0x0804, "rsa_pss_rsae_sha256"),
    (0x0805, "rsa_pss_rsae_sha384"),
    (0x0806, "rsa_pss_rsae_sha512"),
    (0x0809, "rsa_pss_pss_sha256"),
    (0x080a, "rsa_pss_pss_sha384"),
    (0x080b, "rsa_pss_pss_sha512"),
    (0x0401, "rsa_pkcs1_sha256"),
    (0x0501, "rsa_pkcs1_sha384"),
    (0x0601, "rsa_pkcs1_sha512"),
    (0x0203, "ecdsa_sha1"),
    (0x0201, "rsa_pkcs1_sha1"),
    (0x0904, "mldsa44"),
    (0x0905, "mldsa65"),
];

/// A scheme's name: `ecdsa_secp256r1_sha256`.
#[must_use]
pub fn signature_scheme_name(scheme: u16) -> Option<&'static str> {
    NAMES
        .iter()
        .find(|(id, _)| *id == scheme)
        .map(|(_, name)| *name)
}

/// The schemes of a list: names, or `RSA+SHA256`, between colons. `None` if one is no scheme.
pub(crate) fn read(list: &str) -> Option<Vec<SignatureScheme>> {
    let names = list.split(':').take(SCHEMES_MAX);
    names
        .filter(|name| !name.is_empty())
        .map(|name| scheme(name.trim_start_matches('?')))
        .collect()
}

fn scheme(name: &str) -> Option<SignatureScheme> {
    let known = NAMES
        .iter()
        .find(|(_, known)| known.eq_ignore_ascii_case(name));
    if let Some((id, _)) = known {
        return Some(SignatureScheme::from(*id));
    }
    let (kind, hash) = name.split_once('+')?;
    let hash = match hash.to_ascii_uppercase().as_str() {
        "SHA1" => 2,
        "SHA256" => 4,
        "SHA384" => 5,
        "SHA512" => 6,
        _ => return None,
    };
    match kind.to_ascii_uppercase().as_str() {
        "RSA" => Some(SignatureScheme::from(hash << 8 | 1)),
        "ECDSA" => Some(SignatureScheme::from(hash << 8 | 3)),
        "RSA-PSS" | "PSS" if hash > 2 => Some(SignatureScheme::from(0x800 + hash)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_names() {
        let schemes = read("ECDSA+SHA256:RSA-PSS+SHA512:rsa_pkcs1_sha256:RSA+SHA384").unwrap();
        let ids: Vec<u16> = schemes.into_iter().map(u16::from).collect();
        assert_eq!(ids, [0x403, 0x806, 0x401, 0x501]);
        assert_eq!(read("RSA+MD4"), None);
        assert_eq!(signature_scheme_name(0x804), Some("rsa_pss_rsae_sha256"));
    }
}
