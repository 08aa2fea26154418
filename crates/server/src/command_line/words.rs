//! Words that are commands of other programs and not of this one (`freewheel start`): the answer names the right
//! command.
//!
//! Not here: the words that are commands. Invariant: none of these does anything, except `help` and `version`.

use std::process::ExitCode;

use super::version;

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
        &[
            "reverse-proxy",
            "proxy_pass",
            "cache",
            "file-server",
            "fileserver",
        ],
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

/// The commands.
const COMMANDS: &str = "Commands:
  freewheel [-c FILE]             starts the server
  freewheel -t                    tests the configuration
  freewheel -s reload|quit|stop|reopen
  freewheel serve DIR             serves a directory, without a configuration
  freewheel proxy ORIGIN --cache DIR
  freewheel top URL               shows the figures of a running server
  freewheel migrate [DIR]         says whether a configuration runs here unchanged, and how to switch
  freewheel --explain DIRECTIVE
  freewheel -h                    all flags
";

/// Answers a first argument that begins with no `-` and is no command.
#[must_use]
pub(super) fn answer(word: &str) -> ExitCode {
    match word {
        "help" => return super::tell(version::help()),
        "version" => return super::tell(version::version()),
        _ => {}
    }
    eprintln!("freewheel: there is no command \"{word}\"");
    let mut meant = MEANT.iter();
    match meant.find(|(words, _)| words.contains(&word)) {
        Some((_, call)) => eprintln!("  {call}"),
        None => {
            let known = ["serve", "proxy", "top", "migrate", "help", "version"];
            let words = MEANT.iter().flat_map(|(words, _)| words.iter().copied());
            if let Some(near) =
                config::suggest::nearest(word.as_bytes(), known.into_iter().chain(words))
            {
                eprintln!("did you mean \"{near}\"?");
            }
        }
    }
    eprint!("{COMMANDS}");
    ExitCode::FAILURE
}
