//! The name of an entry: the MD5 of its key's text, and the path that follows from it.

use md5::{Digest, Md5};

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Maximum of levels of subdirectories.
pub const LEVELS_MAX: usize = 3;

/// Maximum length of a path below a cache directory.
pub(crate) const PATH_BYTES_MAX: usize = 2 * KEY_BYTES + 3 * LEVELS_MAX;

/// The key of an entry: the MD5 of the text that `proxy_cache_key` evaluates to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub [u8; KEY_BYTES]);

/// A subdirectory of a cache directory: the last hexadecimal digits of its entries' keys, behind a leading 1 that marks
/// their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Directory(u32);

/// The subdirectories of a cache directory: how many digits of a key name each level, from the key's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    digits: [u8; LEVELS_MAX],
}

impl Key {
    /// The key of a text.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        Self(Md5::digest(text).into())
    }

    /// Its 32 hexadecimal digits: the name of the entry's file.
    #[must_use]
    pub fn name(&self) -> String {
        self.digits().map(char::from).iter().collect()
    }

    fn digits(&self) -> [u8; 2 * KEY_BYTES] {
        let mut digits = [0; 2 * KEY_BYTES];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        digits
    }

    /// The key that a file name denotes; None if it is no such name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let digit = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let name: &[u8; 2 * KEY_BYTES] = name.try_into().ok()?;
        let mut key = [0; KEY_BYTES];
        for (byte, pair) in key.iter_mut().zip(name.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(key))
    }

    /// The path of the entry, relative to the cache directory: `c/29/b7f54b2df7773722d382f4809d65029c`.
    #[must_use]
    pub fn path(&self, levels: Levels) -> String {
        let mut path = Vec::with_capacity(PATH_BYTES_MAX);
        self.push_path(levels, &mut path);
        String::from_utf8(path).expect("it is digits and slashes")
    }

    /// Appends [`Key::path`] to `path`.
    pub(crate) fn push_path(&self, levels: Levels, path: &mut Vec<u8>) {
        let name = self.digits();
        let mut end = name.len();
        for digits in levels.digits.into_iter().filter(|digits| *digits > 0) {
            let begin = end - usize::from(digits);
            path.extend_from_slice(&name[begin..end]);
            path.push(b'/');
            end = begin;
        }
        path.extend_from_slice(&name);
    }

    /// The directories of its entry, the outermost first, each with the length of its path, which is a prefix of
    /// [`Key::path`].
    pub(crate) fn directories(&self, levels: Levels) -> impl Iterator<Item = (Directory, usize)> {
        let [.., a, b, c] = self.0;
        let (last, mut digits) = (u32::from_be_bytes([0, a, b, c]), 0);
        let levels = levels.digits.into_iter().filter(|more| *more > 0);
        levels.enumerate().map(move |(slashes, more)| {
            digits += u32::from(more);
            let one = 1 << (4 * digits);
            (Directory(one | last & (one - 1)), digits as usize + slashes)
        })
    }
}

impl Levels {
    /// The levels that place an entry at this path, relative to its cache directory. None: no levels do.
    #[must_use]
    pub fn of_path(key: &Key, path: &[u8]) -> Option<Self> {
        let mut levels = Self::default();
        let mut parts = path.split(|byte| *byte == b'/').peekable();
        let mut count = 0;
        while let Some(part) = parts.next() {
            if parts.peek().is_some() {
                *levels.digits.get_mut(count)? = u8::try_from(part.len()).ok()?;
                count += 1;
            }
        }
        let is_it = levels.digits[..count]
            .iter()
            .all(|one| matches!(one, 1 | 2))
            && key.path(levels).as_bytes() == path;
        is_it.then_some(levels)
    }

    /// All levels that `levels=` may name, those without any first.
    pub fn all() -> impl Iterator<Item = Self> {
        let of = |number: u8| [number % 3, number / 3 % 3, number / 9];
        let is_one = |digits: &[u8; LEVELS_MAX]| {
            let count = digits.iter().take_while(|one| **one > 0).count();
            digits[count..].iter().all(|one| *one == 0)
        };
        (0..27).map(of).filter(is_one).map(|digits| Self { digits })
    }

    /// Length of an entry's path, relative to its cache directory.
    pub(crate) fn path_len(self) -> usize {
        let levels = self.digits.iter().filter(|digits| **digits > 0);
        2 * KEY_BYTES + levels.map(|digits| usize::from(*digits) + 1).sum::<usize>()
    }

    /// Parses the value of `levels=`: up to three times `1` or `2`, separated by colons; nothing for no levels, as in
    /// nginx. `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut levels = Self::default();
        if text.is_empty() {
            return Some(levels);
        }
        for (index, digits) in text.split(':').enumerate() {
            *levels.digits.get_mut(index)? = match digits {
                "1" => 1,
                "2" => 2,
                _ => return None,
            };
        }
        Some(levels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_md5_of_its_text() {
        // RFC 1321, appendix A.5.
        assert_eq!(Key::of(b"abc").name(), "900150983cd24fb0d6963f7d28e17f72");
    }

    #[test]
    fn a_name_is_its_key() {
        let key = Key::of(b"abc");
        assert_eq!(Key::from_name(key.name().as_bytes()), Some(key));
        let others = [
            "",
            "900150983cd24fb0d6963f7d28e17f7",
            "900150983CD24FB0D6963F7D28E17F72",
        ];
        for other in others {
            assert_eq!(Key::from_name(other.as_bytes()), None);
        }
    }

    #[test]
    fn the_last_digits_name_the_directories() {
        let key = Key::of(b"abc");
        let path = |levels: &str| key.path(Levels::parse(levels).unwrap());
        assert_eq!(path("1:2"), "2/f7/900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(path("2:2:2"), "72/7f/e1/900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(key.path(Levels::default()), key.name());
    }

    #[test]
    fn a_path_says_its_levels() {
        let key = Key::of(b"abc");
        assert_eq!(Levels::all().count(), 15);
        for levels in Levels::all() {
            let path = key.path(levels);
            assert_eq!(
                Levels::of_path(&key, path.as_bytes()),
                Some(levels),
                "{path}"
            );
        }
        for other in [
            "3/f7/900150983cd24fb0d6963f7d28e17f72",
            "x",
            "",
            "a/b/c/d/e/f",
        ] {
            assert_eq!(Levels::of_path(&key, other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn directories_are_told_apart() {
        let key = Key::of(b"abc");
        let of = |levels: &str| key.directories(Levels::parse(levels).unwrap());
        let numbers = |levels| {
            of(levels)
                .map(|(directory, _)| directory.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers("1:2"), [0x12, 0x1f72]);
        assert_eq!(numbers("2:2:2"), [0x172, 0x1_7f72, 0x1e1_7f72]);
        let path = key.path(Levels::parse("1:2").unwrap());
        let paths = of("1:2").map(|(_, end)| &path[..end]);
        assert_eq!(paths.collect::<Vec<_>>(), ["2", "2/f7"]);
    }

    #[test]
    fn other_levels_are_none() {
        assert_eq!(Levels::parse(""), Some(Levels::default()));
        for text in [":", "3", "0", "1:", "1:2:1:1", "1,2", "12"] {
            assert_eq!(Levels::parse(text), None, "{text}");
        }
    }
}
