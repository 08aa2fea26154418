//! The normalised path of a request: decoded, `//` merged, `.` and `..` resolved, arguments and fragment cut off.
//!
//! The rules are nginx's: an escaped dot or slash counts as a dot or slash; an escaped `%`, `#` or `?` is an ordinary
//! character; `%00` and paths that climb above the root are refused.

use crate::escape::hex;
use crate::field::Span;

/// A normalised path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalPath {
    /// `$uri`; begins with `/`.
    pub path: Vec<u8>,
    /// The span of the file name extension in `path`, without its dot; empty if there is none.
    pub extension: Span,
    /// The span of the arguments in the raw text (after the `?`, before a `#`); empty if there are none.
    pub args: Span,
}

/// Not a valid path: a broken escape, `%00`, or a path that climbs above the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidUri;

#[derive(Clone, Copy, PartialEq, Eq)]
enum PathState {
    Name,
    Slash,
    Dot,
    DotDot,
}

/// Normalises a raw target: a path, optionally with arguments and a fragment, or (after an authority) `?` and
/// arguments.
///
/// # Errors
/// [`InvalidUri`]: a broken escape, a zero byte, or a path that climbs above the root.
pub fn normalise(raw: &[u8], merge_slashes: bool) -> Result<NormalPath, InvalidUri> {
    let mut path = Path {
        out: Vec::with_capacity(raw.len() + 1),
        state: PathState::Name,
        extension: None,
        merge_slashes,
    };
    if raw.first() != Some(&b'/') {
        path.push(b'/')?;
    }
    let mut args = Span::default();
    let mut at = 0;
    while at < raw.len() {
        let byte = raw[at];
        at += 1;
        match byte {
            b'?' => {
                let end = memchr::memchr(b'#', &raw[at..]).map_or(raw.len(), |offset| at + offset);
                args = Span::new(at, end);
                break;
            }
            b'#' => break,
            b'%' => {
                let high = raw.get(at).copied().and_then(hex).ok_or(InvalidUri)?;
                let low = raw.get(at + 1).copied().and_then(hex).ok_or(InvalidUri)?;
                at += 2;
                match high << 4 | low {
                    0 => return Err(InvalidUri),
                    literal @ (b'%' | b'#' | b'?') => path.push_literal(literal),
                    decoded => path.push(decoded)?,
                }
            }
            _ => path.push(byte)?,
        }
    }
    path.end()?;
    let extension = path.extension.map_or(Span::default(), |start| {
        Span::new(start.min(path.out.len()), path.out.len())
    });
    Ok(NormalPath {
        path: path.out,
        extension,
        args,
    })
}

struct Path {
    out: Vec<u8>,
    state: PathState,
    extension: Option<usize>,
    merge_slashes: bool,
}

impl Path {
    fn push(&mut self, byte: u8) -> Result<(), InvalidUri> {
        match (self.state, byte) {
            (PathState::Name, b'/') => {
                self.extension = None;
                self.state = PathState::Slash;
                self.out.push(byte);
            }
            (PathState::Name, b'.') => {
                self.out.push(byte);
                self.extension = Some(self.out.len());
            }
            (PathState::Name, _) => self.out.push(byte),
            (PathState::Slash, b'/') => {
                if !self.merge_slashes {
                    self.out.push(byte);
                }
            }
            (PathState::Slash, b'.') => {
                self.state = PathState::Dot;
                self.out.push(byte);
            }
            (PathState::Dot, b'/') => {
                self.out.pop();
                self.state = PathState::Slash;
            }
            (PathState::Dot, b'.') => {
                self.state = PathState::DotDot;
                self.out.push(byte);
            }
            (PathState::DotDot, b'/') => {
                self.climb()?;
                self.state = PathState::Slash;
            }
            (PathState::Slash | PathState::Dot | PathState::DotDot, _) => self.push_literal(byte),
        }
        Ok(())
    }

    fn push_literal(&mut self, byte: u8) {
        self.state = PathState::Name;
        self.out.push(byte);
    }

    /// Removes `/..` and the segment before it, but not the slash before that segment.
    fn climb(&mut self) -> Result<(), InvalidUri> {
        self.out.truncate(self.out.len() - 3);
        let slash = memchr::memrchr(b'/', &self.out).ok_or(InvalidUri)?;
        self.out.truncate(slash + 1);
        Ok(())
    }

    fn end(&mut self) -> Result<(), InvalidUri> {
        match self.state {
            PathState::Dot => {
                self.out.pop();
            }
            PathState::DotDot => self.climb()?,
            PathState::Name | PathState::Slash => {}
        }
        Ok(())
    }
}

/// The extension of a normalised path: what follows the last dot of the last segment, unless that segment begins with
/// it.
pub fn extension(path: &[u8]) -> &[u8] {
    let segment = memchr::memrchr(b'/', path).map_or(0, |slash| slash + 1);
    match memchr::memrchr(b'.', &path[segment..]) {
        Some(dot) if dot > 0 => &path[segment + dot + 1..],
        _ => &[],
    }
}

