//! The manual of the whole program: the pages of `docs/reference/` and the texts of `--explain`.
//!
//! Not here: how a table becomes a page (`config::manual`). Invariant: the pages depend only on the tables and on the
//! list of variables, so that a test can detect a stale page (`cargo xtask manual` writes them).

use std::fmt::Write as _;

use config::Table;

use crate::variables::names::{self, FAMILIES};

/// Every page as file name and text.
#[must_use]
pub fn pages() -> Vec<(String, String)> {
    let mut pages = config::manual::pages(&crate::process::tables());
    if let Some((_, index)) = pages.iter_mut().find(|(name, _)| name == "README.md") {
        let anchor = "(compatibility.md).\n";
        *index = index.replacen(
            anchor,
            &format!("{anchor}Variables in values: [variables](variables.md).\n"),
            1,
        );
    }
    pages.push(("variables.md".to_owned(), variables()));
    pages
}

/// The text that `--explain` prints for a directive of `tables`, or for a variable (`$` first).
///
/// # Errors
/// The sentence for an unknown name, with a suggestion if a similar one exists.
pub fn explain(tables: &[&Table], name: &str) -> Result<String, String> {
    let Some(variable) = name.strip_prefix('$') else {
        return config::manual::explain(tables, name);
    };
    let lower = variable.to_ascii_lowercase();
    let core = names::all().find(|(known, ..)| *known == lower);
    let family = || {
        let begins = |prefix: &str| lower.starts_with(prefix) && lower.len() > prefix.len();
        FAMILIES.iter().find(|(prefix, ..)| begins(prefix))
    };
    let text = core
        .map(|(.., text)| text)
        .or_else(|| family().map(|(.., text)| *text));
    let unknown = || {
        let known = names::all().map(|(known, ..)| known);
        match config::suggest::nearest(lower.as_bytes(), known) {
            Some(near) => format!("unknown variable \"${variable}\", did you mean \"${near}\"?"),
            None => format!("unknown variable \"${variable}\""),
        }
    };
    let text = text.ok_or_else(unknown)?;
    Ok(format!("${lower}: {}\n", text.trim()))
}

fn variables() -> String {
    let mut page = format!(
        "{}\n# Variables\n\nNames are case-insensitive. The configuration defines further variables: `map`, `geo`, `split_clients`, `set`, and named \
         groups of regular expressions in `server_name` and `location`.\n\n| variable | value |\n|---|---|\n",
        config::manual::GENERATED
    );
    for (name, _, text) in names::all() {
        let _ = writeln!(page, "| `${name}` | {} |", text.trim());
    }
    for (prefix, _, text) in FAMILIES {
        let _ = writeln!(page, "| `${prefix}NAME` | {} |", text.trim());
    }
    page
}
