//! Lists of revocations along a chain: every certificate of it needs a list of its issuer that is in time.
//!
//! Not here: fetching lists, OCSP. Invariant: a certificate without a list is not accepted, as `ssl_crl` asks.

use crate::verify::Trust;
use crate::verify::reason::Reason;
use crate::verify::signature;
use crate::x509::certificate::{CRL_SIGN, Certificate};
use crate::x509::revocations::RevocationList;
use crate::x509::time::Seconds;

/// Maximum of lists of one issuer's name that are looked at.
pub const LISTS_MAX: usize = 16;

/// Judges the certificate at a height of a chain by the lists of its issuer: whichever list names it, if the issuer has
/// signed it, says that it is revoked.
pub(crate) fn check(
    trust: &Trust,
    chain: &[Certificate<'_>],
    height: usize,
    now: Seconds,
) -> Result<(), Reason> {
    let certificate = &chain[height];
    let issuer = chain.get(height + 1).unwrap_or(certificate);
    let lists = trust.revocations(certificate.issuer);
    let lists = &lists[..lists.len().min(LISTS_MAX)];
    let signed = |list: &&RevocationList| is_signed(list, issuer);
    let names = |list: &RevocationList| list.revokes(certificate.serial);
    if lists.iter().filter(signed).any(names) {
        return Err(Reason::Revoked);
    }
    if lists.iter().any(|list| fault(list, issuer, now).is_none()) {
        return Ok(());
    }
    let list = best(lists, now).ok_or(Reason::NoRevocationList)?;
    fault(list, issuer, now).map_or(Ok(()), Err)
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

/// Whether a list is signed by an issuer. A list may be large: it is checked once for each key that comes.
fn is_signed(list: &RevocationList, issuer: &Certificate<'_>) -> bool {
    list.is_signed_by(issuer.key.der, || {
        let (signed, algorithm, signature) = list.signature();
        signature::is_valid(algorithm, &issuer.key, signed, signature)
    })
}

/// What is wrong with a list itself.
fn fault(list: &RevocationList, issuer: &Certificate<'_>, now: Seconds) -> Option<Reason> {
    let usage = issuer.extensions.key_usage;
    if !is_signed(list, issuer) {
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