/// The value of the first argument with this name (`$arg_name`), not decoded. Names are compared without case.
pub fn arg<'a>(args: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    args.split(|c| *c == b'&').find_map(|pair| {
        let value = pair.get(name.len()..)?.strip_prefix(b"=")?;
        pair[..name.len()]
            .eq_ignore_ascii_case(name)
            .then_some(value)
    })
}

/// Splits an internal target that came from outside (`X-Accel-Redirect`, a Destination) into decoded path and
/// arguments. `None` if the path is empty or holds NUL or a `..` segment, escaped or not.
pub fn safe(target: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (path, args) = match memchr::memchr(b'?', target) {
        Some(mark) => (&target[..mark], &target[mark + 1..]),
        None => (target, &[][..]),
    };
    if path.is_empty() || !is_safe(path) {
        return None;
    }
    let (path, _) = crate::escape::unescape(path, crate::escape::Unescape::All);
    is_safe(&path).then_some((path, args))
}

fn is_safe(path: &[u8]) -> bool {
    !path.contains(&0) && !path.split(|c| *c == b'/').any(|segment| segment == b"..")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(raw: &str, merge: bool) -> Result<String, InvalidUri> {
        normalise(raw.as_bytes(), merge).map(|normal| String::from_utf8(normal.path).unwrap())
    }

    #[test]
    fn paths() {
        for (raw, expected) in [
            ("/", "/"),
            ("/a%20b", "/a b"),
            ("/a//b///c", "/a/b/c"),
            ("/a/./b", "/a/b"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/../b", "/b"),
            ("/a/..?x", "/"),
            ("/a/..#f", "/"),
            ("/a/.?x", "/a/"),
            ("/a/...", "/a/..."),
            ("/a/.b", "/a/.b"),
            ("/a/..b", "/a/..b"),
            ("/a%2fb%2F..", "/a/"),
            ("/a/%2e%2E/b", "/b"),
            ("/a%2e", "/a."),
            ("/a#b", "/a"),
            ("/%23", "/#"),
            ("/%3f?x", "/?"),
            ("/%25", "/%"),
            ("/a%02", "/a\x02"),
            ("?x", "/"),
            ("/a/%2e#", "/a/"),
            ("/a/%25/../b", "/a/b"),
        ] {
            assert_eq!(path(raw, true).as_deref(), Ok(expected), "{raw}");
        }
        assert_eq!(path("/foo//../bar", false).as_deref(), Ok("/foo/bar"));
        assert_eq!(path("/foo//../bar", true).as_deref(), Ok("/bar"));
        assert_eq!(path("//a", false).as_deref(), Ok("//a"));
    }

    #[test]
    fn invalid_paths_are_refused() {
        for raw in [
            "/..",
            "/../",
            "/a/../..",
            "/%",
            "/%1",
            "/%g0",
            "/%1g",
            "/%00",
            "/a/%2e%2e/%2e%2e/",
            "/..?a",
            "/..#",
        ] {
            assert_eq!(path(raw, true), Err(InvalidUri), "{raw}");
        }
    }

    #[test]
    fn arguments_and_extensions() {
        for (raw, args, ext) in [
            ("/a.b/c.tar.gz?x=1#y", "x=1", "gz"),
            ("/a.b/c", "", ""),
            ("/.htaccess", "", ""),
            ("/a.", "", ""),
            ("/a.%68tml", "", "html"),
            ("/a.html?", "", "html"),
            ("/a#b?c", "", ""),
        ] {
            let normal = normalise(raw.as_bytes(), true).unwrap();
            assert_eq!(normal.args.of(raw.as_bytes()), args.as_bytes(), "{raw}");
            assert_eq!(normal.extension.of(&normal.path), ext.as_bytes(), "{raw}");
            assert_eq!(extension(&normal.path), ext.as_bytes(), "{raw}");
        }
        assert_eq!(arg(b"a=1&B=%202&b=3", b"b"), Some(&b"%202"[..]));
        assert_eq!(arg(b"a=1&bb=2", b"b"), None);
        assert_eq!(arg(b"a&b=", b"a"), None);
        assert_eq!(arg(b"a&b=", b"b"), Some(&b""[..]));
    }

    #[test]
    fn targets_from_outside() {
        assert_eq!(
            safe(b"/a%20b?c=%2e"),
            Some((b"/a b".to_vec(), &b"c=%2e"[..]))
        );
        assert_eq!(safe(b"/a..b/"), Some((b"/a..b/".to_vec(), &b""[..])));
        for target in [
            "",
            "?a",
            "..",
            "../a",
            "/a/..",
            "/a/../b",
            "/a/%2e%2e/b",
            "/a%2f..",
            "/%00",
        ] {
            assert_eq!(safe(target.as_bytes()), None, "{target}");
        }
    }

    proptest! {
        #[test]
        fn a_normal_path_has_no_dots_to_resolve(raw in "/[a./%2e?#]{0,30}", merge: bool) {
            if let Ok(normal) = normalise(raw.as_bytes(), merge) {
                prop_assert_eq!(normal.path[0], b'/');
                let clean = normal.path.split(|c| *c == b'/').all(|segment| segment != b"." && segment != b"..");
                prop_assert!(clean, "{:?}", normal.path);
                prop_assert!(!merge || !normal.path.windows(2).any(|pair| pair == b"//"));
            }
        }
    }
}
