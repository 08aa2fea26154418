//! The manual of the whole program: the pages of `docs/reference/` and the texts of `--explain`.
//!
//! Not here: how a table becomes a page (`config::manual`). Invariant: the pages depend only on the tables and on the
//! tables of variables, so that a test can detect a stale page (`cargo xtask manual` writes them).

use std::fmt::Write as _;

use crate::settings::tables;
use httpcore::handler::Modules;
use httpcore::variables::table::VariableEntry;

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
    pages.push(("variables.md".to_owned(), page_of_variables()));
    pages
}

/// The text that `--explain` prints for a directive, or for a variable (`$` first), those of `modules` included.
///
/// # Errors
/// The sentence for an unknown name, with a suggestion if a similar one exists.
pub fn explain(modules: Modules, name: &str) -> Result<String, String> {
    let Some(variable) = name.strip_prefix('$') else {
        return config::manual::explain(&crate::process::tables_with(modules), name);
    };
    let lower = variable.to_ascii_lowercase();
    let variables = tables::variables(modules);
    let found = variables.find(&lower);
    match found.filter(|(entry, rest)| !entry.is_family() || !rest.is_empty()) {
        Some((entry, _)) => Ok(format!("${lower}: {}\n", entry.doc.trim())),
        None => Err(
            match config::suggest::nearest(lower.as_bytes(), variables.names()) {
                Some(near) => {
                    format!("unknown variable \"${variable}\", did you mean \"${near}\"?")
                }
                None => format!("unknown variable \"${variable}\""),
            },
        ),
    }
}

/// The names of all directives and variables, of these with `$` in front, those of `modules` included; each once, in order.
pub(crate) fn names(modules: Modules) -> Vec<String> {
    let chapters = config::manual::chapters(&crate::process::tables_with(modules));
    let directives = chapters.iter().flat_map(|chapter| &chapter.directives);
    let mut names: Vec<String> = directives
        .map(|directive| directive.name.to_owned())
        .collect();
    let variables = tables::variables(modules);
    let single = variables.all().filter(|entry| !entry.is_family());
    names.extend(single.map(|entry| format!("${}", entry.name)));
    names.sort_unstable();
    names.dedup();
    names
}

/// The variables with their texts in Markdown: single ones by name, then families, with `NAME` for the rest of the name.
pub(crate) fn variables(modules: Modules) -> Vec<(String, &'static str)> {
    let variables = tables::variables(modules);
    let mut all: Vec<&VariableEntry> = variables.all().collect();
    all.sort_unstable_by_key(|entry| (entry.is_family(), entry.name));
    let named = |entry: &&VariableEntry| {
        let rest = if entry.is_family() { "NAME" } else { "" };
        (format!("{}{rest}", entry.name), entry.doc.trim())
    };
    all.iter().map(named).collect()
}

/// The page of variables.
fn page_of_variables() -> String {
    let mut page = format!(
        "{}\n# Variables\n\nNames are case-insensitive. The configuration defines further variables: `map`, `geo`, `split_clients`, `set`, and named \
         groups of regular expressions in `server_name` and `location`.\n\n| variable | value |\n|---|---|\n",
        config::manual::GENERATED
    );
    for (name, doc) in variables(&[]) {
        let _ = writeln!(page, "| `${name}` | {doc} |");
    }
    page
}
