//! The documents as a book: checks the summary and all links, and builds it with mdBook.
//!
//! mdBook takes pages below one directory only, and shows a link to a file elsewhere as a link to nothing. So the pages are copied to
//! `target/book/src` first, where links lead to their places in the book. Not here: the texts, nor the look of the book
//! (`docs/book.toml`, `docs/book.css`). Invariant: nothing is fetched; the check needs no mdBook.

mod links;
mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{flag, option, tidy};
use pages::{REFERENCE, SUMMARY};

/// Where the book is made.
const TARGET: &str = "target/book";
/// Pages that are shown by another page, or are no part of the book: nothing lists them.
const UNLISTED: &[&str] = &[SUMMARY, "README.md", "bench/rig/peers/README.md"];
/// Folders whose documents are for those that change what is beside them.
const ASIDE: &[&str] = &["tests/", "crates/", "examples/"];

/// Checks the documents; without `--check` builds the book, too.
pub fn run(project: &Path, arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.to_vec();
    let only_checks = flag(&mut arguments, "--check");
    let mdbook = option(&mut arguments, "--mdbook")?;
    if !arguments.is_empty() {
        return Err(format!("book: not understood: {}", arguments.join(" ")));
    }
    let book = Book::read(project)?;
    let faults = book.faults();
    if !faults.is_empty() {
        return Err(faults.join("\n"));
    }
    println!(
        "{} pages, {} documents, all links lead somewhere",
        book.pages.len(),
        book.texts.len()
    );
    if only_checks {
        return Ok(());
    }
    book.stage()?;
    build(project, mdbook.as_deref().unwrap_or("mdbook"))
}

/// The documents of the project.
struct Book {
    project: PathBuf,
    /// All documents by their paths.
    texts: BTreeMap<String, String>,
    /// All files and folders that git knows.
    files: BTreeSet<String>,
    /// The pages of the book.
    pages: BTreeSet<String>,
}

impl Book {
    fn read(project: &Path) -> Result<Self, String> {
        let mut texts = BTreeMap::new();
        let mut files = BTreeSet::new();
        for path in tidy::files(project)? {
            let mut folder = Path::new(&path);
            while let Some(above) = folder.parent() {
                files.insert(above.to_string_lossy().into_owned());
                folder = above;
            }
            // A link is another name of a document that is read anyway; what cannot be read is removed, and not yet committed so.
            if path.ends_with(".md")
                && !project.join(&path).is_symlink()
                && let Ok(text) = std::fs::read_to_string(project.join(&path))
            {
                texts.insert(path.clone(), text);
            }
            files.insert(path);
        }
        let text = |path: &str| texts.get(path).map_or("", String::as_str);
        let pages = pages::all(text(SUMMARY), text(REFERENCE));
        let project = project.to_owned();
        Ok(Self {
            project,
            texts,
            files,
            pages,
        })
    }

