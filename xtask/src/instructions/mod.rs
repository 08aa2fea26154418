//! Instructions that a loop spends on one hot request or on one fill of a cache, compared with what is recorded: `cargo xtask instructions`.
//!
//! They are counted one by one: the loop's thread of a running server goes in single steps (ptrace(2)), its system calls are the real ones. So
//! that what the machine does besides does not matter (valgrind would have none of openat2). What the kernel does is not in it; nor is it
//! time, nor what timers have the loop do: how often they end meanwhile depends on how long a step takes. Invariant: a request that was not answered as it should be is never counted.
//!
//! With `--functions` they are printed by function. With `--only TEXT` only cases with that text in their name are counted. With `--figures` they are compared with those of a program that counts nothing (the feature `without_figures`, built for it).

mod clock;
mod functions;
mod maps;
mod origin;
mod server;
mod steps;
mod wakes;

use crate::{flag, option};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// A request that is counted.
struct Case {
    name: &'static str,
    /// A `*` is another number in each request, so that it is in no cache.
    path: &'static str,
    /// Does it have the time of the file, so that it is answered with 304?
    is_conditional: bool,
}

const CASES: &[Case] = &[
    Case::new("return", "/here"),
    Case::new("file of 1 KiB", "/1k.bin"),
    Case::new("file of 16 KiB", "/16k.bin"),
    Case {
        name: "304",
        path: "/1k.bin",
        is_conditional: true,
    },
    Case::new("cache hit of 1 KiB", "/cached/1024"),
    Case::new("proxying 1 KiB", "/proxied/1024"),
    Case::new("fill of 1 KiB", "/filled/*/1024"),
];

impl Case {
    const fn new(name: &'static str, path: &'static str) -> Self {
        Self {
            name,
            path,
            is_conditional: false,
        }
    }
}

/// Of each case, before it is counted: so that what is learned is known.
const WARM: usize = 200;
/// Of each case; the least counts, so that a timer that ends meanwhile, or an answer that comes in two parts, does not.
const COUNTED: usize = 12;
/// Of each case at most, where on a busy machine none was undisturbed.
const COUNTED_MAX: usize = 60;
/// Between two of them: what the disk layer has proven holds for 10 ms, and is cheaper for who comes within them.
const APART: Duration = Duration::from_millis(20);
/// More than what is recorded by so many percent is a fault.
const PERCENT_MAX: u64 = 5;
/// Figures may make a request more expensive by so many percent.
const FIGURES_PERCENT_MAX: f64 = 3.0;
const RECORD: &str = "xtask/src/instructions/recorded.txt";
const HEAD: &str = "\
# Instructions of one hot request in a loop's thread, user space, release build, by `cargo xtask instructions --record` (x86-64; glibc
# chooses its copies by the processor, so that another one may differ a little). Change a line only together with what changed it.
";

const MADE_BY: &str = "# Made by ";

