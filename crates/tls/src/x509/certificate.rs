//! A certificate (RFC 5280, 4.1): its fields and the extensions that somebody here asks for. Versions 1 and 3 alike.
//!
//! Not here: whether it may be believed (`verify`), names as text (`distinguished`).
//! Invariant: what is read borrows the certificate's bytes; a certificate with a broken extension is no certificate.

use crate::x509::canonical;
use crate::x509::der::{self, Reader};
use crate::x509::time::{self, Seconds};
use std::net::IpAddr;

/// Maximum of extensions of a certificate.
pub const EXTENSIONS_MAX: usize = 64;
/// Maximum of names in a certificate's subjectAltName that are read; what follows is not looked at.
pub const NAMES_MAX: usize = 4096;

const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const SUBJECT_KEY: &[u8] = &[0x55, 0x1d, 0x0e];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x1e];
const AUTHORITY_ACCESS: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 1];
const TLS_FEATURE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 0x18];
/// Policies and where lists of revocations are: read by nobody, and no reason to refuse a certificate.
const HARMLESS: [&[u8]; 5] = [
    &[0x55, 0x1d, 0x20],
    &[0x55, 0x1d, 0x1f],
    &[0x55, 0x1d, 0x21],
    &[0x55, 0x1d, 0x24],
    &[0x55, 0x1d, 0x36],
];
const OCSP_ACCESS: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1];

/// Bits of `keyUsage`, the first one lowest.
pub(crate) const DIGITAL_SIGNATURE: u16 = 1;
pub(crate) const KEY_ENCIPHERMENT: u16 = 1 << 2;
pub(crate) const KEY_AGREEMENT: u16 = 1 << 4;
pub(crate) const KEY_CERT_SIGN: u16 = 1 << 5;
pub(crate) const CRL_SIGN: u16 = 1 << 6;

/// A certificate, read.
#[derive(Clone, Debug)]
pub struct Certificate<'a> {
    /// All of its bytes.
    pub der: &'a [u8],
    /// The part that is signed.
    pub(crate) signed: &'a [u8],
    /// 1, 2 or 3.
    pub version: u64,
    /// The serial number: an INTEGER's contents, with its sign.
    pub serial: &'a [u8],
    /// Contents of the AlgorithmIdentifier of the signature.
    pub(crate) signature_algorithm: &'a [u8],
    pub(crate) signature: &'a [u8],
    /// The issuer's name, a whole SEQUENCE.
    pub issuer: &'a [u8],
    /// The subject's name, a whole SEQUENCE.
    pub subject: &'a [u8],
    /// Begin of its validity.
    pub not_before: Seconds,
    /// End of its validity.
    pub not_after: Seconds,
    /// The subject's key.
    pub key: PublicKey<'a>,
    pub(crate) extensions: Extensions<'a>,
}

/// A public key (SubjectPublicKeyInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey<'a> {
    /// All of its bytes.
    pub der: &'a [u8],
    /// Contents of the AlgorithmIdentifier.
    pub(crate) algorithm: &'a [u8],
    /// The key's bits.
    pub(crate) bits: &'a [u8],
}

/// What the extensions say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extensions<'a> {
    pub(crate) basic_constraints: Option<BasicConstraints>,
    pub(crate) key_usage: Option<u16>,
    pub(crate) extended_key_usage: Option<&'a [u8]>,
    pub(crate) subject_alt_name: Option<&'a [u8]>,
    pub(crate) subject_key: Option<&'a [u8]>,
    pub(crate) authority_key: Option<&'a [u8]>,
    pub(crate) name_constraints: Option<&'a [u8]>,
    pub(crate) ocsp_url: Option<&'a str>,
    pub(crate) must_staple: bool,
    pub(crate) has_unknown_critical: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BasicConstraints {
    pub(crate) is_ca: bool,
    pub(crate) path_length: Option<u64>,
}

/// A name of a certificate's subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlternativeName<'a> {
    /// `dNSName`.
    Dns(&'a [u8]),
    /// `iPAddress`.
    Address(IpAddr),
    /// `rfc822Name`.
    Email(&'a [u8]),
    /// `directoryName`: a whole name.
    Directory(&'a [u8]),
    /// Another kind: its tag.
    Other(u8),
}

impl<'a> Certificate<'a> {
    /// Reads a certificate; `None` if the bytes are none.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut outer = Reader::new(der::only(bytes, der::SEQUENCE)?);
        let signed = outer.expect_value(der::SEQUENCE)?;
        let signature_algorithm = outer.expect(der::SEQUENCE)?;
        let signature = outer.bit_string()?;
        let mut fields = Reader::new(signed.contents);
        let version = version(&mut fields)?;
        let serial = fields.expect(der::INTEGER)?;
        let inner_algorithm = fields.expect(der::SEQUENCE)?;
        let issuer = fields.expect_value(der::SEQUENCE)?.whole;
        let mut validity = fields.enter(der::SEQUENCE)?;
        let not_before = time::read(validity.next()?)?;
        let not_after = time::read(validity.next()?)?;
        let subject = fields.expect_value(der::SEQUENCE)?.whole;
        let key = PublicKey::read(fields.expect_value(der::SEQUENCE)?.whole)?;
        fields.optional(der::context(1))?;
        fields.optional(der::context(2))?;
        let extensions = match fields.optional(der::constructed(3))? {
            Some(contents) => Extensions::read(contents)?,
            None => Extensions::default(),
        };
        let is_whole = outer.is_empty()
            && fields.is_empty()
            && validity.is_empty()
            && !serial.is_empty()
            && inner_algorithm == signature_algorithm;
        is_whole.then_some(Self {
            der: bytes,
            signed: signed.whole,
            version,
            serial,
            signature_algorithm,
            signature,
            issuer,
            subject,
            not_before,
            not_after,
            key,
            extensions,
        })
    }

    /// Whether issuer and subject say the same.
    #[must_use]
    pub fn is_self_issued(&self) -> bool {
        canonical::is_same(self.issuer, self.subject)
    }

    /// The names in its subjectAltName, at most [`NAMES_MAX`].
    #[must_use]
    pub fn names(&self) -> Vec<AlternativeName<'a>> {
        let Some(names) = self.extensions.subject_alt_name else {
            return Vec::new();
        };
        let mut reader = Reader::new(names);
        std::iter::from_fn(|| reader.next())
            .take(NAMES_MAX)
            .map(AlternativeName::of)
            .collect()
    }

    /// Whether it has a subjectAltName at all.
    #[must_use]
    pub fn has_names(&self) -> bool {
        self.extensions.subject_alt_name.is_some()
    }

    /// The address of the OCSP responder that it names.
    #[must_use]
    pub fn ocsp_url(&self) -> Option<&'a str> {
        self.extensions.ocsp_url
    }

    /// The identifier of the key that signed it, where it says one.
    #[must_use]
    pub fn authority_key(&self) -> Option<&'a [u8]> {
        self.extensions.authority_key
    }

    /// Whether it asks for a stapled OCSP response (RFC 7633).
    #[must_use]
    pub fn must_staple(&self) -> bool {
        self.extensions.must_staple
    }
}

