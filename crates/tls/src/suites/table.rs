//! The cipher suites that OpenSSL knows, and which of them are offered here.
//!
//! `ciphers.txt` has a line for each suite of TLS 1.2 and before: id, OpenSSL's name, IANA's name, oldest version, key
//! exchange, authentication, cipher, its bits, MAC, and whether OpenSSL has it in `DEFAULT`. The order is OpenSSL's
//! own order of `ALL`. Not here: cipher strings.

use std::sync::LazyLock;

/// Suites of TLS 1.3: id and name.
pub(crate) const TLS13: [(u16, &str); 5] = [
    (0x1302, "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
    (0x1301, "TLS_AES_128_GCM_SHA256"),
    (0x1304, "TLS_AES_128_CCM_SHA256"),
    (0x1305, "TLS_AES_128_CCM_8_SHA256"),
];

/// A suite of TLS 1.2 or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cipher {
    pub(crate) id: u16,
    pub(crate) name: &'static str,
    pub(crate) standard_name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) key_exchange: &'static str,
    pub(crate) authentication: &'static str,
    pub(crate) encryption: &'static str,
    pub(crate) bits: u16,
    pub(crate) mac: &'static str,
    pub(crate) is_default: bool,
}

static CIPHERS: LazyLock<Vec<Cipher>> = LazyLock::new(|| {
    let lines = include_str!("ciphers.txt").lines();
    lines.filter_map(Cipher::read).collect()
});

/// All of them, in OpenSSL's order.
pub(crate) fn ciphers() -> &'static [Cipher] {
    &CIPHERS
}

impl Cipher {
    fn read(line: &'static str) -> Option<Self> {
        let mut words = line.split(' ');
        let id = u16::from_str_radix(words.next()?, 16).ok()?;
        let mut word = || words.next();
        Some(Self {
            id,
            name: word()?,
            standard_name: word()?,
            version: word()?,
            key_exchange: word()?,
            authentication: word()?,
            encryption: word()?,
            bits: word()?.parse().ok()?,
            mac: word()?,
            is_default: word()? == "default",
        })
    }
}

/// OpenSSL's name of a suite: `ECDHE-RSA-AES128-GCM-SHA256`, `TLS_AES_128_GCM_SHA256`.
#[must_use]
pub fn cipher_name(id: u16) -> Option<&'static str> {
    let newer = TLS13.iter().find(|(known, _)| *known == id);
    let older = || ciphers().iter().find(|cipher| cipher.id == id);
    newer
        .map(|(_, name)| *name)
        .or_else(|| older().map(|cipher| cipher.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read() {
        assert_eq!(ciphers().len(), include_str!("ciphers.txt").lines().count());
        assert_eq!(cipher_name(0xc02f), Some("ECDHE-RSA-AES128-GCM-SHA256"));
        assert_eq!(cipher_name(0x1301), Some("TLS_AES_128_GCM_SHA256"));
        assert_eq!(cipher_name(0xfafa), None);
    }
}
