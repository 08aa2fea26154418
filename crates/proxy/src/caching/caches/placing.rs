//! The disk of a key, where a cache has several: by rendezvous hashing (highest random weight).
//!
//! Each pair of a key and a directory has a weight; the key's place is the directory with the highest one. So the keys
//! of a directory that is added come from all others evenly, and those of one that is removed, or out, go to all others;
//! no other key moves. The order of the directories in the configuration does not matter.

use std::sync::Arc;

use cache::Key;

use crate::caching::caches::open_cache::Cache;

/// What a directory adds to the hash of a key.
#[must_use]
pub fn seed(directory: &[u8]) -> u64 {
    let (low, high) = halves(&Key::of(directory));
    low ^ high
}

/// The cache of a key among those of several disks: one that is out has no keys, unless all are.
#[must_use]
pub(crate) fn of<'a>(disks: &'a [Arc<Cache>], key_text: &[u8]) -> &'a Arc<Cache> {
    if let [only] = disks {
        return only;
    }
    let key = Key::of(key_text);
    let heaviest = |disks: &mut dyn Iterator<Item = &'a Arc<Cache>>| {
        disks.max_by_key(|cache| weight(&key, cache.seed))
    };
    let usable = heaviest(&mut disks.iter().filter(|cache| !cache.disk.is_out()));
    let any = usable.or_else(|| heaviest(&mut disks.iter()));
    any.expect("a cache has a disk")
}

/// The place of the key's directory among these, all of them being well.
#[must_use]
pub fn place<'a>(key: &Key, directories: impl Iterator<Item = &'a [u8]>) -> Option<usize> {
    let weights = directories.map(|directory| weight(key, seed(directory)));
    let heaviest = weights.enumerate().max_by_key(|(_, weight)| *weight)?;
    Some(heaviest.0)
}

fn weight(key: &Key, seed: u64) -> u64 {
    let (low, high) = halves(key);
    mix(mix(low ^ seed) ^ high)
}

fn halves(key: &Key) -> (u64, u64) {
    let whole = u128::from_le_bytes(key.0);
    (whole as u64, (whole >> 64) as u64)
}

/// The finalizer of splitmix64: every bit of the input changes half of the bits of the result.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: usize = 10_000;

    fn places(directories: &[&str]) -> Vec<usize> {
        let key = |number: usize| Key::of(format!("http://a/{number}").as_bytes());
        let bytes = || directories.iter().map(|directory| directory.as_bytes());
        (0..KEYS)
            .map(|number| place(&key(number), bytes()).expect("there are some"))
            .collect()
    }

    #[test]
    fn keys_are_spread_evenly_and_only_those_of_a_disk_that_goes_move() {
        let before = places(&["/d1", "/d2", "/d3", "/d4"]);
        for disk in 0..4 {
            let share = before.iter().filter(|place| **place == disk).count();
            assert!((2300..2700).contains(&share), "{disk}: {share}");
        }
        let after = places(&["/d1", "/d2", "/d4"]);
        let name = |place: usize| [0, 1, 3][place];
        for (before, after) in before.iter().zip(&after) {
            assert!(*before == 2 || *before == name(*after));
        }
        let taken = |disk| {
            let pairs = before.iter().zip(&after);
            pairs
                .filter(|(before, after)| **before == 2 && name(**after) == disk)
                .count()
        };
        for disk in [0, 1, 3] {
            assert!(taken(disk) > 700, "{disk}: {}", taken(disk));
        }
    }

    #[test]
    fn the_order_of_the_directories_does_not_matter() {
        let (one, other) = (places(&["/d1", "/d2"]), places(&["/d2", "/d1"]));
        assert!(one.iter().zip(other).all(|(one, other)| *one == 1 - other));
    }
}
