//! Configurations and requests run through nginx and Freewheel, and all that comes of them compared: answers, what came to the servers
//! behind, access logs, files.
//!
//! The cases stand in `tests/differential/`, the deliberate differences in its file `differences`. Not part of `cargo test`, since a
//! peer is needed; without it the result is "not measured". Invariant: every run is bounded, in steps and in time.

mod answer;
mod case;
mod gateway;
mod known;
mod origin;
mod server;

use crate::{flag, option};
use case::Case;
use known::{Came, Kind, Known, softened};
use server::{PORTS, Place, Told};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const CASES: &str = "tests/differential";
const DIFFERENCES: &str = "tests/differential/differences";
/// Cases that run at a time, and at most.
const JOBS: u16 = 4;
const JOBS_MAX: u16 = 32;
/// The first port, below those that the kernel gives to clients.
const PORT: u16 = 18_000;
/// A case that differs is run again before it is called different: what is a matter of time alone comes out the same then.
const TRIES: usize = 2;

/// What a run needs.
struct Run {
    nginx: PathBuf,
    freewheel: PathBuf,
    cases: Vec<Case>,
    next: AtomicUsize,
    known: Known,
    reports: Mutex<BTreeMap<String, Report>>,
    is_verbose: bool,
}

/// What came of a case, and what differs, as text.
type Report = (Came, String);

/// Runs the task.
pub fn run(project: &Path, arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.to_vec();
    let nginx = option(&mut arguments, "--nginx")?.ok_or("not measured: --nginx PATH is needed")?;
    let binary = option(&mut arguments, "--binary")?
        .map_or_else(|| project.join("target/debug/freewheel"), PathBuf::from);
    let number = |value: Option<String>, default: u16| match value {
        Some(text) => text.parse().map_err(|_| format!("\"{text}\" is no number")),
        None => Ok(default),
    };
    let port = number(option(&mut arguments, "--port")?, PORT)?;
    let jobs = number(option(&mut arguments, "--jobs")?, JOBS)?.clamp(1, JOBS_MAX);
    let is_verbose = flag(&mut arguments, "--verbose");
    let chosen = arguments;
    let mut cases = cases(&project.join(CASES))?;
    cases.retain(|case| chosen.is_empty() || chosen.iter().any(|name| case.name.starts_with(name)));
    if cases.is_empty() {
        return Err("not measured: there is no such case".to_owned());
    }
    let known = std::fs::read_to_string(project.join(DIFFERENCES))
        .map_err(|error| format!("{DIFFERENCES}: {error}"))?;
    let run = Run {
        known: known::parse(&known)?,
        nginx: PathBuf::from(nginx),
        freewheel: binary,
        cases,
        next: AtomicUsize::new(0),
        reports: Mutex::default(),
        is_verbose,
    };
    let base = tempfile::tempdir().map_err(|error| error.to_string())?;
    let faults: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs)
            .map(|job| {
                let place = Place {
                    directory: base.path().join(job.to_string()),
                    port: port + job * PORTS,
                };
                let run = &run;
                scope.spawn(move || work(run, &place))
            })
            .collect();
        let ends = threads.into_iter().map(|thread| thread.join());
        ends.flat_map(|end| {
            end.unwrap_or_else(|_| Err("a thread of the test panicked".to_owned()))
                .err()
        })
        .collect()
    });
    let judged = judge(run, chosen.is_empty() && faults.is_empty());
    match (faults.is_empty(), judged) {
        (true, judged) => judged,
        (false, Ok(())) => Err(format!("not measured: {}", faults.join("\n"))),
        (false, Err(more)) => Err(format!("not measured: {}\n{more}", faults.join("\n"))),
    }
}

/// Runs cases until none is left; what could not be measured is an error at the end.
fn work(run: &Run, place: &Place) -> Result<(), String> {
    let mut faults = Vec::new();
    while let Some(case) = run.cases.get(run.next.fetch_add(1, Ordering::Relaxed)) {
        let mut report = compare(run, case, place);
        for _ in 1..TRIES {
            if report
                .as_ref()
                .is_ok_and(|(came, _)| *came != Came::Different)
            {
                break;
            }
            report = compare(run, case, place);
        }
        match report {
            Ok(report) => {
                let mut reports = run.reports.lock().map_err(|error| error.to_string())?;
                reports.insert(case.name.clone(), report);
            }
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("\n"))
    }
}

