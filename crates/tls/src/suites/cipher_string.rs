//! OpenSSL's cipher strings (`openssl-ciphers(1)`): `HIGH:!aNULL`, `EECDH+AESGCM:-RSA`, `DEFAULT:@STRENGTH`.
//!
//! A string is carried out on OpenSSL's own list of all suites, so that the order of what is left is OpenSSL's; then
//! what is not offered here is left out. Not here: TLS 1.3, which cipher strings say nothing of.
//! Invariant: work is bounded by [`STRING_BYTES_MAX`] times the number of suites.

use crate::suites::table::{Cipher, ciphers};

/// Maximum length of a cipher string in bytes.
pub const STRING_BYTES_MAX: usize = 16_384;
const SECURITY_LEVEL_MAX: u8 = 5;
const DEFAULT: &str = "ALL:!COMPLEMENTOFDEFAULT:!eNULL";

/// A suite in the list, and whether it is chosen.
#[derive(Clone, Copy)]
struct Entry {
    cipher: &'static Cipher,
    is_active: bool,
}

/// What a word does with the suites that it names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Add,
    /// `-`: out, may come back.
    Remove,
    /// `!`: out for good.
    Kill,
    /// `+`: to the end.
    Last,
}

/// The ids of the suites that a string chooses, in order, whether offered here or not. `None`: the string is no cipher
/// string.
pub(crate) fn expand(string: &str) -> Option<Vec<u16>> {
    if string.len() > STRING_BYTES_MAX {
        return None;
    }
    let entry = |cipher| Entry {
        cipher,
        is_active: false,
    };
    let mut list = List(ciphers().iter().map(entry).collect());
    let rest = match suite_b(string) {
        Some(instead) => instead,
        None => match string.strip_prefix("DEFAULT") {
            Some(rest) => {
                list.run(DEFAULT)?;
                rest.strip_prefix(':').unwrap_or(rest)
            }
            None => string,
        },
    };
    list.run(rest)?;
    let active = list.0.iter().filter(|entry| entry.is_active);
    Some(active.map(|entry| entry.cipher.id).collect())
}

/// RFC 6460's words, which stand alone.
fn suite_b(string: &str) -> Option<&'static str> {
    match string {
        "SUITEB128" => Some("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384"),
        "SUITEB128ONLY" => Some("ECDHE-ECDSA-AES128-GCM-SHA256"),
        "SUITEB192" => Some("ECDHE-ECDSA-AES256-GCM-SHA384"),
        _ => None,
    }
}

struct List(Vec<Entry>);

impl List {
    /// Carries out a string; `None` if one of its words is no word.
    fn run(&mut self, string: &str) -> Option<()> {
        let is_separator = |c: char| matches!(c, ':' | ' ' | ';' | ',');
        string
            .split(is_separator)
            .filter(|item| !item.is_empty())
            .try_for_each(|item| self.item(item))
    }

    /// What stands between two separators: mostly a word. `!` and `@` begin another one (`!RSA!aNULL`), which is left out
    /// behind a command and behind a word that names nothing.
    fn item(&mut self, item: &str) -> Option<()> {
        let mut rest = item;
        while let Some(first) = rest.chars().next() {
            let end = rest[first.len_utf8()..].find(['!', '@']);
            let (word, next) = rest.split_at(end.map_or(rest.len(), |end| end + first.len_utf8()));
            self.word(word)?;
            let names = word.trim_start_matches(['-', '!', '+']);
            if word.starts_with('@') || !ciphers().iter().any(|cipher| is_meant(cipher, names)) {
                break;
            }
            rest = next;
        }
        Some(())
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let (rule, names) = match word.as_bytes()[0] {
            b'-' => (Rule::Remove, &word[1..]),
            b'!' => (Rule::Kill, &word[1..]),
            b'+' => (Rule::Last, &word[1..]),
            b'@' => return self.command(&word[1..]),
            _ => (Rule::Add, word),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '=' | '_');
        let is_word = names
            .split('+')
            .all(|name| !name.is_empty() && name.chars().all(is_name));
        is_word.then(|| self.apply(rule, |cipher| is_meant(cipher, names)))
    }

