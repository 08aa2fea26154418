//! Instructions by function: `cargo xtask instructions --functions`.
//!
//! Not here: counting ([`super::steps`]). The names are those of the symbol table (nm(1)); a function that was inlined
//! counts as the one around it.

use super::maps;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::process::Command;

use nix::unistd::Pid;

/// Maximum number of functions that are printed of a case.
const SHOWN_MAX: usize = 400;

/// The functions of a program that runs.
pub struct Functions {
    /// Names by the address of their first byte, as loaded.
    names: BTreeMap<u64, String>,
    end: u64,
}

/// Adds the names of one file.
fn add(names: &mut BTreeMap<u64, String>, base: u64, arguments: &[&str]) -> Result<(), String> {
    let told = Command::new("nm")
        .arg("-C")
        .args(arguments)
        .output()
        .map_err(|error| format!("nm: {error}"))?;
    for line in String::from_utf8_lossy(&told.stdout).lines() {
        let mut words = line.splitn(3, ' ');
        let (Some(at), Some(_), Some(name)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if let Ok(at) = u64::from_str_radix(at, 16) {
            names.insert(base + at, name.to_owned());
        }
    }
    Ok(())
}

impl Functions {
    /// Those of a process.
    pub fn of(binary: &Path, process: Pid) -> Result<Self, String> {
        let mut names = BTreeMap::new();
        let mut seen = HashSet::new();
        let maps = maps::of(process)?;
        for mapping in maps.iter().filter(|one| one.name.starts_with('/')) {
            let (base, file) = (mapping.start, mapping.name.as_str());
            if !seen.insert(file) {
                continue;
            }
            let table = match Path::new(file) == binary {
                true => "--defined-only",
                false => "-D",
            };
            add(&mut names, base, &[table, file])?;
        }
        let end = names.keys().next_back().copied().unwrap_or(0);
        Ok(Self { names, end })
    }

    /// Prints the instructions of each function, most first.
    pub fn print(&self, what: &str, addresses: &HashMap<u64, u64>) {
        let mut counts: HashMap<&str, u64> = HashMap::new();
        for (address, count) in addresses {
            let name = match *address <= self.end {
                true => self.names.range(..=address).next_back(),
                false => None,
            };
            *counts
                .entry(name.map_or("(libraries)", |(_, name)| name))
                .or_default() += count;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        println!("{what}:");
        for (name, count) in counts.iter().take(SHOWN_MAX) {
            println!("{count:8} {name}");
        }
    }
}
