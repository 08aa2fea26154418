//! The source that the master reads a configuration from: the file system, or for `serve` a text of its own.
//!
//! Not here: what the texts mean. Invariant: only files that the configuration names are read.
#![expect(
    clippy::disallowed_methods,
    reason = "only the master reads configurations, and it runs no loop"
)]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Paths that one pattern may match.
pub const MATCHES_MAX: usize = 100_000;

/// The file system, with one text put in the place of a file.
#[derive(Debug, Default)]
pub struct Files {
    /// A text that stands for the file of this name.
    pub instead: Option<(PathBuf, Vec<u8>)>,
}

impl config::TextSource for Files {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        match &self.instead {
            Some((name, text)) if name == path => Ok(text.clone()),
            _ => std::fs::read(path),
        }
    }

    fn glob(&mut self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        let mut found = vec![PathBuf::new()];
        for component in pattern.components() {
            found = match component {
                Component::Normal(name) if is_pattern(name) => matches(&found, name)?,
                _ => found.into_iter().map(|path| path.join(component)).collect(),
            };
        }
        found.retain(|path| std::fs::symlink_metadata(path).is_ok());
        found.sort();
        Ok(found)
    }

    fn variable(&mut self, name: &str) -> Option<Vec<u8>> {
        std::env::var_os(name).map(OsString::into_vec)
    }
}

fn is_pattern(name: &OsStr) -> bool {
    name.as_bytes().iter().any(|byte| b"*?[\\".contains(byte))
}

fn matches(directories: &[PathBuf], pattern: &OsStr) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for directory in directories {
        let place = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        // glob(3) passes over what it cannot look into, as it does over what is not there.
        let Ok(entries) = std::fs::read_dir(place) else {
            continue;
        };
        for entry in entries {
            let name: OsString = entry?.file_name();
            if fits(pattern.as_bytes(), name.as_bytes()) {
                found.push(directory.join(name));
            }
            if found.len() > MATCHES_MAX {
                return Err(io::Error::other(format!(
                    "a pattern matches more than {MATCHES_MAX} files"
                )));
            }
        }
    }
    Ok(found)
}

/// Whether a name fits a pattern of glob(7): `*`, `?`, `[abc]`, `[a-z]`, `[!a]`, `[[:digit:]]`, `[[=a=]]`, `[[.a.]]`, `\x`. A
/// dot in front is matched by a dot only.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    // The star that was met last, and what it has swallowed so far: enough to go back to.
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
            continue;
        }
        if let Some(next) = one_fits(&pattern[p..], name[n]) {
            p += next;
            n += 1;
            continue;
        }
        let Some((after, swallowed)) = star else {
            return false;
        };
        star = Some((after, swallowed + 1));
        (p, n) = (after, swallowed + 1);
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// How much of the pattern one byte of the name uses up, if it fits.
fn one_fits(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'[' => class_fits(pattern, byte),
        b'\\' => (*pattern.get(1)? == byte).then_some(2),
        other => (other == byte).then_some(1),
    }
}

fn class_fits(pattern: &[u8], byte: u8) -> Option<usize> {
    match class(pattern, byte) {
        Some((is_in, used)) => is_in.then_some(used),
        // A bracket that is never closed means itself.
        None => (byte == b'[').then_some(1),
    }
}

/// Whether a byte is in the class that a pattern begins with, and how much of the pattern that is; `None`: the class has no
/// end.
fn class(pattern: &[u8], byte: u8) -> Option<(bool, usize)> {
    let is_negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let first = if is_negated { 2 } else { 1 };
    let mut at = first;
    let mut is_in = false;
    while *pattern.get(at)? != b']' || at == first {
        if let Some(name) = named_class(&pattern[at..]) {
            is_in |= is_in_named_class(name, byte);
            at += name.len() + b"[::]".len();
            continue;
        }
        let (from, used) = class_member(&pattern[at..])?;
        at += used;
        let mut to = from;
        if pattern.get(at) == Some(&b'-') && *pattern.get(at + 1)? != b']' {
            let (last, used) = class_member(&pattern[at + 1..])?;
            to = last;
            at += 1 + used;
        }
        is_in |= (from..=to).contains(&byte);
    }
    Some((is_in != is_negated, at + 1))
}

