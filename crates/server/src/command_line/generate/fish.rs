//! Completions for fish.
//!
//! Not here: the words. Invariant: every text stands in single quotes, in which fish expands nothing.

use std::fmt::Write as _;

use super::Words;
use crate::command_line::outline::{Argument, Value};

/// The file's text.
pub(super) fn write(words: &Words) -> String {
    let (variables, directives): (Vec<&String>, Vec<&String>) =
        words.names.iter().partition(|name| name.starts_with('$'));
    let list = |names: &[&String]| -> String {
        let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
        names.join(" ")
    };
    let commands: Vec<&str> = words.forms.iter().map(|form| form.words.as_str()).collect();
    let groups = words.forms.iter().filter(|form| !form.children.is_empty());
    let groups: Vec<&str> = groups.map(|form| form.words.as_str()).collect();
    let mut lines = String::new();
    for (word, about) in words.commands() {
        let _ = writeln!(
            lines,
            "complete -c freewheel -n '__freewheel_is_first' -a {word} -d {}",
            quoted(about)
        );
    }
    for argument in &words.options {
        option("", argument, &mut lines);
    }
    for form in words.all() {
        for argument in &form.arguments {
            option(&form.words, argument, &mut lines);
        }
        let _ = writeln!(
            lines,
            "complete -c freewheel -n \"__freewheel_at '{}'\" -l help -d 'this help'",
            form.words
        );
        for child in &form.children {
            let word = child.words.split(' ').next_back().unwrap_or_default();
            let _ = writeln!(
                lines,
                "complete -c freewheel -n \"__freewheel_at '{}'\" -a {word} -d {}",
                form.words,
                quoted(&child.about)
            );
        }
    }
    FRAME
        .replace("@DIRECTIVES@", &list(&directives))
        .replace("@VARIABLES@", &list(&variables))
        .replace("@COMMANDS@", &commands.join(" "))
        .replace("@GROUPS@", &groups.join(" "))
        .replace("@LINES@", &lines)
}

/// The line for an argument of a form.
fn option(words: &str, argument: &Argument, out: &mut String) {
    let _ = write!(out, "complete -c freewheel -n \"__freewheel_at '{words}'\"");
    for name in &argument.names {
        let _ = match name.strip_prefix("--") {
            Some(long) => write!(out, " -l {long}"),
            None => write!(out, " -s {}", quoted(name.trim_start_matches('-'))),
        };
    }
    let is_option = !argument.names.is_empty();
    let _ = match &argument.value {
        Value::None => Ok(()),
        Value::Text if is_option => write!(out, " -x"),
        Value::Text => Ok(()),
        Value::Words(own) => write!(out, " -x -a {}", quoted(&own.join(" "))),
        Value::File if is_option => write!(out, " -r -F"),
        Value::File => write!(out, " -F"),
        Value::Directory => write!(out, " -x -a '(__fish_complete_directories)'"),
        Value::Name => write!(out, " -x -a '(__freewheel_names)'"),
    };
    if is_option {
        let _ = write!(out, " -d {}", quoted(&argument.about));
    }
    out.push('\n');
}

/// A text in quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

const FRAME: &str = r#"# Completions of freewheel for fish, made by "freewheel --generate freewheel.fish".

function __freewheel_names
    printf '%s\tdirective\n' @DIRECTIVES@
    printf '%s\tvariable\n' @VARIABLES@
end

# The command whose arguments follow, in one word or two; empty: none.
function __freewheel_form
    set -l words (commandline -opc)
    set -l form
    if contains -- "$words[2]" @COMMANDS@
        set form $words[2]
        if contains -- "$form" '' @GROUPS@; and test -n "$words[3]"
            set form "$form $words[3]"
        end
    end
    printf '%s\n' "$form"
end

function __freewheel_at
    set -l form (__freewheel_form)
    test "$form" = "$argv[1]"
end

function __freewheel_is_first
    test (count (commandline -opc)) -eq 1
end

complete -c freewheel -f
@LINES@"#;
