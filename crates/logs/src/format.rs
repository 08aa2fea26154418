//! `log_format`: text and variables, and how values are escaped so that a client cannot forge a line.
//!
//! Not where lines go. Invariant: with `escape=default` and `escape=json` a value holds no quote, no backslash and no control
//! character that is not escaped.

use std::sync::Arc;

use bytes::Bytes;
use config::{Problem, Scope, TemplatePart, Value, VariableIndex, Word};

use crate::json::{Members, append_json};
use crate::template::Variables;

/// Maximum number of formats that a configuration may name.
pub const FORMATS_MAX: usize = 4096;
/// The format that is always there.
pub const COMBINED: &[u8] = b"combined";
/// The format that is there unless the configuration defines one of this name; also the word that makes an error log JSON.
pub const JSON: &[u8] = b"json";

const COMBINED_TEXT: &[&str] = &[
    "remote_addr",
    " - ",
    "remote_user",
    " [",
    "time_local",
    "] \"",
    "request",
    "\" ",
    "status",
    " ",
    "body_bytes_sent",
    " \"",
    "http_referer",
    "\" \"",
    "http_user_agent",
    "\"",
];

config::choices! {
    /// How values are written into a line.
    #[derive(Default)]
    pub enum Escape {
        /// `"`, `\`, control characters and bytes above 126 as `\xXX`; `-` for what has no value.
        #[default]
        Default = "default",
        /// As strings of JSON need it; nothing for what has no value.
        Json = "json",
        /// As they are.
        None = "none",
    }
}

/// A format, ready to be filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    escape: Escape,
    parts: Box<[TemplatePart]>,
    /// The members of the predefined format `json`, in place of parts.
    members: Option<Members>,
}

impl Format {
    /// `combined`.
    ///
    /// # Errors
    /// Too many variables.
    pub fn combined(scope: &mut Scope) -> Result<Self, Problem> {
        let mut parts = Vec::with_capacity(COMBINED_TEXT.len());
        for (at, text) in COMBINED_TEXT.iter().enumerate() {
            parts.push(if at % 2 == 0 {
                TemplatePart::Variable(scope.intern(text, None)?)
            } else {
                TemplatePart::Literal(Bytes::from_static(text.as_bytes()))
            });
        }
        Ok(Self {
            escape: Escape::Default,
            parts: parts.into(),
            members: None,
        })
    }

    /// `json`: an object.
    ///
    /// # Errors
    /// Too many variables.
    pub fn json(scope: &mut Scope) -> Result<Self, Problem> {
        Ok(Self {
            escape: Escape::Json,
            parts: Box::default(),
            members: Some(Members::all(scope)?),
        })
    }

    /// From the words behind the name.
    ///
    /// # Errors
    /// nginx's: unknown escaping, a `$` that no name follows.
    pub fn parse(words: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let (mut escape, mut rest, mut parts) = (Escape::Default, words, Vec::new());
        if let Some((first, others)) = words.split_first()
            && let Some(name) = first.bytes().strip_prefix(b"escape=")
        {
            rest = others;
            escape = match name {
                b"default" => Escape::Default,
                b"json" => Escape::Json,
                b"none" => Escape::None,
                _ => {
                    let name = String::from_utf8_lossy(name);
                    return Err(
                        Problem::new(format!("unknown log format escaping \"{name}\""))
                            .hint_that("it must be one of: default, json, none"),
                    );
                }
            };
        }
        for word in rest {
            parse_word(word, &mut parts, scope)?;
        }
        Ok(Self {
            escape,
            parts: parts.into(),
            members: None,
        })
    }

    /// Appends the line without its newline.
    pub fn append(&self, variables: &impl Variables, out: &mut Vec<u8>) {
        if let Some(members) = &self.members {
            return members.append(variables, out);
        }
        for part in &self.parts {
            match part {
                TemplatePart::Literal(text) => out.extend_from_slice(text),
                TemplatePart::Variable(index) => self.append_value(*index, variables, out),
                // A format has no captures: `parse_word` makes none.
                TemplatePart::Capture(_) => {}
            }
        }
    }

    fn append_value(&self, index: VariableIndex, variables: &impl Variables, out: &mut Vec<u8>) {
        let start = out.len();
        let found = variables.variable(index, out);
        debug_assert!(found || out.len() == start, "no value has no text");
        match self.escape {
            Escape::Default if !found => out.push(b'-'),
            Escape::Default => escape_tail(out, start, is_risky, append_hex),
            Escape::Json => escape_tail(out, start, is_special_in_json, append_json),
            Escape::None => {}
        }
    }
}

