//! `ssl_ecdh_curve`: names of groups for the key exchange, and which of them are offered here.

use crate::Error;
use crate::suites::protocols::Offer;
use rustls::NamedGroup;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::kx_group;

/// Maximum of groups in a list.
pub const GROUPS_MAX: usize = 64;

/// A group that OpenSSL knows.
struct Known {
    id: u16,
    /// The name in variables.
    name: &'static str,
    /// Other names, compared without regard to case, as all are.
    others: &'static [&'static str],
}

const fn known(id: u16, name: &'static str, others: &'static [&'static str]) -> Known {
    Known { id, name, others }
}

const KNOWN: [Known; 41] = [
    known(0x11ec, "X25519MLKEM768", &[]),
    known(0x11eb, "SecP256r1MLKEM768", &[]),
    known(0x11ed, "SecP384r1MLKEM1024", &[]),
    known(0x0200, "MLKEM512", &[]),
    known(0x0201, "MLKEM768", &[]),
    known(0x0202, "MLKEM1024", &[]),
    known(29, "X25519", &["ecdh_x25519"]),
    known(30, "X448", &["ecdh_x448"]),
    known(23, "prime256v1", &["P-256", "secp256r1"]),
    known(24, "secp384r1", &["P-384"]),
    known(25, "secp521r1", &["P-521"]),
    known(26, "brainpoolP256r1", &[]),
    known(27, "brainpoolP384r1", &[]),
    known(28, "brainpoolP512r1", &[]),
    known(256, "ffdhe2048", &[]),
    known(257, "ffdhe3072", &[]),
    known(258, "ffdhe4096", &[]),
    known(259, "ffdhe6144", &[]),
    known(260, "ffdhe8192", &[]),
    // RFC 8422, 5.1.1, took these back; OpenSSL still reads their names.
    known(1, "sect163k1", &["K-163"]),
    known(2, "sect163r1", &[]),
    known(3, "sect163r2", &["B-163"]),
    known(4, "sect193r1", &[]),
    known(5, "sect193r2", &[]),
    known(6, "sect233k1", &["K-233"]),
    known(7, "sect233r1", &["B-233"]),
    known(8, "sect239k1", &[]),
    known(9, "sect283k1", &["K-283"]),
    known(10, "sect283r1", &["B-283"]),
    known(11, "sect409k1", &["K-409"]),
    known(12, "sect409r1", &["B-409"]),
    known(13, "sect571k1", &["K-571"]),
    known(14, "sect571r1", &["B-571"]),
    known(15, "secp160k1", &[]),
    known(16, "secp160r1", &[]),
    known(17, "secp160r2", &[]),
    known(18, "secp192k1", &[]),
    known(19, "prime192v1", &["P-192", "secp192r1"]),
    known(20, "secp224k1", &[]),
    known(21, "secp224r1", &["P-224"]),
    known(22, "secp256k1", &[]),
];
/// A group with keys that quantum computers do not find, then the fast one, then the usual ones.
const DEFAULT: [u16; 4] = [0x11ec, 29, 23, 24];

/// Groups that a configuration offers, the one that it likes best first.
pub type Groups = Vec<&'static dyn SupportedKxGroup>;

/// The groups of a list: `auto`, or names between colons.
///
/// # Errors
/// A name is none, or none of them is offered.
pub fn read(list: &str) -> Result<Offer<Groups>, Error> {
    let fault = |name: &str| Error::NoGroup {
        list: list.to_owned(),
        name: name.to_owned(),
    };
    let mut offer = Offer {
        chosen: Groups::new(),
        left_out: Vec::new(),
    };
    if list == "auto" {
        offer.chosen = default_groups();
        return Ok(offer);
    }
    // OpenSSL 3.5 has lists of lists, and marks a group for which a client's first share is made.
    let names = list
        .split([':', '/'])
        .map(|name| name.trim_start_matches('*'));
    for name in names.take(GROUPS_MAX) {
        let (is_optional, name) = match name.strip_prefix('?') {
            Some(name) => (true, name.trim_start_matches('*')),
            None => (false, name),
        };
        match find(name) {
            Some(known) => take(known, &mut offer),
            None if name.eq_ignore_ascii_case("DEFAULT") => offer.chosen.extend(default_groups()),
            None if is_optional => {}
            None => return Err(fault(name)),
        }
    }
    if offer.chosen.is_empty() {
        Err(fault(list))
    } else {
        Ok(offer)
    }
}

fn find(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| {
        let others = known.others.iter();
        known.name.eq_ignore_ascii_case(name)
            || others
                .into_iter()
                .any(|other| other.eq_ignore_ascii_case(name))
    })
}

fn take(known: &Known, offer: &mut Offer<Groups>) {
    match offered(known.id) {
        None => offer.left_out.push(known.name.to_owned()),
        Some(group) => {
            if offer
                .chosen
                .iter()
                .all(|other| other.name() != group.name())
            {
                offer.chosen.push(group);
            }
        }
    }
}

pub(crate) fn default_groups() -> Groups {
    DEFAULT.into_iter().filter_map(offered).collect()
}

/// The group with a number, where it is offered.
fn offered(id: u16) -> Option<&'static dyn SupportedKxGroup> {
    Some(match NamedGroup::from(id) {
        NamedGroup::X25519 => kx_group::X25519,
        NamedGroup::secp256r1 => kx_group::SECP256R1,
        NamedGroup::secp384r1 => kx_group::SECP384R1,
        NamedGroup::X25519MLKEM768 => kx_group::X25519MLKEM768,
        NamedGroup::secp256r1MLKEM768 => kx_group::SECP256R1MLKEM768,
        NamedGroup::MLKEM768 => kx_group::MLKEM768,
        NamedGroup::MLKEM1024 => kx_group::MLKEM1024,
        _ => return None,
    })
}

/// A group's name in variables: `prime256v1`.
#[must_use]
pub fn group_name(id: u16) -> Option<&'static str> {
    KNOWN
        .iter()
        .find(|known| known.id == id)
        .map(|known| known.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(list: &str) -> Vec<u16> {
        let groups = read(list).unwrap().chosen;
        groups.iter().map(|group| u16::from(group.name())).collect()
    }

    #[test]
    fn lists_keep_their_order() {
        assert_eq!(ids("auto"), DEFAULT);
        assert_eq!(ids("P-384:prime256v1:x25519:secp384r1"), [24, 23, 29]);
        assert_eq!(ids("?new:*X25519/P-256"), [29, 23]);
        assert_eq!(ids("secp256r1mlkem768:MLKEM1024"), [0x11eb, 0x202]);
    }

    #[test]
    fn each_group_is_known_once() {
        let names = KNOWN.iter().flat_map(|known| {
            let others = known.others.iter().copied();
            others.chain([known.name]).map(str::to_ascii_lowercase)
        });
        let names: Vec<_> = names.collect();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        let numbers: std::collections::BTreeSet<_> = KNOWN.iter().map(|known| known.id).collect();
        assert_eq!(numbers.len(), KNOWN.len());
    }

    #[test]
    fn what_is_not_offered_is_named() {
        let offer = read("X25519:secp521r1:X448").unwrap();
        assert_eq!(offer.left_out, ["secp521r1", "X448"]);
        let offer = read("P-384:sect571r1:b-409:secp192r1").unwrap();
        assert_eq!(offer.left_out, ["sect571r1", "sect409r1", "prime192v1"]);
        assert!(read("secp521r1").is_err());
        assert!(read("sect571r1:secp256k1").is_err());
        assert!(read("X25519:foo").is_err());
    }
}
