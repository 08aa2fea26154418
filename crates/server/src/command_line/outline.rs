//! The outline of the command line: forms of a call with their arguments, as `-h`, the man page and the completions need them.
//!
//! Not here: the tables themselves ([`super::options`], [`super::commands`]). Invariant: nothing is read by it; it only describes.

use clap::{Arg, ValueHint};

use super::commands::COMMANDS;

/// Maximum width of a line of a usage.
const COLUMNS: usize = 80;

/// What the value of an argument is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// There is none.
    None,
    /// Any text.
    Text,
    /// One of these.
    Words(Vec<String>),
    /// A path.
    File,
    /// A path of a directory.
    Directory,
    /// The name of a directive or a variable.
    Name,
}

/// An argument of a call.
#[derive(Debug, Clone)]
pub(super) struct Argument {
    /// `-s`, `--listen`; empty where its place says what it is.
    pub names: Vec<String>,
    /// What stands for its value; empty if it has none.
    pub placeholder: String,
    /// What it is for.
    pub about: String,
    /// Its value.
    pub value: Value,
    /// Its value when it is not given.
    pub default: Option<String>,
    /// Whether a call without it is refused.
    pub is_required: bool,
    /// Whether it may stand several times.
    pub is_repeated: bool,
}

/// A command with its arguments.
#[derive(Debug, Clone)]
pub(super) struct Form {
    /// Its words: `serve`, or `cache ls` for a command of a command.
    pub words: String,
    /// What it does.
    pub about: String,
    /// Its arguments: those without a name first.
    pub arguments: Vec<Argument>,
    /// Its own commands.
    pub children: Vec<Form>,
}

/// All commands.
pub(super) fn forms() -> Vec<Form> {
    let forms = COMMANDS.iter();
    forms
        .map(|command| form(command.word, &(command.arguments)()))
        .collect()
}

/// The forms and their children, in one row.
pub(super) fn leaves(forms: &[Form]) -> Vec<&Form> {
    let mut leaves = Vec::new();
    for form in forms {
        match form.children.is_empty() {
            true => leaves.push(form),
            false => leaves.extend(self::leaves(&form.children)),
        }
    }
    leaves
}

/// The form of a command of clap's.
pub(super) fn form(words: &str, command: &clap::Command) -> Form {
    let about = command.get_about().map(ToString::to_string);
    let mut arguments: Vec<Argument> = command.get_arguments().map(argument).collect();
    arguments.sort_by_key(|argument| (!argument.names.is_empty(), !argument.is_required));
    let children = command.get_subcommands();
    Form {
        words: words.to_owned(),
        about: first_sentence(&about.unwrap_or_default()).to_owned(),
        arguments,
        children: children
            .map(|child| form(&format!("{words} {}", child.get_name()), child))
            .collect(),
    }
}

/// The first sentence of a text, without its full stop.
fn first_sentence(text: &str) -> &str {
    let (first, _) = text.split_once(". ").unwrap_or((text, ""));
    first.trim_end_matches('.')
}

fn argument(arg: &Arg) -> Argument {
    let short = arg.get_short().map(|letter| format!("-{letter}"));
    let long = arg.get_long().map(|word| format!("--{word}"));
    let takes = arg.get_action().takes_values();
    let words = arg.get_possible_values();
    let value = match arg.get_value_hint() {
        _ if !takes => Value::None,
        _ if !words.is_empty() => Value::Words(
            words
                .iter()
                .map(|word| word.get_name().to_owned())
                .collect(),
        ),
        ValueHint::DirPath => Value::Directory,
        ValueHint::AnyPath | ValueHint::FilePath => Value::File,
        _ => Value::Text,
    };
    let names = arg.get_value_names().unwrap_or_default();
    let mut placeholder: Vec<String> = names.iter().map(ToString::to_string).collect();
    if let (Some(between), [name]) = (arg.get_value_delimiter(), &mut placeholder[..]) {
        *name = format!("{name}[{between}{name}...]");
    }
    let defaults = arg.get_default_values().first();
    let about = arg.get_long_help().or_else(|| arg.get_help());
    Argument {
        names: short.into_iter().chain(long).collect(),
        placeholder: if takes {
            placeholder.join(" ")
        } else {
            String::new()
        },
        about: about.map(ToString::to_string).unwrap_or_default(),
        value,
        default: defaults
            .filter(|_| takes)
            .map(|value| value.to_string_lossy().into_owned()),
        is_required: arg.is_required_set(),
        is_repeated: matches!(arg.get_action(), clap::ArgAction::Append)
            && arg.get_value_delimiter().is_none(),
    }
}

impl Argument {
    /// As it stands in a call: `--listen ADDRESS`.
    pub(super) fn call(&self) -> String {
        let name = self.names.last().map_or("", String::as_str);
        let between = if name.is_empty() || self.placeholder.is_empty() {
            ""
        } else {
            " "
        };
        format!("{name}{between}{}", self.placeholder)
    }

    /// As it stands in a usage: in brackets where it may be left out.
    pub(super) fn usage(&self) -> String {
        let more = if self.is_repeated { "..." } else { "" };
        match self.is_required {
            true => format!("{}{more}", self.call()),
            false => format!("[{}]{more}", self.call()),
        }
    }
}

impl Form {
    /// The words and the arguments of its usage, each in one piece.
    pub(super) fn usage(&self) -> Vec<String> {
        let arguments = self.arguments.iter().map(Argument::usage);
        std::iter::once(self.words.clone())
            .chain(arguments)
            .collect()
    }

    /// The shortest call: its words, what it must be given, and what has no name.
    pub(super) fn shortest(&self) -> String {
        let needed = |argument: &&Argument| argument.is_required || argument.names.is_empty();
        let needed = self.arguments.iter().filter(needed).map(Argument::usage);
        let parts = std::iter::once(self.words.clone()).chain(needed);
        parts.collect::<Vec<_>>().join(" ")
    }
}

/// The pieces of a usage behind `freewheel `, in lines that begin at column `left`.
pub(super) fn wrapped(left: &str, pieces: &[String]) -> String {
    let mut out = format!("{left}freewheel");
    let inner = out.len();
    let mut column = inner;
    for (at, piece) in pieces.iter().enumerate() {
        if at > 0 && column + 1 + piece.len() > COLUMNS {
            out.push('\n');
            out.push_str(&" ".repeat(inner));
            column = inner;
        }
        out.push(' ');
        out.push_str(piece);
        column += 1 + piece.len();
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_has_what_is_needed_first() {
        let forms = forms();
        let proxy = forms.iter().find(|form| form.words == "proxy").unwrap();
        let usage = proxy.usage().join(" ");
        assert!(
            usage.starts_with("proxy ORIGIN --cache DIR[,DIR...] ["),
            "{usage}"
        );
        assert!(usage.contains("[--max-size SIZE]") && usage.contains("[--print-config]"));
        assert_eq!(proxy.shortest(), "proxy ORIGIN --cache DIR[,DIR...]");
        assert!(
            proxy
                .arguments
                .iter()
                .all(|argument| !argument.about.is_empty())
        );
    }

    #[test]
    fn long_usages_go_on_in_the_next_line() {
        let pieces: Vec<String> = (0..12).map(|_| "[--word VALUE]".to_owned()).collect();
        let text = wrapped("  ", &pieces);
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.len() <= COLUMNS));
        assert!(
            text.lines()
                .skip(1)
                .all(|line| line.starts_with("            ["))
        );
    }
}