/// A word of a format: as in templates, but digits are names and not captures.
fn parse_word(
    word: &Word,
    parts: &mut Vec<TemplatePart>,
    scope: &mut Scope,
) -> Result<(), Problem> {
    let text = word.bytes();
    let mut at = 0;
    while at < text.len() {
        let length = memchr::memchr(b'$', &text[at..]).unwrap_or(text.len() - at);
        if length > 0 {
            parts.push(TemplatePart::Literal(text.slice(at..at + length)));
            at += length;
            continue;
        }
        let rest = &text[at + 1..];
        let braced = rest.first() == Some(&b'{');
        let start = usize::from(braced);
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let name = rest.get(start..).unwrap_or_default();
        let name = &name[..name
            .iter()
            .position(|byte| !is_name(byte))
            .unwrap_or(name.len())];
        let shown = String::from_utf8_lossy(name);
        if braced && !name.is_empty() && rest.get(start + name.len()) != Some(&b'}') {
            return Err(Problem::new(format!(
                "the closing bracket in \"{shown}\" variable is missing"
            )));
        }
        if name.is_empty() {
            let rest = String::from_utf8_lossy(&text[at..]);
            return Err(Problem::new(format!("invalid parameter \"{rest}\"")));
        }
        parts.push(TemplatePart::Variable(
            scope.intern(&shown, Some(&word.place()))?,
        ));
        at += 1 + name.len() + 2 * start;
    }
    Ok(())
}

/// Whether any byte must be written as `\xXX`: below 32, above 126, quote, backslash.
fn is_risky(bytes: &[u8]) -> bool {
    // Eight bytes at a time: a line has a hundred bytes of values, and nearly never one to escape.
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().any(|word| {
        let word = u64::from_le_bytes(*word);
        // Bytes of 127 carry into the high bit; those above have it anyway.
        let high = (word | ((word & !HIGH).wrapping_add(ONES))) & HIGH;
        high | below(word, 0x20) | below(word ^ (ONES * 0x22), 1) | below(word ^ (ONES * 0x5c), 1)
            != 0
    }) || rest.iter().any(|byte| is_risky_byte(*byte))
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = ONES << 7;

/// Not zero when a byte of `word` is below `limit` (at most 128).
fn below(word: u64, limit: u64) -> u64 {
    word.wrapping_sub(ONES * limit) & !word & HIGH
}

fn is_risky_byte(byte: u8) -> bool {
    !(0x20..0x7f).contains(&byte) || byte == b'"' || byte == b'\\'
}

fn is_special_in_json(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .any(|byte| *byte < 0x20 || *byte == b'"' || *byte == b'\\')
}

/// Escapes `out` from `start` on, if anything there needs it.
fn escape_tail(
    out: &mut Vec<u8>,
    start: usize,
    needs: fn(&[u8]) -> bool,
    append: fn(u8, &mut Vec<u8>),
) {
    if !needs(&out[start..]) {
        return;
    }
    let value = out[start..].to_vec();
    out.truncate(start);
    for byte in value {
        append(byte, out);
    }
}

fn append_hex(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if is_risky_byte(byte) {
        out.extend_from_slice(&[
            b'\\',
            b'x',
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]);
    } else {
        out.push(byte);
    }
}

/// All `log_format` lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Formats(Vec<(Bytes, Arc<Format>)>);

impl Formats {
    /// The format of a name, in any case as with nginx. `combined` is not among them.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Arc<Format>> {
        self.0
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, format)| format)
    }

    /// The names, in file order.
    pub fn names(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter().map(|(name, _)| name)
    }
}

impl Value for Formats {
    const SYNTAX: &'static str = "name [escape=default|json|none] text …";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let mut slot = None;
        Self::set(&mut slot, args, scope)?;
        Ok(slot.unwrap_or_default())
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let Some((name, words)) = args.split_first() else {
            return Err(Problem::argument_count("log_format"));
        };
        let formats = slot.get_or_insert_default();
        let name = name.bytes();
        if name == COMBINED || formats.0.iter().any(|(known, _)| known == name) {
            let name = String::from_utf8_lossy(name);
            return Err(Problem::new(format!("duplicate \"log_format\" name \"{name}\"")).at(0));
        }
        if formats.0.len() == FORMATS_MAX {
            return Err(Problem::directive(format!(
                "is repeated too often, there may be {FORMATS_MAX}"
            )));
        }
        formats
            .0
            .push((name.clone(), Arc::new(Format::parse(words, scope)?)));
        Ok(())
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Values<'a>(&'a Scope, &'a [(&'a str, &'a [u8])]);

    impl Variables for Values<'_> {
        fn variable(&self, index: VariableIndex, out: &mut Vec<u8>) -> bool {
            let name = self.0.name_of(index);
            let value = self.1.iter().find(|(known, _)| *known == name);
            value
                .inspect(|(_, value)| out.extend_from_slice(value))
                .is_some()
        }