/// Counts, compares, and fails when a request became more expensive.
pub fn run(project: &Path, arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.to_vec();
    let is_recorded = flag(&mut arguments, "--record");
    let is_of_figures = flag(&mut arguments, "--figures");
    let is_by_function = flag(&mut arguments, "--functions");
    let only = option(&mut arguments, "--only")?.unwrap_or_default();
    if is_recorded && !only.is_empty() {
        return Err("what is recorded is of all cases".to_owned());
    }
    let binary = match option(&mut arguments, "--binary")? {
        Some(path) => PathBuf::from(path),
        None => built(project, None)?,
    };
    if let Some(unknown) = arguments.first() {
        return Err(format!("unknown argument {unknown}"));
    }
    if is_of_figures {
        return cost_of_figures(&binary, &built(project, Some("without_figures"))?);
    }
    let path = project.join(RECORD);
    if is_by_function {
        return by_function(&binary, &only);
    }
    if is_recorded {
        let counts = count(&binary, &BTreeMap::new(), "")?;
        let lines: String = counts
            .iter()
            .map(|(what, count)| format!("{what}: {count}\n"))
            .collect();
        let text = format!("{HEAD}{MADE_BY}{}\n{lines}", maker());
        return std::fs::write(&path, text).map_err(|error| error.to_string());
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{RECORD}: {error}"))?;
    let recorded = recorded(&text)?;
    let counts = count(&binary, &recorded, &only)?;
    compare(&recorded, &counts).map_err(|faults| format!("{faults}\n{}", advice(&text, &maker())))
}

/// What made the figures besides the source: the compiler, and the processor, by which glibc and others choose.
fn maker() -> String {
    let said = Command::new("rustc").arg("--version").output();
    let compiler = said.map_or_else(
        |_| String::new(),
        |said| String::from_utf8_lossy(&said.stdout).into_owned(),
    );
    let about = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = about
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model
        .unwrap_or_default()
        .trim_start_matches([' ', '\t', ':']);
    format!("{}, {model}", compiler.trim())
}

/// What to do about a fault.
fn advice(text: &str, maker: &str) -> String {
    let recorded_by = text.lines().find_map(|line| line.strip_prefix(MADE_BY));
    let others = match recorded_by {
        Some(recorded_by) if recorded_by != maker => format!(
            "What is recorded was made by {recorded_by}; this is {maker}: the difference may be theirs.\n"
        ),
        _ => String::new(),
    };
    format!(
        "{others}Find what made it so (git stash, and count again; perf annotate). If it is meant: cargo xtask instructions --record, and commit {RECORD}\n\
         together with what changed it, with the reason in the message."
    )
}

/// The server, built; with a feature in a folder of its own.
fn built(project: &Path, feature: Option<&str>) -> Result<PathBuf, String> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| project.join("target"), PathBuf::from);
    let target = feature.map_or(target.clone(), |name| target.join(name));
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", "freewheel"])
        .args(feature.iter().flat_map(|name| ["--features", name]))
        .arg("--target-dir")
        .arg(&target)
        .current_dir(project)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if status.success() {
        Ok(target.join("release/freewheel"))
    } else {
        Err("the server was not built".to_owned())
    }
}

/// Counts with figures and without; an error names the requests that they make too expensive.
fn cost_of_figures(with: &Path, without: &Path) -> Result<(), String> {
    let (with, without) = (
        count(with, &BTreeMap::new(), "")?,
        count(without, &BTreeMap::new(), "")?,
    );
    let mut faults = Vec::new();
    for ((what, with), (_, without)) in with.into_iter().zip(without) {
        let percent = (with as f64 / without as f64 - 1.0) * 100.0;
        let text =
            format!("{what}: {with} instructions, without figures {without} ({percent:+.1} %)");
        println!("{text}");
        if percent > FIGURES_PERCENT_MAX {
            faults.push(text);
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "figures may cost {FIGURES_PERCENT_MAX} %:\n{}",
            faults.join("\n")
        ))
    }
}

/// The cases with this text in their name.
fn cases(only: &str) -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(move |case| case.name.contains(only))
}

/// The count of each case with this text in its name. Where it is too many, or nothing is recorded, it is counted more often.
fn count(
    binary: &Path,
    recorded: &BTreeMap<&str, u64>,
    only: &str,
) -> Result<Vec<(&'static str, u64)>, String> {
    let origin = origin::start()?;
    let mut server = server::Server::start(binary, origin)?;
    for case in cases(only) {
        server.ask(case, WARM)?;
    }
    let steps = steps::Steps::of(server.pid(), server.loop_thread()?)?;
    cases(only)
        .map(|case| {
            let enough = recorded.get(case.name).copied().unwrap_or(0);
            let mut least = u64::MAX;
            for turn in 0..COUNTED_MAX {
                if turn >= COUNTED && !is_too_many(least, enough) {
                    break;
                }
                thread::sleep(APART);
                least = least.min(steps.count_during(|| server.ask(case, 1))?);
            }
            Ok((case.name, least))
        })
        .collect()
}

