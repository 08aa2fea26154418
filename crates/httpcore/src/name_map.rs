//! Names, wildcards and regular expressions, each with a value: finds the value for a source string. Pure: the caller supplies the source's value and matches the regexes.
//!
//! Not here: evaluating the value found (it may contain variables) and caching it per request. Invariant, nginx's
//! order: exact name, longest `*.x`, longest `x.*`, then the regexes in file order, then the default.

use hashbrown::HashMap;
use smallvec::SmallVec;

/// Maximum number of names and regexes in one map.
pub const ENTRIES_MAX: usize = 1 << 24;
/// Sources up to this length are lower-cased on the stack.
const SOURCE_INLINE: usize = 128;

/// The reason why a line of a `map` is refused; the texts are nginx's.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Problem {
    /// A wildcard in the wrong place, or an empty label, in a map of host names.
    #[error("invalid hostname or wildcard \"{0}\"")]
    Hostname(String),
    /// The same key twice.
    #[error("conflicting parameter \"{0}\"")]
    Conflict(String),
    /// Two defaults.
    #[error("duplicate default map parameter")]
    Default,
    /// More than [`ENTRIES_MAX`] lines.
    #[error("too many lines in \"map\"")]
    TooMany,
}

/// The key of a line.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Key<'a> {
    /// `default`: the value when nothing matches.
    Default,
    /// `~pattern` or `~*pattern`.
    Regex {
        /// Without the signs in front.
        pattern: &'a [u8],
        /// Whether letters match in either case (`~*`).
        caseless: bool,
    },
    /// A string, with the backslash that made it literal taken off.
    Name(&'a [u8]),
}

impl<'a> Key<'a> {
    /// Reads the first word of a line (the caller has dealt with `hostnames`, `volatile` and `include`).
    #[must_use]
    pub fn new(word: &'a [u8]) -> Self {
        match word {
            b"default" => Self::Default,
            [b'~', b'*', pattern @ ..] => Self::Regex {
                pattern,
                caseless: true,
            },
            [b'~', pattern @ ..] => Self::Regex {
                pattern,
                caseless: false,
            },
            [b'\\', name @ ..] => Self::Name(name),
            name => Self::Name(name),
        }
    }
}

/// A map; `V` is a value, `R` a compiled regex.
#[derive(Debug)]
pub struct Map<V, R> {
    /// Whether names may be wildcards, and a trailing dot of the source is ignored.
    hostnames: bool,
    exact: HashMap<Box<[u8]>, V>,
    /// `*.example.com` under `example.com`.
    head: HashMap<Box<[u8]>, Head<V>>,
    /// `example.*` under `example`.
    tail: HashMap<Box<[u8]>, V>,
    regexes: Vec<(R, V)>,
    default: Option<V>,
}

#[derive(Debug)]
struct Head<V> {
    value: V,
    /// Written `.example.com`: the name itself matches too.
    bare: bool,
}

impl<V, R> Map<V, R> {
    /// An empty map.
    #[must_use]
    pub fn new(hostnames: bool) -> Self {
        Self {
            hostnames,
            exact: HashMap::new(),
            head: HashMap::new(),
            tail: HashMap::new(),
            regexes: Vec::new(),
            default: None,
        }
    }

    /// Sets whether the map's names are host names (`hostnames;` stands before the lines that it changes).
    pub fn set_hostnames(&mut self) {
        self.hostnames = true;
    }

    /// Sets the value when nothing matches.
    ///
    /// # Errors
    /// There is one already.
    pub fn set_default(&mut self, value: V) -> Result<(), Problem> {
        if self.default.is_some() {
            return Err(Problem::Default);
        }
        self.default = Some(value);
        Ok(())
    }

    /// Adds a regex after the existing ones.
    ///
    /// # Errors
    /// The map is full.
    pub fn add_regex(&mut self, regex: R, value: V) -> Result<(), Problem> {
        self.check_room()?;
        self.regexes.push((regex, value));
        Ok(())
    }