        fn capture(&self, _: u8, _: &mut Vec<u8>) {}
    }

    fn formats(text: &str) -> Result<(Formats, Scope), String> {
        let mut scope = Scope::new();
        let tree = config::parse_bytes(text.as_bytes()).map_err(|error| error.to_string())?;
        let mut slot = None;
        for directive in &tree.directives {
            Formats::set(&mut slot, &directive.args, &mut scope)
                .map_err(|problem| problem.sentence_for("log_format"))?;
        }
        Ok((slot.unwrap_or_default(), scope))
    }

    fn line(format: &str, values: &[(&str, &[u8])]) -> Vec<u8> {
        let (formats, scope) = formats(format).unwrap();
        let mut out = Vec::new();
        formats
            .0
            .last()
            .unwrap()
            .1
            .append(&Values(&scope, values), &mut out);
        out
    }

    #[test]
    fn values_are_escaped_as_nginx_escapes_them() {
        let values: &[(&str, &[u8])] = &[("uri", b"/escape/\"1 \x1b\x1c \""), ("arg_c", b"2")];
        let line = |escape| {
            line(
                &format!("log_format x {escape} $uri$arg_b${{arg_c}};"),
                values,
            )
        };
        assert_eq!(line("escape=default"), b"/escape/\\x221 \\x1B\\x1C \\x22-2");
        assert_eq!(line(""), b"/escape/\\x221 \\x1B\\x1C \\x22-2");
        assert_eq!(line("escape=none"), b"/escape/\"1 \x1b\x1c \"2");
        assert_eq!(line("escape=json"), b"/escape/\\\"1 \\u001B\\u001C \\\"2");
    }

    #[test]
    fn each_byte_is_escaped_wherever_it_stands() {
        for byte in 0..=255_u8 {
            for at in 0..20 {
                let mut value = vec![b'a'; 20];
                value[at] = byte;
                let mut plain = Vec::new();
                let risky = !(32..=126).contains(&byte) || byte == b'"' || byte == b'\\';
                for byte in &value {
                    if *byte == value[at] && risky && *byte != b'a' {
                        plain.extend_from_slice(format!("\\x{byte:02X}").as_bytes());
                    } else {
                        plain.push(*byte);
                    }
                }
                let (formats, scope) = formats("log_format x $v;").unwrap();
                let mut out = Vec::new();
                formats.0[0]
                    .1
                    .append(&Values(&scope, &[("v", &value)]), &mut out);
                assert_eq!(out, plain, "byte {byte} at {at}");
            }
        }
    }

    #[test]
    fn json_has_short_escapes_where_there_are_any() {
        let out = line(
            "log_format x escape=json $v;",
            &[("v", b"\n\r\t\x08\x0c\x01\x1f\\\"\x7f\xff/")],
        );
        assert_eq!(out, b"\\n\\r\\t\\b\\f\\u0001\\u001F\\\\\\\"\x7f\xff/");
    }

    #[test]
    fn an_empty_value_is_a_value() {
        assert_eq!(line("log_format x '[$a][$b]';", &[("a", b"")]), b"[][-]");
        assert_eq!(
            line("log_format x escape=json '[$a][$b]';", &[("a", b"")]),
            b"[][]"
        );
        assert_eq!(line("log_format empty '';", &[]), b"");
    }

    #[test]
    fn combined_is_what_nginx_has() {
        let mut scope = Scope::new();
        let format = Format::combined(&mut scope).unwrap();
        let mut out = Vec::new();
        let values: &[(&str, &[u8])] = &[
            ("remote_addr", b"127.0.0.1"),
            ("time_local", b"28/Sep/1970:12:00:00 +0600"),
            ("request", b"GET / HTTP/1.0"),
            ("status", b"200"),
            ("body_bytes_sent", b"2"),
            ("http_user_agent", b"a\"b"),
        ];
        format.append(&Values(&scope, values), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"127.0.0.1 - - [28/Sep/1970:12:00:00 +0600] "GET / HTTP/1.0" 200 2 "-" "a\x22b""#
        );
    }

    #[test]
    fn several_words_stand_side_by_side() {
        assert_eq!(
            line("log_format x 'a $v' ' b' $v;", &[("v", b"1")]),
            b"a 1 b1"
        );
    }

    #[test]
    fn wrong_formats_are_refused_with_nginx_s_words() {
        for (text, words) in [
            (
                "log_format x escape=xml a;",
                "unknown log format escaping \"xml\"",
            ),
            ("log_format x 'a $';", "invalid parameter \"$\""),
            ("log_format x '$-a';", "invalid parameter \"$-a\""),
            (
                "log_format x '${uri';",
                "the closing bracket in \"uri\" variable is missing",
            ),
            (
                "log_format x a; log_format x b;",
                "duplicate \"log_format\" name \"x\"",
            ),
            (
                "log_format combined a;",
                "duplicate \"log_format\" name \"combined\"",
            ),
        ] {
            assert_eq!(formats(text).unwrap_err(), words);
        }
    }
}