/// `digit` of `[:digit:]`.
fn named_class(text: &[u8]) -> Option<&[u8]> {
    let name = text.strip_prefix(b"[:")?;
    let length = name.iter().take_while(|byte| byte.is_ascii_lowercase());
    let (name, rest) = name.split_at(length.count());
    rest.starts_with(b":]").then_some(name)
}

/// In the locale of C, which nginx has, too. An unknown class has no member.
fn is_in_named_class(name: &[u8], byte: u8) -> bool {
    match name {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => b" \t".contains(&byte),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == b'\x0b',
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => false,
    }
}

/// A byte that stands in a class by itself, as `\x`, `[=x=]` or `[.x.]`, and how much of the pattern that is.
fn class_member(text: &[u8]) -> Option<(u8, usize)> {
    match *text {
        [b'\\', escaped, ..] => Some((escaped, 2)),
        [b'[', b'=', byte, b'=', b']', ..] | [b'[', b'.', byte, b'.', b']', ..] => Some((byte, 5)),
        [byte, ..] => Some((byte, 1)),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::TextSource as _;

    #[test]
    fn patterns_fit_as_in_glob() {
        let fits = |pattern: &str, name: &str| super::fits(pattern.as_bytes(), name.as_bytes());
        assert!(
            fits("*.conf", "a.conf") && fits("*", "x") && fits("a*b*c", "aXbYbc") && fits("?", "x")
        );
        assert!(
            !fits("*.conf", ".conf")
                && !fits("*.conf", "a.con")
                && !fits("?", "")
                && !fits("a*b", "ac")
        );
        assert!(fits("[a-c]x", "bx") && fits("[!a]", "b") && fits("[]]", "]") && fits("\\*", "*"));
        assert!(
            !fits("[a-c]x", "dx") && !fits("[!a]", "a") && !fits("\\*", "x") && !fits("[a", "a")
        );
    }

    #[test]
    fn classes_fit_as_in_fnmatch() {
        for (pattern, name) in [
            ("[[:digit:]]*.conf", "10-a.conf"),
            ("[![:digit:]]", "x"),
            ("[[:upper:][:digit:]]", "5"),
            ("[[:space:]]", "\x0b"),
            ("[[:alpha:]-z]", "-"),
            ("[[:digit]", "d"),
            ("[[:digit:]", "[d"),
            ("[[:Digit:]]", "D]"),
            ("[[=a=]b]", "b"),
            ("[[=ab=]]", "a]"),
            ("[[.a.]-c]", "b"),
            ("[[.-.]a]", "-"),
            ("[\\]a]", "]"),
            ("[a\\-c]", "-"),
            ("[a-\\z]", "m"),
            ("[a-]", "-"),
            ("[]-a]", "^"),
            ("[[]", "["),
            ("[a", "[a"),
            ("x[", "x["),
            ("[]", "[]"),
            ("[!]", "[!]"),
        ] {
            assert!(fits(pattern.as_bytes(), name.as_bytes()), "{pattern}");
        }
        for (pattern, name) in [
            ("[[:digit:]]", "a"),
            ("[[:digit:]]", ":"),
            ("[![:digit:]]", "5"),
            ("[[:foo:]]", "f"),
            ("[[:digit:]", "5"),
            ("[[:graph:]]", " "),
            ("[[=a=]b]", "="),
            ("[\\]a]", "\\"),
            ("[a\\-c]", "b"),
            ("[z-a]", "m"),
            ("[.]x", ".x"),
            ("a\\", "a\\"),
        ] {
            assert!(!fits(pattern.as_bytes(), name.as_bytes()), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_finds_files_in_order() {
        let root = std::env::temp_dir().join(format!("freewheel-glob-{}", std::process::id()));
        for name in ["b/2.conf", "a/1.conf", "a/.hidden.conf", "a/x.txt"] {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found = Files::default().glob(&root.join("*/*.conf")).unwrap();
        assert_eq!(found, [root.join("a/1.conf"), root.join("b/2.conf")]);
        assert!(
            Files::default()
                .glob(&root.join("none/*"))
                .unwrap()
                .is_empty()
        );
        std::fs::remove_dir_all(root).unwrap();
    }
}