/// Prints the functions of the cheapest request of each case.
fn by_function(binary: &Path, only: &str) -> Result<(), String> {
    let origin = origin::start()?;
    let mut server = server::Server::start(binary, origin)?;
    for case in cases(only) {
        server.ask(case, WARM)?;
    }
    let functions = functions::Functions::of(binary, server.pid())?;
    let steps = steps::Steps::of(server.pid(), server.loop_thread()?)?;
    for case in cases(only) {
        let mut least = (u64::MAX, Default::default());
        for _ in 0..COUNTED {
            thread::sleep(APART);
            let count = steps.count_during(|| server.ask(case, 1))?;
            let addresses = steps.take_addresses();
            if count < least.0 {
                least = (count, addresses);
            }
        }
        functions.print(case.name, &least.1);
    }
    Ok(())
}

fn recorded(text: &str) -> Result<BTreeMap<&str, u64>, String> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            let (what, count) = line.rsplit_once(": ").ok_or(line)?;
            Ok((what, count.trim().parse().map_err(|_| line)?))
        })
        .collect::<Result<_, &str>>()
        .map_err(|line| format!("{RECORD}: {line:?} is not a case and its count"))
}

fn is_too_many(count: u64, recorded: u64) -> bool {
    count as f64 > recorded as f64 * (100 + PERCENT_MAX) as f64 / 100.0
}

/// Prints all; an error names those that became more expensive, or that nothing is recorded of.
fn compare(recorded: &BTreeMap<&str, u64>, counts: &[(&str, u64)]) -> Result<(), String> {
    let mut faults = Vec::new();
    for (what, count) in counts {
        let Some(before) = recorded.get(what) else {
            faults.push(format!(
                "{what}: {count} instructions, nothing recorded: --record"
            ));
            continue;
        };
        let change = (*count as f64 / *before as f64 - 1.0) * 100.0;
        println!("{what}: {count} instructions, recorded {before} ({change:+.1} %)");
        if is_too_many(*count, *before) {
            faults.push(format!("{what}: {count} instructions, {change:+.1} % of the {before} recorded; at most {PERCENT_MAX} % more"));
        } else if count * (100 + PERCENT_MAX) < before * 100 {
            println!("    less than is recorded: cargo xtask instructions --record keeps it so");
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_five_percent_is_a_fault_and_less_is_not() {
        let text = format!("{HEAD}return: 1000\nfile of 1 KiB: 2000\n");
        let recorded = recorded(&text).unwrap();
        assert!(compare(&recorded, &[("return", 1050), ("file of 1 KiB", 500)]).is_ok());
        let fault = compare(&recorded, &[("return", 1051), ("file of 1 KiB", 2000)]).unwrap_err();
        assert!(fault.starts_with("return: 1051 instructions, +5.1 %") && !fault.contains("1 KiB"));
        assert!(
            compare(&recorded, &[("new", 1)])
                .unwrap_err()
                .contains("nothing recorded")
        );
    }

    #[test]
    fn a_fault_says_how_to_record_anew_and_what_else_is_different() {
        let text = format!("{HEAD}{MADE_BY}rustc 1, a processor\nreturn: 1000\n");
        let (same, other) = (
            advice(&text, "rustc 1, a processor"),
            advice(&text, "rustc 2, a processor"),
        );
        assert!(same.contains("cargo xtask instructions --record") && !same.contains("rustc 1"));
        assert!(other.contains("made by rustc 1, a processor; this is rustc 2, a processor"));
    }

    #[test]
    fn a_record_that_cannot_be_read_is_a_fault() {
        assert!(recorded("return 1000\n").is_err());
        assert!(recorded("return: many\n").is_err());
    }

    #[test]
    fn the_record_in_the_project_is_of_all_cases() {
        let recorded = recorded(include_str!("recorded.txt")).unwrap();
        assert!(CASES.iter().all(|case| recorded.contains_key(case.name)));
        assert_eq!(recorded.len(), CASES.len());
    }
}
