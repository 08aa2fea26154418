//! The script of the packages, which replaces the running program (`packaging/upgrade`).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use blackbox::{Site, binary, is_running};

use crate::daemon::{Daemon, put_program, until};

const TEXT: &str =
    "worker_processes 1; pid %DIR%/nginx.pid; error_log logs/error.log info; events { }
    http { map $arg_a $kind { pid process; }
           server { listen 127.0.0.1:%PORT%; location / { return 200 $pid; } } }";

fn write(path: &Path, text: &str) {
    let source = path.with_extension("text");
    std::fs::write(&source, text).unwrap();
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o755)).unwrap();
    put_program(&source, path);
}

/// A server that is started from a file that can be replaced.
fn daemon() -> Daemon {
    let directory = tempfile::tempdir().unwrap().keep();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.join("server");
    put_program(binary(), &program);
    Daemon::start_at(Site::of(&program), TEXT)
}

/// Where the script finds the process.
enum Known<'a> {
    /// As the main process of the unit.
    ToSystemd,
    /// In the pid file of the default configuration.
    ByPidFile,
    /// As an argument.
    By(&'a str),
    /// Nowhere.
    Not,
}

/// Runs the script, for the program of this server.
fn run(daemon: &Daemon, known: &Known) -> Output {
    let site = &daemon.0;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/upgrade");
    let mut script = std::fs::read_to_string(script).unwrap();
    let program = site.command().get_program().to_owned();
    let pid_file = match known {
        Known::ByPidFile => site.path("nginx.pid"),
        _ => site.path("none"),
    };
    for (name, from, to) in [
        ("PROGRAM", "/usr/sbin/freewheel", Path::new(&program)),
        ("PID_FILE", "/run/freewheel.pid", &pid_file),
    ] {
        let named = format!("{name}={from}\n");
        assert!(script.contains(&named));
        script = script.replace(&named, &format!("{name}={}\n", to.display()));
    }
    write(&site.path("upgrade"), &script);
    let main = match known {
        Known::ToSystemd => daemon.master().to_string(),
        _ => "0".to_owned(),
    };
    std::fs::create_dir_all(site.path("bin")).unwrap();
    write(
        &site.path("bin/systemctl"),
        &format!("#!/bin/sh\necho {main}\n"),
    );
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(site.path("upgrade"));
    if let Known::By(pid) = known {
        command.arg(pid);
    }
    command
        .env("FREEWHEEL_UPGRADE_PATIENCE", "5")
        .env("PATH", format!("{}:{path}", site.path("bin").display()))
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the script, which is to put the new program in the old one's place.
fn replaces(daemon: &Daemon, known: &Known) {
    let old = daemon.master();
    let output = run(daemon, known);
    assert!(output.status.success(), "{}", said(&output));
    until("the end of the old master", || !is_running(old));
    assert_ne!(daemon.master(), old);
    assert!(daemon.ask() > 0);
    assert!(!daemon.0.path("nginx.pid.oldbin").exists());
}

#[test]
fn the_script_puts_the_new_program_in_the_old_one_s_place() {
    let daemon = daemon();
    replaces(&daemon, &Known::ToSystemd);
    replaces(&daemon, &Known::ByPidFile);
}

#[test]
fn a_process_that_no_unit_has_is_told_of() {
    let daemon = daemon();
    let old = daemon.master();
    let output = run(&daemon, &Known::Not);
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(
        said.contains(&format!("goes on in process {old}, ")),
        "{said}"
    );
    assert_eq!(daemon.master(), old);
    replaces(&daemon, &Known::By(&old.to_string()));
    // The test's process is another program's.
    let output = run(&daemon, &Known::By(&std::process::id().to_string()));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_configuration_that_is_refused_leaves_the_server_alone() {
    let daemon = daemon();
    let (old, worker) = (daemon.master(), daemon.ask());
    daemon.0.configure("nonsense;");
    let output = run(&daemon, &Known::ToSystemd);
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(
        said.contains("refuses the configuration") && said.contains("the running server goes on"),
        "{said}"
    );
    until("the old name", || {
        daemon.number("nginx.pid") == Some(old) && !daemon.0.path("nginx.pid.oldbin").exists()
    });
    assert_eq!(daemon.ask(), worker);
    daemon.0.configure(TEXT);
}

#[test]
fn a_program_that_does_not_serve_leaves_the_old_one() {
    let daemon = daemon();
    let (old, worker) = (daemon.master(), daemon.ask());
    let program = daemon.0.command().get_program().to_owned();
    let new = daemon.0.path("new");
    write(&new, "#!/bin/sh\nexit 1\n");
    std::fs::rename(new, program).unwrap();
    let output = run(&daemon, &Known::ToSystemd);
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(said.contains("does not start"), "{said}");
    until("the old name", || daemon.number("nginx.pid") == Some(old));
    assert_eq!(daemon.ask(), worker);
}

#[test]
fn without_a_running_server_there_is_nothing_to_do() {
    let daemon = daemon();
    let old = daemon.master();
    nix::sys::signal::kill(old, nix::sys::signal::Signal::SIGQUIT).unwrap();
    until("the end", || !is_running(old));
    assert!(run(&daemon, &Known::Not).status.success());
}
