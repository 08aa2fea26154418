//! Words that are commands of other programs and not of this one (`freewheel start`): the answer names the right
//! command.
//!
//! Not here: the words that are commands. Invariant: none of these does anything, except `help` and `version`.

use std::process::ExitCode;

use super::commands::COMMANDS;
use super::{outline, version};

/// Commands that users of other servers type, and the one that does the same here.
const MEANT: &[(&[&str], &str)] = &[
    (
        &["run", "start", "daemon", "up", "server", "listen", "web"],
        "freewheel -c FILE               starts the server with a configuration (in the background, unless it says \"daemon off\")\n  \
         freewheel serve DIR             serves a directory without a configuration",
    ),
    (
        &["test", "validate", "check", "configtest", "verify", "lint"],
        "freewheel -t -c FILE            says whether the configuration can be served",
    ),
    (
        &["stop", "quit", "kill", "shutdown", "down", "exit"],
        "freewheel -s quit               ends the server when all that it sends is sent; -s stop at once",
    ),
    (
        &["reload", "restart", "force-reload", "hup"],
        "freewheel -s reload             has the running server read its configuration again",
    ),
    (
        &["reopen", "rotate", "logrotate"],
        "freewheel -s reopen             has the running server open its logs again",
    ),
    (
        &["status", "stats", "ps", "info", "dashboard"],
        "freewheel top URL               shows the figures of a running server whose configuration has a \"dashboard\"",
    ),
    (
        &["reverse-proxy", "proxy_pass", "file-server", "fileserver"],
        "freewheel proxy ORIGIN --cache DIR   passes requests on, and keeps the answers\n  freewheel serve DIR             serves a directory",
    ),
    (
        &["explain", "man", "doc", "docs"],
        "freewheel --explain DIRECTIVE   says what a directive does, where it may stand, what its default is",
    ),
    (
        &["config", "dump", "show"],
        "freewheel -T                    shows the whole configuration, with what it includes",
    ),
];

/// Calls without a command, beside those of [`outline::forms`], and what they do.
const CALLS: &[(&str, &str)] = &[
    ("[-c FILE]", "starts the server"),
    ("-t", "tests the configuration"),
    ("-s reload|quit|stop|reopen", "tells the running server"),
];
/// Those that are listed last.
const LAST: &[(&str, &str)] = &[
    ("--explain DIRECTIVE", "says what a directive does"),
    ("-h", "all commands and options"),
];

/// Columns of a call in the list; what a longer one does stands in the next line.
const CALL_COLUMNS: usize = 26;

/// The list of all calls.
fn calls() -> String {
    let line = |call: &str, about: &str| match call.len() <= CALL_COLUMNS {
        true => format!("  freewheel {call:<CALL_COLUMNS$} {about}\n"),
        false => format!(
            "  freewheel {call}\n{:width$}{about}\n",
            "",
            width = CALL_COLUMNS + 13
        ),
    };
    let lines = |calls: &[(&str, &str)]| -> String {
        calls
            .iter()
            .map(|(call, about)| line(call, about))
            .collect()
    };
    let forms = outline::forms();
    let own: String = outline::leaves(&forms)
        .iter()
        .map(|form| line(&form.shortest(), &lower(&form.about)))
        .collect();
    format!("Commands:\n{}{own}{}", lines(CALLS), lines(LAST))
}

/// A sentence as a part of a line.
fn lower(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

/// Answers a first argument that begins with no `-` and is no command.
#[must_use]
pub(super) fn answer(word: &str) -> ExitCode {
    match word {
        "help" => return super::printing::tell(version::help()),
        "version" => return super::printing::tell(version::version()),
        _ => {}
    }
    eprintln!("freewheel: there is no command \"{word}\"");
    let mut meant = MEANT.iter();
    match meant.find(|(words, _)| words.contains(&word)) {
        Some((_, call)) => eprintln!("  {call}"),
        None => {
            let known = COMMANDS
                .iter()
                .map(|command| command.word)
                .chain(["help", "version"]);
            let words = MEANT.iter().flat_map(|(words, _)| words.iter().copied());
            if let Some(near) = config::suggest::nearest(word.as_bytes(), known.chain(words)) {
                eprintln!("did you mean \"{near}\"?");
            }
        }
    }
    eprint!("{}", calls());
    ExitCode::FAILURE
}
