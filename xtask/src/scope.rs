//! Which files of nginx's suite count: those whose configuration uses only what is built. Grows with the program.
//!
//! What is built is read from the manual's page of compatibility, which the directive tables write.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const PAGE: &str = "docs/reference/compatibility.md";
/// The page's headings under which directives stand that a configuration may use.
const HEADINGS: [&str; 3] = [
    "Built",
    "Accepted without effect",
    "Accepted and ignored, with one warning",
];

/// What a file of the suite may need that is no directive, and is not built.
const NOT_BUILT: [&str; 3] = ["http_v3", "mail", "stream"];
/// The files of `needs.json` that use nothing but what is built, in order of name.
pub fn files(project: &Path, needs: &Value) -> Result<Vec<String>, String> {
    let page = project.join(PAGE);
    let page = std::fs::read_to_string(&page)
        .map_err(|error| format!("not measured: {}: {error}", page.display()))?;
    chosen(&usable(&page)?, needs)
}

/// The directives that the page says are built, or accepted.
fn usable(page: &str) -> Result<BTreeSet<&str>, String> {
    let mut names = BTreeSet::new();
    for heading in HEADINGS {
        let start = format!("## {heading}\n");
        let (_, section) = page
            .split_once(&start)
            .ok_or_else(|| format!("not measured: {PAGE} has no \"{heading}\""))?;
        let section = section.split("\n## ").next().unwrap_or_default();
        let is_table = section.contains("\n|");
        for line in section.lines().filter(|line| line.contains('`')) {
            // Of a row, the first word is the directive; the others are of its description.
            let words = line.split('`').skip(1).step_by(2);
            names.extend(words.take(if is_table { 1 } else { usize::MAX }));
        }
    }
    Ok(names)
}

fn chosen(usable: &BTreeSet<&str>, needs: &Value) -> Result<Vec<String>, String> {
    let files = needs.as_object().ok_or("needs.json is not an object")?;
    let inside = |file: &&String| {
        let file = &files[file.as_str()];
        let directives = file["directives"].as_array().into_iter().flatten();
        let needed = file["has"].as_array().into_iter().flatten();
        let is_missing = |needed: &str| NOT_BUILT.iter().any(|name| needed.starts_with(name));
        !needed.filter_map(Value::as_str).any(is_missing)
            && directives
                .filter_map(Value::as_str)
                .all(|name| usable.contains(name))
    };
    Ok(files.keys().filter(inside).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# C\n\n## Built\n\n`index`, `root`\n\n## Accepted without effect\n\n| directive | why |\n|---|---|\n\
        | `use` | `epoll` always. |\n\n## Accepted and ignored, with one warning\n\n| directive | why |\n|---|---|\n\
        | `a_size` | no. |\n\n## Refused for good\n\n| directive | why |\n|---|---|\n| `perl` | no. |\n";

    #[test]
    fn a_file_counts_when_all_its_directives_are_built() {
        let needs = serde_json::json!({
            "a.t": {"tier": "T1", "directives": ["root", "index", "use", "a_size"]},
            "b.t": {"tier": "T1", "directives": ["root", "proxy_pass"]},
            "c.t": {"tier": "T2", "directives": ["root"], "has": ["http", "http_v3"]},
            "f.t": {"tier": "T2", "directives": ["root"], "has": ["http"]},
            "d.t": {"tier": "T1", "directives": ["perl"]},
            "e.t": {"tier": "T1", "directives": ["epoll"]},
        });
        assert_eq!(
            chosen(&usable(PAGE).unwrap(), &needs).unwrap(),
            ["a.t", "f.t"]
        );
    }

    #[test]
    fn the_page_that_stands_there_is_understood() {
        let page = include_str!("../../docs/reference/compatibility.md");
        let usable = usable(page).unwrap();
        for name in ["root", "proxy_cache", "use", "connection_pool_size"] {
            assert!(usable.contains(name), "{name}");
        }
        assert!(!usable.contains("perl"));
    }
}
