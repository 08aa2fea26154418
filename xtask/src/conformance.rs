//! nginx's public test suite, run by the yardstick beside the project. The suite itself is not ours: nothing of it is kept here.
//!
//! Lost assertions must stand, with a reason, in `tests/nginx-tests.lost`; one that stands there and passes must be taken out: the
//! list may only shrink. Without runner or suite the result is "not measured", which is a failure of this command.

use crate::{flag, option, scope};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const LOST: &str = "tests/nginx-tests.lost";
const WANTED_PERCENT: usize = 95;

/// Assertions of one file of the suite by number.
type Lost = BTreeMap<String, BTreeSet<usize>>;

/// Runs the task.
pub fn run(project: &Path, arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.to_vec();
    let yardsticks = option(&mut arguments, "--yardsticks")?
        .map_or_else(|| project.join("../shared/yardsticks"), PathBuf::from);
    let runner = yardsticks.join("nginx-tests/run.py");
    let needs = yardsticks.join("nginx-tests/needs.json");
    let needs = std::fs::read(&needs)
        .map_err(|error| format!("not measured: {}: {error}", needs.display()))?;
    let needs = serde_json::from_slice(&needs)
        .map_err(|error| format!("not measured: needs.json: {error}"))?;
    let in_scope = scope::files(project, &needs)?;
    if flag(&mut arguments, "--list") {
        println!("{}", in_scope.join("\n"));
        return Ok(());
    }
    let chosen = option(&mut arguments, "--files")?;
    let suite = option(&mut arguments, "--suite-git")?
        .ok_or("not measured: --suite-git DIR is needed, a bare clone of nginx/nginx-tests")?;
    let binary = option(&mut arguments, "--binary")?.ok_or("--binary BIN is needed")?;
    let verbose = flag(&mut arguments, "--verbose");
    if let Some(unknown) = arguments.first() {
        return Err(format!("unknown argument {unknown}"));
    }
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let json = directory.path().join("result.json");
    let mut command = Command::new(&runner);
    command
        .args(["--suite-git", &suite, "--binary", &binary, "--json"])
        .arg(&json);
    command.args([
        "--files",
        &chosen.clone().unwrap_or_else(|| in_scope.join(",")),
    ]);
    command.args(verbose.then_some("--verbose"));
    let status = command
        .status()
        .map_err(|error| format!("not measured: {}: {error}", runner.display()))?;
    let result = std::fs::read(&json)
        .map_err(|_| format!("not measured: the runner ended with {status}"))?;
    let result: Value =
        serde_json::from_slice(&result).map_err(|error| format!("not measured: {error}"))?;
    let reference = std::fs::read(yardsticks.join("nginx-tests/reference.json"))
        .map_err(|error| format!("not measured: {error}"))?;
    let reference: Value =
        serde_json::from_slice(&reference).map_err(|error| format!("not measured: {error}"))?;
    judge(project, &result, &reference, chosen.is_some())
}

/// Compares what was lost with what is known to be lost. `partial`: only some files ran, so that the list cannot be judged as a whole.
fn judge(project: &Path, result: &Value, reference: &Value, partial: bool) -> Result<(), String> {
    let lost = lost(result, reference);
    let ran: BTreeSet<&str> = result["files"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    let text = std::fs::read_to_string(project.join(LOST)).unwrap_or_default();
    let (mut known, sometimes) = known(&text)?;
    known.retain(|file, _| !partial || ran.contains(file.as_str()));
    let mut always = known.clone();
    for (file, numbers) in &mut always {
        let sometimes = sometimes.get(file);
        numbers.retain(|number| !sometimes.is_some_and(|those| those.contains(number)));
    }
    let total = &result["summary"]["total"];
    let count = |name: &str| {
        total[name]
            .as_u64()
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(0)
    };
    let (passed, possible) = (count("passed"), count("possible"));
    if possible == 0 {
        return Err("not measured: no assertion of these files passes with nginx".to_owned());
    }
    let mut faults = Vec::new();
    difference(
        &lost,
        &known,
        "lost and not in the list of known losses",
        &mut faults,
    );
    difference(
        &always,
        &lost,
        "passes now, take it out of the list of known losses",
        &mut faults,
    );
    if !partial && passed * 100 < possible * WANTED_PERCENT {
        faults.push(format!(
            "{passed} of {possible} assertions, wanted are {WANTED_PERCENT} %"
        ));
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("\n"))
    }
}

