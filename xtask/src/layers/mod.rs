//! The layers of the crates: inside each one, imports that run back from a lower folder to a higher one, circles of files.
//!
//! Between crates Cargo allows no import against the order. Which folder is higher is not written down: the order is the one with
//! the fewest imports that run back. Limits: [`LIMITS`]; crates that have not come so far may not get worse
//! ([`NOT_YET`]).

mod graph;
mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use graph::Arrows;
use imports::Crate;

/// What of a crate's imports is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
struct Counts {
    /// Imports from a folder to one above it.
    back: usize,
    /// Circles of files that span two folders or more.
    spanning: usize,
    /// Files of the largest circle.
    circle: usize,
}

/// The limits of a crate.
const LIMITS: Counts = of(5, 0, 10);

/// Crates over the limits, with what they had when it was last counted: no more than that.
const NOT_YET: &[(&str, Counts)] = &[
    ("config", of(9, 1, 8)),
    ("disk", of(9, 1, 15)),
    ("server", of(111, 1, 144)),
];

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
    for (name, src) in crates(project)? {
        let krate = Crate::of(&texts(&src)?);
        let (names, arrows) = (krate.names(), krate.arrows());
        let counts = counted(&names, &arrows);
        let Counts {
            back,
            spanning,
            circle,
        } = counts;
        println!(
            "{name:<10} {:>5} {:>7} {back:>12} {spanning:>8} {circle:>14}",
            names.len(),
            arrows.len()
        );
        if !is_within(counts, limits(&name)) {
            faults.push(fault(&name, counts, &names, &arrows));
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

/// The crates by name, each with its `src`.
fn crates(project: &Path) -> Result<Vec<(String, std::path::PathBuf)>, String> {
    let folder = project.join("crates");
    let entries =
        std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut crates: Vec<_> = entries
        .flatten()
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                entry.path().join("src"),
            )
        })
        .filter(|(_, src)| src.join("lib.rs").exists())
        .collect();
    crates.sort();
    Ok(crates)
}

/// All files below a folder, by name; tests in files of their own are left out.
fn texts(src: &Path) -> Result<Vec<(String, String)>, String> {
    let mut texts = Vec::new();
    let mut open = vec![src.to_path_buf()];
    while let Some(folder) = open.pop() {
        let entries =
            std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            let is_rust = path.extension().is_some_and(|extension| extension == "rs");
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let is_test = stem == "tests" || stem.ends_with("_tests");
            if path.is_dir() && !is_test {
                open.push(path);
            } else if is_rust && !is_test {
                let text = std::fs::read_to_string(&path)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                let name = path
                    .strip_prefix(src)
                    .unwrap_or(&path)
                    .to_string_lossy()
                    .into_owned();
                texts.push((name, text));
            }
        }
    }
    Ok(texts)
}

/// The folder of a file. Files beside the crate's root are one room, but for the heads of folders (`a.rs` beside `a/`).
fn room_of(name: &str, folders: &BTreeSet<&str>) -> String {
    let first = name
        .split('/')
        .next()
        .unwrap_or_default()
        .trim_end_matches(".rs");
    let room = if folders.contains(first) { first } else { "" };
    room.to_owned()
}

/// The folder of each file.
fn rooms_of(names: &[String]) -> Vec<String> {
    let folders = names
        .iter()
        .filter_map(|name| Some(name.split_once('/')?.0));
    let folders: BTreeSet<&str> = folders.collect();
    names.iter().map(|name| room_of(name, &folders)).collect()
}

fn counted(names: &[String], arrows: &Arrows) -> Counts {
    let (rooms, weights) = between_rooms(names, arrows);
    let order = graph::order(rooms.len(), &weights);
    let circles = graph::circles(names.len(), arrows);
    let room = rooms_of(names);
    let spans = |circle: &&Vec<usize>| circle.iter().any(|file| room[*file] != room[circle[0]]);
    Counts {
        back: graph::back(&order, &weights),
        spanning: circles.iter().filter(spans).count(),
        circle: circles.first().map_or(0, Vec::len),
    }
}

/// The rooms, and how many imports go from one to another.
fn between_rooms(
    names: &[String],
    arrows: &Arrows,
) -> (Vec<String>, BTreeMap<(usize, usize), usize>) {
    let room = rooms_of(names);
    let rooms: BTreeSet<&String> = room.iter().collect();
    let rooms: Vec<String> = rooms.into_iter().cloned().collect();
    let number = |file: usize| rooms.binary_search(&room[file]).unwrap_or(0);
    let mut weights = BTreeMap::new();
    for (from, to) in arrows {
        let pair = (number(*from), number(*to));
        if pair.0 != pair.1 {
            *weights.entry(pair).or_insert(0) += 1;
        }
    }
    (rooms, weights)
}

/// Says which limits a crate is over, and which imports do it.
fn fault(name: &str, counts: Counts, names: &[String], arrows: &Arrows) -> String {
    let (rooms, weights) = between_rooms(names, arrows);
    let order = graph::order(rooms.len(), &weights);
    let place: BTreeMap<&str, usize> = order
        .iter()
        .map(|room| rooms[*room].as_str())
        .zip(0..)
        .collect();
    let room = rooms_of(names);
    let is_back =
        |(from, to): &&(usize, usize)| place[room[*from].as_str()] > place[room[*to].as_str()];
    let mut lines = vec![format!(
        "crates/{name}: {counts:?}, allowed {:?}",
        limits(name)
    )];
    lines.extend(
        arrows
            .iter()
            .filter(is_back)
            .map(|(from, to)| format!("  back: {} -> {}", names[*from], names[*to])),
    );
    for circle in graph::circles(names.len(), arrows).iter().take(3) {
        let files: Vec<&str> = circle.iter().map(|file| names[*file].as_str()).collect();
        lines.push(format!("  circle of {}: {}", files.len(), files.join(" ")));
    }
    lines.join("\n")
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
        counted(&names, &arrows.into_iter().collect())
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
