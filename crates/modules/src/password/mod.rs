//! Checks a password against the stored form in a user file: the forms of crypt(3), and nginx's own.
//!
//! Uses the processor for milliseconds to seconds: never on a loop. Not here: where the stored form comes from
//! ([`crate::before::auth_basic`]). Invariants: stored forms are compared in constant time; an unreadable form
//! matches no password; the work of one check is bounded.

mod des_crypt;
mod md5_crypt;
mod sha2_crypt;

use message::base64;
use sha1::{Digest, Sha1};
use subtle::ConstantTimeEq;
use yescrypt::{PasswordVerifier as _, Yescrypt};

/// crypt(3) takes no longer passwords.
const PASSWORD_MAX: usize = 511;
/// The exponent of rounds of bcrypt: a minute or so. More is taken for unreadable.
const BCRYPT_COST_MAX: u32 = 20;
/// The largest exponent of memory of yescrypt: 128 MiB.
const YESCRYPT_COST_MAX: usize = 14;
/// Bytes of memory that yescrypt takes with the exponent 0.
const YESCRYPT_BYTES: usize = 8 << 10;
/// Characters of a hash of yescrypt. One that is shorter would fit more passwords.
const YESCRYPT_HASH: usize = 43;
const SHA1_BYTES: usize = 20;

/// The stored form is none that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// Does the password fit the stored form?
///
/// # Errors
/// The form is not known, or broken, or asks for too much work.
pub(crate) fn fits(password: &[u8], stored: &[u8]) -> Result<bool, Unreadable> {
    // nginx would take what stands before a zero byte for the whole.
    if password.contains(&0) {
        return Ok(false);
    }
    if stored.starts_with(md5_crypt::APR1) {
        return Ok(equal(
            &md5_crypt::hash(md5_crypt::APR1, password, stored),
            stored,
        ));
    }
    if let Some(plain) = stored.strip_prefix(b"{PLAIN}") {
        return Ok(equal(password, plain));
    }
    if let Some(encoded) = stored.strip_prefix(b"{SSHA}") {
        return salted_sha(password, encoded);
    }
    if let Some(encoded) = stored.strip_prefix(b"{SHA}") {
        let wanted = base64::encode(&Sha1::digest(password));
        return Ok(equal(wanted.as_bytes(), encoded));
    }
    if password.len() > PASSWORD_MAX {
        return Ok(false);
    }
    crypt(password, stored)
}

/// Bytes of memory that a check against the stored form takes, where these are many: with yescrypt, which is made for that.
pub(crate) fn memory_bytes(stored: &[u8]) -> usize {
    yescrypt_bytes(stored).unwrap_or_default()
}

/// Bytes of memory that a stored form of yescrypt asks for; `None`: more than is bearable, or with parameters that neither
/// mkpasswd(1) nor passwd(1) writes.
fn yescrypt_bytes(stored: &[u8]) -> Option<usize> {
    let [b'j', exponent, b'T', b'$', ..] = stored.strip_prefix(b"$y$")? else {
        return None;
    };
    let exponent = DIGITS.iter().position(|digit| digit == exponent)?;
    (exponent <= YESCRYPT_COST_MAX).then_some(YESCRYPT_BYTES << exponent)
}

/// The forms of crypt(3).
fn crypt(password: &[u8], stored: &[u8]) -> Result<bool, Unreadable> {
    if stored.starts_with(md5_crypt::MD5) {
        return Ok(equal(
            &md5_crypt::hash(md5_crypt::MD5, password, stored),
            stored,
        ));
    }
    let text = std::str::from_utf8(stored).map_err(|_| Unreadable)?;
    match stored {
        [b'$', b'5' | b'6', b'$', ..] => {
            let wanted = sha2_crypt::hash(password, text).ok_or(Unreadable)?;
            Ok(equal(&wanted, stored))
        }
        [b'$', b'2', b'a' | b'b' | b'y', b'$', tens, ones, b'$', ..] => {
            let cost = [*tens, *ones].map(|digit| char::from(digit).to_digit(10));
            match cost {
                [Some(tens), Some(ones)] if tens * 10 + ones <= BCRYPT_COST_MAX => {
                    bcrypt::verify(password, text).map_err(|_| Unreadable)
                }
                _ => Err(Unreadable),
            }
        }
        [b'$', b'y', b'$', ..] => {
            let hash = stored
                .rsplit(|byte| *byte == b'$')
                .next()
                .unwrap_or_default();
            if yescrypt_bytes(stored).is_none() || hash.len() != YESCRYPT_HASH {
                return Err(Unreadable);
            }
            match Yescrypt::default().verify_password(password, text) {
                Ok(()) => Ok(true),
                Err(yescrypt::password_hash::Error::PasswordInvalid) => Ok(false),
                Err(_) => Err(Unreadable),
            }
        }
        _ => {
            let wanted = des_crypt::hash(password, stored).ok_or(Unreadable)?;
            Ok(equal(&wanted, stored))
        }
    }
}