/// Runs a case through both servers.
fn compare(run: &Run, case: &Case, place: &Place) -> Result<Report, String> {
    let fault = |fault| format!("{}: nginx: {fault}", case.name);
    let nginx = server::run(case, &run.nginx, place).map_err(fault)?;
    if is_refusal(&nginx) != case.is_refused {
        return Err(format!(
            "{}: what nginx says of the configuration is not what the case expects: {}",
            case.name, nginx[0].1
        ));
    }
    if run.is_verbose {
        for (title, text) in &nginx {
            println!("== {}: {title}\n{text}", case.name);
        }
    }
    let freewheel = match server::run(case, &run.freewheel, place) {
        Ok(told) => told,
        Err(fault) => return Ok((Came::Different, format!("freewheel: {fault}\n"))),
    };
    let strict = difference(&nginx, &freewheel, &[]);
    if strict.is_empty() {
        return Ok((Came::Same, strict));
    }
    let kinds = run.known.get(&case.name).map_or(&[][..], |kinds| kinds);
    let mut beyond = difference(&nginx, &freewheel, kinds);
    if beyond.is_empty() {
        return Ok((Came::AsListed, strict));
    }
    if run.is_verbose {
        let _ = writeln!(beyond, "{}", server::error_log(place));
    }
    Ok((Came::Different, beyond))
}

fn is_refusal(told: &Told) -> bool {
    told.first()
        .is_some_and(|(title, _)| title == server::REFUSED)
}

/// What differs beside these kinds.
fn difference(nginx: &Told, freewheel: &Told, kinds: &[Kind]) -> String {
    let mut report = String::new();
    if is_refusal(freewheel) && !is_refusal(nginx) {
        let _ = writeln!(report, "refused: {}", freewheel[0].1);
        return report;
    }
    for ((title, theirs), (_, ours)) in nginx.iter().zip(freewheel) {
        let theirs = softened(title, theirs, kinds);
        let ours = softened(title, ours, kinds);
        if theirs != ours {
            let _ = writeln!(report, "--- {title}");
            lines(&theirs, &ours, &mut report);
        }
    }
    report
}

/// The lines that differ: `-` nginx's, `+` ours; what both begin and end with is left out.
fn lines(theirs: &str, ours: &str, report: &mut String) {
    let theirs: Vec<&str> = theirs.lines().collect();
    let ours: Vec<&str> = ours.lines().collect();
    let pairs = theirs.iter().zip(&ours);
    let start = pairs.take_while(|(theirs, ours)| theirs == ours).count();
    let pairs = theirs[start..].iter().rev().zip(ours[start..].iter().rev());
    let end = pairs.take_while(|(theirs, ours)| theirs == ours).count();
    for line in &theirs[start..theirs.len() - end] {
        let _ = writeln!(report, "- {line}");
    }
    for line in &ours[start..ours.len() - end] {
        let _ = writeln!(report, "+ {line}");
    }
}

fn judge(run: Run, is_whole: bool) -> Result<(), String> {
    let reports = run
        .reports
        .into_inner()
        .map_err(|error| error.to_string())?;
    for (case, (came, report)) in &reports {
        if *came == Came::Different || (run.is_verbose && *came == Came::AsListed) {
            println!("### {case}\n{report}");
        }
    }
    let ran: BTreeMap<String, Came> = reports
        .iter()
        .map(|(case, (came, _))| (case.clone(), *came))
        .collect();
    let count = |wanted| ran.values().filter(|came| **came == wanted).count();
    println!(
        "{} cases: {} the same, {} different as listed, {} different",
        ran.len(),
        count(Came::Same),
        count(Came::AsListed),
        count(Came::Different)
    );
    let faults = known::faults(&run.known, &ran, is_whole);
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("\n"))
    }
}

/// All cases, in order of their names.
fn cases(directory: &Path) -> Result<Vec<Case>, String> {
    let fault = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut paths = Vec::new();
    for group in std::fs::read_dir(directory).map_err(fault)? {
        let group = group.map_err(fault)?.path();
        if group.is_dir() {
            for entry in std::fs::read_dir(&group).map_err(fault)? {
                paths.push(entry.map_err(fault)?.path());
            }
        }
    }
    paths.sort();
    let named = paths.iter().map(|path| {
        let name = path
            .strip_prefix(directory)
            .unwrap_or(path)
            .with_extension("");
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        case::parse_each(&name.display().to_string(), &text)
    });
    let cases = named.collect::<Result<Vec<_>, String>>()?;
    Ok(cases.into_iter().flatten().collect())
}
