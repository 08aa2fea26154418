//! The layers inside each crate: imports that run back from a lower folder to a higher one, and circles of files.
//!
//! Between crates Cargo allows no import against the order. Which folder is higher is not written down: the order is the
//! one with the fewest imports that run back. Limits: [`LIMITS`]; crates over them may not get worse ([`NOT_YET`]).

mod file;
mod graph;
mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub use file::without_tests;
use graph::Arrows;
use imports::Crate;

use crate::tidy;

/// What of a crate's imports is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    /// Imports from a folder to one above it.
    back: usize,
    /// Circles of files that span two folders or more.
    spanning: usize,
    /// Files of the largest circle.
    circle: usize,
}

/// Circles that a fault shows.
const CIRCLES_SHOWN: usize = 3;

/// The limits of a crate.
const LIMITS: Counts = of(5, 0, 10);

/// Crates over the limits, with what they had when it was last counted: no more than that.
const NOT_YET: &[(&str, Counts)] = &[];

const fn of(back: usize, spanning: usize, circle: usize) -> Counts {
    Counts {
        back,
        spanning,
        circle,
    }
}

/// Counts all crates and prints what they have; fails where one is over its limits.
pub fn run(project: &Path) -> Result<(), String> {
    let mut faults = Vec::new();
    println!(
        "{:<10} {:>5} {:>7} {:>12} {:>8} {:>14}",
        "crate", "files", "imports", "running back", "circles", "largest circle"
    );
    for (name, texts) in crates(project)? {
        let krate = Crate::of(&texts);
        let layers = Layers::of(krate.names(), krate.arrows());
        let counts = layers.counts();
        println!(
            "{name:<10} {:>5} {:>7} {:>12} {:>8} {:>14}",
            layers.names.len(),
            layers.arrows.len(),
            counts.back,
            counts.spanning,
            counts.circle
        );
        let limits = limits(&name);
        if !is_within(counts, limits) {
            faults.push(format!(
                "crates/{name}: {counts:?}, allowed {limits:?}\n{}",
                layers.faults()
            ));
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(faults.join("\n")),
    }
}

fn limits(name: &str) -> Counts {
    let known = NOT_YET.iter().find(|(known, _)| *known == name);
    known.map_or(LIMITS, |(_, counts)| *counts)
}

fn is_within(counts: Counts, limits: Counts) -> bool {
    counts.back <= limits.back
        && counts.spanning <= limits.spanning
        && counts.circle <= limits.circle
}

/// The crates by name, each with its files by their names below `src`; files of tests are left out.
fn crates(project: &Path) -> Result<BTreeMap<String, Vec<(String, String)>>, String> {
    let mut crates: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for path in tidy::files(project)? {
        let below = path
            .strip_prefix("crates/")
            .filter(|path| path.ends_with(".rs"));
        let Some((name, file)) = below.and_then(|path| path.split_once("/src/")) else {
            continue;
        };
        if is_test(file) {
            continue;
        }
        // Removed, and not yet committed so.
        if let Ok(text) = std::fs::read_to_string(project.join(&path)) {
            let files = crates.entry(name.to_owned()).or_default();
            files.push((file.to_owned(), text));
        }
    }
    Ok(crates)
}

/// Whether a path is that of a file of tests.
pub fn is_test(path: &str) -> bool {
    let is_test = |part: &str| part == "tests" || part.ends_with("_tests");
    path.trim_end_matches(".rs").split('/').any(is_test)
}

/// The files of a crate, their folders, and the imports between them.
struct Layers {
    names: Vec<String>,
    arrows: Arrows,
    /// The folder of each file, by its number.
    folder: Vec<usize>,
    /// The place of each folder in the order, importers first.
    place: Vec<usize>,
    circles: Vec<Vec<usize>>,
}

impl Layers {
    fn of(names: Vec<String>, arrows: Arrows) -> Layers {
        let folder = folders_of(&names);
        let folders = folder.iter().max().map_or(0, |last| last + 1);
        let mut weights = BTreeMap::new();
        for (from, to) in &arrows {
            let pair = (folder[*from], folder[*to]);
            if pair.0 != pair.1 {
                *weights.entry(pair).or_insert(0) += 1;
            }
        }
        let mut place = vec![0; folders];
        for (at, folder) in graph::order(folders, &weights).into_iter().enumerate() {
            place[folder] = at;
        }
        Layers {
            circles: graph::circles(names.len(), &arrows),
            names,
            arrows,
            folder,
            place,
        }
    }

    /// The imports from a folder to one above it.
    fn back(&self) -> impl Iterator<Item = &(usize, usize)> {
        let place = |file: usize| self.place[self.folder[file]];
        let is_back = move |(from, to): &&(usize, usize)| place(*from) > place(*to);
        self.arrows.iter().filter(is_back)
    }

    fn counts(&self) -> Counts {
        let spans = |circle: &&Vec<usize>| {
            let is_elsewhere = |file: &usize| self.folder[*file] != self.folder[circle[0]];
            circle.iter().any(is_elsewhere)
        };
        Counts {
            back: self.back().count(),
            spanning: self.circles.iter().filter(spans).count(),
            circle: self.circles.first().map_or(0, Vec::len),
        }
    }

    /// The imports that run back, and the largest circles, a line each.
    fn faults(&self) -> String {
        let name = |file: &usize| self.names[*file].as_str();
        let back = self.back();
        let back = back.map(|(from, to)| format!("  back: {} -> {}", name(from), name(to)));
        let circles = self.circles.iter().take(CIRCLES_SHOWN).map(|circle| {
            let files: Vec<&str> = circle.iter().map(name).collect();
            format!("  circle of {}: {}", files.len(), files.join(" "))
        });
        back.chain(circles).collect::<Vec<_>>().join("\n")
    }
}

/// The folder of each file, by number. Files beside the crate's root are one folder, except the head of another one (`a.rs`
/// beside `a/`).
fn folders_of(names: &[String]) -> Vec<usize> {
    let folders = names
        .iter()
        .filter_map(|name| Some(name.split_once('/')?.0));
    let folders: BTreeSet<&str> = folders.collect();
    let number = |name: &String| {
        let first = name.split('/').next().unwrap_or_default();
        let head = first.trim_end_matches(".rs");
        let at = folders.iter().position(|folder| *folder == head);
        at.map_or(0, |at| at + 1)
    };
    names.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three folders, each of which imports the next; the arrow of `turned` is turned round.
    fn three(turned: Option<usize>) -> Counts {
        let names = ["high/a.rs", "low/c.rs", "middle/b.rs"].map(str::to_owned);
        let mut arrows = vec![(0, 2), (2, 1), (0, 1)];
        if let Some(at) = turned {
            let (from, to) = arrows[at];
            arrows[at] = (to, from);
        }
        Layers::of(names.to_vec(), arrows.into_iter().collect()).counts()
    }

    #[test]
    fn an_import_that_is_turned_round_is_a_circle_of_folders() {
        let straight = of(0, 0, 0);
        assert_eq!(three(None), straight);
        let turned = of(1, 1, 3);
        assert_eq!(three(Some(2)), turned);
        assert!(is_within(straight, LIMITS) && !is_within(turned, LIMITS));
    }
}
