//! `freewheel migrate`: one page about a configuration of nginx, for the operator who would run it here.
//!
//! `judging` finds all faults in one run, `report` sorts the lines, `difference` and `rows` know which lines meet which of the
//! `paragraphs` of docs/differences.md, `gains` what gets better, `steps` how to try and to switch, `page` prints. Invariant: a
//! directive is told to be the same only if it is built, no difference names a line of it, and no warning is about it; nothing
//! is opened for writing.

mod difference;
mod gains;
mod judging;
mod page;
mod paragraphs;
mod report;
mod rows;
mod steps;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use config::Grammar;
use httpcore::handler::Modules;

use crate::process::load::Origin;

/// The configuration without an argument.
const DEFAULT: &str = "/etc/nginx/nginx.conf";
/// Its name in a directory.
const FILE: &str = "nginx.conf";

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The configuration file.
    pub root: PathBuf,
    /// What is printed.
    pub form: Form,
}

/// What is printed of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The page, as short as it can be.
    Page,
    /// The page with every directive and with differences whole.
    Long,
    /// The commands to try it, to switch, and to go back.
    Steps,
    /// A JSON document.
    Json,
}

impl Wish {
    /// From a path, of a file or a directory.
    #[must_use]
    pub(crate) fn of(path: Option<&Path>, form: Form) -> Self {
        let path = path.map_or_else(|| PathBuf::from(DEFAULT), Path::to_owned);
        #[expect(clippy::disallowed_methods, reason = "a command: no loop runs")]
        let path = if path.is_dir() { path.join(FILE) } else { path };
        let path = std::path::absolute(&path).unwrap_or(path);
        Self { root: path, form }
    }
}

/// Status of a configuration that does not run unchanged.
const REFUSED: u8 = 1;
/// Status where there is no configuration, or the call is wrong.
pub(crate) const UNREADABLE: u8 = 2;
/// Status where nothing is refused, and something could not be judged here, or is missing.
const UNJUDGED: u8 = 3;

/// Prints the page. The status is 0 if the configuration runs unchanged.
pub(crate) fn run(wish: &Wish, modules: Modules) -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "a command: no loop runs")]
    if let Err(error) = std::fs::File::open(&wish.root) {
        eprintln!("freewheel: {}: {error}", wish.root.display());
        return ExitCode::from(UNREADABLE);
    }
    let directory = wish.root.parent().unwrap_or(Path::new("/")).join("");
    let origin = Origin {
        prefix: directory,
        root: wish.root.clone(),
        globals: None,
    };
    let grammar = Grammar::new(crate::process::tables_with(modules));
    let judged = judging::judge(&origin, &grammar, modules);
    let report = report::Report::of(&wish.root, &judged, &grammar);
    let text = match wish.form {
        Form::Json => serde_json::to_string_pretty(&report)
            .map_or_else(|error| error.to_string(), |text| text + "\n"),
        Form::Page => page::short(&report),
        Form::Long => page::long(&report),
        Form::Steps => page::steps(&report),
    };
    if std::io::stdout().write_all(text.as_bytes()).is_err() {
        return ExitCode::from(UNREADABLE);
    }
    match report.runs {
        report::Runs::Unchanged => ExitCode::SUCCESS,
        report::Runs::Refused => ExitCode::from(REFUSED),
        report::Runs::Unjudged => ExitCode::from(UNJUDGED),
    }
}
