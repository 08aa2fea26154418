//! The options that stand before or without a command: nginx's, and the words of our own.
//!
//! Not here: their reading ([`super::flags`], [`super::question`]). Invariant: every option that is read stands in [`OPTIONS`], from
//! which `-h`, the man page and the completions are made.

use config::default_paths::{CONFIGURATION, ERROR_LOG, PREFIX};

use super::flags::SIGNALS;
use super::outline::{Argument, Value};

/// What the value of an option is, for completions.
enum Takes {
    Nothing,
    Word,
    Words(&'static [&'static str]),
    File,
    Directory,
    Name,
}

/// An option: its names, the placeholder of its value, what it does, the value's kind.
struct Entry(
    &'static [&'static str],
    &'static str,
    &'static str,
    Takes,
    /// The value without it.
    Option<&'static str>,
);

/// nginx's options in its order, then ours.
const OPTIONS: &[Entry] = &[
    Entry(&["-?", "-h"], "", "this help", Takes::Nothing, None),
    Entry(&["-v"], "", "show version and exit", Takes::Nothing, None),
    Entry(
        &["-V"],
        "",
        "show version and configure options then exit",
        Takes::Nothing,
        None,
    ),
    Entry(
        &["-t"],
        "",
        "test configuration and exit",
        Takes::Nothing,
        None,
    ),
    Entry(
        &["-T"],
        "",
        "test configuration, dump it and exit",
        Takes::Nothing,
        None,
    ),
    Entry(
        &["-q"],
        "",
        "suppress non-error messages during configuration testing",
        Takes::Nothing,
        None,
    ),
    Entry(
        &["-s"],
        "signal",
        "send signal to a master process: stop, quit, reopen, reload",
        Takes::Words(SIGNALS),
        None,
    ),
    Entry(
        &["-p"],
        "prefix",
        "set prefix path",
        Takes::Directory,
        Some(PREFIX),
    ),
    Entry(
        &["-e"],
        "filename",
        "set error log file",
        Takes::File,
        Some(ERROR_LOG),
    ),
    Entry(
        &["-c"],
        "filename",
        "set configuration file",
        Takes::File,
        Some(CONFIGURATION),
    ),
    Entry(
        &["-g"],
        "directives",
        "set global directives out of configuration file",
        Takes::Word,
        None,
    ),
    Entry(
        &["--explain"],
        "NAME",
        "say what a directive or a '$variable' does and exit",
        Takes::Name,
        None,
    ),
    Entry(
        &["--explain-url"],
        "URL",
        "say which server, location and file answer a request, by which lines, and exit",
        Takes::Word,
        None,
    ),
    Entry(
        &["--method"],
        "METHOD",
        "method of that request",
        Takes::Words(METHODS),
        Some("GET"),
    ),
    Entry(
        &["--header"],
        "'NAME: VALUE'",
        "header line of that request; may be repeated",
        Takes::Word,
        None,
    ),
    Entry(
        &["--from"],
        "ADDRESS",
        "address of the client of that request",
        Takes::Word,
        Some("127.0.0.1"),
    ),
    Entry(
        &["--generate"],
        "FILE",
        "print a man page or a file of completions and exit",
        Takes::Words(GENERATED),
        None,
    ),
    Entry(&["--help"], "", "this help", Takes::Nothing, None),
    Entry(
        &["--version"],
        "",
        "show version and exit",
        Takes::Nothing,
        None,
    ),
];

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"];

/// What `--generate` takes.
pub(super) const GENERATED: &[&str] = &[
    "freewheel.8",
    "freewheel.conf.5",
    "freewheel.bash",
    "_freewheel",
    "freewheel.fish",
    "help",
];

/// Calls without a command, besides those of nginx's flags alone: the option that makes the call, and the others that it takes.
pub(super) const CALLS: &[(&str, &[&str])] = &[
    ("--explain", &[]),
    ("--explain-url", &["-c", "--method", "--header", "--from"]),
    ("--generate", &[]),
];

/// All options.
pub(super) fn all() -> Vec<Argument> {
    OPTIONS.iter().map(argument).collect()
}

fn argument(entry: &Entry) -> Argument {
    let Entry(names, placeholder, about, takes, default) = entry;
    let value = match takes {
        Takes::Nothing => Value::None,
        Takes::Word => Value::Text,
        Takes::Words(words) => Value::Words(owned(words)),
        Takes::File => Value::File,
        Takes::Directory => Value::Directory,
        Takes::Name => Value::Name,
    };
    let is_directory = matches!(takes, Takes::Directory);
    let default = default.map(|path| match is_directory {
        true => format!("{}/", path.trim_end_matches('/')),
        false => path.to_owned(),
    });
    Argument {
        names: owned(names),
        placeholder: (*placeholder).to_owned(),
        about: (*about).to_owned(),
        value,
        default,
        is_required: false,
        is_repeated: names.contains(&"--header"),
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::flags;

    #[test]
    fn the_letters_are_those_that_are_read() {
        for letter in (b'!'..=b'~').filter(|letter| *letter != b'-') {
            let name = format!("-{}", char::from(letter));
            let known = OPTIONS
                .iter()
                .find(|entry| entry.0.contains(&name.as_str()));
            let value = match letter {
                b's' => b"quit".to_vec(),
                _ => b"value".to_vec(),
            };
            let alone = flags::parse([name.clone().into_bytes()]).is_ok();
            let valued = flags::parse([name.clone().into_bytes(), value]).is_ok();
            let takes = known.map(|entry| !entry.1.is_empty());
            assert_eq!(
                (alone, valued),
                (takes == Some(false), takes == Some(true)),
                "{name}"
            );
        }
    }
}