/// `{SSHA}`: the hash of password and salt, and the salt, in base64.
fn salted_sha(password: &[u8], encoded: &[u8]) -> Result<bool, Unreadable> {
    let decoded = base64::decode(encoded).ok_or(Unreadable)?;
    let salt = decoded.get(SHA1_BYTES..).ok_or(Unreadable)?;
    let hash = Sha1::new()
        .chain_update(password)
        .chain_update(salt)
        .finalize();
    let wanted = base64::encode(&[&hash[..], salt].concat());
    Ok(equal(wanted.as_bytes(), encoded))
}

fn equal(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// The digits of crypt(3).
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Appends the lowest bits as digits of crypt(3), the lowest six first.
fn digits(mut bits: u32, count: usize, out: &mut Vec<u8>) {
    for _ in 0..count {
        out.push(DIGITS[bits as usize & 63]);
        bits >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "a password that is longer than all the blocks of all the hashes, which have sixty-four bytes, or a hundred and twenty-eight";

    /// Made by libxcrypt's crypt(3) and openssl-passwd(1).
    const STORED: &[(&str, &str)] = &[
        ("secret", "abNANd1rDfiNc"),
        ("secret", "./17m29LFAflg"),
        ("secret", "zZ5x4y8hS4SZE"),
        ("secret", "Q93fPWpU0tyTg"),
        ("secret", "$1$saltsalt$9xy1btjgzLYfb7hivXtC//"),
        (
            "secret",
            "$5$saltstring$C3o4O1TC6aRHF4FI.QSZMXtHbaj2gSXr4sUc/3NcUi.",
        ),
        (
            "secret",
            "$6$rounds=1400$anotherlongsalt$GgIsmY8/iRvu5gZ47obybyiAhDD7s7u3Dw7dmgui/06yeirFJjz/UHTF1ruurLHgwOs1LjZn57x0E0WZeclyd1",
        ),
        (
            "secret",
            "$6$ab$2lDVylRMp48hlYZZFOCx/xnhJEsGPynJ17rt2um9Gb8wX6ygI4uDxg3Bg43pp/Hv397hwWfT8mciHws9eE4sR/",
        ),
        (
            "secret",
            "$6$my_salt$ErehmeNDVzHsPq/1stRnP5ODbL/ctrh5bF9EetnJ1UPI34i4C6miTVH6N7Kkx6dx9NflZQbY7CQ2HoF3RgsF.0",
        ),
        ("secret", "$5$$o1w7HPzHt8gHmL5zUzDkRqt6Az.BjDfkvuDNNLWnXx5"),
        (
            "secret",
            "$5$rounds=1000$$Obg7IOH5MYGbPhIPrPkPleaehbt86.IKR69wHoi1R94",
        ),
        (
            "secret",
            "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
        ),
        (
            "secret",
            "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        ),
        (
            "secret",
            "$2a$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        ),
        (
            "secret",
            "$y$j7T$F5Jx5fExrKuPp53xLKQ..1$duplC7uyW/zFNFHbTvMb4a6R4FZKyZj7WdnZISTXXP7",
        ),
        ("aVeryLongPassword", "xyakWxPiKaluY"),
        ("Grüße", "grsK2XGnKCCIk"),
        (LONG, "$1$longlong$PlRl6odioYGI.Lyaat05h."),
        (
            LONG,
            "$5$rounds=1000$longlong$vu/vl90FLFzOfyUuTUHYyle7KpAoKON7e6eYa8sPjS3",
        ),
        (
            LONG,
            "$6$rounds=1000$longlong$1ujv2ylquIWCCOBZ1NPio/5L5oDGBH3ZCbkyzr5gM38fEvSk/H2jPc13sdxdxdgOTeS0OT.VMn3Xg/q1fHGIo1",
        ),
        ("secret", "$apr1$saltsalt$LrttParrLPdxvgutaSXWJ0"),
        (LONG, "$apr1$saltsalt$sBTbdm8efpJLoYK8ddDUl1"),
        ("secret", "$apr1$ab$jiiV6N7hIIuIoJbc1hxOE/"),
        ("secret", "{PLAIN}secret"),
        ("secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
        ("secret", "{SSHA}gVK8WC9YyFT1gMsQHTGCgT3sSv5zYWx0"),
        ("secret", "{SSHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
    ];

    #[test]
    fn passwords_fit_what_was_made_of_them() {
        for (password, stored) in STORED {
            assert_eq!(
                fits(password.as_bytes(), stored.as_bytes()),
                Ok(true),
                "{stored}"
            );
            assert_eq!(fits(b"other", stored.as_bytes()), Ok(false), "{stored}");
            assert_eq!(fits(b"", stored.as_bytes()), Ok(false), "{stored}");
            let zero = [password.as_bytes(), b"\0x"].concat();
            assert_eq!(fits(&zero, stored.as_bytes()), Ok(false), "{stored}");
        }
    }

    #[test]
    fn what_is_broken_fits_nothing() {
        for stored in [
            "",
            "x",
            "*0",
            "$apr1$",
            "$apr1$salt",
            "$1$",
            "{SHA}",
            "{SHA}x",
            "{SSHA}",
            "{SSHA}Zm9v",
            "{SSHA}!!!",
            "{NONE}secret",
            "$5$",
            "$6$salt",
            "$6$salt$",
            "$6$rounds=x$salt$hash",
            "$6$rounds=999999999$salt$hash",
            // Of fewer rounds than the least, and of a number with a zero in front, crypt(3) makes no such text.
            "$6$rounds=10$salt$hash",
            "$6$rounds=01000$salt$hash",
            "$6$0123456789abcdefgh$8CGkKDSyVpVlVNcs5PssRw/Tb8EgfecuA6D/zsRQFumJaU.s8KgTWWc2HfgkB7h2n1qIKiJFeSyUFrwvhILXy.",
            "$2y$",
            "$2y$05$short",
            "$2y$31$abcdefghijklmnopqrstuu5cTJm0zIdVvs9zVCrUIcMWVOLVBZ5fG",
            "$y$",
            "$y$j9T$",
            "$y$j9T$salt$",
            "$y$jFT$salt$hash",
            "$7$C6..../....",
            "a",
            "a:b",
            "aa",
            "é123456789012",
        ] {
            for password in ["", "secret"] {
                let answer = fits(password.as_bytes(), stored.as_bytes());
                assert_ne!(answer, Ok(true), "{stored}");
            }
        }
    }

    #[test]
    fn no_stored_form_is_too_broken() {
        for (_, stored) in STORED {
            for at in (0..stored.len().min(40)).step_by(3) {
                let (before, behind) = stored.split_at(at);
                for broken in [
                    before.to_owned(),
                    format!("{before}é{behind}"),
                    format!("{before}é{}", &behind[1..]),
                    format!("{before}${behind}"),
                    format!("{before}\u{7f}{}", &behind[1..]),
                ] {
                    // Work that is asked for in earnest takes its time.
                    if broken.starts_with("{") || broken.len() < 14 || broken.contains('é') {
                        assert_ne!(fits(b"no", broken.as_bytes()), Ok(true), "{broken}");
                    }
                }
            }
        }
        for byte in 0..=255 {
            let bytes = [&b"$2y$05$"[..], &[byte; 53]].concat();
            assert_ne!(fits(b"no", &bytes), Ok(true), "{byte}");
        }
    }

    #[test]
    fn the_memory_of_a_check_is_known_before() {
        for (stored, bytes) in [
            ("$y$j.T$salt$hash", 8 << 10),
            ("$y$j9T$salt$hash", 16 << 20),
            ("$y$jCT$salt$hash", 128 << 20),
            ("$y$jDT$salt$hash", 0),
            ("$y$j9S$salt$hash", 0),
            ("$y$j", 0),
            ("$2y$05$salt", 0),
        ] {
            assert_eq!(memory_bytes(stored.as_bytes()), bytes, "{stored}");
        }
    }

    #[test]
    fn long_passwords_cost_nothing() {
        let long = [b'a'; PASSWORD_MAX + 1];
        assert_eq!(fits(&long, b"$6$salt$hash"), Ok(false));
    }
}
