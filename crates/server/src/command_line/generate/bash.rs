//! Completions for bash.
//!
//! Not here: the words. Invariant: no word of the line is evaluated, and it needs neither the package bash-completion nor a process.

use std::fmt::Write as _;

use super::Words;
use crate::command_line::outline::{Argument, Value};

/// The file's text.
pub(super) fn write(words: &Words) -> String {
    let (variables, directives): (Vec<&String>, Vec<&String>) =
        words.names.iter().partition(|name| name.starts_with('$'));
    let bare = variables.iter().map(|name| name.trim_start_matches('$'));
    let mut values = String::new();
    let mut names = String::new();
    let first: Vec<&str> = words.commands().map(|(word, _)| word).collect();
    let mut form = |words: &str, arguments: &[Argument], plain: &[&str]| {
        for argument in arguments
            .iter()
            .filter(|argument| !argument.names.is_empty())
        {
            value(words, argument, &mut values);
        }
        let own = arguments.iter().flat_map(|argument| &argument.names);
        let mut own: Vec<&str> = own.map(String::as_str).collect();
        if !words.is_empty() {
            own.push("--help");
        }
        let place = arguments.iter().find(|argument| argument.names.is_empty());
        let place = match place.map(|argument| &argument.value) {
            Some(Value::Directory) => "-d",
            Some(Value::File) => "-f",
            _ => "",
        };
        let _ = writeln!(
            names,
            "        '{words}') options='{}' plain='{}' place='{place}' ;;",
            own.join(" "),
            plain.join(" ")
        );
    };
    form("", &words.options, &first);
    for own in words.all() {
        let children: Vec<&str> = own
            .children
            .iter()
            .filter_map(|child| child.words.split(' ').next_back())
            .collect();
        form(&own.words, &own.arguments, &children);
    }
    let groups: Vec<&str> = words
        .forms
        .iter()
        .filter(|form| !form.children.is_empty())
        .map(|form| form.words.as_str())
        .collect();
    let commands: Vec<&str> = words.forms.iter().map(|form| form.words.as_str()).collect();
    FRAME
        .replace(
            "@DIRECTIVES@",
            &directives
                .iter()
                .map(|name| name.as_str())
                .collect::<Vec<_>>()
                .join(" "),
        )
        .replace("@VARIABLES@", &bare.collect::<Vec<_>>().join(" "))
        .replace("@COMMANDS@", &commands.join(" "))
        .replace("@GROUPS@", &groups.join(" "))
        .replace("@VALUES@", &values)
        .replace("@NAMES@", &names)
}

/// The line for the value of an argument with names.
fn value(words: &str, argument: &Argument, out: &mut String) {
    let call = match &argument.value {
        Value::None => return,
        Value::Text => ":".to_owned(),
        Value::Words(own) => format!("_freewheel_words '{}'", own.join(" ")),
        Value::File => "_freewheel_paths -f".to_owned(),
        Value::Directory => "_freewheel_paths -d".to_owned(),
        Value::Name => "_freewheel_names".to_owned(),
    };
    let keys: Vec<String> = argument
        .names
        .iter()
        .map(|name| format!("'{words} {name}'"))
        .collect();
    let _ = writeln!(out, "        {}) {call}; return ;;", keys.join("|"));
}

const FRAME: &str = r#"# Completions of freewheel for bash, made by "freewheel --generate freewheel.bash".

_freewheel_directives='@DIRECTIVES@'
_freewheel_variables='@VARIABLES@'

_freewheel_words() {
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}

_freewheel_paths() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
}

# A variable is typed with its $ in quotes, or behind a backslash, which is added where it is missing.
_freewheel_names() {
    case $cur in
        "'"'$'*) mapfile -t COMPREPLY < <(compgen -P '$' -W "$_freewheel_variables" -- "${cur#??}") ;;
        '"'*) ;;
        '\$'*) mapfile -t COMPREPLY < <(compgen -P '\$' -W "$_freewheel_variables" -- "${cur#??}") ;;
        '$'*) mapfile -t COMPREPLY < <(compgen -P '\$' -W "$_freewheel_variables" -- "${cur#?}") ;;
        "'"*) mapfile -t COMPREPLY < <(compgen -W "$_freewheel_directives" -- "${cur#?}") ;;
        *) _freewheel_words "$_freewheel_directives" ;;
    esac
}

_freewheel() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} form= word options= plain= place=
    COMPREPLY=()
    if [ "$COMP_CWORD" -gt 1 ]; then
        for word in @COMMANDS@; do
            if [ "${COMP_WORDS[1]}" = "$word" ]; then form=$word; fi
        done
    fi
    for word in @GROUPS@; do
        if [ "$form" = "$word" ] && [ "$COMP_CWORD" -gt 2 ]; then form="$form ${COMP_WORDS[2]}"; fi
    done
    case "$form $prev" in
@VALUES@    esac
    case $form in
@NAMES@    esac
    case $cur in
        -*) _freewheel_words "$options" ;;
        *)
            if [ -n "$place" ]; then _freewheel_paths "$place"; return; fi
            if [ -n "$form" ] || [ "$COMP_CWORD" -eq 1 ]; then _freewheel_words "$plain"; fi
            ;;
    esac
}

complete -F _freewheel freewheel
"#;
