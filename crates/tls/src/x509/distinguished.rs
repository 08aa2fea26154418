//! Names of subjects and issuers as text: RFC 2253 as OpenSSL writes it, and the form with slashes of old times.
//!
//! Not here: comparing names (`canonical`).
//! Invariant: what is printed is ASCII; whatever a certificate holds cannot break a header or a log line.

use crate::x509::der::{self, Reader};

/// Maximum of attributes of a name that are printed.
pub const ATTRIBUTES_MAX: usize = 128;

const MAIL_ADDRESS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];
const UTF8_STRING: u8 = 12;
const IA5_STRING: u8 = 22;
const UNIVERSAL_STRING: u8 = 28;
const BMP_STRING: u8 = 30;
/// Types of one byte a character: numeric, printable, T61, IA5, times, visible.
const BYTE_STRINGS: [u8; 7] = [18, 19, 20, 22, 23, 24, 26];

/// Short names that OpenSSL has for attributes below 2.5.4, by the last number.
const X520: [(u8, &str); 36] = [
    (3, "CN"),
    (4, "SN"),
    (5, "serialNumber"),
    (6, "C"),
    (7, "L"),
    (8, "ST"),
    (9, "street"),
    (10, "O"),
    (11, "OU"),
    (12, "title"),
    (13, "description"),
    (14, "searchGuide"),
    (15, "businessCategory"),
    (16, "postalAddress"),
    (17, "postalCode"),
    (18, "postOfficeBox"),
    (19, "physicalDeliveryOfficeName"),
    (20, "telephoneNumber"),
    (21, "telexNumber"),
    (31, "member"),
    (32, "owner"),
    (33, "roleOccupant"),
    (34, "seeAlso"),
    (35, "userPassword"),
    (36, "userCertificate"),
    (41, "name"),
    (42, "GN"),
    (43, "initials"),
    (44, "generationQualifier"),
    (45, "x500UniqueIdentifier"),
    (46, "dnQualifier"),
    (51, "houseIdentifier"),
    (54, "dmdName"),
    (65, "pseudonym"),
    (72, "role"),
    (97, "organizationIdentifier"),
];
/// Other attributes, by their whole OID.
const OTHERS: [(&[u8], &str); 10] = [
    (MAIL_ADDRESS, "emailAddress"),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2],
        "unstructuredName",
    ),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 8],
        "unstructuredAddress",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
        "DC",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1],
        "UID",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 3],
        "mail",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 4],
        "info",
    ),
    (
        &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 0x3c, 2, 1, 1],
        "jurisdictionL",
    ),
    (
        &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 0x3c, 2, 1, 2],
        "jurisdictionST",
    ),
    (
        &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 0x3c, 2, 1, 3],
        "jurisdictionC",
    ),
];

/// One attribute of a name.
struct Attribute<'a> {
    /// Whether it shares its relative name with the attribute before.
    is_joined: bool,
    oid: &'a [u8],
    value: der::Value<'a>,
}

/// `CN=example.org,O=Example\, Inc,C=DE`: the last attribute first (RFC 2253). Attributes without a short name, and
/// values that are no text, are printed as `#` and the bytes' digits.
#[must_use]
pub fn rfc2253(name: &[u8]) -> String {
    let mut text = String::new();
    let attributes = attributes(name);
    for (at, attribute) in attributes.iter().enumerate().rev() {
        let known = short_name(attribute.oid);
        match known {
            Some(name) => text.push_str(name),
            None => text.push_str(&dotted(attribute.oid)),
        }
        text.push('=');
        match known.and_then(|_| characters(&attribute.value)) {
            Some(characters) => push_escaped(&characters, &mut text),
            None => {
                text.push('#');
                text.push_str(&hexadecimal(attribute.value.whole));
            }
        }
        match (at, attribute.is_joined) {
            (0, _) => {}
            (_, true) => text.push('+'),
            (_, false) => text.push(','),
        }
    }
    text
}

/// `/C=DE/O=Example, Inc/CN=example.org`, as `X509_NAME_oneline` writes it.
#[must_use]
pub fn legacy(name: &[u8]) -> String {
    let mut text = String::new();
    for attribute in attributes(name) {
        text.push(if attribute.is_joined { '+' } else { '/' });
        match short_name(attribute.oid) {
            Some(name) => text.push_str(name),
            None => text.push_str(&dotted(attribute.oid)),
        }
        text.push('=');
        for byte in attribute.value.contents {
            match byte {
                b'/' | b'+' => text.extend(['\\', char::from(*byte)]),
                b' '..=b'~' => text.push(char::from(*byte)),
                other => text.push_str(&format!("\\x{other:02X}")),
            }
        }
    }
    text
}

/// The values of `commonName` in a name, as they stand.
#[must_use]
pub fn common_names(name: &[u8]) -> Vec<&[u8]> {
    let is_common_name = |attribute: &Attribute<'_>| attribute.oid == [0x55, 4, 3];
    attributes(name)
        .into_iter()
        .filter(is_common_name)
        .map(|attribute| attribute.value.contents)
        .collect()
}

/// The values of `emailAddress` in a name; `None` for one that is no IA5String, as it has to be.
pub(crate) fn mail_addresses(name: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let is_address = |attribute: &Attribute<'_>| attribute.oid == MAIL_ADDRESS;
    let values = attributes(name).into_iter().filter(is_address);
    values.map(|Attribute { value, .. }| (value.tag == IA5_STRING).then_some(value.contents))
}

/// Bytes as digits, `0A1B`.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    let digits = b"0123456789ABCDEF";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|nibble| char::from(digits[usize::from(nibble)]))
        .collect()
}

