//! The black-box tests with a server to which a system call is forbidden, as a container's seccomp profile may do it.
//!
//! Not here: that the server says what it does instead (`tests/behaviour/forbidden.rs`).

use crate::blackbox::TEST_BINARY;
use crate::{flag, option};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The calls, as `tests/modules/forbidding.rs` names them.
const CALLS: &[&str] = &[
    "openat2",
    "cachestat",
    "PAGEMAP_SCAN",
    "MADV_POPULATE_READ",
    "populating",
    "memfd_create",
    "inotify",
    "statx",
    "close_range",
    "sched_setaffinity",
    "mlock",
];

/// Tests that are about a call, or about the file that the program is started from, which is here a script.
const LEFT_OUT: &[(&str, &str)] = &[
    ("", "process::ps_tells_the_master_from_its_worker"),
    ("", "beginners::what_has_the_port_is_told"),
    (
        "",
        "script::a_program_that_does_not_serve_leaves_the_old_one",
    ),
    // They hold all pools and want a file meanwhile: without openat2, a pool opens what is not kept open.
    (
        "openat2",
        "fills::who_revalidates_does_not_wait_for_the_disk",
    ),
    (
        "openat2",
        "rewrite::a_look_at_a_file_that_waits_keeps_nobody_else",
    ),
    (
        "openat2",
        "sick_disks::a_file_on_a_disk_that_hangs_is_503_before_the_head_and_closed_behind_it",
    ),
    // Faults of a disk are made in the pool's reads. Without cachestat a loop tries to read what is not in memory, too, and the
    // kernel's own read-ahead, which has no fault, brings it.
    (
        "cachestat",
        "sick_disks::a_cache_over_several_disks_spreads_its_keys_and_goes_on_without_one",
    ),
    (
        "cachestat",
        "sick_disks::a_disk_that_fails_at_some_reads_is_failing_and_no_answer_fails",
    ),
    (
        "cachestat",
        "sick_disks::a_disk_that_hangs_is_out_and_comes_back",
    ),
    (
        "cachestat",
        "sick_disks::a_slow_read_is_raced_by_the_origin_within_a_budget",
    ),
    // Copies of files lie in memfds.
    (
        "memfd_create",
        "memory::copies_are_an_eighth_of_the_budget_whatever_the_number_of_loops",
    ),
    (
        "memfd_create",
        "memory::over_the_budget_all_is_served_and_nothing_is_kept",
    ),
    (
        "mlock",
        "process::the_program_is_kept_in_memory_as_far_as_it_may_be",
    ),
];

/// Runs them once for each call.
pub fn run(project: &Path, arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.to_vec();
    let binary = option(&mut arguments, "--binary")?;
    let calls = option(&mut arguments, "--calls")?;
    let error = if flag(&mut arguments, "--missing") {
        38
    } else {
        1
    };
    // The others are about processes, packages, raw framing, upgrades, and the server as root starts it.
    let targets: &[&str] = match flag(&mut arguments, "--all") {
        true => &["--tests", "--no-fail-fast"],
        false => &["--test", "behaviour"],
    };
    let calls: Vec<&str> = match &calls {
        Some(calls) => calls.split(',').collect(),
        None => CALLS.to_vec(),
    };
    if let Some(unknown) = calls.iter().find(|call| !CALLS.contains(call)) {
        return Err(format!("unknown call {unknown}: {}", CALLS.join(", ")));
    }
    let program = match binary {
        Some(binary) => binary,
        None => {
            cargo(project, &["build", "--workspace", "--bin", "freewheel"])?;
            project.join("target/debug/freewheel").display().to_string()
        }
    };
    cargo(project, &["build", "--workspace", "--bin", "forbidding"])?;
    let forbidding = project
        .join("target/debug/forbidding")
        .display()
        .to_string();
    let mut failed = Vec::new();
    for call in calls {
        let start = Instant::now();
        let script =
            script(&forbidding, call, error, &program).map_err(|error| error.to_string())?;
        let mut test = Command::new(env!("CARGO"));
        test.args(["test", "--package", "blackbox"])
            .args(targets)
            .args(["--", "--skip", "forbidden::"])
            .args(&arguments)
            .args(skipped(call))
            .env(TEST_BINARY, &*script)
            .current_dir(project);
        let status = test.status().map_err(|error| format!("cargo: {error}"))?;
        let word = if status.success() { "passed" } else { "FAILED" };
        println!("without {call}: {word} in {} s", start.elapsed().as_secs());
        if !status.success() {
            failed.push(call);
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("failed without {}", failed.join(", "))),
    }
}

/// The arguments that leave out what cannot be without a call.
fn skipped(call: &str) -> impl Iterator<Item = &'static str> {
    let all = LEFT_OUT.iter();
    let these = all.filter(move |(without, _)| without.is_empty() || *without == call);
    these.flat_map(|(_, test)| ["--skip", test])
}

fn cargo(project: &Path, words: &[&str]) -> Result<(), String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(words).current_dir(project);
    let status = command
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("cargo {} failed", words.join(" "))),
    }
}

/// A program by one name that is the server without the call.
fn script(
    forbidding: &str,
    call: &str,
    error: u32,
    program: &str,
) -> std::io::Result<tempfile::TempPath> {
    let mut file = tempfile::Builder::new()
        .prefix("freewheel-without.")
        .tempfile()?;
    writeln!(
        file,
        "#!/bin/sh\nexec {forbidding} {call} {error} {program} \"$@\""
    )?;
    let permissions = std::fs::Permissions::from_mode(0o755);
    file.as_file().set_permissions(permissions)?;
    Ok(file.into_temp_path())
}
