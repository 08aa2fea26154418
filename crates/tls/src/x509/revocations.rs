//! Lists of revoked certificates (RFC 5280, 5): `ssl_crl`.
//!
//! Not here: whether a list may be believed (`verify::revocation`), fetching lists.
//! Invariant: a certificate is found by a binary search; entries cost eight bytes beside the list's own bytes.

use crate::x509::der::{self, Reader};
use crate::x509::time::{self, Seconds};
use parking_lot::Mutex;
use std::ops::Range;

const CRL_NUMBER: &[u8] = &[0x55, 0x1d, 0x14];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];

/// A list of revoked certificates.
#[derive(Debug)]
pub struct RevocationList {
    der: Vec<u8>,
    signed: Range<usize>,
    signature_algorithm: Range<usize>,
    signature: Range<usize>,
    issuer: Range<usize>,
    pub(crate) this_update: Seconds,
    pub(crate) next_update: Option<Seconds>,
    /// Serial numbers, sorted: where they begin, and their lengths.
    revoked: Vec<(u32, u8)>,
    /// Whether it is for some certificates or some reasons only, or says more that is not understood.
    pub(crate) is_partial: bool,
    /// The last key that was asked about, and whether the list is signed by it.
    checked: Mutex<(Vec<u8>, bool)>,
}

impl RevocationList {
    /// Its bytes.
    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Reads a list; `None` if the bytes are none.
    #[must_use]
    pub fn read(der: Vec<u8>) -> Option<Self> {
        let range = |part: &[u8]| part_of(&der, part);
        let mut outer = Reader::new(der::only(&der, der::SEQUENCE)?);
        let signed = outer.expect_value(der::SEQUENCE)?;
        let signature_algorithm = outer.expect(der::SEQUENCE)?;
        let signature = outer.bit_string()?;
        let mut fields = Reader::new(signed.contents);
        fields.optional(der::INTEGER)?;
        let inner_algorithm = fields.expect(der::SEQUENCE)?;
        let issuer = fields.expect_value(der::SEQUENCE)?.whole;
        let this_update = time::read(fields.next()?)?;
        let next_update = match fields.peek() {
            Some(der::UTC_TIME | der::GENERALIZED_TIME) => Some(time::read(fields.next()?)?),
            _ => None,
        };
        let entries = fields.optional(der::SEQUENCE)?.unwrap_or_default();
        let mut revoked = revoked(entries)?;
        revoked.sort_unstable();
        let revoked = revoked.into_iter().map(|serial| {
            let begin = u32::try_from(range(serial).start).ok()?;
            Some((begin, u8::try_from(serial.len()).ok()?))
        });
        let revoked = revoked.collect::<Option<Vec<_>>>()?;
        let is_partial = match fields.optional(der::constructed(0))? {
            Some(extensions) => has_other_critical(extensions)?,
            None => false,
        };
        let is_whole = fields.is_empty() && inner_algorithm == signature_algorithm;
        is_whole.then_some(())?;
        Some(Self {
            signed: range(signed.whole),
            signature_algorithm: range(signature_algorithm),
            signature: range(signature),
            issuer: range(issuer),
            this_update,
            next_update,
            revoked,
            is_partial,
            checked: Mutex::default(),
            der,
        })
    }

    /// The issuer's name.
    pub(crate) fn issuer(&self) -> &[u8] {
        &self.der[self.issuer.clone()]
    }

    /// What is signed, the contents of the algorithm, and the signature.
    pub(crate) fn signature(&self) -> (&[u8], &[u8], &[u8]) {
        (
            &self.der[self.signed.clone()],
            &self.der[self.signature_algorithm.clone()],
            &self.der[self.signature.clone()],
        )
    }

    /// Whether it is signed by a key, which is asked for once in a row.
    pub(crate) fn is_signed_by(&self, key: &[u8], check: impl FnOnce() -> bool) -> bool {
        let known = {
            let checked = self.checked.lock();
            (checked.0 == key).then_some(checked.1)
        };
        if let Some(is_signed) = known {
            return is_signed;
        }
        let is_signed = check();
        *self.checked.lock() = (key.to_vec(), is_signed);
        is_signed
    }

    /// Whether it names a serial number.
    pub(crate) fn revokes(&self, serial: &[u8]) -> bool {
        let at = |(begin, length): &(u32, u8)| {
            let begin = *begin as usize;
            &self.der[begin..begin + usize::from(*length)]
        };
        self.revoked
            .binary_search_by(|one| at(one).cmp(serial))
            .is_ok()
    }

    /// How many certificates it names.
    #[must_use]
    pub fn revoked(&self) -> usize {
        self.revoked.len()
    }
}

/// Where a part of `whole` lies in it.
fn part_of(whole: &[u8], part: &[u8]) -> Range<usize> {
    let begin = part.as_ptr().addr().saturating_sub(whole.as_ptr().addr());
    begin..begin + part.len()
}

fn revoked(entries: &[u8]) -> Option<Vec<&[u8]>> {
    let mut list = Reader::new(entries);
    let mut serials = Vec::new();
    while !list.is_empty() {
        let mut entry = list.enter(der::SEQUENCE)?;
        serials.push(entry.expect(der::INTEGER)?);
        time::read(entry.next()?)?;
    }
    Some(serials)
}

/// Whether a critical extension is there that narrows the list, or is not known.
fn has_other_critical(contents: &[u8]) -> Option<bool> {
    let mut list = Reader::new(der::only(contents, der::SEQUENCE)?);
    let mut has_other = false;
    while !list.is_empty() {
        let mut one = list.enter(der::SEQUENCE)?;
        let oid = one.expect(der::OID)?;
        let is_critical = one
            .optional(der::BOOLEAN)?
            .is_some_and(|value| value != [0]);
        one.expect(der::OCTET_STRING)?;
        has_other |= is_critical && ![CRL_NUMBER, AUTHORITY_KEY].contains(&oid);
    }
    Some(has_other)
}
