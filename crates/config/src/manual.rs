//! The manual, generated from the tables: pages in Markdown, and the text of `--explain`.
//!
//! Only the frame is written here: the description of a directive is in its table, next to the code that obeys it. A
//! page's text depends on the tables alone, so that a test can detect a stale one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::known::{self, Fate, KnownDirective};
use crate::syntax::suggest;
use crate::table::args::Args;
use crate::table::context::Context;
use crate::table::{DirectiveEntry, DirectiveTable, Inherit};

/// The first line of every generated page.
pub const GENERATED: &str =
    "<!-- Generated from the directive tables. Do not edit: change the table. -->\n";

/// The prefix of the text of a directive that is accepted only for the sake of configurations that have it.
const IGNORED: &str = "Ignored: ";

/// Every page of the reference, as file name and text: `README.md` (the index), one page per heading of tables, and
/// `compatibility.md`. Adds `include`.
#[must_use]
pub fn pages(tables: &[&DirectiveTable]) -> Vec<(String, String)> {
    let tables = with_include(tables);
    let mut by_file: BTreeMap<String, String> = BTreeMap::new();
    for table in &tables {
        let page = by_file
            .entry(file_name(table))
            .or_insert_with(|| format!("{GENERATED}\n# {}\n", heading(table).0));
        page.push_str(&part_of_page(table));
    }
    by_file.insert("README.md".to_owned(), index(&tables));
    by_file.insert("compatibility.md".to_owned(), compatibility(&tables));
    by_file.into_iter().collect()
}

/// The output of `--explain NAME`: syntax, default, contexts and text, for each meaning of the name; for a directive of
/// nginx that is not implemented, what becomes of it.
///
/// # Errors
/// The sentence for an unknown name, with a suggestion where one is near.
pub fn explain(tables: &[&DirectiveTable], name: &str) -> Result<String, String> {
    let tables = with_include(tables);
    let mut out = String::new();
    for entry in tables.iter().flat_map(|table| table.named(name.as_bytes())) {
        let head = facts(entry).map(|(title, text)| format!("{:9} {text}\n", format!("{title}:")));
        out.extend(head);
        let _ = writeln!(out, "\n{}\n", paragraphs(entry.doc).trim_end());
    }
    for row in known::find(name.as_bytes())
        .iter()
        .filter(|row| !is_built(&tables, row))
    {
        let _ = writeln!(
            out,
            "{name} (nginx: {}; in {}): {}.\n",
            row.module,
            row.contexts,
            fate(row)
        );
    }
    if !out.is_empty() {
        return Ok(format!("{}\n", out.trim_end()));
    }
    let names = tables
        .iter()
        .flat_map(|table| &table.entries)
        .map(|entry| entry.name);
    Err(
        match suggest::nearest(
            name.as_bytes(),
            names.chain(known::all().iter().map(|row| row.name)),
        ) {
            Some(near) => format!("unknown directive \"{name}\", did you mean \"{near}\"?"),
            None => format!("unknown directive \"{name}\""),
        },
    )
}

/// A page of the reference in parts, for other forms than Markdown pages.
#[derive(Debug)]
pub struct Chapter {
    /// Its heading.
    pub heading: String,
    /// What stands above its directives, in Markdown.
    pub text: String,
    /// Its directives, in the order of declaration.
    pub directives: Vec<Description>,
}

/// A directive as the manual has it.
#[derive(Debug)]
pub struct Description {
    /// Its name.
    pub name: &'static str,
    /// Syntax, default and contexts: titles and values.
    pub facts: Vec<(&'static str, String)>,
    /// What it does, in Markdown.
    pub text: String,
}

/// All chapters, in the order of the index. Adds `include`.
#[must_use]
pub fn chapters(tables: &[&DirectiveTable]) -> Vec<Chapter> {
    let mut chapters: Vec<Chapter> = Vec::new();
    for table in with_include(tables) {
        let (heading, text) = heading(table);
        let describe = |entry: &DirectiveEntry| Description {
            name: entry.name,
            facts: facts(entry).collect(),
            text: paragraphs(entry.doc),
        };
        let directives = table.entries.iter().map(describe);
        match chapters
            .iter_mut()
            .find(|chapter| chapter.heading == heading)
        {
            Some(chapter) => {
                let between = if chapter.text.is_empty() || text.is_empty() {
                    ""
                } else {
                    "\n\n"
                };
                chapter.text = format!("{}{between}{text}", chapter.text);
                chapter.directives.extend(directives);
            }
            None => chapters.push(Chapter {
                heading,
                text,
                directives: directives.collect(),
            }),
        }
    }
    chapters
}

fn with_include<'a>(tables: &[&'a DirectiveTable]) -> Vec<&'a DirectiveTable> {
    let mut all = vec![crate::grammar::include()];
    all.extend_from_slice(tables);
    all
}

