//! Rust text with comments, strings and character literals blanked out, so that words and braces can be counted. Not a parser.
//! Invariant: every line keeps its number.

/// The code of `text`: what is not code becomes spaces.
pub fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = at + skip(&bytes[at..], at.checked_sub(1).map(|before| bytes[before]));
        if end == at {
            code.push(bytes[at]);
            at += 1;
            continue;
        }
        code.extend(
            bytes[at..end]
                .iter()
                .map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }),
        );
        at = end;
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// The texts of the string literals, as they are written, each with the offset of its opening quote; raw strings are left out.
pub fn strings(text: &str) -> Vec<(usize, &str)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = skip(&bytes[at..], at.checked_sub(1).map(|before| bytes[before]));
        if bytes[at] == b'"' && length > 1 {
            found.extend(text.get(at + 1..at + length - 1).map(|inner| (at, inner)));
        }
        at += length.max(1);
    }
    found
}

/// How many bytes from here on are a comment or a literal; 0: this is code.
fn skip(rest: &[u8], before: Option<u8>) -> usize {
    let in_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match rest {
        [b'/', b'/', ..] => rest
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => string(rest),
        [b'r', b'"' | b'#', ..] if !in_word || before == Some(b'b') => raw_string(rest),
        [b'\'', ..] => character(rest),
        _ => 0,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at + 1 < rest.len() {
        match &rest[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// `r"…"`, `r#"…"#`; a raw identifier (`r#type`) is code.
fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let close: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let open = 2 + hashes;
    let end = rest[open..]
        .windows(close.len())
        .position(|window| window == close);
    end.map_or(rest.len(), |end| open + end + close.len())
}

/// `'x'`, `'\n'`, `'\u{7f}'`; a lifetime is code.
fn character(rest: &[u8]) -> usize {
    match rest {
        [_, b'\\', ..] => rest
            .iter()
            .skip(3)
            .position(|byte| *byte == b'\'')
            .map_or(0, |end| end + 4),
        _ => {
            let width = rest.get(1).map_or(1, |byte| {
                if *byte < 0x80 {
                    1
                } else {
                    byte.leading_ones() as usize
                }
            });
            if rest.get(1 + width) == Some(&b'\'') {
                width + 2
            } else {
                0
            }
        }
    }
}

/// Name, first line (from 1) and number of lines of every function in `code`, which is text without comments and literals.
pub fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let mut functions = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        if let Some(length) = body_lines(&lines[at..]) {
            functions.push((name, at + 1, length));
        }
    }
    functions
}

fn function_name(line: &str) -> Option<String> {
    let (before, rest) = line.split_once("fn ")?;
    let is_modifier = |word: &str| {
        let word = word.trim_start_matches("pub");
        matches!(word, "" | "async" | "const" | "unsafe" | "extern")
            || word.starts_with('(')
            || word.ends_with(')')
    };
    if !before.split_whitespace().all(is_modifier) {
        return None;
    }
    let name: String = rest
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!name.is_empty()).then_some(name)
}

/// Lines from the `fn` to the brace that closes its body; none for a declaration.
fn body_lines(lines: &[&str]) -> Option<usize> {
    let mut depth = 0_i32;
    let mut brackets = 0_i32;
    for (at, line) in lines.iter().enumerate() {
        for byte in line.bytes() {
            match byte {
                b'(' | b'[' => brackets += 1,
                b')' | b']' => brackets -= 1,
                b'{' => depth += 1,
                b'}' => depth -= 1,
                b';' if depth == 0 && brackets == 0 => return None,
                _ => continue,
            }
            if byte == b'}' && depth == 0 && brackets == 0 {
                return Some(at + 1);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        let code = code_of(
            "let a = \"{ unsafe\"; // unsafe {\nlet b = '{'; /* unsafe\n*/ let c: &'static str = r#\"}\"}\"#;",
        );
        assert!(!code.contains("unsafe") && !code.contains('{') && !code.contains('}'));
        assert_eq!(code.lines().count(), 3);
        assert!(code.contains("&'static str"));
    }

    #[test]
    fn strings_are_found_outside_of_comments() {
        let found = strings("f(\"a\", b\"b\\n\"); // \"c\"\nlet d = '\"'; g(\"\")");
        assert_eq!(found, [(2, "a"), (8, "b\\n"), (38, "")]);
    }

    #[test]
    fn functions_are_measured_to_their_closing_brace() {
        let code = "pub async fn one(\n    a: [u8; 2],\n) {\n    if a { }\n}\nfn two();\n    pub(crate) fn three() {}\n";
        let expected = [("one".to_owned(), 1, 5), ("three".to_owned(), 7, 1)];
        assert_eq!(functions(code), expected);
    }

    #[test]
    fn a_function_type_is_not_a_function() {
        assert!(
            functions("let f: Box<dyn fn (u8) -> u8> = x;\nstruct S { call: fn (u8) }").is_empty()
        );
    }
}
