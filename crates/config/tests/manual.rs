//! The manual's pages and `--explain`, generated from the tables.
#![allow(clippy::unwrap_used, reason = "tests")]

use config::manual::{explain, pages};
use config::{DirectiveTable, Flag, List, Section, Template};

config::directives! {
    /// Static files.
    ///
    /// How a path becomes a file.
    pub struct StaticFiles in Location {
        /// Sets the directory.
        ///
        /// More about it.
        root: Template = "html", [HTTP | SERVER | LOCATION | LOCATION_IF] 1, syntax "path";
        /// Switches tags.
        etag: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Adds a note.
        note: List<Template> = none, [HTTP | SERVER] 1, inherit append;
    }
}

config::blocks! {
    /// Blocks.
    fn blocks in Main {
        /// Serves.
        "http": [MAIN] 0 => HTTP;
        /// Names values.
        "map": [HTTP] 2 => LINES, syntax "source $variable";
    }
}

fn tables() -> Vec<&'static DirectiveTable> {
    let mut tables = StaticFiles::tables();
    tables.push(blocks());
    tables
}

fn page(name: &str) -> String {
    let found = pages(&tables()).into_iter().find(|(file, _)| file == name);
    found.unwrap_or_else(|| panic!("no page {name}")).1
}

#[test]
fn a_table_has_a_page_with_every_directive() {
    let page = page("static-files.md");
    assert!(
        page.contains("\n# Static files\n\nHow a path becomes a file.\n"),
        "{page}"
    );
    let root = "\n## root\n\n| | |\n|---|---|\n| Syntax | root path; |\n| Default | root html; |\n\
                | Context | http, server, location, if in location |\n\nSets the directory.\n\nMore about it.\n";
    assert!(page.contains(root), "{page}");
    assert!(page.contains("| Syntax | etag on \\| off; |"), "{page}");
    assert!(page.contains(
        "| Default | none |\n| Context | http, server |\n| Levels | an inner level's lines"
    ));
    assert!(
        self::page("blocks.md")
            .contains("| Syntax | map source $variable { … } |\n| Context | http |")
    );
}

#[test]
fn the_index_links_every_directive_and_include() {
    let index = page("README.md");
    for link in [
        "* [Static files](static-files.md)",
        "* [root](static-files.md#root)",
        "[include](including-files.md#include)",
    ] {
        assert!(index.contains(link), "{link} in {index}");
    }
}

#[test]
fn the_compatibility_page_puts_every_directive_of_nginx_in_its_place() {
    let page = page("compatibility.md");
    let part = |title: &str| {
        let start = page.find(title).unwrap();
        let rest = &page[start + title.len()..];
        rest[..rest.find("\n## ").unwrap_or(rest.len())].to_owned()
    };
    assert!(part("## Built").contains("`map`") && part("## Built").contains("`etag`"));
    assert!(part("## Accepted without effect").contains("| `types_hash_max_size` |"));
    assert!(part("## Accepted and ignored").contains("| `http2_push` |"));
    assert!(part("## Refused for good").contains("| `perl` |"));
    assert!(part("## Not built yet").contains("`fastcgi_pass`"));
    assert!(!part("## Not built yet").contains("`etag`"));
}

#[test]
fn the_compatibility_page_counts_each_directive_once() {
    let page = page("compatibility.md");
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with("| module of nginx"));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let mut sums = [0; 4];
    for row in rows {
        for (sum, cell) in sums.iter_mut().zip(row.split('|').skip(2)) {
            *sum += cell.trim().parse::<usize>().unwrap_or(0);
        }
    }
    let all = config::known::all().len();
    assert_eq!(sums.iter().sum::<usize>(), all, "{page}");
    let [same, ignored, refused, not_yet] = sums;
    let sentence = format!(
        "Of {all} directives (a name counts for each module that knows it) {same} are the same, {ignored} are ignored, {refused} are \
         refused for good, and {not_yet} are refused"
    );
    assert!(page.contains(&sentence), "{sentence} in {page}");
    assert!(same > 0 && ignored > 0 && refused > 0);
}

#[test]
fn a_directive_is_explained() {
    let text = explain(&tables(), "root").unwrap();
    assert_eq!(
        text,
        "Syntax:   root path;\nDefault:  root html;\nContext:  http, server, location, if in location\n\n\
         Sets the directory.\n\nMore about it.\n"
    );
    assert!(
        explain(&tables(), "include")
            .unwrap()
            .starts_with("Syntax:   include file | pattern;\n")
    );
}

#[test]
fn a_directive_that_is_not_built_is_explained_as_such() {
    let text = explain(&tables(), "fastcgi_pass").unwrap();
    assert!(
        text.starts_with(
            "fastcgi_pass (nginx: http_fastcgi; in location, if in location): not built yet"
        ),
        "{text}"
    );
    assert!(
        explain(&tables(), "map")
            .unwrap()
            .contains("map (nginx: stream_map; in stream): not built yet")
    );
    assert_eq!(
        explain(&tables(), "rooot").unwrap_err(),
        "unknown directive \"rooot\", did you mean \"root\"?"
    );
}