    fn command(&mut self, command: &str) -> Option<()> {
        if let Some(level) = command.strip_prefix("SECLEVEL=") {
            let level: u8 = level.parse().ok()?;
            return (level <= SECURITY_LEVEL_MAX).then(|| self.secure(level));
        }
        (command == "STRENGTH").then(|| self.sort())
    }

    /// What a security level takes away of what could be offered here: ciphers with too few bits.
    fn secure(&mut self, level: u8) {
        let bits = match level {
            0..=3 => 0,
            4 => 192,
            _ => 256,
        };
        self.0.retain(|entry| entry.cipher.bits >= bits);
    }

    /// The strongest first, otherwise as they are.
    fn sort(&mut self) {
        let mut strengths: Vec<u16> = self.0.iter().map(|entry| entry.cipher.bits).collect();
        strengths.sort_unstable();
        strengths.dedup();
        for bits in strengths.into_iter().rev() {
            self.apply(Rule::Last, |cipher| cipher.bits == bits);
        }
    }

    fn apply(&mut self, rule: Rule, is_meant: impl Fn(&Cipher) -> bool) {
        let takes = |entry: &Entry| {
            let is_in_state = match rule {
                Rule::Add => !entry.is_active,
                Rule::Remove | Rule::Last => entry.is_active,
                Rule::Kill => true,
            };
            is_in_state && is_meant(entry.cipher)
        };
        let (mut taken, mut rest): (Vec<Entry>, Vec<Entry>) =
            self.0.iter().copied().partition(takes);
        for entry in &mut taken {
            entry.is_active = rule != Rule::Remove;
        }
        self.0 = match rule {
            Rule::Kill => rest,
            Rule::Remove => {
                taken.append(&mut rest);
                taken
            }
            Rule::Add | Rule::Last => {
                rest.append(&mut taken);
                rest
            }
        };
    }
}

/// Whether a suite is meant by all of the names between `+`.
fn is_meant(cipher: &Cipher, names: &str) -> bool {
    let mut names = names.split('+');
    names.all(|name| name == cipher.name || name == cipher.standard_name || is_of(cipher, name))
}

/// Whether a suite belongs to the group of suites with this name.
fn is_of(cipher: &Cipher, group: &str) -> bool {
    let exchange = |name: &str| cipher.key_exchange == name;
    let authentication = |name: &str| cipher.authentication == name;
    let encryption = |name: &str| cipher.encryption == name;
    let is_anonymous = authentication("None");
    let is_aes = encryption("AES") || encryption("AESGCM") || is_ccm(cipher);
    match group {
        "ALL" => !encryption("None"),
        "COMPLEMENTOFALL" | "eNULL" | "NULL" => encryption("None"),
        "COMPLEMENTOFDEFAULT" => !cipher.is_default && !encryption("None"),
        "HIGH" => !encryption("None"),
        "FIPS" => is_aes || (encryption("None") && cipher.mac != "MD5"),
        "kRSA" | "RSA" => exchange("RSA"),
        "kDHE" | "kEDH" | "DH" => exchange("DH"),
        "DHE" | "EDH" => exchange("DH") && !is_anonymous,
        "ADH" => exchange("DH") && is_anonymous,
        "kECDHE" | "kEECDH" | "ECDH" => exchange("ECDH"),
        "ECDHE" | "EECDH" => exchange("ECDH") && !is_anonymous,
        "AECDH" => exchange("ECDH") && is_anonymous,
        "PSK" => cipher.key_exchange.ends_with("PSK"),
        "kPSK" | "kRSAPSK" | "kDHEPSK" | "kECDHEPSK" | "kSRP" => exchange(&group[1..]),
        "SRP" => exchange("SRP"),
        "aNULL" => is_anonymous,
        "aRSA" | "aDSS" | "aECDSA" | "aPSK" | "aSRP" => authentication(&group[1..]),
        "DSS" | "ECDSA" => authentication(group),
        "AES" => is_aes,
        "AES128" => is_aes && cipher.bits == 128,
        "AES256" => is_aes && cipher.bits == 256,
        "AESGCM" | "ARIAGCM" | "CHACHA20" | "CAMELLIA" => encryption(group),
        "AESCCM" => is_ccm(cipher),
        "AESCCM8" => encryption("AESCCM8"),
        "ARIA" => encryption("ARIAGCM"),
        "ARIA128" | "CAMELLIA128" => cipher.bits == 128 && is_kind(cipher, group),
        "ARIA256" | "CAMELLIA256" => cipher.bits == 256 && is_kind(cipher, group),
        "CBC" => encryption("AES") || encryption("CAMELLIA"),
        "MD5" | "SHA256" | "SHA384" | "SHA1" => cipher.mac == group,
        "SHA" => cipher.mac == "SHA1",
        "SSLv3" | "TLSv1" | "TLSv1.2" => cipher.version == group,
        "TLSv1.0" => cipher.version == "TLSv1",
        _ => false,
    }
}

