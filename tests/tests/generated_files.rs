//! The man pages and completions of `freewheel --generate`, tried with mandoc and in the shells that they are for.
//!
//! A test whose program is not installed says so and is skipped: mandoc, zsh, fish.
#![expect(
    clippy::disallowed_methods,
    reason = "tests have no event loop: processes are waited for"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use blackbox::is_nginx;

/// Words behind `freewheel`, the last of which is completed, and what becomes of it. Each has one completion only.
const COMPLETED: &[(&str, &str)] = &[
    ("ser", "serve"),
    ("serve --auto", "--autoindex"),
    ("proxy --max", "--max-size"),
    ("-s reo", "reopen"),
    ("--explain-u", "--explain-url"),
    ("--explain sendfile_", "sendfile_max_chunk"),
    ("--explain proxy_cache_pu", "proxy_cache_purge"),
    (r"--explain \$request_ur", r"\$request_uri"),
    ("--generate freewheel.c", "freewheel.conf.5"),
    ("serve %DIR%/ali", "%DIR%/alike/"),
    ("-c %DIR%/fil", "%DIR%/file.conf"),
];

fn generated(name: &str) -> String {
    let program = Command::new(blackbox::binary())
        .args(["--generate", name])
        .env("SOURCE_DATE_EPOCH", "1790000000")
        .output()
        .expect("the program can be run");
    assert!(program.status.success(), "{name}: {program:?}");
    String::from_utf8(program.stdout).expect("the files are text")
}

/// Whether a program is there; says so if it is not.
fn is_there(program: &str) -> bool {
    let mut call = Command::new("sh");
    call.args(["-c", &format!("command -v {program}")]);
    let is_there = call.output().is_ok_and(|output| output.status.success());
    if !is_there {
        eprintln!("skipped: there is no {program}");
    }
    is_there
}

/// A directory with the generated file in it, and what the paths of [`COMPLETED`] name.
fn directory(name: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let file = directory.path().join(name);
    std::fs::write(&file, generated(name)).expect("it can be written to");
    std::fs::create_dir(directory.path().join("alike")).expect("it can be written to");
    std::fs::write(directory.path().join("alike.txt"), "").expect("it can be written to");
    std::fs::write(directory.path().join("file.conf"), "").expect("it can be written to");
    (directory, file)
}

/// The rows of [`COMPLETED`] with their paths.
fn rows(directory: &Path) -> impl Iterator<Item = (String, String)> {
    let directory = directory.display().to_string();
    let filled = move |text: &str| text.replace("%DIR%", &directory);
    COMPLETED
        .iter()
        .map(move |(line, word)| (filled(line), filled(word)))
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn the_man_pages_pass_mandoc_s_checks() {
    if is_nginx() || !is_there("mandoc") {
        return;
    }
    let pages = ["freewheel.8", "freewheel.conf.5"];
    let (directory, _) = directory(pages[0]);
    // The pages refer to each other, which is checked where they stand.
    std::fs::write(directory.path().join(pages[1]), generated(pages[1]))
        .expect("it can be written to");
    let mandoc = |arguments: &[&str]| {
        let mut call = Command::new("mandoc");
        let call = call.args(arguments).current_dir(directory.path());
        call.output().expect("mandoc can be run")
    };
    let lint = mandoc(&["-T", "lint", "-W", "style", pages[0], pages[1]]);
    assert!(lint.status.success(), "{}", text(&lint));
    for name in pages {
        // A letter in bold is struck twice.
        let mut plain = String::new();
        for letter in text(&mandoc(&["-T", "ascii", name])).chars() {
            match letter {
                '\u{8}' => drop(plain.pop()),
                letter => plain.push(letter),
            }
        }
        for word in ["SEE ALSO", "September 21, 2026", "freewheel"] {
            assert!(plain.contains(word), "{name}: {word}");
        }
    }
}

#[test]
fn an_unknown_file_is_refused_with_the_list() {
    if is_nginx() {
        return;
    }
    for arguments in [&["--generate"][..], &["--generate", "freewheel.1"]] {
        let output = Command::new(blackbox::binary())
            .args(arguments)
            .output()
            .expect("the program can be run");
        assert!(!output.status.success() && output.stdout.is_empty());
        assert!(
            text(&output).contains("\nfreewheel.conf.5\n_freewheel\n")
                || text(&output).contains("freewheel.fish\n")
        );
    }
    assert!(generated("help").starts_with("freewheel.8\n"));
}

#[test]
fn bash_completes() {
    if is_nginx() || !is_there("bash") {
        return;
    }
    let (directory, file) = directory("freewheel.bash");
    let script = "source \"$1\"; IFS=' ' read -ra COMP_WORDS <<<\"freewheel $2\"; \
                  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _freewheel; printf '%s\\n' \"${COMPREPLY[@]}\"";
    for (line, word) in rows(directory.path()) {
        let output = Command::new("bash")
            .args(["--norc", "-c", script, "bash"])
            .arg(&file)
            .arg(&line)
            .output()
            .expect("bash can be run");
        // bash itself adds the slash of a directory.
        let told = text(&output);
        assert_eq!(told.trim_end(), word.trim_end_matches('/'), "{line}");
    }
}

#[test]
fn fish_completes() {
    if is_nginx() || !is_there("fish") {
        return;
    }
    let (directory, file) = directory("freewheel.fish");
    for (line, word) in rows(directory.path()) {
        let output = Command::new("fish")
            .args(["--no-config", "-c", "source $argv[1]; complete -C $argv[2]"])
            .arg(&file)
            .arg(format!("freewheel {line}"))
            .env("HOME", directory.path())
            .output()
            .expect("fish can be run");
        let told = text(&output);
        let told: Vec<&str> = told
            .lines()
            .filter_map(|line| line.split('\t').next())
            .collect();
        // fish quotes what it inserts.
        assert_eq!(told, [word.trim_start_matches('\\')], "{line}");
    }
}

/// What an interactive zsh runs: it completes the line, writes down what became of it, and leaves.
const ZSHRC: &str = r#"
fpath=($DIRECTORY $fpath)
autoload -Uz compinit
compinit -u -D
zle-line-init() {
    BUFFER=$LINE_TYPED
    CURSOR=$#BUFFER
    zle expand-or-complete
    print -r -- "$BUFFER" > $DIRECTORY/outcome
    BUFFER=exit
    zle accept-line
}
zle -N zle-line-init
"#;

#[test]
fn zsh_completes() {
    if is_nginx() || !is_there("zsh") {
        return;
    }
    let (directory, _) = directory("_freewheel");
    let path = directory.path();
    std::fs::write(path.join(".zshrc"), ZSHRC).expect("it can be written to");
    for (line, word) in rows(path) {
        let script = "zmodload zsh/zpty; zpty z zsh -d -i; while zpty -r z; do :; done";
        let output = Command::new("zsh")
            .args(["-f", "-c", script])
            .env("ZDOTDIR", path)
            .env("DIRECTORY", path)
            .env("TERM", "xterm")
            .env("LINE_TYPED", format!("freewheel {line}"))
            .output()
            .expect("zsh can be run");
        let outcome = std::fs::read_to_string(path.join("outcome"));
        let outcome = outcome.unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
        let last = outcome.split_whitespace().next_back();
        assert_eq!(last, Some(word.as_str()), "{line}");
    }
}