    /// What is wrong with the summary and the links.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for page in self
            .pages
            .iter()
            .filter(|page| !self.texts.contains_key(*page))
        {
            faults.push(format!("{SUMMARY}: there is no {page}"));
        }
        let summary = self.texts.get(SUMMARY).map_or("", String::as_str);
        let mut once = BTreeSet::new();
        for page in pages::listed(SUMMARY, summary) {
            if !once.insert(page.clone()) {
                faults.push(format!("{SUMMARY}: {page} stands there twice"));
            }
        }
        let is_aside = |page: &str| ASIDE.iter().any(|folder| page.starts_with(folder));
        for page in self.texts.keys() {
            let is_listed = self.pages.contains(page) || UNLISTED.contains(&page.as_str());
            if !is_listed && !is_aside(page) {
                faults.push(format!("{page}: is not in {SUMMARY}"));
            }
        }
        let anchors = self.texts.iter();
        let anchors: BTreeMap<&str, BTreeSet<String>> = anchors
            .map(|(page, text)| (page.as_str(), links::anchors(text).into_iter().collect()))
            .collect();
        for (page, text) in &self.texts {
            for link in links::links(text) {
                let line = link.line;
                if let Some(fault) = self.fault(page, &text[link.range], &anchors) {
                    faults.push(format!("{page}:{line}: {fault}"));
                }
            }
        }
        faults
    }

    /// What is wrong with a link of a page.
    fn fault(
        &self,
        page: &str,
        link: &str,
        anchors: &BTreeMap<&str, BTreeSet<String>>,
    ) -> Option<String> {
        let (path, anchor) = pages::target(page, link)?;
        if !self.files.contains(&path) {
            return Some(format!("{link}: there is no {path}"));
        }
        if self.pages.contains(page)
            && path.ends_with(".md")
            && !self.pages.contains(&path)
            && path != "README.md"
        {
            return Some(format!("{link}: {path} is not in the book"));
        }
        // A book has no folders to look into.
        let is_file = path
            .split('/')
            .next_back()
            .is_some_and(|name| name.contains('.') || name == name.to_uppercase());
        if self.pages.contains(page)
            && !is_file
            && !self.pages.contains(&format!("{path}/README.md"))
        {
            return Some(format!("{link}: the folder {path} has no page in the book"));
        }
        let anchor = anchor?;
        let known = anchors.get(path.as_str())?;
        (!known.contains(&anchor)).then(|| format!("{link}: {path} has no heading #{anchor}"))
    }

    /// Copies the pages, and the files that they show, to where mdBook takes them from.
    fn stage(&self) -> Result<(), String> {
        let target = self.project.join(TARGET);
        let _ = std::fs::remove_dir_all(target.join("src"));
        let mut shown = BTreeSet::new();
        for page in &self.pages {
            let Some(text) = self.texts.get(page) else {
                continue;
            };
            let text = self.placed(page, &pages::place(page), text, &mut shown);
            write(
                &target.join("src").join(pages::place(page)),
                text.as_bytes(),
            )?;
        }
        for path in shown {
            let bytes = std::fs::read(self.project.join(&path));
            let bytes = bytes.map_err(|error| format!("{path}: {error}"))?;
            write(&target.join("src").join(pages::place(&path)), &bytes)?;
        }
        let summary = self.summary(&mut BTreeSet::new());
        write(&target.join("src/SUMMARY.md"), summary.as_bytes())?;
        for name in ["book.toml", "book.css"] {
            let bytes = std::fs::read(self.project.join("docs").join(name));
            let bytes = bytes.map_err(|error| format!("docs/{name}: {error}"))?;
            write(&target.join(name), &bytes)?;
        }
        Ok(())
    }

    /// A page whose links lead to places of the book; files that are no pages are put into `shown`.
    fn placed(&self, page: &str, place: &str, text: &str, shown: &mut BTreeSet<String>) -> String {
        let mut out = text.to_owned();
        for link in links::links(text).into_iter().rev() {
            let Some((path, anchor)) = pages::target(page, &text[link.range.clone()]) else {
                continue;
            };
            let path = match path.as_str() {
                "README.md" => "docs/README.md".to_owned(),
                _ if self.pages.contains(&format!("{path}/README.md")) => {
                    format!("{path}/README.md")
                }
                _ => path,
            };
            if !self.pages.contains(&path) && self.project.join(&path).is_file() {
                shown.insert(path.clone());
            }
            let anchor = anchor.map_or_else(String::new, |anchor| format!("#{anchor}"));
            let way = match path == page && !anchor.is_empty() {
                true => String::new(),
                false => pages::way(place, &pages::place(&path)),
            };
            out.replace_range(link.range, &format!("{way}{anchor}"));
        }
        out
    }

    /// The summary as mdBook takes it, with the pages of the reference.
    fn summary(&self, shown: &mut BTreeSet<String>) -> String {
        let text = |path: &str| self.texts.get(path).map_or("", String::as_str);
        let mut out = String::new();
        for line in text(SUMMARY).lines() {
            out.push_str(&self.placed(SUMMARY, "SUMMARY.md", line, shown));
            out.push('\n');
            if pages::listed(SUMMARY, line)
                .iter()
                .any(|page| page == REFERENCE)
            {
                let indent = line.len() - line.trim_start().len() + 2;
                for row in pages::reference_lines(text(REFERENCE)) {
                    let row = row.replacen("* ", "- ", 1);
                    let row = self.placed(REFERENCE, "SUMMARY.md", &row, shown);
                    out.push_str(&format!("{:indent$}{row}\n", ""));
                }
            }
        }
        out
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, bytes));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// Calls mdBook.
fn build(project: &Path, mdbook: &str) -> Result<(), String> {
    let target = project.join(TARGET);
    let status = Command::new(mdbook).arg("build").arg(&target).status();
    let status = status.map_err(|error| {
        format!(
            "the book is not built: {mdbook}: {error}\nit is built by mdBook: cargo install --locked mdbook, or --mdbook PATH; \
             --check needs none"
        )
    })?;
    match status.success() {
        true => {
            println!("{}", target.join("html/index.html").display());
            Ok(())
        }
        false => Err("mdBook could not build the book".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(texts: &[(&str, &str)]) -> Book {
        let texts = texts.iter();
        let texts: BTreeMap<String, String> = texts
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        let text = |path: &str| texts.get(path).map_or("", String::as_str);
        let pages = pages::all(text(SUMMARY), text(REFERENCE));
        let folders = ["docs", "bench"].map(str::to_owned);
        let files = texts.keys().cloned().chain(folders).collect();
        let project = PathBuf::new();
        Book {
            project,
            texts,
            files,
            pages,
        }
    }

    #[test]
    fn each_fault_is_told() {
        let book = book(&[
            (SUMMARY, "- [a](a.md)\n- [b](b.md)\n- [a](a.md)\n"),
            (
                "docs/a.md",
                "# A\n[x](c.md) [y](#a) [z](#none) [w](none.md) [v](../bench)\n",
            ),
            ("docs/c.md", "# C\n"),
        ]);
        let faults = book.faults();
        assert_eq!(
            faults,
            [
                "docs/SUMMARY.md: there is no docs/b.md",
                "docs/SUMMARY.md: docs/a.md stands there twice",
                "docs/c.md: is not in docs/SUMMARY.md",
                "docs/SUMMARY.md:2: b.md: there is no docs/b.md",
                "docs/a.md:2: c.md: docs/c.md is not in the book",
                "docs/a.md:2: #none: docs/a.md has no heading #none",
                "docs/a.md:2: none.md: there is no docs/none.md",
                "docs/a.md:2: ../bench: the folder bench has no page in the book",
            ]
        );
    }

    #[test]
    fn links_lead_to_places_of_the_book() {
        let book = book(&[
            (
                SUMMARY,
                "[Start](README.md)\n- [Reference](reference/README.md)\n- [Bench](../bench/README.md)\n",
            ),
            (
                "docs/README.md",
                "[b](../bench/README.md#b) [c](#c) [r](reference/)\n",
            ),
            (
                REFERENCE,
                "# R\n\n* [One](one.md)\n\n## D\n\n* [x](one.md#x)\n",
            ),
            ("docs/reference/one.md", "# One\n\n## x\n"),
            ("bench/README.md", "# B\n"),
        ]);
        let mut shown = BTreeSet::new();
        let placed = book.placed(
            "docs/README.md",
            "index.md",
            &book.texts["docs/README.md"],
            &mut shown,
        );
        assert_eq!(
            placed,
            "[b](project/bench/index.md#b) [c](#c) [r](reference/index.md)\n"
        );
        assert_eq!(
            book.summary(&mut shown),
            "[Start](index.md)\n- [Reference](reference/index.md)\n  - [One](reference/one.md)\n- [Bench](project/bench/index.md)\n"
        );
        assert!(shown.is_empty());
    }
}
