//! Private keys under a password: PBES2 in PKCS#8 (RFC 8018), and the older `Proc-Type: 4,ENCRYPTED` (RFC 1421).
//!
//! Not here: PBES1, RC2 and plain DES, which OpenSSL 3 has in its legacy provider only, and scrypt.
//! Invariant: a wrong password gives `None` or garbage that is no key, never a panic; iterations are bounded.

use crate::x509::der::{self, Reader};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey,
};
use aws_lc_rs::pbkdf2;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, KeyIvInit};
use md5::{Digest, Md5};
use std::num::NonZeroU32;
use zeroize::Zeroizing;

/// Maximum of PBKDF2's iterations that a key may ask for; more would take longer than a second.
pub const ITERATIONS_MAX: u64 = 10_000_000;

const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 13];
const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 12];
const HMAC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2];
const AES: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1];
const DES_EDE3_CBC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 3, 7];

/// A cipher in CBC mode with PKCS#7 padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cipher {
    Aes128,
    Aes192,
    Aes256,
    TripleDes,
}

impl Cipher {
    fn key_bytes(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::Aes192 | Self::TripleDes => 24,
            Self::Aes256 => 32,
        }
    }

    fn decrypt(self, key: &[u8], iv: &[u8], bytes: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let mut bytes = Zeroizing::new(bytes.to_vec());
        let length = match self {
            Self::TripleDes => cbc::Decryptor::<des::TdesEde3>::new_from_slices(key, iv)
                .ok()?
                .decrypt_padded::<Pkcs7>(&mut bytes)
                .ok()?
                .len(),
            Self::Aes128 | Self::Aes192 | Self::Aes256 => self.aes(key, iv, &mut bytes)?,
        };
        bytes.truncate(length);
        Some(bytes)
    }

    fn aes(self, key: &[u8], iv: &[u8], bytes: &mut [u8]) -> Option<usize> {
        let algorithm = match self {
            Self::Aes128 => &AES_128,
            Self::Aes192 => &AES_192,
            Self::Aes256 | Self::TripleDes => &AES_256,
        };
        let key = UnboundCipherKey::new(algorithm, key).ok()?;
        let iv: [u8; 16] = iv.try_into().ok()?;
        PaddedBlockDecryptingKey::cbc_pkcs7(key)
            .ok()?
            .decrypt(bytes, DecryptionContext::Iv128(iv.into()))
            .ok()
            .map(|plain| plain.len())
    }
}

/// The PKCS#8 key inside an EncryptedPrivateKeyInfo; `None` if the password or the format is another.
pub(crate) fn pkcs8(encrypted: &[u8], password: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut outer = Reader::new(der::only(encrypted, der::SEQUENCE)?);
    let mut scheme = outer.enter(der::SEQUENCE)?;
    let bytes = outer.expect(der::OCTET_STRING)?;
    if scheme.expect(der::OID)? != PBES2 {
        return None;
    }
    let mut parameters = scheme.enter(der::SEQUENCE)?;
    let (mut derivation, mut encryption) = (
        parameters.enter(der::SEQUENCE)?,
        parameters.enter(der::SEQUENCE)?,
    );
    let cipher = cipher_of(encryption.expect(der::OID)?)?;
    let iv = encryption.expect(der::OCTET_STRING)?;
    if derivation.expect(der::OID)? != PBKDF2 {
        return None;
    }
    let key = derive(
        derivation.enter(der::SEQUENCE)?,
        password,
        cipher.key_bytes(),
    )?;
    cipher.decrypt(&key, iv, bytes)
}

fn cipher_of(oid: &[u8]) -> Option<Cipher> {
    match oid.strip_prefix(AES) {
        Some([2]) => Some(Cipher::Aes128),
        Some([22]) => Some(Cipher::Aes192),
        Some([42]) => Some(Cipher::Aes256),
        _ => (oid == DES_EDE3_CBC).then_some(Cipher::TripleDes),
    }
}

/// PBKDF2 by its parameters.
fn derive(mut parameters: Reader<'_>, password: &[u8], bytes: usize) -> Option<Zeroizing<Vec<u8>>> {
    let salt = parameters.expect(der::OCTET_STRING)?;
    let iterations = parameters.small_integer()?;
    parameters.optional(der::INTEGER)?;
    let function = match parameters.optional(der::SEQUENCE)? {
        Some(algorithm) => Reader::new(algorithm)
            .expect(der::OID)?
            .strip_prefix(HMAC)?,
        None => &[7],
    };
    let algorithm = match function {
        [7] => pbkdf2::PBKDF2_HMAC_SHA1,
        [9] => pbkdf2::PBKDF2_HMAC_SHA256,
        [10] => pbkdf2::PBKDF2_HMAC_SHA384,
        [11] => pbkdf2::PBKDF2_HMAC_SHA512,
        _ => return None,
    };
    if iterations > ITERATIONS_MAX {
        return None;
    }
    let iterations = NonZeroU32::new(u32::try_from(iterations).ok()?)?;
    let mut key = Zeroizing::new(vec![0; bytes]);
    pbkdf2::derive(algorithm, iterations, salt, password, &mut key);
    Some(key)
}

/// The key inside a block with `DEK-Info: AES-256-CBC,0123…`; `None` if the password or the cipher is another.
pub(crate) fn traditional(
    info: &str,
    encrypted: &[u8],
    password: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let (name, digits) = info.split_once(',')?;
    let cipher = match name.trim().to_ascii_uppercase().as_str() {
        "AES-128-CBC" => Cipher::Aes128,
        "AES-192-CBC" => Cipher::Aes192,
        "AES-256-CBC" => Cipher::Aes256,
        "DES-EDE3-CBC" => Cipher::TripleDes,
        _ => return None,
    };
    let iv = bytes_of(digits.trim())?;
    let key = key_of(password, iv.get(..8)?, cipher.key_bytes());
    cipher.decrypt(&key, &iv, encrypted)
}

/// `EVP_BytesToKey` with MD5, one iteration.
fn key_of(password: &[u8], salt: &[u8], bytes: usize) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(Vec::with_capacity(bytes + 16));
    let mut last: Vec<u8> = Vec::new();
    while key.len() < bytes {
        let mut digest = Md5::new();
        digest.update(&last);
        digest.update(password);
        digest.update(salt);
        last = digest.finalize().to_vec();
        key.extend_from_slice(&last);
    }
    key.truncate(bytes);
    key
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}