/// The attributes of a name, as far as they can be read.
fn attributes(name: &[u8]) -> Vec<Attribute<'_>> {
    let mut list = Vec::new();
    let mut names = Reader::new(der::only(name, der::SEQUENCE).unwrap_or_default());
    while let Some(mut relative) = names.enter(der::SET) {
        let mut is_joined = false;
        while let Some(mut pair) = relative.enter(der::SEQUENCE) {
            let (Some(oid), Some(value)) = (pair.expect(der::OID), pair.next()) else {
                return list;
            };
            if list.len() == ATTRIBUTES_MAX {
                return list;
            }
            list.push(Attribute {
                is_joined,
                oid,
                value,
            });
            is_joined = true;
        }
    }
    list
}

fn short_name(oid: &[u8]) -> Option<&'static str> {
    if let [0x55, 4, last] = oid {
        return X520
            .iter()
            .find(|(number, _)| number == last)
            .map(|(_, name)| *name);
    }
    OTHERS
        .iter()
        .find(|(known, _)| *known == oid)
        .map(|(_, name)| *name)
}

/// An OID with dots, as far as its numbers fit.
pub(crate) fn dotted(oid: &[u8]) -> String {
    let mut text = String::new();
    let mut number = 0u64;
    for byte in oid {
        number = number
            .saturating_mul(128)
            .saturating_add(u64::from(byte & 0x7f));
        if byte & 0x80 != 0 {
            continue;
        }
        if text.is_empty() {
            let first = (number / 40).min(2);
            text = format!("{first}.{}", number - 40 * first);
        } else {
            text.push_str(&format!(".{number}"));
        }
        number = 0;
    }
    text
}

/// A value as UTF-8; `None` if it is no text.
pub(crate) fn characters(value: &der::Value<'_>) -> Option<Vec<u8>> {
    let bytes = value.contents;
    let wide = |size: usize| {
        let is_whole = bytes.len().is_multiple_of(size);
        let numbers = bytes.chunks(size).map(|chunk| {
            chunk
                .iter()
                .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
        });
        let text: Option<String> = numbers.map(char::from_u32).collect();
        text.filter(|_| is_whole).map(String::into_bytes)
    };
    match value.tag {
        UTF8_STRING => std::str::from_utf8(bytes).is_ok().then(|| bytes.to_vec()),
        BMP_STRING => wide(2),
        UNIVERSAL_STRING => wide(4),
        tag if BYTE_STRINGS.contains(&tag) => wide(1),
        _ => None,
    }
}

/// RFC 2253, 2.4, and everything that is not printable ASCII as its digits.
fn push_escaped(bytes: &[u8], text: &mut String) {
    let last = bytes.len().saturating_sub(1);
    for (at, byte) in bytes.iter().enumerate() {
        let is_escaped = match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => true,
            b'#' => at == 0,
            b' ' => at == 0 || at == last,
            _ => false,
        };
        match byte {
            b' '..=b'~' if is_escaped => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            other => text.push_str(&format!("\\{other:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute: its OID, the tag of its value, its value.
    type Pair<'a> = (&'a [u8], u8, &'a [u8]);

    fn name(relative: &[&[Pair<'_>]]) -> Vec<u8> {
        let sets: Vec<Vec<u8>> = relative
            .iter()
            .map(|set| {
                let pairs: Vec<Vec<u8>> = set
                    .iter()
                    .map(|(oid, tag, text)| {
                        let value = der::value(*tag, text);
                        der::values(der::SEQUENCE, &[&der::value(der::OID, oid), &value])
                    })
                    .collect();
                der::value(der::SET, &pairs.concat())
            })
            .collect();
        der::value(der::SEQUENCE, &sets.concat())
    }

    #[test]
    fn both_forms() {
        let name = name(&[
            &[(&[0x55, 4, 6], 19, b"DE")],
            &[(&[0x55, 4, 10], 12, "Größe, Inc/x ".as_bytes())],
            &[(&[0x55, 4, 3], 12, b"#a"), (&[0x55, 4, 11], 12, b" b")],
        ]);
        assert_eq!(
            rfc2253(&name),
            "OU=\\ b+CN=\\#a,O=Gr\\C3\\B6\\C3\\9Fe\\, Inc/x\\ ,C=DE"
        );
        assert_eq!(
            legacy(&name),
            "/C=DE/O=Gr\\xC3\\xB6\\xC3\\x9Fe, Inc\\/x /CN=#a+OU= b"
        );
    }

    #[test]
    fn wide_strings_and_unknown_attributes() {
        let name = name(&[
            &[(&[0x55, 4, 3], BMP_STRING, &[0, b'a', 0x20, 0xac])],
            &[(&[0x2a, 3, 4], 12, b"x")],
            &[(&[0x55, 4, 11], 4, b"\n")],
        ]);
        assert_eq!(
            rfc2253(&name),
            "OU=#04010A,1.2.3.4=#0C0178,CN=a\\E2\\82\\AC"
        );
        assert_eq!(legacy(&name), "/CN=\\x00a \\xAC/1.2.3.4=x/OU=\\x0A");
    }

    #[test]
    fn what_is_broken_ends_the_text() {
        assert_eq!(rfc2253(b"\x30\x03\x31\x05"), "");
        assert_eq!(legacy(b""), "");
    }

    #[test]
    fn oids_have_dots() {
        assert_eq!(
            dotted(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d]),
            "1.2.840.113549"
        );
        assert_eq!(dotted(&[0x88, 0x37]), "2.999");
        assert_eq!(dotted(&[0xff; 40]), "");
    }
}