/// The file name, from the heading: "Static files" has the page `static-files.md`.
fn file_name(table: &DirectiveTable) -> String {
    let heading = heading(table).0.to_ascii_lowercase();
    let words = heading
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-") + ".md"
}

/// The first sentence of the doc comment without its full stop, and the rest.
fn heading(table: &DirectiveTable) -> (String, String) {
    let text = paragraphs(table.doc);
    let (first, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    (
        first.trim().trim_end_matches('.').to_owned(),
        rest.trim().to_owned(),
    )
}

/// A doc comment's text without the space before each line.
fn paragraphs(doc: &str) -> String {
    let lines = doc
        .lines()
        .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end());
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// What a table adds below the heading.
fn part_of_page(table: &DirectiveTable) -> String {
    let (_, text) = heading(table);
    let mut out = String::new();
    if !text.is_empty() {
        let _ = writeln!(out, "\n{text}");
    }
    for entry in &table.entries {
        let _ = writeln!(out, "\n## {}\n\n| | |\n|---|---|", entry.name);
        for (title, text) in facts(entry) {
            let _ = writeln!(out, "| {title} | {} |", cell(&text));
        }
        let _ = writeln!(out, "\n{}", paragraphs(entry.doc));
    }
    out
}

/// The lines above the text of a directive, as title and value.
fn facts(entry: &DirectiveEntry) -> impl Iterator<Item = (&'static str, String)> {
    let space = if entry.syntax.is_empty() { "" } else { " " };
    let end = if entry.args.has_block() {
        " { … }"
    } else {
        ";"
    };
    let default = match entry.default {
        None => "none".to_owned(),
        Some(text) => format!("{} {text};", entry.name),
    };
    let inherited = match entry.inherit {
        Inherit::Never if entry.inner.is_none() && entry.contexts.names().count() > 1 => {
            Some("not inherited")
        }
        Inherit::Append => Some("an inner level's lines are added to the outer level's"),
        Inherit::Normal | Inherit::Never | Inherit::Joined => None,
    };
    let facts = [
        (
            "Syntax",
            Some(format!("{}{space}{}{end}", entry.name, entry.syntax)),
        ),
        ("Default", entry.inner.is_none().then_some(default)),
        ("Context", Some(entry.contexts.to_string())),
        ("Levels", inherited.map(str::to_owned)),
    ];
    facts
        .into_iter()
        .filter_map(|(title, text)| text.map(|text| (title, text)))
}

/// A text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

fn index(tables: &[&DirectiveTable]) -> String {
    let mut out = format!(
        "{GENERATED}\n# Reference\n\nWhat differs from nginx: [compatibility](compatibility.md).\n"
    );
    let mut names: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for table in tables {
        let file = file_name(table);
        let line = format!("* [{}]({file})\n", heading(table).0);
        if !out.contains(&line) {
            out.push_str(&line);
        }
        for entry in &table.entries {
            let links = names.entry(entry.name).or_default();
            let link = format!("[{}]({file}#{})", entry.name, entry.name);
            if !links.contains(&link) {
                links.push(link);
            }
        }
    }
    out = out.replacen("md).\n* ", "md).\n\n* ", 1);
    out.push_str("\n## Directives\n\n");
    for links in names.values() {
        let _ = writeln!(out, "* {}", links.join(", "));
    }
    out
}

/// Why a directive in a table has no effect, taken from its text.
fn without_effect<'a>(tables: &[&'a DirectiveTable], row: &KnownDirective) -> Option<&'a str> {
    let mut entries = tables
        .iter()
        .flat_map(|table| table.named(row.name.as_bytes()))
        .filter(|entry| entry.contexts.meets(row.contexts));
    entries.find_map(|entry| entry.doc.trim_start().strip_prefix(IGNORED))
}

/// Whether tables have the directive in every context in which nginx's module has it.
fn is_built(tables: &[&DirectiveTable], row: &KnownDirective) -> bool {
    let entries = tables
        .iter()
        .flat_map(|table| table.named(row.name.as_bytes()));
    entries
        .fold(Context::NONE, |all, entry| all | entry.contexts)
        .contains(row.contexts)
}

fn fate(row: &KnownDirective) -> String {
    let missing = row
        .missing()
        .map_or_else(String::new, |missing| format!(".\n{}", missing.sentence()));
    match row.fate {
        Fate::NotYet if row.args == Args::FLAG => {
            format!("not built yet; a configuration that switches it on is refused{missing}")
        }
        Fate::NotYet => format!("not built yet; a configuration with it is refused{missing}"),
        Fate::Met(why) => format!("accepted without effect: {why}"),
        Fate::Ignored(why) => format!("accepted and ignored, with a warning: {why}"),
        Fate::Refused(why) => format!("refused: {why}"),
    }
}

