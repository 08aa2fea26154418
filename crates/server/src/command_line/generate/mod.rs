//! `freewheel --generate FILE`: the man pages and the completions of shells, on standard output, for packages.
//!
//! * [`program_page`], [`configuration_page`]: freewheel(8), freewheel.conf(5), written in mdoc by [`mdoc`].
//! * [`bash`], [`zsh`], [`fish`]: the completions.
//!
//! Written here and not by clap's own generators: the command line is nginx's, which clap does not read, `$` of variables would be
//! expanded in their completions for bash, and freewheel.conf(5) is no command. Not here: what commands and options there are
//! ([`super::outline`], [`super::options`]). Invariant: the text depends on the tables, the modules and SOURCE_DATE_EPOCH alone.

mod bash;
mod configuration_page;
mod fish;
mod mdoc;
mod program_page;
mod zsh;

use std::ffi::OsString;
use std::process::ExitCode;

use super::options::{self, GENERATED};
use super::outline::{self, Argument, Form};
use crate::manual;
use httpcore::handler::Modules;

/// What the completions are made of.
struct Words {
    options: Vec<Argument>,
    forms: Vec<Form>,
    /// Of directives, and of variables with `$` in front.
    names: Vec<String>,
}

/// Prints the file of this name.
pub(super) fn run(name: Option<&OsString>, modules: Modules) -> ExitCode {
    let name = name.map(|name| name.to_string_lossy());
    match name.as_deref().and_then(|name| file(name, modules)) {
        Some(text) => super::printing::tell(text),
        None => {
            eprint!("freewheel: --generate takes one of these\n{}", help());
            ExitCode::FAILURE
        }
    }
}

/// The text of a file; none if there is no file of this name.
fn file(name: &str, modules: Modules) -> Option<String> {
    let words = || Words {
        options: options::all(),
        forms: outline::forms(),
        names: manual::names(modules),
    };
    Some(match name {
        "freewheel.8" => program_page::write(&options::all(), &outline::forms()),
        "freewheel.conf.5" => configuration_page::write(modules),
        "freewheel.bash" => bash::write(&words()),
        "_freewheel" => zsh::write(&words()),
        "freewheel.fish" => fish::write(&words()),
        "help" => help(),
        _ => return None,
    })
}

/// The list of files.
fn help() -> String {
    GENERATED.iter().map(|name| format!("{name}\n")).collect()
}

impl Words {
    /// The first words that are commands.
    fn commands(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.forms.iter();
        let own = own.map(|form| (form.words.as_str(), form.about.as_str()));
        own.chain([("help", "this help"), ("version", "show version")])
    }

    /// All forms, those of commands of commands included.
    fn all(&self) -> impl Iterator<Item = &Form> {
        self.forms
            .iter()
            .flat_map(|form| std::iter::once(form).chain(&form.children))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_made() {
        for name in GENERATED {
            assert!(
                file(name, &[]).is_some_and(|text| text.lines().count() > 5),
                "{name}"
            );
        }
        assert!(file("freewheel.1", &[]).is_none());
    }

    #[test]
    fn completions_have_every_command_option_and_name() {
        for name in ["freewheel.bash", "_freewheel", "freewheel.fish"] {
            let text = file(name, &[]).unwrap();
            for word in [
                "serve",
                "top",
                "print-config",
                "explain-url",
                "sendfile",
                "request_uri",
            ] {
                assert!(text.contains(word), "{name}: {word}");
            }
        }
    }

    #[test]
    fn commands_of_commands_are_completed() {
        let long = clap::Arg::new("long").long("long");
        let long = long.action(clap::ArgAction::SetTrue);
        let directory = clap::Arg::new("dir").value_name("DIR").required(true);
        let directory = directory.value_hint(clap::ValueHint::DirPath);
        let inner = clap::Command::new("ls")
            .about("Lists it.")
            .arg(long)
            .arg(directory);
        let outer = clap::Command::new("cache")
            .about("Looks into it.")
            .subcommand(inner);
        let words = Words {
            options: options::all(),
            forms: vec![outline::form("cache", &outer)],
            names: Vec::new(),
        };
        let bash = bash::write(&words);
        assert!(
            bash.contains("'cache') options='--help' plain='ls' place='' ;;"),
            "{bash}"
        );
        assert!(bash.contains("'cache ls') options='--long --help' plain='' place='-d' ;;"));
        assert!(bash.contains("for word in cache; do"));
        let zsh = zsh::write(&words);
        assert!(
            zsh.contains("'ls:Lists it'") && zsh.contains("':DIR:_files -/'"),
            "{zsh}"
        );
        let fish = fish::write(&words);
        assert!(
            fish.contains("__freewheel_at 'cache'\" -a ls -d 'Lists it'"),
            "{fish}"
        );
        assert!(fish.contains("__freewheel_at 'cache ls'\" -l long"));
        let page = program_page::write(&words.options, &words.forms);
        assert!(
            page.contains(".Cm cache \\&ls\n.Ar \\&DIR\n.Op Fl \\-long\n"),
            "{page}"
        );
    }
}