impl<'a> PublicKey<'a> {
    /// Reads a SubjectPublicKeyInfo.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(der::only(bytes, der::SEQUENCE)?);
        let algorithm = reader.expect(der::SEQUENCE)?;
        let bits = reader.bit_string()?;
        Some(Self {
            der: bytes,
            algorithm,
            bits,
        })
    }
}

impl<'a> AlternativeName<'a> {
    pub(crate) fn of(value: der::Value<'a>) -> Self {
        match value.tag {
            0x81 => Self::Email(value.contents),
            0x82 => Self::Dns(value.contents),
            0xa4 => Self::Directory(value.contents),
            0x87 => match address(value.contents) {
                Some(address) => Self::Address(address),
                None => Self::Other(value.tag),
            },
            tag => Self::Other(tag),
        }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// The version: absent is 1.
fn version(fields: &mut Reader<'_>) -> Option<u64> {
    let Some(explicit) = fields.optional(der::constructed(0))? else {
        return Some(1);
    };
    match der::unsigned(der::only(explicit, der::INTEGER)?)? {
        number @ 0..=2 => Some(number + 1),
        _ => None,
    }
}

impl<'a> Extensions<'a> {
    fn read(contents: &'a [u8]) -> Option<Self> {
        let mut list = Reader::new(der::only(contents, der::SEQUENCE)?);
        let mut extensions = Self::default();
        let mut count = 0;
        while !list.is_empty() {
            count += 1;
            if count > EXTENSIONS_MAX {
                return None;
            }
            let (oid, is_critical, value) = list.extension()?;
            extensions.take(oid, is_critical, value)?;
        }
        Some(extensions)
    }

    fn take(&mut self, oid: &[u8], is_critical: bool, value: &'a [u8]) -> Option<()> {
        match oid {
            BASIC_CONSTRAINTS => once(&mut self.basic_constraints, BasicConstraints::read(value)?),
            KEY_USAGE => once(&mut self.key_usage, key_usage(value)?),
            EXTENDED_KEY_USAGE => once(
                &mut self.extended_key_usage,
                der::only(value, der::SEQUENCE)?,
            ),
            SUBJECT_ALT_NAME => once(&mut self.subject_alt_name, der::only(value, der::SEQUENCE)?),
            SUBJECT_KEY => once(&mut self.subject_key, der::only(value, der::OCTET_STRING)?),
            AUTHORITY_KEY => {
                let mut reader = Reader::new(der::only(value, der::SEQUENCE)?);
                self.authority_key = reader.optional(der::context(0))?;
                Some(())
            }
            NAME_CONSTRAINTS => once(&mut self.name_constraints, der::only(value, der::SEQUENCE)?),
            AUTHORITY_ACCESS => {
                self.ocsp_url = ocsp_url(value);
                Some(())
            }
            TLS_FEATURE => {
                // The feature 5, status_request.
                self.must_staple = value.ends_with(&[der::INTEGER, 1, 5]);
                Some(())
            }
            _ => {
                self.has_unknown_critical |= is_critical && !HARMLESS.contains(&oid);
                Some(())
            }
        }
    }
}

/// Sets what may stand once.
fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

impl BasicConstraints {
    fn read(value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(der::only(value, der::SEQUENCE)?);
        let is_ca = reader
            .optional(der::BOOLEAN)?
            .is_some_and(|value| value != [0]);
        let path_length = match reader.optional(der::INTEGER)? {
            Some(contents) => Some(der::unsigned(contents)?),
            None => None,
        };
        reader.is_empty().then_some(Self { is_ca, path_length })
    }
}

fn key_usage(value: &[u8]) -> Option<u16> {
    let (_, bits) = der::only(value, der::BIT_STRING)?.split_first()?;
    let low = u16::from(bits.first().copied().unwrap_or(0).reverse_bits());
    let high = u16::from(bits.get(1).copied().unwrap_or(0).reverse_bits());
    Some(low | high << 8)
}

/// The first URI of an OCSP responder in an authorityInfoAccess.
fn ocsp_url(value: &[u8]) -> Option<&str> {
    let mut list = Reader::new(der::only(value, der::SEQUENCE)?);
    while let Some(mut one) = list.enter(der::SEQUENCE) {
        if one.expect(der::OID)? == OCSP_ACCESS {
            return std::str::from_utf8(one.expect(der::context(6))?).ok();
        }
    }
    None
}
