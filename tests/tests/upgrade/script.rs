//! The script of the packages, which replaces the running program (`packaging/upgrade`).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use blackbox::{Site, binary, is_running};

use crate::daemon::{Daemon, put_program, until};

const TEXT: &str =
    "worker_processes 1; pid %DIR%/nginx.pid; error_log logs/error.log info; events { }
    http { server { listen 127.0.0.1:%PORT%; location / { return 200 $pid; } } }";

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

/// Runs the script, for the program with this site's configuration.
fn run(daemon: &Daemon) -> Output {
    let site = &daemon.0;
    let program = site.path("freewheel");
    let (directory, binary) = (site.path("").display().to_string(), binary().display());
    write(
        &program,
        &format!("#!/bin/sh\nexec {binary} -p {directory} -c nginx.conf \"$@\"\n"),
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/upgrade");
    let script = std::fs::read_to_string(script).unwrap();
    let named = "PROGRAM=/usr/sbin/freewheel\n";
    assert!(script.contains(named));
    let script = script.replace(named, &format!("PROGRAM={}\n", program.display()));
    write(&site.path("upgrade"), &script);
    Command::new(site.path("upgrade"))
        .env("FREEWHEEL_UPGRADE_PATIENCE", "2")
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_script_puts_the_new_program_in_the_old_one_s_place() {
    let daemon = daemon();
    let old = daemon.master();
    let output = run(&daemon);
    assert!(output.status.success(), "{}", said(&output));
    until("the end of the old master", || !is_running(old));
    assert_ne!(daemon.master(), old);
    assert!(daemon.ask() > 0);
    assert!(!daemon.0.path("nginx.pid.oldbin").exists());
}

#[test]
fn a_configuration_that_is_refused_leaves_the_server_alone() {
    let daemon = daemon();
    let old = daemon.master();
    daemon.0.configure("nonsense;");
    let output = run(&daemon);
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(
        said.contains("\"nonsense\"") && said.contains("the running server goes on"),
        "{said}"
    );
    assert_eq!(daemon.master(), old);
    assert!(!daemon.log().contains("SIGUSR2"));
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
    let output = run(&daemon);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("does not serve after 2 s"),
        "{}",
        said(&output)
    );
    assert_eq!((daemon.master(), daemon.ask()), (old, worker));
}

#[test]
fn without_a_running_server_there_is_nothing_to_do() {
    let daemon = daemon();
    let old = daemon.master();
    nix::sys::signal::kill(old, nix::sys::signal::Signal::SIGQUIT).unwrap();
    until("the end", || !is_running(old));
    assert!(run(&daemon).status.success());
}