fn compatibility(tables: &[&DirectiveTable]) -> String {
    let (built, others): (Vec<&KnownDirective>, Vec<&KnownDirective>) =
        known::all().iter().partition(|row| is_built(tables, row));
    let (idle, built): (Vec<&KnownDirective>, Vec<&KnownDirective>) = built
        .into_iter()
        .partition(|row| without_effect(tables, row).is_some());
    let of = |wanted: fn(Fate) -> bool| others.iter().copied().filter(move |row| wanted(row.fate));
    let mut out = format!(
        "{GENERATED}\n# Compatibility with nginx\n\nEvery directive of the public modules of nginx 1.31.5 is the same, or is ignored or \
         refused with the reason. Deliberate differences of those that are the same: [differences](../differences.md).\n"
    );
    out.push_str(&counts(tables));
    out.push_str("\n## Built\n\n");
    let names: Vec<_> = built.iter().map(|row| format!("`{}`", row.name)).collect();
    let _ = writeln!(out, "{}", distinct(names).join(", "));
    out.push_str("\n## Accepted without effect\n\n| directive | context | why |\n|---|---|---|\n");
    for row in idle {
        let why = paragraphs(without_effect(tables, row).unwrap_or_default());
        let why = cell(&why.replace('\n', " "));
        let _ = writeln!(out, "| `{}` | {} | {why} |", row.name, row.contexts);
    }
    for row in of(|fate| matches!(fate, Fate::Met(_))) {
        let Fate::Met(why) = row.fate else { continue };
        let _ = writeln!(out, "| `{}` | {} | {} |", row.name, row.contexts, cell(why));
    }
    out.push_str("\n## Accepted and ignored, with one warning\n\n| directive | context | why |\n|---|---|---|\n");
    for row in of(|fate| matches!(fate, Fate::Ignored(_))) {
        let Fate::Ignored(why) = row.fate else {
            continue;
        };
        let _ = writeln!(out, "| `{}` | {} | {} |", row.name, row.contexts, cell(why));
    }
    out.push_str("\n## Refused for good\n\n| directive | context | why |\n|---|---|---|\n");
    for row in of(|fate| matches!(fate, Fate::Refused(_))) {
        let Fate::Refused(why) = row.fate else {
            continue;
        };
        let _ = writeln!(out, "| `{}` | {} | {} |", row.name, row.contexts, cell(why));
    }
    out.push_str("\n## Not built yet: refused as such\n\nSwitches among them may be `off`. What is missing, and what does its work until then:\n\n");
    out.push_str("| what is missing | directives | until then |\n|---|---|---|\n");
    for missing in known::missing::all() {
        let rows = of(|fate| fate == Fate::NotYet);
        let count = rows.filter(|row| row.missing() == Some(missing)).count();
        let asked_by = match missing.asked_by {
            "" => count.to_string(),
            other => other.to_owned(),
        };
        let _ = writeln!(
            out,
            "| {} | {asked_by} | {} |",
            missing.what, missing.instead
        );
    }
    out.push_str("\nBy the modules of nginx:\n\n");
    let mut by_module: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in of(|fate| fate == Fate::NotYet) {
        by_module
            .entry(row.module)
            .or_default()
            .push(format!("`{}`", row.name));
    }
    for (module, names) in by_module {
        let _ = writeln!(out, "* {module}: {}", names.join(", "));
    }
    out
}

/// The column of a directive in [`counts`], by what becomes of it.
fn column(tables: &[&DirectiveTable], row: &KnownDirective) -> usize {
    match row.fate {
        _ if is_built(tables, row) => usize::from(without_effect(tables, row).is_some()),
        Fate::Met(_) | Fate::Ignored(_) => 1,
        Fate::Refused(_) => 2,
        Fate::NotYet => 3,
    }
}

/// The table of how many directives are implemented, ignored, refused and planned, in total and for each module of
/// nginx. A name counts once for each module that knows it.
fn counts(tables: &[&DirectiveTable]) -> String {
    const COLUMNS: usize = 4;
    let mut modules: BTreeMap<&str, [usize; COLUMNS]> = BTreeMap::new();
    let mut sums = [0; COLUMNS];
    for row in known::all() {
        let column = column(tables, row);
        modules.entry(row.module).or_default()[column] += 1;
        sums[column] += 1;
    }
    let [same, ignored, refused, not_yet] = sums;
    let all: usize = sums.iter().sum();
    let mut out = format!(
        "\nOf {all} directives (a name counts for each module that knows it) {same} are the same, {ignored} are ignored, {refused} are \
         refused for good, and {not_yet} are refused because they are not built yet.\n\n\
         | module of nginx | same | ignored | refused | not built yet |\n|---|---|---|---|---|\n"
    );
    for (module, counted) in modules {
        let cells = counted.map(|number| {
            if number == 0 {
                String::new()
            } else {
                number.to_string()
            }
        });
        let _ = writeln!(out, "| {module} | {} |", cells.join(" | "));
    }
    out
}

/// The same list without equal neighbours.
fn distinct(mut names: Vec<String>) -> Vec<String> {
    names.dedup();
    names
}