    /// Adds a name, or with `hostnames` a wildcard.
    ///
    /// # Errors
    /// The name is there already, is no host name, or the map is full.
    pub fn add_name(&mut self, name: &[u8], value: V) -> Result<(), Problem> {
        self.check_room()?;
        let lower = name.to_ascii_lowercase();
        let fresh = if !self.hostnames {
            insert(&mut self.exact, &lower, value)
        } else if !is_hostname(&lower) {
            return Err(Problem::Hostname(lossy(name)));
        } else {
            match lower.as_slice() {
                [b'.', rest @ ..] if !rest.is_empty() => {
                    // It stands for the bare name too, which must not be there as an entry of its own.
                    !self.exact.contains_key(rest)
                        && insert(&mut self.head, rest, Head { value, bare: true })
                }
                [b'*', b'.', rest @ ..] if !rest.is_empty() => {
                    insert(&mut self.head, rest, Head { value, bare: false })
                }
                [rest @ .., b'.', b'*'] if !rest.is_empty() => insert(&mut self.tail, rest, value),
                whole if whole.contains(&b'*') => return Err(Problem::Hostname(lossy(name))),
                whole => {
                    !self.head.get(whole).is_some_and(|head| head.bare)
                        && insert(&mut self.exact, whole, value)
                }
            }
        };
        if fresh {
            Ok(())
        } else {
            Err(Problem::Conflict(lossy(name)))
        }
    }

    /// The value for a source string; `matches` tells whether a regex matches it. `None` without a default: an empty
    /// value.
    ///
    /// # Errors
    /// That of a match, which ends the search.
    pub fn find<E>(
        &self,
        source: &[u8],
        matches: impl FnMut(&R, &[u8]) -> Result<bool, E>,
    ) -> Result<Option<&V>, E> {
        self.find_whole(
            match source {
                [rest @ .., b'.'] if self.hostnames => rest,
                whole => whole,
            },
            matches,
        )
    }

    /// Like [`Map::find`], but a trailing dot is significant.
    ///
    /// # Errors
    /// As [`Map::find`].
    pub fn find_whole<E>(
        &self,
        source: &[u8],
        mut matches: impl FnMut(&R, &[u8]) -> Result<bool, E>,
    ) -> Result<Option<&V>, E> {
        let mut lower: SmallVec<[u8; SOURCE_INLINE]> = SmallVec::from_slice(source);
        lower.make_ascii_lowercase();
        if let Some(value) = self.find_name(&lower) {
            return Ok(Some(value));
        }
        // nginx tries no regex on an empty source.
        for (regex, value) in self.regexes.iter().filter(|_| !source.is_empty()) {
            if matches(regex, source)? {
                return Ok(Some(value));
            }
        }
        Ok(self.default())
    }

    /// The value where nothing matches.
    #[must_use]
    pub fn default(&self) -> Option<&V> {
        self.default.as_ref()
    }

    fn find_name(&self, name: &[u8]) -> Option<&V> {
        if let Some(value) = self.exact.get(name) {
            return Some(value);
        }
        if !self.head.is_empty()
            && let Some(value) = self.find_head(name)
        {
            return Some(value);
        }
        if self.tail.is_empty() {
            return None;
        }
        let dots = memchr::memrchr_iter(b'.', name);
        dots.filter_map(|dot| self.tail.get(&name[..dot])).next()
    }

    fn find_head(&self, name: &[u8]) -> Option<&V> {
        if let Some(head) = self.head.get(name).filter(|head| head.bare) {
            return Some(&head.value);
        }
        let dots = memchr::memchr_iter(b'.', name);
        dots.filter_map(|dot| self.head.get(&name[dot + 1..]))
            .map(|head| &head.value)
            .next()
    }

    fn check_room(&self) -> Result<(), Problem> {
        let entries = self.exact.len() + self.head.len() + self.tail.len() + self.regexes.len();
        if entries < ENTRIES_MAX {
            Ok(())
        } else {
            Err(Problem::TooMany)
        }
    }
}

/// Whether a name may stand in a map of host names: one wildcard at most, no empty label, no NUL.
fn is_hostname(name: &[u8]) -> bool {
    name.iter().filter(|byte| **byte == b'*').count() <= 1
        && !name.windows(2).any(|pair| pair == b"..")
        && !name.contains(&0)
}

