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
    /// The identifier of the key that signed it, where it says one.
    authority_key: Option<Range<usize>>,
    checked: Mutex<Checked>,
}

/// The last key that has signed a list, and the last one that was asked about and has not.
#[derive(Debug, Default)]
struct Checked {
    signer: Vec<u8>,
    other: Vec<u8>,
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
        let extensions = match fields.optional(der::constructed(0))? {
            Some(extensions) => Extensions::read(extensions)?,
            None => Extensions::default(),
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
            is_partial: extensions.has_other_critical,
            authority_key: extensions.authority_key.map(range),
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

    /// The identifier of the key that signed it, where it says one.
    pub(crate) fn authority_key(&self) -> Option<&[u8]> {
        self.authority_key.clone().map(|range| &self.der[range])
    }

    /// Whether it is signed by a key. The key that has signed it is checked once, whatever keys are asked about between.
    pub(crate) fn is_signed_by(&self, key: &[u8], check: impl FnOnce() -> bool) -> bool {
        {
            let checked = self.checked.lock();
            if checked.signer == key || checked.other == key {
                return checked.signer == key;
            }
        }
        let is_signed = check();
        let mut checked = self.checked.lock();
        match is_signed {
            true => checked.signer = key.to_vec(),
            false => checked.other = key.to_vec(),
        }
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

/// What the extensions say.
#[derive(Default)]
struct Extensions<'a> {
    /// Whether a critical one is there that narrows the list, or is not known.
    has_other_critical: bool,
    authority_key: Option<&'a [u8]>,
}

impl<'a> Extensions<'a> {
    fn read(contents: &'a [u8]) -> Option<Self> {
        let mut list = Reader::new(der::only(contents, der::SEQUENCE)?);
        let mut read = Self::default();
        while !list.is_empty() {
            let (oid, is_critical, value) = list.extension()?;
            read.has_other_critical |= is_critical && ![CRL_NUMBER, AUTHORITY_KEY].contains(&oid);
            if oid == AUTHORITY_KEY {
                let mut parts = Reader::new(der::only(value, der::SEQUENCE)?);
                read.authority_key = parts.optional(der::context(0))?;
            }
        }
        Some(read)
    }
}
