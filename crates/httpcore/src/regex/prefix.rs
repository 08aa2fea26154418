//! What every subject of a pattern begins with: most patterns of a configuration are `^/words/…`, and a comparison of
//! bytes says of most requests that they are not meant.
//!
//! Not here: matching. Invariant: a subject that does not begin with the prefix is one that the pattern does not match;
//! where that is not certain, there is no prefix.

/// Maximum number of bytes of a prefix.
const PREFIX_MAX: usize = 255;

/// The literal text behind the `^` of `pattern`, which stands for ASCII letters of both cases where the pattern is caseless;
/// empty where the pattern does not begin with `^` and literal text, or has alternatives to it. Syntax: pcre2pattern(3).
pub(super) fn of(pattern: &str) -> Box<[u8]> {
    let Some(rest) = pattern.strip_prefix('^') else {
        return Box::default();
    };
    let literal = literal(rest.as_bytes());
    if literal.is_empty() || !is_one_branch(pattern.as_bytes()) {
        return Box::default();
    }
    literal.into()
}

/// The bytes at the start of `rest` that stand for themselves, each exactly once.
fn literal(mut rest: &[u8]) -> Vec<u8> {
    let mut literal = Vec::new();
    while literal.len() < PREFIX_MAX {
        let (byte, behind) = match rest {
            [b'\\', escaped, behind @ ..] if escaped.is_ascii_punctuation() => (*escaped, behind),
            // The byte before may be absent; a quotation of nothing or a comment may stand before the quantifier that says so.
            [b'?' | b'*' | b'+' | b'{', ..] | [b'\\', b'Q' | b'E', ..] | [b'(', b'?', b'#', ..] => {
                literal.pop();
                break;
            }
            [b'\\' | b'^' | b'$' | b'.' | b'[' | b'|' | b'(' | b')', ..] => break,
            [byte, behind @ ..] if byte.is_ascii_graphic() => (*byte, behind),
            _ => break,
        };
        literal.push(byte);
        rest = behind;
    }
    if literal.len() == PREFIX_MAX {
        // What stands behind the last byte has not been read.
        literal.pop();
    }
    literal
}

/// Whether `pattern` has certainly no alternative outside of its groups. Syntax that is rare in a configuration is not
/// certain: quoting, modes, comments, verbs, classes within classes.
fn is_one_branch(pattern: &[u8]) -> bool {
    if !pattern.contains(&b'|') {
        return true;
    }
    let mut depth = 0_usize;
    let mut rest = pattern;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match byte {
            b'\\' => match rest {
                [escaped, behind @ ..] if !matches!(escaped, b'Q' | b'E' | b'c') => rest = behind,
                _ => return false,
            },
            b'[' => match behind_class(rest) {
                Some(behind) => rest = behind,
                None => return false,
            },
            b'(' => match rest {
                [b'*', ..] => return false,
                [b'?', b':' | b'=' | b'!' | b'<' | b'>' | b'P', ..] => depth += 1,
                [b'?', ..] => return false,
                _ => depth += 1,
            },
            b')' => match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => return false,
            },
            b'|' if depth == 0 => return false,
            _ => {}
        }
    }
    depth == 0
}

/// What stands behind a class of characters of which the `[` has been read; `None` where that is not certain.
fn behind_class(class: &[u8]) -> Option<&[u8]> {
    let class = class.strip_prefix(b"^").unwrap_or(class);
    // A bracket that comes first is a member.
    let mut rest = class.strip_prefix(b"]").unwrap_or(class);
    loop {
        rest = match rest {
            [b']', behind @ ..] => return Some(behind),
            [b'\\', escaped, behind @ ..] if !matches!(escaped, b'Q' | b'E' | b'c') => behind,
            [b'\\' | b'[', ..] | [] => return None,
            [_, behind @ ..] => behind,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(pattern: &str) -> String {
        String::from_utf8(of(pattern).into_vec()).expect("ASCII")
    }

    #[test]
    fn the_literal_text_behind_the_anchor_is_the_prefix() {
        for (pattern, expected) in [
            ("^/app1/(\\d+)/[a-z]+\\.php$", "/app1/"),
            ("^/a\\.b\\-c$", "/a.b-c"),
            ("^/a(?:a|b)/c", "/a"),
            ("^/x(a|b[|)(]|\\|)c", "/x"),
            // What may be absent does not belong to it.
            ("^/ab?c", "/a"),
            ("^/ab*", "/a"),
            ("^/ab{0,1}", "/a"),
            ("^/ab\\.?", "/ab"),
            ("^?/a", ""),
        ] {
            assert_eq!(prefix(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_of_which_it_is_not_certain_has_none() {
        for pattern in [
            "/a",
            "",
            "^",
            "^/a|^/b",
            "^/a|b",
            "^\\d",
            "^(a|b)",
            "^/\\Qa|b\\E",
            "^/(?i)a|b",
            "^/(?x) a # ( \n | b",
            "^/a(?#()|b",
            "^/[[:alpha:](]|b",
            "^/a(*ACCEPT)|b",
            "^/a)|b",
            "^/x(a|b[|)(]|\\|)c|",
            "^\u{e4}",
        ] {
            assert_eq!(prefix(pattern), "", "{pattern}");
        }
    }

    #[test]
    fn no_subject_that_matches_lacks_it() {
        let pieces = [
            "^", "/", "a", "b", "\\.", ".", "?", "*", "+", "{0}", "[ab|]", "[^]|]", "(", "(?:",
            ")", "|", "$", "(?=", "\\d", "A", "\\E", "(?#)",
        ];
        let subjects = [
            "", "/", "a", "/a", "/A", "/ab", "b", "/.", ".", "/a/b", "ab/", "//", "/b.a", "A",
            "/aab", "|",
        ];
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % below
        };
        let mut with_prefix = 0;
        for _ in 0..20_000 {
            let pattern: String = (0..=random(8))
                .map(|_| pieces[random(pieces.len())])
                .collect();
            let pattern = format!("^{pattern}");
            let prefix = of(&pattern);
            for caseless in [false, true] {
                let Ok(program) = pcre2::bytes::RegexBuilder::new()
                    .caseless(caseless)
                    .build(&pattern)
                else {
                    continue;
                };
                with_prefix += usize::from(!prefix.is_empty());
                for subject in subjects {
                    if program.is_match(subject.as_bytes()).expect("is tried") {
                        assert!(
                            super::super::begins_with(subject.as_bytes(), &prefix, caseless),
                            "{pattern} matches {subject}"
                        );
                    }
                }
            }
        }
        assert!(with_prefix > 1000, "{with_prefix}");
    }
}
