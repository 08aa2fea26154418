//! Lists of revocations along a chain: every certificate of it needs a list of its issuer that is in time.
//!
//! Not here: fetching lists, OCSP. Invariants: a certificate without a list is not accepted, as `ssl_crl` asks; a list,
//! which may be large, is hashed for keys of believed chains only.

use crate::verify::Trust;
use crate::verify::reason::Reason;
use crate::verify::signature;
use crate::x509::certificate::{CRL_SIGN, Certificate};
use crate::x509::revocations::RevocationList;
use crate::x509::time::Seconds;

/// Maximum of lists of one issuer that are looked at, the newest ones.
pub const LISTS_MAX: usize = 16;

/// A chain whose certificates are judged.
pub(crate) struct Judged<'a> {
    pub(crate) chain: &'a [Certificate<'a>],
    /// Whether no fault has been found in it. Whatever else is found does not make another one good: its lists count as
    /// signed, since anybody can come with a key of his own.
    pub(crate) is_believed: bool,
    pub(crate) now: Seconds,
}

/// Judges the certificate at a height of a chain by the lists of its issuer: whichever list names it, if the issuer has
/// signed it, says that it is revoked.
pub(crate) fn check(trust: &Trust, judged: &Judged<'_>, height: usize) -> Result<(), Reason> {
    let certificate = &judged.chain[height];
    let issuer = judged.chain.get(height + 1).unwrap_or(certificate);
    let lists = trust.revocations(certificate.issuer).iter();
    let lists = lists.filter(|list| is_of(list, issuer)).take(LISTS_MAX);
    let lists: Vec<&RevocationList> = lists.collect();
    let names = |list: &&&RevocationList| list.revokes(certificate.serial);
    if lists
        .iter()
        .filter(names)
        .any(|list| is_signed(list, issuer, judged))
    {
        return Err(Reason::Revoked);
    }
    if lists
        .iter()
        .any(|list| fault(list, issuer, judged).is_none())
    {
        return Ok(());
    }
    let list = best(&lists, judged.now).ok_or(Reason::NoRevocationList)?;
    fault(list, issuer, judged).map_or(Ok(()), Err)
}

/// Whether a list with an issuer's name is by the key of this one, as far as both say.
fn is_of(list: &RevocationList, issuer: &Certificate<'_>) -> bool {
    let keys = (list.authority_key(), issuer.extensions.subject_key);
    !matches!(keys, (Some(asked), Some(has)) if asked != has)
}

/// The newest list that is in time, else the newest one.
fn best<'a>(lists: &[&'a RevocationList], now: Seconds) -> Option<&'a RevocationList> {
    let is_in_time = |list: &&&RevocationList| {
        list.this_update <= now && list.next_update.is_none_or(|next| now <= next)
    };
    lists.iter().find(is_in_time).or(lists.first()).copied()
}

/// Whether a list is signed by an issuer.
fn is_signed(list: &RevocationList, issuer: &Certificate<'_>, judged: &Judged<'_>) -> bool {
    !judged.is_believed
        || list.is_signed_by(issuer.key.der, || {
            let (signed, algorithm, signature) = list.signature();
            signature::is_valid(algorithm, &issuer.key, signed, signature)
        })
}

/// What is wrong with a list itself.
fn fault(list: &RevocationList, issuer: &Certificate<'_>, judged: &Judged<'_>) -> Option<Reason> {
    let now = judged.now;
    let usage = issuer.extensions.key_usage;
    if !is_signed(list, issuer, judged) {
        Some(Reason::RevocationListSignature)
    } else if list.next_update.is_some_and(|next| next < now) {
        Some(Reason::RevocationListExpired)
    } else if now < list.this_update {
        Some(Reason::RevocationListNotYetValid)
    } else if list.is_partial {
        Some(Reason::RevocationListScope)
    } else if usage.is_some_and(|usage| usage & CRL_SIGN == 0) {
        Some(Reason::NoListSigning)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Purpose;
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
        DnType, IsCa, KeyIdMethod, KeyPair, SerialNumber, date_time_ymd,
    };

    type Made = CertifiedIssuer<'static, KeyPair>;

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        // Anybody can name another one's key as his own.
        params.key_identifier_method = KeyIdMethod::PreSpecified(name.as_bytes().to_vec());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.use_authority_key_identifier_extension = true;
        params
    }

    fn made(name: &str, issuer: Option<&Made>) -> Made {
        let key = KeyPair::generate().unwrap();
        match issuer {
            None => CertifiedIssuer::self_signed(params(name), key).unwrap(),
            Some(issuer) => CertifiedIssuer::signed_by(params(name), key, issuer).unwrap(),
        }
    }

    fn list(issuer: &Made, name: &str) -> RevocationList {
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            next_update: date_time_ymd(2030, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::PreSpecified(name.as_bytes().to_vec()),
        };
        let list = params.signed_by(issuer).unwrap();
        RevocationList::read(list.der().to_vec()).unwrap()
    }

    #[test]
    fn lists_are_hashed_for_keys_of_believed_chains_only() {
        const NOW: Seconds = 1_767_225_600; // 2026
        let root = made("root", None);
        let below = made("below", Some(&root));
        let lists = vec![list(&root, "root"), list(&below, "below")];
        let trust = Trust::new([root.der().clone()], lists, 1);
        let hashes = |issuer: &Made| {
            let issuer = Certificate::read(issuer.der()).unwrap();
            let mut hashes = false;
            trust.revocations(issuer.subject)[0].is_signed_by(issuer.key.der, || {
                hashes = true;
                false
            });
            hashes
        };
        let verdict = |below: &Made| {
            let leaf = made("leaf", Some(below));
            let chain = [leaf.der().clone(), below.der().clone()];
            trust.verify(&chain, Purpose::Client, NOW)
        };
        assert_eq!(verdict(&below), Ok(()));
        assert!(!hashes(&below), "it has been");
        let foreign_root = made("root", None);
        let foreign = made("below", Some(&foreign_root));
        assert_eq!(verdict(&foreign), Err(Reason::Signature));
        assert!(hashes(&foreign), "it has not been");
        assert!(!hashes(&below), "a foreign key makes none forget the own");
    }
}