fn is_ccm(cipher: &Cipher) -> bool {
    cipher.encryption.starts_with("AESCCM")
}

fn is_kind(cipher: &Cipher, group: &str) -> bool {
    cipher.encryption.starts_with(&group[..group.len() - 3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::table::cipher_name;

    /// The names of what is left, of the suites that end so.
    fn names(string: &str, end: &str) -> Vec<&'static str> {
        let ids = expand(string).unwrap().into_iter();
        let names = ids.map(|id| cipher_name(id).unwrap());
        names.filter(|name| name.ends_with(end)).collect()
    }

    #[test]
    fn order_is_the_strings() {
        assert_eq!(
            names(
                "ECDHE-RSA-AES128-GCM-SHA256 ECDHE-RSA-AES256-GCM-SHA384,x:y",
                ""
            ),
            ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"]
        );
        assert_eq!(
            names("EECDH+AESGCM:+ECDSA", ""),
            [
                "ECDHE-RSA-AES256-GCM-SHA384",
                "ECDHE-RSA-AES128-GCM-SHA256",
                "ECDHE-ECDSA-AES256-GCM-SHA384",
                "ECDHE-ECDSA-AES128-GCM-SHA256",
            ]
        );
        assert_eq!(
            names("ECDHE+aRSA+AES128+AESGCM:ECDHE+aRSA+AESGCM:@STRENGTH", ""),
            ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"]
        );
    }

    #[test]
    fn what_is_killed_stays_away() {
        assert_eq!(names("ALL:!CHACHA20:CHACHA20", "POLY1305"), [""; 0]);
        assert_eq!(
            names("ALL:-CHACHA20:ECDHE+aRSA+CHACHA20", "POLY1305").len(),
            1
        );
        assert!(
            names("HIGH:!aNULL:!MD5", "")
                .iter()
                .all(|name| !name.starts_with("ADH"))
        );
        assert!(names("DEFAULT:!kRSA", "").len() < names("DEFAULT", "").len());
        assert_eq!(
            names("EECDH:!RSA!aNULL!CHACHA20", ""),
            names("EECDH:!RSA:!aNULL:!CHACHA20", "")
        );
        assert_eq!(
            names("EECDH:!nothing!CHACHA20", ""),
            names("EECDH", ""),
            "nothing is read behind a word that names nothing"
        );
    }

    #[test]
    fn other_strings_are_none() {
        for string in ["@NOTHING", "HIGH:*", "!", "@SECLEVEL=6", "a+", "ü"] {
            assert_eq!(expand(string), None, "{string}");
        }
        assert_eq!(expand("nothing:known"), Some(vec![]));
        assert_eq!(
            expand("@SECLEVEL=2:AES128+AESGCM:@SECLEVEL=5"),
            Some(vec![])
        );
        assert_eq!(expand("SUITEB192").unwrap(), [0xc02c]);
    }
}