fn difference(these: &Lost, those: &Lost, what: &str, faults: &mut Vec<String>) {
    let none = BTreeSet::new();
    for (file, numbers) in these {
        for number in numbers.difference(those.get(file).unwrap_or(&none)) {
            faults.push(format!("{file} {number}: {what}"));
        }
    }
}

/// Assertions that nginx passes and the program does not.
fn lost(result: &Value, reference: &Value) -> Lost {
    let mut lost = Lost::new();
    for (file, run) in result["files"].as_object().into_iter().flatten() {
        let ours = run["status"].as_str().unwrap_or_default().as_bytes();
        let nginx = reference["files"][file]["status"]
            .as_str()
            .unwrap_or_default()
            .bytes();
        let numbers = nginx
            .enumerate()
            .filter(|(at, status)| *status == b'p' && !matches!(ours.get(*at), Some(b'p' | b'T')));
        let numbers: BTreeSet<usize> = numbers.map(|(at, _)| at + 1).collect();
        if !numbers.is_empty() {
            lost.insert(file.clone(), numbers);
        }
    }
    lost
}

/// Reads lines `FILE NUMBER REASON`; `#` opens a comment. The second are those of the first whose reason begins with `sometimes:`.
fn known(text: &str) -> Result<(Lost, Lost), String> {
    let (mut known, mut sometimes) = (Lost::new(), Lost::new());
    for line in text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
    {
        let mut words = line.splitn(3, ' ');
        let (file, number, reason) = (
            words.next(),
            words.next().and_then(|word| word.parse().ok()),
            words.next(),
        );
        match (file, number, reason.map(str::trim)) {
            (Some(file), Some(number), Some(reason)) if !reason.is_empty() => {
                if reason.starts_with("sometimes:") {
                    sometimes.entry(file.to_owned()).or_default().insert(number);
                }
                known.entry(file.to_owned()).or_default().insert(number)
            }
            _ => return Err(format!("{LOST}: not FILE NUMBER REASON: {line}")),
        };
    }
    Ok((known, sometimes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(status: &str) -> Value {
        let passed = status.matches('p').count();
        serde_json::json!({
            "files": {"a.t": {"status": status}},
            "summary": {"total": {"passed": passed, "possible": 20}},
        })
    }

    fn judged(status: &str, list: &str) -> Result<(), String> {
        let project = tempfile::tempdir().unwrap();
        std::fs::create_dir(project.path().join("tests")).unwrap();
        std::fs::write(project.path().join(LOST), list).unwrap();
        judge(
            project.path(),
            &result(status),
            &serde_json::json!({"files": {"a.t": {"status": "p".repeat(20)}}}),
            false,
        )
    }

    #[test]
    fn a_loss_must_be_listed_with_a_reason() {
        let status = format!("{}f", "p".repeat(19));
        assert!(judged(&status, "").unwrap_err().contains("a.t 20: lost"));
        assert!(
            judged(&status, "a.t 20")
                .unwrap_err()
                .contains("not FILE NUMBER REASON")
        );
        assert!(judged(&status, "# why\na.t 20 ours says 503").is_ok());
        assert!(judged(&status, "a.t 20 sometimes: a race").is_ok());
        assert!(judged(&"p".repeat(20), "a.t 20 sometimes: a race").is_ok());
    }

    #[test]
    fn a_listed_loss_that_passes_is_a_fault() {
        assert!(
            judged(&"p".repeat(20), "a.t 3 not yet")
                .unwrap_err()
                .contains("a.t 3: passes now")
        );
    }

    #[test]
    fn under_95_percent_fails_even_when_listed() {
        assert!(
            judged(&format!("{}ff", "p".repeat(18)), "a.t 19 x\na.t 20 x")
                .unwrap_err()
                .contains("18 of 20")
        );
    }

    #[test]
    fn a_file_that_died_has_lost_all() {
        let reference = serde_json::json!({"files": {"a.t": {"status": "ppp"}}});
        let lost = lost(
            &serde_json::json!({"files": {"a.t": {"status": "p"}}}),
            &reference,
        );
        assert_eq!(lost["a.t"], BTreeSet::from([2, 3]));
    }
}
