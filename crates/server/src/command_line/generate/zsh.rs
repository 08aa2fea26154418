//! Completions for zsh.
//!
//! Not here: the words. Invariant: texts reach `_arguments` and `_describe` with their special characters quoted.

use std::fmt::Write as _;

use super::Words;
use crate::command_line::outline::{Argument, Form, Value};

/// The file's text.
pub(super) fn write(words: &Words) -> String {
    let (variables, directives): (Vec<&String>, Vec<&String>) =
        words.names.iter().partition(|name| name.starts_with('$'));
    let list = |names: &[&String]| {
        names
            .iter()
            .map(|name| quoted(name))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut forms = String::new();
    for form in &words.forms {
        forms.push_str(&branch(form, 4));
    }
    let commands: String = words
        .commands()
        .map(|(word, about)| format!("    {}\n", quoted(&format!("{word}:{}", described(about)))))
        .collect();
    FRAME
        .replace("@DIRECTIVES@", &list(&directives))
        .replace("@VARIABLES@", &list(&variables))
        .replace("@COMMANDS@", &commands)
        .replace("@FORMS@", &forms)
        .replace("@OPTIONS@", &arguments(&words.options, 4))
}

/// The branch of a command: the words before it are dropped, its arguments follow.
fn branch(form: &Form, depth: usize) -> String {
    let word = form.words.split(' ').next_back().unwrap_or_default();
    let (left, inner) = (" ".repeat(depth), " ".repeat(depth + 4));
    let mut out = format!("{left}({word})\n{inner}shift words; (( CURRENT-- ))\n");
    if form.children.is_empty() {
        let _ = writeln!(
            out,
            "{inner}_arguments -S \\\n{}{inner}return ;;",
            arguments(&form.arguments, depth + 8)
                + &" ".repeat(depth + 8)
                + "'--help[this help]'\n"
        );
        return out;
    }
    let _ = writeln!(
        out,
        "{inner}if (( CURRENT > 2 )); then\n{inner}case $words[2] in"
    );
    for child in &form.children {
        out.push_str(&branch(child, depth + 4));
    }
    let _ = write!(out, "{inner}esac\n{inner}fi\n{inner}local -a own=(\n");
    for child in &form.children {
        let word = child.words.split(' ').next_back().unwrap_or_default();
        let _ = writeln!(
            out,
            "{inner}    {}",
            quoted(&format!("{word}:{}", described(&child.about)))
        );
    }
    let _ = write!(
        out,
        "{inner})\n{inner}_describe command own\n{inner}return ;;\n"
    );
    out
}

/// The specifications of arguments, each in a line.
fn arguments(arguments: &[Argument], depth: usize) -> String {
    let mut out = String::new();
    // A place with any text has no completion, and the mere mention of it keeps zsh from completing options there.
    let is_told =
        |argument: &&Argument| !argument.names.is_empty() || argument.value != Value::Text;
    for argument in arguments.iter().filter(is_told) {
        let value = match &argument.value {
            Value::None => String::new(),
            value => format!(":{}:{}", described(&argument.placeholder), action(value)),
        };
        let about = described(&argument.about);
        let more = if argument.is_repeated { "*" } else { "" };
        let specs = match argument.names.is_empty() {
            true => vec![match argument.is_repeated {
                true => format!("*{value}"),
                false => format!(":{value}").replacen("::", ":", 1),
            }],
            false => argument
                .names
                .iter()
                // A letter's value may follow it directly.
                .map(|name| match (name.len(), value.is_empty()) {
                    (2, false) => format!("{more}{name}+[{about}]{value}"),
                    _ => format!("{more}{name}[{about}]{value}"),
                })
                .collect(),
        };
        for spec in specs {
            let _ = writeln!(out, "{}{} \\", " ".repeat(depth), quoted(&spec));
        }
    }
    out
}

fn action(value: &Value) -> String {
    match value {
        Value::None => String::new(),
        Value::Text => " ".to_owned(),
        Value::Words(words) => format!("({})", words.join(" ")),
        Value::File => "_files".to_owned(),
        Value::Directory => "_files -/".to_owned(),
        Value::Name => "_freewheel_names".to_owned(),
    }
}

/// A text inside a specification.
fn described(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        if matches!(letter, '[' | ']' | ':' | '\\') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// A word in quotes.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

const FRAME: &str = r#"#compdef freewheel
# Completions of freewheel for zsh, made by "freewheel --generate _freewheel".

# A variable is typed with its $ in quotes, or behind a backslash.
_freewheel_names() {
  local -a directives=(@DIRECTIVES@)
  local -a variables=(@VARIABLES@)
  compadd -- $directives
  compadd -- $variables
}

_freewheel() {
  local -a commands=(
@COMMANDS@  )
  if (( CURRENT > 2 )); then
    case $words[2] in
@FORMS@    esac
  fi
  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
    _describe command commands
    return
  fi
  _arguments -s \
@OPTIONS@    && return
}

_freewheel "$@"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted() {
        assert_eq!(described("a: [b]"), "a\\: \\[b\\]");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
