//! The conditions of `if` and `elif`: a text, or two texts compared. Not here: the values of the variables in them.

/// A condition in its parts.
#[derive(Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    /// In lower case, as nginx reads it.
    pub left: Vec<u8>,
    /// The right side of the comparison; without it, the left side must not be empty.
    pub right: Option<RightSide<'a>>,
}

/// The right side of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub struct RightSide<'a> {
    /// A text, or a regular expression.
    pub text: &'a [u8],
    /// Whether it is a regular expression.
    pub is_regex: bool,
    /// Whether the operator is `!=`.
    pub is_negated: bool,
}

impl<'a> Condition<'a> {
    /// Parses an expression; `None`: it is malformed.
    #[must_use]
    pub fn parse(expression: &'a [u8]) -> Option<Self> {
        let is_left = |byte: &&u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'$' | b'{' | b'}' | b'_' | b'"' | b'\'')
        };
        let length = expression.iter().take_while(is_left).count();
        let left = expression[..length].to_ascii_lowercase();
        let rest = skip_spaces(&expression[length..]);
        if rest.is_empty() {
            return Some(Self { left, right: None });
        }
        let (rest, is_negated) = match rest {
            [b'=', rest @ ..] => (rest, false),
            [b'!', b'=', rest @ ..] => (rest, true),
            _ => return None,
        };
        let (text, is_regex) = match skip_spaces(rest) {
            [b'/', pattern @ .., b'/'] => (pattern, true),
            [b'/', _, ..] => return None,
            // With a backslash before it, it is the beginning of a text.
            [b'\\', b'/', ..] => (&skip_spaces(rest)[1..], false),
            text => (text, false),
        };
        let right = RightSide {
            text,
            is_regex,
            is_negated,
        };
        Some(Self {
            left,
            right: Some(right),
        })
    }
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|byte| **byte == b' ').count();
    &text[spaces..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(expression: &str) -> Option<String> {
        let condition = Condition::parse(expression.as_bytes())?;
        let left = String::from_utf8(condition.left).unwrap();
        Some(match condition.right {
            None => left,
            Some(right) => {
                let sign = if right.is_negated { "!" } else { "" };
                let kind = if right.is_regex { "~" } else { "=" };
                format!(
                    "{left} {sign}{kind} {}",
                    std::str::from_utf8(right.text).unwrap()
                )
            }
        })
    }

    #[test]
    fn expressions() {
        for (expression, parts) in [
            ("$arg_v", Some("$arg_v")),
            ("${Arg_V}  ", Some("${arg_v}")),
            ("", Some("")),
            ("$a = Text here", Some("$a = Text here")),
            ("equal != $b", Some("equal != $b")),
            ("$a=/re+(x)?/", Some("$a ~ re+(x)?")),
            ("$a != /x/", Some("$a !~ x")),
            ("$a = \\/x/", Some("$a = /x/")),
            ("$a = /x", None),
            ("$a = /", Some("$a = /")),
            ("$a =", Some("$a = ")),
            ("$a < b", None),
            ("$a !", None),
            ("- = b", None),
        ] {
            assert_eq!(shown(expression).as_deref(), parts, "{expression}");
        }
    }
}