fn insert<V>(table: &mut HashMap<Box<[u8]>, V>, name: &[u8], value: V) -> bool {
    match table.entry(name.into()) {
        hashbrown::hash_map::Entry::Occupied(_) => false,
        hashbrown::hash_map::Entry::Vacant(place) => {
            place.insert(value);
            true
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcre2::bytes::{Regex, RegexBuilder};

    fn map(
        hostnames: bool,
        lines: &[(&str, &'static str)],
    ) -> Result<Map<&'static str, Regex>, Problem> {
        let mut map = Map::new(hostnames);
        for (word, value) in lines {
            match Key::new(word.as_bytes()) {
                Key::Default => map.set_default(*value)?,
                Key::Regex { pattern, caseless } => {
                    let pattern = std::str::from_utf8(pattern).unwrap();
                    map.add_regex(
                        RegexBuilder::new()
                            .caseless(caseless)
                            .build(pattern)
                            .unwrap(),
                        *value,
                    )?;
                }
                Key::Name(name) => map.add_name(name, *value)?,
            }
        }
        Ok(map)
    }

    fn find<'a>(map: &'a Map<&'static str, Regex>, source: &str) -> &'a str {
        let found = map.find(source.as_bytes(), |regex, text| regex.is_match(text));
        found.unwrap().copied().unwrap_or("")
    }

    #[test]
    fn host_names_exact_wildcards_and_regexes_in_nginx_s_order() {
        let map = map(
            true,
            &[
                ("default", "0"),
                ("example.com", "exact"),
                ("example.*", "tail"),
                ("*.example.com", "head"),
                ("*.deep.example.com", "deeper"),
                (".dot.example.com", "both"),
                (r"~^REGEX\.ORG$", "sensitive"),
                (r"~*^www\.regex\.org$", "caseless"),
                (r"~^www", "late"),
                (r"\include", "literal"),
                (r"\default", "named default"),
            ],
        )
        .unwrap();
        for (source, value) in [
            ("1", "0"),
            ("", "0"),
            ("example.com", "exact"),
            ("EXAMPLE.COM", "exact"),
            ("example.com.", "exact"),
            ("example.org", "tail"),
            ("example.co.uk", "tail"),
            ("example", "0"),
            ("foo.example.com", "head"),
            ("foo.example.com.", "head"),
            ("a.b.deep.example.com", "deeper"),
            ("deep.example.com", "head"),
            ("dot.example.com", "both"),
            ("www.dot.example.com", "both"),
            ("REGEX.ORG", "sensitive"),
            ("regex.org", "0"),
            ("WWW.REGEX.ORG", "caseless"),
            ("www.else", "late"),
            ("include", "literal"),
            ("default", "named default"),
        ] {
            assert_eq!(find(&map, source), value, "{source:?}");
        }
    }

    #[test]
    fn without_hostnames_names_are_plain_strings() {
        let map = map(
            false,
            &[
                ("*.x", "star"),
                ("a..b", "dots"),
                ("~.", "any"),
                (r"\~t", "tilde"),
            ],
        )
        .unwrap();
        for (source, value) in [
            ("*.x", "star"),
            ("y.x", "any"),
            ("A..B", "dots"),
            ("~t", "tilde"),
            ("", ""),
        ] {
            assert_eq!(find(&map, source), value, "{source:?}");
        }
    }

    #[test]
    fn wrong_lines_are_refused_with_nginx_s_words() {
        let refused = |lines: &[(&str, &'static str)]| map(true, lines).unwrap_err().to_string();
        for name in ["a..b", "a.*.b", "*.a.*", "*", "*a"] {
            assert_eq!(
                refused(&[(name, "v")]),
                format!("invalid hostname or wildcard \"{name}\"")
            );
        }
        assert_eq!(
            refused(&[("a", "v"), ("A", "w")]),
            "conflicting parameter \"A\""
        );
        assert_eq!(
            refused(&[("a.b", "v"), (".a.b", "w")]),
            "conflicting parameter \".a.b\""
        );
        assert_eq!(
            refused(&[(".a.b", "v"), ("a.b", "w")]),
            "conflicting parameter \"a.b\""
        );
        assert_eq!(
            refused(&[("*.a", "v"), (".a", "w")]),
            "conflicting parameter \".a\""
        );
        assert_eq!(
            refused(&[("a.*", "v"), ("a.*", "w")]),
            "conflicting parameter \"a.*\""
        );
        assert_eq!(
            refused(&[("default", "v"), ("default", "w")]),
            "duplicate default map parameter"
        );
    }
}
