//! Lists of revocations along a chain: every certificate of it needs a list of its issuer that is in time.
//!
//! Not here: fetching lists, OCSP. Invariant: a certificate without a list is not accepted, as `ssl_crl` asks.

use crate::verify::Trust;
use crate::verify::reason::Reason;
use crate::verify::signature;
use crate::x509::certificate::{CRL_SIGN, Certificate};
use crate::x509::revocations::RevocationList;
use crate::x509::time::Seconds;

/// Judges the certificate at a height of a chain by the lists of its issuer. The last fault is the reason.
pub(crate) fn check(
    trust: &Trust,
    chain: &[Certificate<'_>],
    height: usize,
    now: Seconds,
) -> Result<(), Reason> {
    let certificate = &chain[height];
    let issuer = chain.get(height + 1).unwrap_or(certificate);
    let list = best(trust.revocations(certificate.issuer), now).ok_or(Reason::NoRevocationList)?;
    let mut result = list_fault(list, issuer, now).map_or(Ok(()), Err);
    if list.revokes(certificate.serial) {
        result = Err(Reason::Revoked);
    }
    result
}

/// The list that is in time, else the last one.
fn best(lists: &[RevocationList], now: Seconds) -> Option<&RevocationList> {
    let is_in_time = |list: &&RevocationList| {
        list.this_update <= now && list.next_update.is_none_or(|next| now <= next)
    };
    let latest = |list: &&RevocationList| list.this_update;
    let in_time = lists.iter().filter(is_in_time).max_by_key(latest);
    in_time.or_else(|| lists.iter().max_by_key(latest))
}

/// What is wrong with a list itself.
fn list_fault(list: &RevocationList, issuer: &Certificate<'_>, now: Seconds) -> Option<Reason> {
    let (signed, algorithm, signature) = list.signature();
    let usage = issuer.extensions.key_usage;
    if !signature::is_valid(algorithm, &issuer.key, signed, signature) {
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
